"""What Optuna calls the parameters of a space and their values, and the other way round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nnpipe.searching.parameters import (
    DiscreteParameter,
    IntParameter,
    PowerParameter,
    SearchParameter,
    UniformParameter,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def distribution_of(parameter: SearchParameter) -> BaseDistribution:
    """Return Optuna's distribution for a parameter; a list in order becomes the places in it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case IntParameter():
            return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
        case UniformParameter(step=None):
            return FloatDistribution(parameter.low, parameter.high)
        case UniformParameter():
            return IntDistribution(0, (parameter.count or 1) - 1)
        case PowerParameter():
            return FloatDistribution(*parameter.bounds, log=True)
        case DiscreteParameter(ordered=True):
            return IntDistribution(0, parameter.count - 1)
    return CategoricalDistribution(parameter.choices())


def shown_distribution(parameter: SearchParameter) -> BaseDistribution:
    """Return Optuna's distribution of the very values of a parameter, for readers; see :func:`distribution_of`."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    match parameter:
        case UniformParameter(step=float() | int()):
            greatest = parameter.value_at(1.0)
            return FloatDistribution(parameter.low, greatest, step=parameter.step)
        case DiscreteParameter():
            return CategoricalDistribution(parameter.choices())
    return distribution_of(parameter)


def counts_places(parameter: SearchParameter) -> bool:
    """Return whether Optuna sees the places of a parameter's values instead of the values themselves.

    So it is with lists in order, and with real numbers that have a step: these would come back as other doubles.
    """
    match parameter:
        case DiscreteParameter(ordered=True):
            return True
        case UniformParameter(step=float() | int()):
            return True
    return False


def to_optuna(parameter: SearchParameter, value: Any) -> Any:
    """Return what Optuna calls a value of a parameter."""
    if counts_places(parameter):
        return min(int(parameter.position(value) * (parameter.count or 1)), (parameter.count or 1) - 1)
    return value


def from_optuna(parameter: SearchParameter, value: Any) -> Any:
    """Return the value of a parameter for what Optuna calls it."""
    if counts_places(parameter):
        return parameter.value_at((value + 0.5) / (parameter.count or 1))
    if isinstance(parameter, PowerParameter):
        least, greatest = parameter.bounds
        return min(max(value, least), greatest)
    return value


def ordered_parameter(distribution: BaseDistribution) -> SearchParameter | None:
    """Return the parameter with the values of Optuna's distribution; ``None`` if they are in no order."""
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(distribution, IntDistribution):
        return IntParameter(distribution.low, distribution.high, distribution.step, distribution.log)
    if isinstance(distribution, FloatDistribution) and distribution.log:
        return PowerParameter(math.log10(distribution.low), math.log10(distribution.high))
    if isinstance(distribution, FloatDistribution):
        return UniformParameter(distribution.low, distribution.high, distribution.step)
    return None


def value_within(distribution: BaseDistribution, position: float) -> Any:
    """Return the value at a position from 0 to 1 of an ordered distribution of Optuna, within its bounds."""
    parameter = ordered_parameter(distribution)
    assert parameter is not None
    value = parameter.value_at(min(max(position, 0.0), 1.0))
    return min(max(value, distribution.low), distribution.high)  # type: ignore[attr-defined]


def position_within(distribution: BaseDistribution, value: Any) -> float:
    """Return where a value lies in an ordered distribution of Optuna, from 0 to 1."""
    parameter = ordered_parameter(distribution)
    assert parameter is not None
    if isinstance(parameter, PowerParameter):
        value = min(max(value, parameter.bounds[0]), parameter.bounds[1])
    return parameter.position(value)
