"""Captures beside what `farlane observe trace` says of the same files."""

import json
import pickle
import struct
import subprocess
from pathlib import Path

import farlane
import pyarrow
import pyarrow.csv
import pytest
from test_farlane import ROOT, binary, command

# Round trips long enough for commands to overlap, and both directions of data.
TASKS = """
[link]
latency = "1ms"
rate = "1Gbit/s"
[[task]]
kind = "read"
count = 40
depth = 4
[[task]]
kind = "write"
count = 20
size = "64KiB"
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "tasks.pcapng"
    farlane.Scenario(TASKS).play(seed=3, trace=path)
    return path


@pytest.fixture(scope="module")
def capture(path):
    return farlane.Capture(path)


def lines(*words):
    printed = subprocess.run([binary(), *words], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def test_a_simulation_leaves_the_same_capture_as_the_command(path, tmp_path):
    scenario, there = tmp_path / "tasks.toml", tmp_path / "there.pcapng"
    scenario.write_text(TASKS)
    printed = command("model", "sim", str(scenario), "--seed", "3", "--capture", str(there))
    traced = farlane.Scenario(TASKS).play(seed=3, trace=tmp_path / "here.pcapng")
    assert printed["digest"] == traced.digest
    assert there.read_bytes() == path.read_bytes()


def test_commands_are_those_that_trace_export_writes(capture, path, tmp_path):
    for name, read in [("out.csv", pyarrow.csv.read_csv), ("out.parquet", None)]:
        out = tmp_path / name
        command("observe", "trace", "convert", str(path), "--to", str(out))
        if read is None:
            # The package's own tests need no Parquet; where it is there, the schema is the same.
            read = pytest.importorskip("pyarrow.parquet").read_table
        exported, ours = read(out), pyarrow.table(capture.commands())
        assert exported.column_names == ours.column_names == capture.commands().column_names
        assert exported.to_pylist() == ours.to_pylist()


def test_packets_are_those_that_trace_show_prints(capture, path):
    shown = lines("trace", "show", str(path), "--json")
    ours = pyarrow.table(capture.tlps()).to_pylist()
    assert len(ours) == len(shown) > 1000
    start = ours[0]["passed_ns"]
    for row, line in zip(ours, shown):
        assert row["passed_ns"] - start == line["at_ns"]
        for key in ["number", "direction", "tlp", "requester", "tag", "address", "bytes"]:
            assert row[key] == line[key], (row, line)
        assert row["tlp"].startswith(row["type"])
    entries = [row for row in ours if row["asked_bytes"] == 64]
    assert {row["type"] for row in entries} == {"MRd"} and len(entries) >= 60


def test_statistics_and_chains_are_those_of_the_command(capture, path):
    printed = command("observe", "trace", "stats", str(path))
    assert printed.pop("schema_version") and capture.stats() == printed
    kinds = {of["command"]: of for of in command("observe", "trace", "chain", str(path))["chains"]}
    ours = capture.chains().to_pylist()
    assert {row["command"] for row in ours} == set(kinds)
    for row in ours:
        hops = {hop["step"]: hop["ns"] for hop in kinds[row["command"]]["hops"]}
        times = hops[row["step"]]
        for key in ["mean", "deviation"]:
            assert row[f"{key}_ns"] == pytest.approx(times[key])
        for key in ["p50", "p90", "p99", "p999", "max"]:
            assert row[f"{key}_ns"] == times[key]
        assert row["count"] == times["count"]
    for kind in kinds:
        assert sum(row["share"] for row in ours if row["command"] == kind) == pytest.approx(1, rel=2e-3)
    filtered = capture.chains(three_sigma=True).to_pylist()
    assert sum(row["count"] for row in filtered) <= sum(row["count"] for row in ours)


def test_the_steps_of_a_command_add_up_to_the_whole(capture, path):
    rows = pyarrow.table(capture.commands()).to_pylist()
    for row in [rows[0], rows[len(rows) // 2], rows[-1]]:
        steps = capture.chain(row["number"]).to_pylist()
        assert sum(step["ns"] for step in steps) == row["whole_ns"]
        printed = command("observe", "trace", "chain", str(path), "--command", str(row["number"]))
        assert steps == printed["hops"]
    with pytest.raises(ValueError, match=f"number=99999: expected 1 to {len(rows)}"):
        capture.chain(99999)
    with pytest.raises(ValueError, match="number=0"):
        capture.chain(0)


def test_rows_come_in_batches_from_the_beginning_each_time(capture):
    whole = pyarrow.table(capture.tlps())
    rows = capture.tlps(batch_rows=100)
    for _ in range(2):
        sizes = [len(table) for table in rows]
        assert sum(sizes) == whole.num_rows
        assert set(sizes[:-1]) == {100} and 0 < sizes[-1] <= 100
    stream = pyarrow.RecordBatchReader.from_stream(rows)
    assert stream.read_next_batch().num_rows == 100
    assert stream.read_next_batch().to_pylist()[0]["number"] == 101
    for size in (0, 1 << 21):
        with pytest.raises(ValueError, match="batch_rows"):
            capture.commands(batch_rows=size)


def test_what_is_before_a_cut_is_read_and_the_cut_is_told_with_its_place(capture, path, tmp_path):
    whole, cut = path.read_bytes(), tmp_path / "cut.pcapng"
    cut.write_bytes(whole[: len(whole) // 2 + 1])
    broken = farlane.Capture(cut)
    before = []
    with pytest.raises(ValueError, match=r"cut.pcapng at byte \d+: the file ends within a block"):
        for table in broken.commands(batch_rows=4):
            before += table.to_pylist()
    expected = pyarrow.table(capture.commands()).to_pylist()
    assert 0 < len(before) < len(expected) and before == expected[: len(before)]
    with pytest.raises(pyarrow.ArrowInvalid, match=r"at byte \d+: the file ends within a block"):
        pyarrow.table(broken.commands())
    with pytest.raises(ValueError, match="at byte"):
        broken.stats()


def test_what_is_no_capture_is_said_as_the_command_says_it(path, tmp_path):
    with pytest.raises(OSError, match="nowhere.pcapng"):
        farlane.Capture("nowhere.pcapng")
    words = tmp_path / "words.txt"
    words.write_text("neither pcap nor pcapng")
    with pytest.raises(ValueError, match="at byte 0: it begins neither as pcap nor as pcapng"):
        farlane.Capture(words).stats()
    with pytest.raises(ValueError, match="columns: colour: expected one of time"):
        farlane.Capture(path, "colour=x")
    words.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match='"t" is not in the first one: a, b'):
        farlane.Capture(words, "time=t,tlp=b").stats()


def test_tables_and_words_are_captures_too(tmp_path):
    table = tmp_path / "analyser.csv"
    table.write_text("Time,Raw\n1,40000040 190000ff a0000000\n2,40000040 190000ff a0000100\n")
    capture = farlane.Capture(table, "time=Time:us,tlp=Raw")
    assert [row["bytes"] for row in pyarrow.table(capture.tlps()).to_pylist()] == [256, 256]
    assert capture.stats()["commands"]["read"]["bytes"] == 512
    words = tmp_path / "trace.txt"
    words.write_text(
        "  fio-12 [000] .... 1.000001: block_rq_issue: 259,0 R 4096 () 8 + 8 none,0,0 [fio]\n"
        "  fio-12 [000] .... 1.000101: block_rq_complete: 259,0 R () 8 + 8 none,0,0 [0]\n"
    )
    (command,) = pyarrow.table(farlane.Capture(words).commands()).to_pylist()
    assert (command["command"], command["bytes"], command["latency_ns"]) == ("Read", 4096, 100_000)


def test_pandas_and_polars_take_streams(capture):
    rows = pyarrow.table(capture.commands()).num_rows
    assert pytest.importorskip("polars").DataFrame(capture.commands()).height == rows
    assert len(pytest.importorskip("pandas").DataFrame.from_arrow(capture.commands())) == rows


def test_a_capture_goes_to_another_process(capture):
    assert pickle.loads(pickle.dumps(capture)).stats() == capture.stats()


def test_captures_of_an_ssd_have_the_commands_of_their_names():
    folder = ROOT.parent / "shared" / "captures"
    files = sorted(Path(folder).glob("nettlp-p4600/*.pcap"))
    if not files:
        pytest.skip(f"there are no captures in {folder}")
    for file in files:
        _, kind, blocks = file.stem.split("-")
        stats = farlane.Capture(file).stats()
        found = stats["commands"][kind]
        blocks = int(blocks.removesuffix("blk"))
        assert [found[key] for key in ("count", "blocks", "bytes")] == [1, blocks, blocks * 512], file
        (row,) = pyarrow.table(farlane.Capture(file).commands()).to_pylist()
        assert row["bytes"] == blocks * 512


def pcap(path, link, frames=3):
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, link)
    frame = struct.pack("<IIII", 1, 0, 20, 20) + bytes(20)
    path.write_bytes(head + frame * frames)
    return farlane.Capture(path)


def test_a_capture_of_which_nothing_is_decoded_is_refused_and_its_link_types_are_named(tmp_path):
    capture = pcap(tmp_path / "zigbee.pcap", 195)
    answers = [
        capture.stats,
        capture.chains,
        lambda: capture.chain(1),
        lambda: pyarrow.table(capture.commands()),
        lambda: list(capture.commands()),
        lambda: pyarrow.table(capture.tlps()),
        lambda: list(capture.tlps()),
    ]
    expected = "nothing in it was decoded; frames of link type 195, which is not known: 3"
    for answer in answers:
        with pytest.raises((ValueError, OSError), match=expected):
            answer()
    # As the command says it.
    ended = subprocess.run([binary(), "trace", "stats", capture.path], capture_output=True, text=True)
    assert ended.returncode == 1 and "195" in ended.stderr
    # An Ethernet frame of another protocol is known, and nothing either.
    with pytest.raises(ValueError, match="nothing in it was decoded$"):
        pcap(tmp_path / "other.pcap", 1).stats()
