"""Scenarios with every combination of some values, played by any pool of workers."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from ._farlane import Scenario


def play_point(point: tuple[Scenario, dict[str, str], int | None]) -> list[dict[str, Any]]:
    """Plays one point of a sweep: a scenario, its values and a seed. Returns a row for each task and stream."""
    scenario, values, seed = point
    run = scenario.with_values(values).play(seed=seed)
    run_row = {**values, "seed": run.seed, "digest": run.digest, "events": run.events}
    # As in the table of `farlane model sweep`, a stream is a task whose failed frames were lost.
    streams = [
        {"task": name, **{key: value for key, value in stream.items() if key not in ("stream", "sent")}}
        for stream in run.streams.to_pylist()
        for name in [stream["stream"]]
    ]
    return [{**run_row, **task} for task in run.tasks.to_pylist() + streams]


def sweep(
    scenario: Scenario,
    values: Mapping[str, Iterable[object]],
    *,
    seed: int | None = None,
    map: Callable[..., Iterable[Any]] = map,
) -> list[dict[str, Any]]:
    """Plays `scenario` with every combination of `values`; returns a row for each task of each.

    `values` has lists of values by path, as `farlane model sweep --set` names them. The last path
    changes fastest. `map` may be that of a pool of processes or machines: it plays the points
    anywhere, and returns the results in the order of the points.

    >>> import farlane
    >>> link = '[link]\\nlatency = "1ms"\\nrate = "1Gbit/s"\\n'
    >>> base = farlane.Scenario(link + '[[task]]\\nkind = "read"\\ncount = 10\\n')
    >>> rows = sweep(base, {"link.latency": ["1ms", "2ms"]})
    >>> [row["link.latency"] for row in rows]
    ['1ms', '2ms']
    """
    paths = list(values)
    points = [
        (scenario, dict(zip(paths, chosen)), seed)
        for chosen in product(*([str(value) for value in values[path]] for path in paths))
    ]
    return [row for rows in map(play_point, points) for row in rows]
