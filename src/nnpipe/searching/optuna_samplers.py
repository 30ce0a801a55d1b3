"""The settings of samplers that are Optuna's own: random, tpe, nsga2 and gp."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.searching.parameters import TaggedDataclass
from nnpipe.searching.trial_mirror import LIMITS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class SearchSampler(TaggedDataclass, ABC):
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
    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new; with ``limited``, it prefers trials that keep the
        limits, if it can.
        """

    def fresh_copy(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a sampler that has been used before as if it were new with this seed."""
        return self.create(seed, limited)


_SHOWN_TO_TPE = 400


@dataclass(frozen=True)
class RandomSearch(SearchSampler):
    """Independent random values: the yardstick for all others."""

    kind: ClassVar[str] = "random"

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)


@dataclass(frozen=True)
class TPESearch(SearchSampler):
    """Tree-structured Parzen estimators (Bergstra et al. 2011), with joint densities for a single
    objective.

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

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import TPESampler

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # limits are experimental
            return TPESampler(
                n_startup_trials=self.startup,
                n_ei_candidates=self.candidates,
                seed=seed,
                constraints_func=_build_constraints_function(limited),
            )

    def fresh_copy(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the parameters that all trials have,
        and no more.
        """
        return _reseed(sampler, seed)


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
        check_range("population", self.population, 2, 100_000)

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import NSGAIISampler
        from optuna.samplers.nsgaii._elite_population_selection_strategy import (
            NSGAIIElitePopulationSelectionStrategy,
        )

        limits = _build_constraints_function(limited)
        select = NSGAIIElitePopulationSelectionStrategy(
            population_size=self.population, constraints_func=limits
        )

        def select_elite(study: Study, population: list[FrozenTrial]) -> list[FrozenTrial]:
            # Optuna returns parents in the order of their selection at first, and by number from
            # then on.
            return sorted(select(study, population), key=lambda trial: trial.number)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a strategy of one's own is experimental
            return NSGAIISampler(
                population_size=self.population,
                elite_population_selection_strategy=select_elite,
                constraints_func=limits,
                seed=seed,
            )

    def fresh_copy(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a used sampler as if it were new: it keeps the parameters that all trials have,
        and no more.
        """
        return _reseed(sampler, seed)


@dataclass(frozen=True)
class GaussianProcessSearch(SearchSampler):
    """Expected improvement under a Gaussian process: for few, slow trials (it takes seconds from
    300 on).

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

    def create(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new."""
        from optuna.samplers import GPSampler

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # limits are experimental
            return GPSampler(
                n_startup_trials=self.startup,
                warn_independent_sampling=False,
                seed=seed,
                constraints_func=_build_constraints_function(limited),
            )


def _build_constraints_function(limited: bool) -> Callable[[FrozenTrial], Sequence[float]] | None:
    """Return how Optuna finds the distances of a trial to its limits, which the mirror of the
    trials notes with it.
    """
    return (lambda trial: trial.system_attrs.get(LIMITS, ())) if limited else None


def _reseed(sampler: Any, seed: int) -> BaseSampler:
    # Optuna reseeds from the entropy of the system only, and a new sampler reads all trials again.
    sampler._rng.rng.seed(seed)
    sampler._random_sampler._rng.rng.seed(seed)
    return sampler  # type: ignore[no-any-return]
