"""What a sweep found out about a device, and which device is the cheapest that will do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnpipe.report.prices import BASES
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.sweep.budget import Spent
from nnpipe.workflows.sweep.confirm import Confirmed
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import Done
from nnpipe.workflows.sweep.select import Judged


@dataclass(frozen=True, eq=False)
class DeviceResult:
    """The candidates of a device.

    Parameters
    ----------
    sweep
        The part of the sweep that decides about the device.
    device
        The device.
    done
        Its candidates with their outcomes, and the models as trained.
    judged
        Those that were measured, with their claims.
    confirmed
        The best one that qualifies, measured again on the device.
    spent
        What a sweep with a budget took there.
    away
        Why the device gave no more results; empty if it gave all.
    """

    sweep: Sweep
    device: Device
    done: tuple[Done, ...]
    judged: tuple[Judged, ...]
    confirmed: Confirmed
    spent: Spent | None = None
    away: str = ""

    @property
    def own(self) -> tuple[Judged, ...]:
        """The measured candidates that may be chosen on the device."""
        return tuple(each for each in self.judged if self.sweep.competes(each.done.point))


def cheapest(results: Sequence[DeviceResult]) -> tuple[DeviceResult | None, str]:
    """Return the cheapest device on which a candidate was confirmed, and by what its cost is counted.

    Prices for an hour and for a piece cannot be compared, so that price counts which more of these devices have.

    Returns
    -------
    DeviceResult or None
        The cheapest device; of equally cheap ones, and where no price is known, the one whose candidate is best by the
        metric ``choose``; ``None`` if there is none.
    str
        ``cost_per_hour`` or ``cost_per_piece``; empty if no price is known.
    """
    able = [each for each in results if each.confirmed.chosen is not None]
    if not able:
        return None, ""
    known = {basis: [each for each in able if getattr(each.device, basis) is not None] for basis in reversed(BASES)}
    basis = max(known, key=lambda name: len(known[name]))
    priced = known[basis]
    return min(priced or able, key=lambda each: (getattr(each.device, basis) or 0.0, _place(each))), (
        basis if priced else ""
    )


def _place(result: DeviceResult) -> tuple[float, str]:
    choose = result.sweep.choose
    value = result.confirmed.figures[choose.name].value
    return (math.inf if value is None else value if choose.less_is_better else -value), result.device.name
