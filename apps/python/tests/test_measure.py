"""Measurements by the command, and the reading of what it wrote."""

import json
import subprocess

import farlane
import pytest
from test_farlane import binary

HEAD = "url,operation,bytes,depth,mean_ns\n"


@pytest.fixture
def far():
    """The URL of a far end in memory."""
    words = [binary(), "export", "--listen", "127.0.0.1:0", "--ram", "16MiB", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as far:
        try:
            yield "tcp://" + json.loads(far.stdout.readline())["listening"]
        finally:
            far.terminate()


def test_a_measurement_is_a_row_for_each_point(far):
    options = {"samples": 10, "time": "10ms", "sizes": ["512", 4096], "load": 2}
    points = farlane.measure(far, program=binary(), **options).to_pylist()
    commands = [(row["bytes"], row["depth"]) for row in points if row["operation"] == "read"]
    assert commands == [(512, 1), (512, 2), (4096, 1), (4096, 2)]
    for row in points:
        assert row["url"] == far and row["samples"] >= 10
        assert row["min_ns"] <= row["p50_ns"] <= row["p99_ns"] <= row["max_ns"]


def test_what_the_command_says_is_said():
    with pytest.raises(RuntimeError, match="--sizes"):
        farlane.measure("tcp://127.0.0.1:1", program=binary(), sizes="many")
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        farlane.measure("tcp://127.0.0.1:1", program="no-such-program")


def test_a_report_is_read(tmp_path):
    report = tmp_path / "report.csv"
    url = "nvme-tcp://a:1,b:2/nqn.x"
    report.write_text(f'{HEAD}"{url}",read,512,1,77\n"{url}",write,512,1,{2**64 - 1}\n')
    rows = farlane.measured(report).to_pylist()
    assert rows[0] == {"url": url, "operation": "read", "bytes": 512, "depth": 1, "mean_ns": 77}
    assert rows[1]["mean_ns"] == 2**63 - 1


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "line 1: expected the columns url,operation first"),
        ("number,command\n", "line 1: expected the columns url,operation first"),
        (HEAD + "tcp://a,read,1,1,1\n", "line 2: .*expected a URL in quotation marks first"),
        (HEAD + '"a",read,1,1\n', "line 2: expected 5 columns, not 4"),
        (HEAD + '"a",read,1,1,1\n"a",read,1,1,fast\n', 'line 3: "fast": expected a whole number'),
    ],
)
def test_what_is_no_report_is_told_with_its_line(tmp_path, text, why):
    report = tmp_path / "report.csv"
    report.write_text(text)
    with pytest.raises(ValueError, match=why):
        farlane.measured(report)


def test_a_report_that_is_not_there_is_said():
    with pytest.raises(OSError, match="nowhere.csv"):
        farlane.measured("nowhere.csv")
