"""Simulations of far SSDs, and published figures, as Arrow tables.

>>> import farlane
>>> text = '[link]\\nlatency = "1ms"\\nrate = "1Gbit/s"\\n[[task]]\\nkind = "read"\\ncount = 10\\n'
>>> run = farlane.Scenario(text).play(seed=7)
>>> len(run.operations)
10
>>> run.digest == farlane.Scenario(text).play(seed=7).digest
True
"""

from ._farlane import Run, Scenario, Table, experiments, published
from ._sweep import sweep

__all__ = ["Run", "Scenario", "Table", "experiments", "published", "sweep"]
