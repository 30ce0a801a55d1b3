"""Carrying out a sweep on one machine, point by point."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Sequence

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import Done, PointMeasurer

log = logging.getLogger("nnpipe")


def sweep_through(
    sweep: Sweep, command: Sequence[str], *, retrain: bool, retry: bool, only_known: bool = False
) -> tuple[Done, ...]:
    """Carry out every point that has not been done yet, and return all points in the order of the file.

    Models are processed one by one, and the points of each in a random order from the
    seed, so that drift does not favour a compiler or a runtime.
    """
    by_model: dict[str, list[Point]] = defaultdict(list)
    for point in sweep.points:
        by_model[point.model.title].append(point)
    done: dict[str, Done] = {}
    with PointMeasurer(sweep, command, retrain=retrain, retry=retry, only_known=only_known) as measurer:
        for points in by_model.values():
            found = [known for point in points if (known := measurer.known(point, sweep.verify)) is not None]
            if found:
                log.info("%s: %d of %d points are done already", points[0].model.title, len(found), len(points))
            done |= {each.point.title: each for each in found}
            waiting = [point for point in points if point.title not in done]
            random.Random(f"{sweep.seed} {points[0].model.title}").shuffle(waiting)
            for point in waiting:
                log.info("\n[%d/%d] %s", len(done) + 1, len(sweep.points), point.title)
                done[point.title] = measurer.done(point, sweep.verify)
    return tuple(done[point.title] for point in sweep.points)


def not_measured(done: Done) -> Outcome:
    """Raise an error: a second measurement is missing that was made elsewhere."""
    raise ConfigError(f"{done.point.title}: what was measured again on another machine did not come from there")
