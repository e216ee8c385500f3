"""Measurements by the command `farlane measure report`."""

import subprocess
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from ._farlane import Table, measured


def measure(
    url: str, *, beside: Iterable[str] = (), program: str | PathLike[str] = "farlane", **options: object
) -> Table:
    """Runs `farlane measure report url`; returns a row for each point of each device.

    `beside` are URLs of devices that are measured in turn with it. The other arguments are the
    options of `farlane measure report`, without their dashes: `samples=1000, time="1s", sizes=["4k"]`.
    `program` is the command to run. It goes on in a process of its own, which Ctrl-C ends.
    """
    words = [str(program), "measure", "report", str(url)]
    for other in beside:
        words += ["--beside", str(other)]
    for name, value in options.items():
        words += _option(name, value)
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        ran = subprocess.run([*words, "--to", str(report)], capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr.strip() or f"{program} ended with status {ran.returncode}")
        return measured(report)


def _option(name: str, value: object) -> list[str]:
    """An option of the command line. True is an option alone, and a list is joined by commas.

    >>> _option("no_lookahead", True), _option("sizes", ["4k", 65536]), _option("load", None)
    (['--no-lookahead'], ['--sizes', '4k,65536'], [])
    """
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (list, tuple)):
        value = ",".join(str(one) for one in value)
    return [flag, str(value)]
