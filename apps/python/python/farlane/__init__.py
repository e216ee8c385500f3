"""Captures, simulations of far SSDs, measurements and published figures, as Arrow tables.

>>> import farlane, os, tempfile
>>> text = '[link]\\nlatency = "1ms"\\nrate = "1Gbit/s"\\n[[task]]\\nkind = "read"\\ncount = 10\\n'
>>> run = farlane.Scenario(text).play(seed=7)
>>> len(run.operations)
10
>>> run.digest == farlane.Scenario(text).play(seed=7).digest
True

A capture may come from anywhere, here from a simulation:

>>> path = os.path.join(tempfile.mkdtemp(), "read.pcapng")
>>> run = farlane.Scenario(text).play(seed=7, trace=path)
>>> capture = farlane.Capture(path)
>>> capture.stats()["commands"]["read"]["count"]
10
>>> commands = [row for table in capture.commands() for row in table.to_pylist()]
>>> read = commands[-1]
>>> sum(step["ns"] for step in capture.chain(read["number"]).to_pylist()) == read["whole_ns"]
True
"""

from ._farlane import Capture, Rows, Run, Scenario, Table, Tables, experiments, measured, published
from ._measure import measure
from ._sweep import sweep

__all__ = [
    "Capture",
    "Rows",
    "Run",
    "Scenario",
    "Table",
    "Tables",
    "experiments",
    "measure",
    "measured",
    "published",
    "sweep",
]
