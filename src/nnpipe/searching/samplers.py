"""The samplers that choose configurations, by kind: random, grid, tpe, cmaes, nsga2, gp and evolution."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError
from nnpipe.searching.cmaes_sampler import CMAESSampler
from nnpipe.searching.evolution_sampler import EvolutionSampler
from nnpipe.searching.kinds import OfAKind, of_kind
from nnpipe.searching.space import SearchSpace

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_SHOWN_TO_TPE = 400


class SearchSampler(OfAKind, ABC):
    """Base of the settings of samplers: frozen, and written as ``{"kind": ..., ...}``."""

    several_objectives: ClassVar[bool] = True
    """Whether it takes several objectives."""
    most: ClassVar[int | None] = None
    """How many ended trials it looks at at most; ``None`` for all."""
    notes: ClassVar[tuple[str, ...]] = ()
    """How the names of what it notes with a trial begin."""
    needs: ClassVar[tuple[str, ...]] = ("optuna",)
    """The packages that it needs, beside those of nnpipe."""

    @abstractmethod
    def made(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, new."""

    def again(self, sampler: BaseSampler, seed: int) -> BaseSampler:
        """Return a sampler that has been used before as if it were new with this seed."""
        return self.made(seed)


@dataclass(frozen=True)
class RandomSearch(SearchSampler):
    """Independent random values: the yardstick for all others."""

    kind: ClassVar[str] = "random"

    def made(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)


@dataclass(frozen=True)
class GridSearch(SearchSampler):
    """Every combination once, the first parameter changing most slowly; then the search ends.

    Parameters
    ----------
    points
        Of a parameter with real numbers or with more than this many whole numbers: how many evenly spaced values.
    """

    kind: ClassVar[str] = "grid"
    needs: ClassVar[tuple[str, ...]] = ()

    points: int = 5

    def __post_init__(self) -> None:
        check_call(GridSearch, vars(self))
        check_range("points", self.points, 1)

    def made(self, seed: int) -> BaseSampler:
        """Refuse: a grid needs no sampler."""
        raise NotImplementedError("a grid needs no sampler")

    def configurations(self, space: SearchSpace) -> Iterator[dict[str, Any]]:
        """Yield every configuration of the grid."""
        lists: dict[str, Sequence[Any]] = {}
        for name, each in space.parameters.items():
            if each.in_order and (each.count is None or (each.kind != "discrete" and each.count > self.points)):
                positions = [0.5] if self.points == 1 else [i / (self.points - 1) for i in range(self.points)]
                lists[name] = list(dict.fromkeys(each.value_at(position) for position in positions))
        return space.configurations(lists)


@dataclass(frozen=True)
class TPESearch(SearchSampler):
    """Tree-structured Parzen estimators (Bergstra et al. 2011), with joint densities for a single objective.

    Of more than 400 ended trials it sees the best 200, and 200 of the others, evenly over time.

    Parameters
    ----------
    startup
        The number of random trials at first.
    candidates
        From how many drawn configurations the most promising one is chosen.
    """

    kind: ClassVar[str] = "tpe"
    most: ClassVar[int | None] = _SHOWN_TO_TPE

    startup: int = 10
    candidates: int = 24

    def __post_init__(self) -> None:
        check_call(TPESearch, vars(self))
        check_range("startup", self.startup, 1)
        check_range("candidates", self.candidates, 1, 10_000)

    def made(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import TPESampler

        return TPESampler(n_startup_trials=self.startup, n_ei_candidates=self.candidates, seed=seed)

    def again(self, sampler: BaseSampler, seed: int) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the parameters that all trials have, and no more."""
        return _reseeded(sampler, seed)


@dataclass(frozen=True)
class CMAESSearch(SearchSampler):
    """Covariance matrix adaptation, for numbers: see :class:`~nnpipe.searching.cmaes_sampler.CMAESSampler`.

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
        check_range("population", self.population, 3)

    def made(self, seed: int) -> BaseSampler:
        """Return the sampler, new."""
        return CMAESSampler(population=self.population, seed=seed)  # type: ignore[return-value]

    def again(self, sampler: BaseSampler, seed: int) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the generations that it has been told."""
        sampler.reseed(seed)  # type: ignore[attr-defined]
        return sampler


@dataclass(frozen=True)
class NSGA2Search(SearchSampler):
    """NSGA-II (Deb et al. 2002): generations of children, for one objective or several.

    Parameters
    ----------
    population
        How many trials a generation has.
    """

    kind: ClassVar[str] = "nsga2"
    notes: ClassVar[tuple[str, ...]] = ("NSGAIISampler:",)

    population: int = 50

    def __post_init__(self) -> None:
        check_call(NSGA2Search, vars(self))
        check_range("population", self.population, 2)

    def made(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import NSGAIISampler
        from optuna.samplers.nsgaii._elite_population_selection_strategy import NSGAIIElitePopulationSelectionStrategy

        select = NSGAIIElitePopulationSelectionStrategy(population_size=self.population)

        def elite(study: Study, population: list[FrozenTrial]) -> list[FrozenTrial]:
            # Optuna returns parents in the order of their selection at first, and by number from then on.
            return sorted(select(study, population), key=lambda trial: trial.number)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a strategy of one's own is experimental
            return NSGAIISampler(population_size=self.population, elite_population_selection_strategy=elite, seed=seed)

    def again(self, sampler: BaseSampler, seed: int) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the parameters that all trials have, and no more."""
        return _reseeded(sampler, seed)


@dataclass(frozen=True)
class GaussianProcessSearch(SearchSampler):
    """Expected improvement under a Gaussian process: for few, slow trials (it takes seconds from 300 on).

    Parameters
    ----------
    startup
        The number of random trials at first.
    """

    kind: ClassVar[str] = "gp"
    most: ClassVar[int | None] = 300
    needs: ClassVar[tuple[str, ...]] = ("optuna", "torch", "scipy")

    startup: int = 10

    def __post_init__(self) -> None:
        check_call(GaussianProcessSearch, vars(self))
        check_range("startup", self.startup, 1)

    def made(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import GPSampler

        return GPSampler(n_startup_trials=self.startup, warn_independent_sampling=False, seed=seed)


@dataclass(frozen=True)
class EvolutionSearch(SearchSampler):
    """Regularised evolution: see :class:`~nnpipe.searching.evolution_sampler.EvolutionSampler`.

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
        check_range("population", self.population, 2)
        check_range("sample", self.sample, 1, self.population)

    def made(self, seed: int) -> BaseSampler:
        """Return the sampler, new."""
        return EvolutionSampler(population=self.population, sample=self.sample, seed=seed)  # type: ignore[return-value]

    def again(self, sampler: BaseSampler, seed: int) -> BaseSampler:
        """Return a used sampler as if it were new."""
        sampler.reseed(seed)  # type: ignore[attr-defined]
        return sampler


SAMPLERS: dict[str, type[SearchSampler]] = {
    cls.kind: cls
    for cls in (
        RandomSearch, GridSearch, TPESearch, CMAESSearch, NSGA2Search, GaussianProcessSearch, EvolutionSearch,
    )
}  # fmt: skip
"""The samplers by kind."""


def sampler_from_json(entry: str | Mapping[str, Any] | SearchSampler, where: str = "sampler") -> SearchSampler:
    """Return the sampler of an entry such as ``tpe`` or ``{"kind": "evolution", "population": 20}``.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    return of_kind(entry, SAMPLERS, where)


def _reseeded(sampler: Any, seed: int) -> BaseSampler:
    # Optuna reseeds from the entropy of the system only, and a new sampler reads all trials again.
    sampler._rng.rng.seed(seed)
    sampler._random_sampler._rng.rng.seed(seed)
    return sampler  # type: ignore[no-any-return]


def check_installed(sampler: SearchSampler) -> None:
    """Raise an error unless the packages that a sampler needs are installed.

    Raises
    ------
    MissingDependency
        With the command that installs them.
    """
    from importlib.util import find_spec

    from nnpipe.core.errors import MissingDependency

    for package in sampler.needs:
        if find_spec(package) is None:
            extra = "search" if package in ("optuna", "cmaes") else "search,torch"
            raise MissingDependency(f"sampler {sampler.kind} needs {package}: pip install 'nnpipe[{extra}]'")


def check_objectives(sampler: SearchSampler, count: int) -> None:
    """Raise :class:`ConfigError` if a sampler does not take this number of objectives."""
    if count > 1 and not sampler.several_objectives:
        able = ", ".join(name for name, cls in SAMPLERS.items() if cls.several_objectives)
        raise ConfigError(
            f"sampler {sampler.kind} has one objective, and there are {count}; for several there are: {able}"
        )
