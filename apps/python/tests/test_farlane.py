"""The package beside the command: the same figures and digests, in tables of other libraries."""

import doctest
import json
import os
import pickle
import subprocess
from concurrent.futures import ThreadPoolExecutor
from csv import DictReader
from itertools import product
from pathlib import Path

import farlane
import pyarrow
import pytest

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = ROOT / "scenarios" / "tcp-1g.toml"
LINK = '[link]\nlatency = "1ms"\nrate = "1Gbit/s"\n[[task]]\nkind = "read"\ncount = 20\n'


def binary():
    path = Path(os.environ.get("FARLANE", ROOT / "target/debug/farlane"))
    if not path.exists():
        pytest.skip(f"{path} is not there: build it, or name it in FARLANE")
    return path


def command(*words):
    return json.loads(subprocess.run([binary(), *words, "--json"], check=True, capture_output=True).stdout)


def csv(*words):
    printed = subprocess.run([binary(), *words], check=True, capture_output=True, text=True).stdout
    return list(DictReader(printed.splitlines()))


@pytest.mark.parametrize("module", [farlane, farlane._measure, farlane._sweep])
def test_examples_of_the_documentation(module):
    tried = doctest.testmod(module)
    assert tried.failed == 0 and tried.attempted > 0


def test_a_scenario_gives_what_the_command_prints():
    run = farlane.Scenario.read(SCENARIO).play(seed=7)
    printed = command("model", "sim", str(SCENARIO), "--seed", "7")
    assert run.digest == printed["digest"]
    assert (run.events, run.boot_ns) == (printed["events"], printed["boot_ns"])
    assert pyarrow.table(run.tasks).to_pylist() == printed["tasks"]


def test_published_figures_are_those_of_the_command():
    printed = command("model", "published", "niq")["rows"]
    ours = pyarrow.table(farlane.published("niq")).to_pylist()
    assert [row["row"] for row in ours] == [row["row"] for row in printed]
    assert [row["ours"] for row in ours] == pytest.approx([row["ours"] for row in printed], abs=1e-3)


def test_threads_give_the_digests_of_one():
    base = farlane.Scenario(LINK)
    points = [base.with_values({"link.latency": late}) for late in ("1ms", "2ms", "3ms")]
    alone = [point.play().digest for point in points]
    assert len(set(alone)) == 3
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda point: point.play().digest, points)) == alone


def test_a_sweep_in_processes_of_dask_has_the_rows_of_the_command(tmp_path):
    distributed = pytest.importorskip("distributed")
    values = {"link.latency": ["1ms", "2ms"], "task.0.size": ["4KiB", "64KiB"]}
    file = tmp_path / "link.toml"
    file.write_text(LINK)
    base = farlane.Scenario.read(file)
    alone = farlane.sweep(base, values, seed=5)
    assert [(row["link.latency"], row["task.0.size"]) for row in alone] == list(product(*values.values()))
    assert len({row["digest"] for row in alone}) == 4
    with distributed.LocalCluster(2, processes=True, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            there = farlane.sweep(base, values, seed=5, map=lambda *work: client.gather(client.map(*work)))
    assert there == alone
    axes = [word for path, each in values.items() for word in ("--set", f"{path}={','.join(each)}")]
    printed = csv("sim", "sweep", str(file), "--seed", "5", *axes)
    assert [row["p50_ns"] for row in printed] == [str(row["p50_ns"]) for row in alone]


def test_a_scenario_goes_to_another_process():
    there = pickle.loads(pickle.dumps(farlane.Scenario(LINK)))
    assert there.play(seed=3).digest == farlane.Scenario(LINK).play(seed=3).digest


def test_pandas_and_polars_take_tables():
    table = farlane.Scenario(LINK).play().operations
    polars = pytest.importorskip("polars").DataFrame(table)
    assert polars.height == len(table) == 20
    assert pytest.importorskip("pandas").DataFrame.from_arrow(table).shape == (20, 3)


def test_what_is_wrong_is_said_as_the_command_says_it():
    with pytest.raises(ValueError, match="line 2, kind: expected"):
        farlane.Scenario('[[task]]\nkind = "erase"\n')
    with pytest.raises(ValueError, match="with task.0.depth=99: depth: expected 1 to 64"):
        farlane.Scenario(LINK).with_values({"task.0.depth": "99"})
    with pytest.raises(OSError, match="nowhere.toml"):
        farlane.Scenario.read("nowhere.toml")
    with pytest.raises(ValueError, match="there is no experiment"):
        farlane.published("nothing")


def test_the_notebook_runs_and_stores_nothing():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for path in sorted((ROOT / "apps/python/notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        assert all(not cell.get("outputs") for cell in notebook.cells), path
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
