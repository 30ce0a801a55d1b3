"""The samplers that choose configurations, by kind: random, grid, tpe, cmaes, nsga2, gp and
evolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.searching.optuna_samplers import (
    GaussianProcessSearch,
    NSGA2Search,
    RandomSearch,
    SearchSampler,
    TPESearch,
)
from nnpipe.searching.own_samplers import CMAESSampler, EvolutionSampler
from nnpipe.searching.parameters import create_by_kind
from nnpipe.searching.space import SearchSpace

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True)
class GridSearch(SearchSampler):
    """Every combination once, the first parameter changing most slowly; then the search ends.

    Parameters
    ----------
    points
        Of a parameter with real numbers or with more than this many whole numbers: how many evenly
        spaced values.
    """

    kind: ClassVar[str] = "grid"
    needs: ClassVar[tuple[str, ...]] = ()

    points: int = 5

    def __post_init__(self) -> None:
        check_call(GridSearch, vars(self))
        check_range("points", self.points, 1, 100_000)

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Refuse: a grid needs no sampler."""
        raise NotImplementedError("a grid needs no sampler")

    def iter_configurations(self, space: SearchSpace) -> Iterator[dict[str, Any]]:
        """Yield every configuration of the grid."""
        lists: dict[str, Sequence[Any]] = {}
        for name, each in space.parameters.items():
            if each.in_order and (
                each.count is None or (each.kind != "discrete" and each.count > self.points)
            ):
                positions = (
                    [0.5]
                    if self.points == 1
                    else [i / (self.points - 1) for i in range(self.points)]
                )
                lists[name] = list(
                    dict.fromkeys(each.get_value_at(position) for position in positions)
                )
        return space.iter_configurations(lists)


@dataclass(frozen=True)
class CMAESSearch(SearchSampler):
    """Covariance matrix adaptation, for numbers: see
    :class:`~nnpipe.searching.own_samplers.CMAESSampler`.

    Parameters
    ----------
    population
        How many trials a generation has; by default 4 + 3 ln(parameters).
    """

    kind: ClassVar[str] = "cmaes"
    several_objectives: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("optuna", "cmaes")

    population: int | None = None

    def __post_init__(self) -> None:
        check_call(CMAESSearch, vars(self))
        check_range("population", self.population, 3, 100_000)

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return the sampler, new."""
        return CMAESSampler(population=self.population, seed=seed)  # type: ignore[return-value]

    def fresh_copy(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the generations that it has been
        told.
        """
        sampler.reseed(seed)  # type: ignore[attr-defined]
        return sampler


@dataclass(frozen=True)
class EvolutionSearch(SearchSampler):
    """Regularised evolution: see :class:`~nnpipe.searching.own_samplers.EvolutionSampler`.

    Parameters
    ----------
    population
        How many trials are alive.
    sample
        Of how many of them the best one becomes the parent.
    """

    kind: ClassVar[str] = "evolution"
    several_objectives: ClassVar[bool] = False

    population: int = 10
    sample: int = 3

    def __post_init__(self) -> None:
        check_call(EvolutionSearch, vars(self))
        check_range("population", self.population, 2, 100_000)
        check_range("sample", self.sample, 1, self.population)

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return the sampler, new."""
        return EvolutionSampler(population=self.population, sample=self.sample, seed=seed)  # type: ignore[return-value]

    def fresh_copy(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a used sampler as if it were new."""
        sampler.reseed(seed)  # type: ignore[attr-defined]
        return sampler


SAMPLERS: dict[str, type[SearchSampler]] = {
    cls.kind: cls
    for cls in (
        RandomSearch,
        GridSearch,
        TPESearch,
        CMAESSearch,
        NSGA2Search,
        GaussianProcessSearch,
        EvolutionSearch,
    )
}
"""The samplers by kind."""


def parse_sampler(
    entry: str | Mapping[str, Any] | SearchSampler, where: str = "sampler"
) -> SearchSampler:
    """Return the sampler of an entry such as ``tpe`` or ``{"kind": "evolution", "population":
    20}``.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    return create_by_kind(entry, SAMPLERS, where)


def check_installed(sampler: SearchSampler) -> None:
    """Raise an error unless the packages that a sampler needs are installed.

    Raises
    ------
    MissingDependency
        With the command that installs them.
    """
    for package in sampler.needs:
        if find_spec(package) is None:
            extra = "search" if package in ("optuna", "cmaes") else "search,torch"
            raise MissingDependency(
                f"sampler {sampler.kind} needs {package}: pip install 'nnpipe[{extra}]'"
            )


def check_objectives(sampler: SearchSampler, count: int) -> None:
    """Raise :class:`ConfigError` if a sampler does not take this number of objectives."""
    if count > 1 and not sampler.several_objectives:
        able = ", ".join(name for name, cls in SAMPLERS.items() if cls.several_objectives)
        raise ConfigError(
            f"sampler {sampler.kind} has one objective, and there are {count}; for several there "
            f"are: {able}"
        )
