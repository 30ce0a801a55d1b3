"""The settings by which a sweep chooses among its candidates: read from a sweep file and checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.constraints import MetricConstraint, check_consistent, metric_of
from nnpipe.measuring.doubt import BARRING
from nnpipe.measuring.quantities import Quantity, quantity
from nnpipe.workflows.pipeline.entries import text_of
from nnpipe.workflows.sweep.grid import list_of

_MOST_NAMES = 5  # in one line


def constraints_of(data: Mapping[str, Any]) -> tuple[MetricConstraint, ...]:
    """Return the constraints of a sweep file.

    Raises
    ------
    ConfigError
        If a constraint cannot be read, or if no candidate could meet all of them.
    """
    found = []
    for i, text in enumerate(list_of(data, "constraints", [])):
        try:
            found.append(MetricConstraint.parse(text_of(text, f"constraints.{i}")))
        except ConfigError as error:
            place = "" if str(error).startswith("constraints") else f"constraints.{i}: "
            raise ConfigError(f"{place}{error}") from None
    try:
        check_consistent(found)
    except ConfigError as error:
        raise ConfigError(f"constraints: {error}") from None
    return tuple(found)


def metric_at(name: Any, where: str) -> Quantity:
    """Return the metric of a name; ``where`` is the setting that the error names."""
    try:
        return metric_of(text_of(name, where))
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def check_sources(metrics: Collection[str], lacking: Collection[str]) -> None:
    """Raise :class:`ConfigError` if a metric needs a model to be measured as trained, and it is not.

    Parameters
    ----------
    metrics
        Names of all metrics that candidates are judged by.
    lacking
        Titles of the models that are not measured as trained.
    """
    # These compare a candidate with the model as trained.
    wanted = sorted(name for name in set(metrics) if name == "agreement" or quantity(name).compared)
    if wanted and lacking:
        first = sorted(lacking)[:_MOST_NAMES]
        more = f" and {len(lacking) - len(first):,} more" if len(lacking) > len(first) else ""
        raise ConfigError(
            f"{', '.join(wanted)}: cannot be told for {', '.join(first)}{more}, which is not measured as trained; "
            "set as_trained: true and have its framework installed, or leave the metric out"
        )


def accepted_doubts(kinds: Sequence[Any]) -> tuple[str, ...]:
    """Return the kinds of doubt in spite of which a candidate may be chosen.

    Raises
    ------
    ConfigError
        If a kind is unknown, or keeps no candidate from being chosen.
    """
    for place, kind in enumerate(kinds):
        if kind not in BARRING:
            raise ConfigError(
                f"accept_doubts.{place}: {kind!r} keeps no candidate from being chosen; these do: {', '.join(BARRING)}"
            )
    return tuple(kinds)


def confidence_of(given: Any) -> float:
    """Return the confidence level of intervals, from 0.5 to below 1; raise :class:`ConfigError` for anything else."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.5 <= given < 1:
        raise ConfigError(f"confidence: expected a number from 0.5 to below 1, found {given!r}")
    return float(given)
