"""Constraints on metrics: ``latency_p90 <= 5 ms``, ``accuracy_loss <= 0.02``, ``size <= 4 MB``.

A constraint is checked against a confidence interval: it holds or fails if the
whole interval does, and is otherwise undecided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.task import Task, list_tasks
from nnpipe.measuring.quantities import (
    QUANTITIES,
    Quantity,
    degradation_of,
    find_quantity,
    quality_of,
)

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2.0**10, "MIB": 2.0**20, "GIB": 2.0**30}
_SHARES = {"": 1.0, "%": 0.01}
_RATES = {"": 1.0, "/s": 1.0}
_JOULES = {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6, "μJ": 1e-6, "nJ": 1e-9, "kJ": 1e3}
_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_UNITS = {
    "count": _COUNTS,
    "time": _SECONDS,
    "bytes": _BYTES,
    "share": _SHARES,
    "rate": _RATES,
    "ratio": {"": 1.0},
    "energy": _JOULES,
}

_CONSTRAINT = re.compile(
    r"\s*(\w[\w.]*|loss\(\w+\))\s*(<=|>=|<|>|==|=)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([^\s\d]*)\s*"
)


def list_metrics(tasks: Iterable[Task] | None = None) -> dict[str, Quantity]:
    """Return the metrics that constraints and objectives may name, by name: those of speed and
    cost, and of tasks.

    By default, these are all tasks that are known here.  :func:`get_metric_quantity` also accepts
    any percentile, and ``loss(METRIC)`` of any metric of quality."""
    found = {each.name: each for each in QUANTITIES.values() if each.judged}
    for task in list_tasks() if tasks is None else tasks:
        found |= {each.name: quality_of(each) for each in task.metrics if each.name not in found}
        loss = degradation_of(task.primary)
        found[loss.name] = loss
    return found


def get_metric_quantity(name: str) -> Quantity:
    """Return a quantity that constraints and objectives may use.

    Raises
    ------
    ConfigError
        If there is none with this name; the message suggests the nearest.
    """
    try:
        found = find_quantity(name)
    except KeyError:
        known = list_metrics()
        hint = suggest_name(name, known) or f"; there are: {', '.join(known)}"
        raise ConfigError(f"unknown metric {name!r}{hint}") from None
    if not found.judged:
        raise ConfigError(
            f"{name!r} is reported, but no candidate is judged by it; there are: "
            f"{', '.join(list_metrics())}"
        )
    return found


@dataclass(frozen=True)
class Figure:
    """A value with its confidence interval; times in seconds, sizes in bytes, shares from 0 to 1.

    Both ends of an exact value (a size) are the value itself.  ``value`` is
    ``None`` if it is unknown, and the ends are infinite if there is no interval;
    ``reason`` says why.
    """

    value: float | None
    low: float = -math.inf
    high: float = math.inf
    count: int = 0
    reason: str = ""

    @classmethod
    def exactly(cls, value: float) -> Figure:
        """Return an exact value."""
        return cls(value, value, value, 1)

    @classmethod
    def unknown(cls, reason: str) -> Figure:
        """Return an unknown value, with the reason."""
        return cls(None, reason=reason)


@dataclass(frozen=True)
class MetricConstraint:
    """A bound on a metric, upper if ``at_most``, otherwise lower; in seconds, bytes, shares or
    per second.
    """

    metric: Quantity
    at_most: bool
    bound: float
    text: str

    def __post_init__(self) -> None:
        check_call(MetricConstraint, vars(self))

    @classmethod
    def parse(cls, text: str) -> MetricConstraint:
        """Parse ``METRIC <= NUMBER UNIT`` or ``METRIC >= NUMBER UNIT``.

        Raises
        ------
        ConfigError
            If the text has another form, the unit does not fit the metric, or no value can satisfy
            the constraint.
        """
        found = _CONSTRAINT.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is not a constraint; write for example 'latency_p90 <= 5 ms'"
            )
        name, sign, number, unit = found.groups()
        try:
            metric = get_metric_quantity(name)
        except ConfigError as error:
            raise ConfigError(f"{text!r}: {error}") from None
        if sign not in ("<=", ">="):
            raise ConfigError(
                f"{text!r}: a measurement is never told to the last digit; use <= or >= for {sign}"
            )
        constraint = cls(
            metric,
            sign == "<=",
            _convert_to_base_unit(number, unit, metric, text),
            " ".join(text.split()),
        )
        constraint._check_possible()
        return constraint

    def _check_possible(self) -> None:
        least, most = (-1.0 if self.metric.compared else 0.0), math.inf
        if self.metric.kind == "ratio":
            return  # such a metric may be of any size and sign
        if self.metric.kind == "share":
            most = 1.0
        reaches = self.bound < least or (
            self.bound == least == 0 and self.metric.kind in ("time", "bytes", "energy", "count")
        )
        if (self.at_most and reaches) or (not self.at_most and self.bound > most):
            raise ConfigError(
                f"{self.text!r} can never hold: {self.metric.name} is the {self.metric.meaning}"
            )

    def evaluate(self, figure: Figure) -> bool | None:
        """Return whether the constraint holds for the whole interval; ``None`` if it holds only
        for a part.
        """
        if figure.value is None:
            return None
        within, beyond = (figure.high, figure.low) if self.at_most else (-figure.low, -figure.high)
        bound = self.bound if self.at_most else -self.bound
        if within <= bound:
            return True
        return False if beyond > bound else None


def check_consistent(constraints: Iterable[MetricConstraint]) -> None:
    """Raise :class:`ConfigError` if two constraints on one metric exclude each other."""
    known = list(constraints)
    for upper in (c for c in known if c.at_most):
        for lower in (c for c in known if not c.at_most and c.metric == upper.metric):
            if lower.bound > upper.bound:
                raise ConfigError(
                    f"{upper.text!r} and {lower.text!r} exclude each other: no candidate can "
                    f"qualify"
                )


def _convert_to_base_unit(number: str, unit: str, metric: Quantity, text: str) -> float:
    units = _UNITS[metric.kind]
    factor = units.get(unit, units.get(unit.upper()) if metric.kind == "bytes" else None)
    if factor is None:
        known = ", ".join(filter(None, units)) or "no unit"
        given = f"{unit!r} is no unit of it" if unit else "say the unit"
        raise ConfigError(f"{text!r}: {metric.name} is in {known}; {given}")
    try:
        value = float(number) * factor
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{text!r}: {number!r} is no number")
    return value
