"""The reader of the result file of a sweep, ``sweep.json``, which may come from an untrusted
source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from nnpipe.measuring.constraints import Figure, MetricConstraint, get_metric_quantity
from nnpipe.measuring.quantities import Quantity
from nnpipe.report.formatting import BASES, clean
from nnpipe.report.inputs.untrusted_values import (
    read_content,
    read_list,
    read_number,
    read_share,
    require_type,
)

SCHEMA, KIND = 1, "nnpipe sweep"
_MOST_DOUBTS = 100


@dataclass(frozen=True, eq=False)
class SweepCandidate:
    """A candidate of a sweep.

    Parameters
    ----------
    title
        Title of the candidate.
    result
        Path of the result file, relative to the sweep's folder and inside it.
    figures
        Figures by metric.
    claims
        Whether each constraint holds, by constraint; ``None`` if the data cannot decide.
    qualifies, on_front, front_share
        Whether all constraints hold with confidence, whether the candidate is on the Pareto front,
        and in which share of the draws.
    doubts
        Kinds of doubts and their reasons.
    stopped
        Why it was not measured in full, in a sweep with a budget; empty if it was.
    share
        The share of a full measurement that its figures are from.
    device, model, combination
        In a sweep with targets: the name of its device, the title of its model, and its title
        without the device.
    """

    title: str
    result: PurePosixPath
    figures: Mapping[str, Figure]
    claims: Mapping[str, bool | None]
    qualifies: bool
    on_front: bool
    front_share: float
    doubts: tuple[tuple[str, str], ...] = ()
    stopped: str = ""
    share: float = 1.0
    device: str = ""
    model: str = ""
    combination: str = ""


@dataclass(frozen=True, eq=False)
class Remeasurement:
    """The second measurement of the chosen candidate, which its certificate is based on: figures
    and doubts.
    """

    figures: Mapping[str, Figure]
    doubts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class SweepDevice:
    """A device of a sweep.

    Parameters
    ----------
    name, description, cost_per_hour, cost_per_piece
        As in :class:`~nnpipe.workflows.devices.device.Device`.
    chosen, again
        Title of the best candidate that qualifies on it, and its second measurement; ``None`` if
        there is none.
    refuted
        Reasons, by title, why candidates did not hold when they were measured again.
    away
        Why it gave no more results; empty if it gave all.
    """

    name: str
    description: str
    cost_per_hour: float | None
    cost_per_piece: float | None
    chosen: str | None
    again: Remeasurement | None
    refuted: Mapping[str, str] = field(default_factory=dict)
    away: str = ""


@dataclass(frozen=True, eq=False)
class SweepFile:
    """The result of a sweep.

    Parameters
    ----------
    title, confidence
        Title of the sweep, and the confidence of all intervals together.
    level
        Confidence of each single interval.
    constraints, objectives, choose
        The constraints, the metrics of the front, and the metric to choose by.
    chosen, again
        Title of the chosen candidate, and its second measurement; ``None`` if there is none.
    refuted, failed, impossible
        Reasons, by title, why candidates were refuted, could not be measured, or are impossible.
    points
        All measured candidates.
    ties
        The titles of those that cannot be told from the chosen one in the metric to choose by.
    spent
        What a sweep with a budget measured, as a sentence; empty without a budget.
    devices
        The devices of a sweep with targets.
    currency
        The currency of their costs.
    cheapest
        The name of the cheapest device on which a candidate qualifies; empty if there is none.
    cost_by
        By what its cost was compared: ``cost_per_hour`` or ``cost_per_piece``; empty if no cost is
        known.
    """

    title: str
    confidence: float
    level: float
    constraints: tuple[MetricConstraint, ...]
    objectives: tuple[Quantity, ...]
    choose: Quantity
    chosen: str | None
    again: Remeasurement | None
    refuted: Mapping[str, str]
    failed: Mapping[str, str]
    impossible: Mapping[str, str]
    points: tuple[SweepCandidate, ...]
    ties: tuple[str, ...] = ()
    spent: str = ""
    devices: tuple[SweepDevice, ...] = ()
    currency: str = ""
    cheapest: str = ""
    cost_by: str = ""

    @classmethod
    def from_json(cls, data: Any) -> SweepFile:
        """Return the result in the content of a ``sweep.json``.

        Raises
        ------
        ArtifactError
            If the content is not a valid result of a sweep.
        """
        return read_content(data, KIND, SCHEMA, "a sweep", cls._from_content)

    @classmethod
    def _from_content(cls, data: Mapping[str, Any]) -> SweepFile:
        failed = [
            require_type(dict, each, "an entry of 'failed'") for each in read_list(data, "failed")
        ]
        return cls(
            title=clean(data["title"], 200),
            confidence=read_share(data["confidence"]),
            level=read_share(data.get("confidence_of_each", data["confidence"])),
            constraints=tuple(
                MetricConstraint.parse(require_type(str, text, "a constraint"))
                for text in read_list(data, "constraints")
            ),
            objectives=tuple(
                get_metric_quantity(require_type(str, name, "an objective"))
                for name in read_list(data, "objectives")
            ),
            choose=get_metric_quantity(require_type(str, data["choose"], "'choose'")),
            chosen=None if data["chosen"] is None else clean(data["chosen"], 120),
            again=_read_remeasurement(data.get("confirmed")),
            refuted=_read_reasons(data["refuted"]),
            failed=_read_reasons({str(each["title"]): each["reason"] for each in failed}),
            impossible=_read_reasons(data["impossible"]),
            points=tuple(_read_candidate(each) for each in read_list(data, "points")),
            ties=tuple(
                clean(require_type(str, title, "a tie"), 120)
                for title in read_list(data, "cannot_be_told_from")
            ),
            spent=_describe_budget(data.get("budget")),
            devices=tuple(
                _read_device(each)
                for each in require_type(list, data.get("devices", []), "'devices'")
            ),
            currency=clean(data.get("currency") or "", 20),
            cheapest=clean(data.get("cheapest") or "", 60),
            cost_by=clean(data.get("cost_by") or "", 20),
        )

    @property
    def metrics(self) -> tuple[Quantity, ...]:
        """All metrics of the sweep, each once."""
        wanted = (
            *self.objectives,
            self.choose,
            *(constraint.metric for constraint in self.constraints),
        )
        return tuple({metric.name: metric for metric in wanted}.values())

    @property
    def qualified(self) -> tuple[SweepCandidate, ...]:
        """The candidates that qualify."""
        return tuple(point for point in self.points if point.qualifies)


def _read_candidate(data: Any) -> SweepCandidate:
    data = require_type(dict, data, "an entry of 'points'")
    result = PurePosixPath(require_type(str, data["result"], "'result'"))
    if result.is_absolute() or ".." in result.parts:
        raise ValueError(f"the result {clean(result, 100)!r} lies outside of the sweep's folder")
    claims = require_type(dict, data["claims"], "'claims'")
    if any(
        holds not in (True, False, None) or (holds in (0, 1) and type(holds) is int)
        for holds in claims.values()
    ):
        raise TypeError("a claim holds, fails, or is null")
    return SweepCandidate(
        title=clean(data["title"], 120),
        result=result,
        figures={
            clean(n, 60): _read_figure(each)
            for n, each in require_type(dict, data["figures"], "'figures'").items()
        },
        claims=dict(claims),
        qualifies=require_type(bool, data["qualifies"], "'qualifies'"),
        on_front=require_type(bool, data["on_front"], "'on_front'"),
        front_share=read_share(data["front_share"]),
        doubts=_read_warnings(data.get("doubts", [])),
        stopped=clean(data.get("stopped", ""), 600),
        share=read_share(data.get("share", 1.0)),
        device=clean(data.get("device", ""), 60),
        model=clean(data.get("of_model", ""), 120),
        combination=clean(data.get("combination", ""), 120),
    )


def _read_device(data: Any) -> SweepDevice:
    data = require_type(dict, data, "an entry of 'devices'")
    costs = {name: None if data.get(name) is None else read_number(data[name]) for name in BASES}
    return SweepDevice(
        name=clean(data["name"], 60),
        description=clean(data.get("description", ""), 200),
        cost_per_hour=costs["cost_per_hour"],
        cost_per_piece=costs["cost_per_piece"],
        chosen=None if data["chosen"] is None else clean(data["chosen"], 120),
        again=_read_remeasurement(data.get("confirmed")),
        refuted=_read_reasons(data.get("refuted", {})),
        away=clean(data.get("away", ""), 600),
    )


def _describe_budget(data: Any) -> str:
    if data is None:
        return ""
    data = require_type(dict, data, "'budget'")
    took, full, whole, all_ = (
        read_number(data[key]) for key in ("seconds", "full_seconds", "whole", "candidates")
    )
    return (
        f"With a budget of {clean(data['budget'], 40)}, {whole:,.0f} of {all_:,.0f} candidates "
        f"were measured in full, in {took:,.1f} s of the {full:,.1f} s that measuring all would "
        f"have taken."
    )


def _read_remeasurement(data: Any) -> Remeasurement | None:
    if data is None:
        return None
    data = require_type(dict, data, "'confirmed'")
    known = {
        clean(n, 60): _read_figure(each)
        for n, each in require_type(dict, data["figures"], "'figures'").items()
    }
    return Remeasurement(known, _read_warnings(data["doubts"]))


def _read_warnings(data: Any) -> tuple[tuple[str, str], ...]:
    found = [
        require_type(dict, each, "a doubt")
        for each in require_type(list, data, "'doubts'")[:_MOST_DOUBTS]
    ]
    return tuple((clean(each["kind"], 40), clean(each["reason"], 600)) for each in found)


def _read_figure(data: Any) -> Figure:
    data = require_type(dict, data, "a figure")
    if data["value"] is None:
        return Figure.unknown(clean(data.get("reason", ""), 300))
    low, high = data.get("low"), data.get("high")
    return Figure(
        read_number(data["value"]),
        -math.inf if low is None else read_number(low),
        math.inf if high is None else read_number(high),
        int(read_number(data.get("count", 0))),
    )


def _read_reasons(data: Any) -> dict[str, str]:
    return {
        clean(title, 120): clean(reason, 600)
        for title, reason in require_type(dict, data, "a list of reasons").items()
    }
