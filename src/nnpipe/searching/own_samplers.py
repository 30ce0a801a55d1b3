"""CMA-ES and regularised evolution, as samplers for Optuna that keep nothing but the trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.trial_mirror import (
    get_position_within,
    get_value_within,
    to_ordered_parameter,
)

if TYPE_CHECKING:
    from cmaes import CMA
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState


class OwnSampler(ABC):
    """A sampler for one objective that is an :class:`optuna.samplers.BaseSampler` although Optuna
    is imported late.

    Parameters
    ----------
    seed
        Makes trials repeatable; by default they differ from run to run.
    """

    title: ClassVar[str]
    """What it is called in messages."""

    def __init__(self, seed: int | None) -> None:
        from optuna.samplers import BaseSampler, RandomSampler

        BaseSampler.register(type(self))
        self.random = RandomSampler()
        """Draws independent values."""
        self.seed = 0
        if seed is None:
            self.reseed_rng()
        else:
            self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Begin with another seed."""
        self.seed = int(seed) % 2**32
        self.random._rng.rng.seed(self.seed)

    def reseed_rng(self) -> None:
        """Begin with a seed that differs from process to process."""
        self.reseed(int(np.random.SeedSequence().generate_state(1)[0]))

    def check_objectives(self, study: Study) -> None:
        """Raise :class:`ValueError`, as Optuna expects, if a study has several objectives."""
        if len(study.directions) > 1:
            raise ValueError(
                f"{self.title} has one objective; for several, use 'nsga2', 'tpe' or 'random'"
            )

    @abstractmethod
    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that are chosen together."""

    @abstractmethod
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of parameters that are chosen together."""

    @abstractmethod
    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the value of any other parameter."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Do nothing."""

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Do nothing."""


_SIGMA = 1 / 6  # the first standard deviation, as a share of each range


class CMAESSampler(OwnSampler):
    """Covariance matrix adaptation (Hansen and Ostermeier 2001), for numbers and lists in order.

    Each generation are the finished trials that come next by number, so the distribution follows
    from the trials alone.  Optuna's own sampler stores it as a pickle with every generation.
    Choices without an order are random, as are parameters that do not exist in every trial.

    Parameters
    ----------
    population
        How many trials a generation has; by default 4 + 3 ln(parameters).
    seed
        Makes trials repeatable; by default they differ from run to run.

    Raises
    ------
    ConfigError
        If ``population`` is below 3.
    """

    title = "CMA-ES"

    def __init__(self, *, population: int | None = None, seed: int | None = None) -> None:
        check_call(CMAESSampler, locals())
        if population is not None and population < 3:
            raise ConfigError(f"expected a population of at least 3, found {population}")
        from optuna.search_space import IntersectionSearchSpace

        super().__init__(seed)
        self.population = population
        self._common = IntersectionSearchSpace()
        self._optimizer: CMA | None = None
        self._space: dict[str, BaseDistribution] = {}
        self._told: set[int] = set()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all trials have."""
        return {
            name: each for name, each in self._common.calculate(study).items() if not each.single()
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a point of the present normal distribution, and random choices where there is
        no order.
        """
        self.check_objectives(study)
        space = {
            name: each
            for name, each in search_space.items()
            if to_ordered_parameter(each) is not None
        }
        found = {
            name: self.random.sample_independent(study, trial, name, each)
            for name, each in search_space.items()
            if name not in space
        }
        if space:
            optimizer = self._update_optimiser(study, space)
            optimizer.reseed_rng(
                int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0])
            )
            point = optimizer.ask().tolist()
            found |= {
                name: get_value_within(each, point[place])
                for place, (name, each) in enumerate(space.items())
            }
        return found

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value."""
        self.check_objectives(study)
        return self.random.sample_independent(study, trial, param_name, param_distribution)

    def _update_optimiser(self, study: Study, space: dict[str, BaseDistribution]) -> CMA:
        """Return the optimiser after all whole generations."""
        from cmaes import CMA
        from optuna.study import StudyDirection
        from optuna.trial import TrialState

        optimizer = self._optimizer
        if optimizer is None or self._space != space:
            size = len(space)
            optimizer = CMA(
                mean=np.full(size, 0.5),
                sigma=_SIGMA,
                bounds=np.tile([0.0, 1.0], (size, 1)),
                seed=0,
                n_max_resampling=10 * size,
                population_size=self.population,
            )
            self._optimizer, self._space, self._told = optimizer, dict(space), set()
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        new = [
            trial
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if trial.number not in self._told and space.keys() <= trial.params.keys()
        ]
        size = optimizer.population_size
        for first in range(0, len(new) - size + 1, size):
            generation = new[first : first + size]
            optimizer.tell(
                [
                    (
                        np.array(
                            [
                                get_position_within(each, trial.params[name])
                                for name, each in space.items()
                            ]
                        ),
                        sign * (trial.value or 0.0),
                    )
                    for trial in generation
                ]
            )
            self._told |= {trial.number for trial in generation}
        return optimizer


_SPREAD = 0.2  # of a changed value that is in an order, as a share of its range


@dataclass(frozen=True)
class _Child:
    """How a trial differs from its parent; without a parent it is random."""

    number: int
    parent: Mapping[str, Any]
    changed: str | None


class EvolutionSampler(OwnSampler):
    """Regularised evolution (Real et al. 2019, "Regularized evolution for image classifier
    architecture search").

    The population are the last finished trials, so the oldest one dies with every new one.  A trial
    is a child of the best of a few that are drawn from the population, with one parameter changed:
    a choice becomes another one, and a number moves by a normal distribution with 0.2 of its range.
    Parameters that the parent does not have are random. The first trials are random.

    It has one objective, takes any space, and has no state of its own: a trial depends on the seed,
    its number and the trials before.

    Parameters
    ----------
    population
        How many trials are alive.
    sample
        Of how many of them the best one becomes the parent.
    seed
        Makes trials repeatable; by default they differ from run to run.

    Raises
    ------
    ConfigError
        If ``population`` is below 2 or ``sample`` is not between 1 and ``population``.
    """

    title = "regularised evolution"

    def __init__(self, *, population: int = 10, sample: int = 3, seed: int | None = None) -> None:
        check_call(EvolutionSampler, locals())
        if population < 2 or not 1 <= sample <= population:
            raise ConfigError(
                f"expected a population of at least 2 and a sample of 1 to population, found "
                f"{population} and {sample}"
            )
        self.population = population
        self.sample = sample
        super().__init__(seed)

    def reseed(self, seed: int) -> None:
        """Begin with another seed."""
        super().reseed(seed)
        self._child: _Child | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return no parameters: each is chosen when it is asked for, so that it may depend on
        others.
        """
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no values; see :meth:`infer_relative_search_space`."""
        self.check_objectives(study)
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the parent's value of a parameter, or another one."""
        self.check_objectives(study)
        child = self._get_child(study, trial)
        value = child.parent.get(param_name)
        if param_name not in child.parent or not _has_value(param_distribution, value):
            return self.random.sample_independent(study, trial, param_name, param_distribution)
        if param_name != child.changed or param_distribution.single():
            return value
        place = list(child.parent).index(param_name)
        return mutate_value(
            param_distribution, value, np.random.default_rng([self.seed, trial.number, place])
        )

    def _get_child(self, study: Study, trial: FrozenTrial) -> _Child:
        if self._child is None or self._child.number != trial.number:
            from optuna.trial import TrialState

            random = np.random.default_rng([self.seed, trial.number])
            alive = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))[
                -self.population :
            ]
            self._child = _Child(trial.number, {}, None)
            if len(alive) == self.population:
                drawn = [
                    alive[place] for place in random.choice(len(alive), self.sample, replace=False)
                ]
                best = _find_best(drawn, study)
                free = [name for name, each in best.distributions.items() if not each.single()]
                changed_one = free[random.integers(len(free))] if free else None
                self._child = _Child(trial.number, best.params, changed_one)
        return self._child


def mutate_value(distribution: BaseDistribution, value: Any, random: np.random.Generator) -> Any:
    """Return another value of a distribution: any other choice, or a number nearby."""
    if to_ordered_parameter(distribution) is None:
        choices = distribution.choices  # type: ignore[attr-defined]
        place = int(distribution.to_internal_repr(value))
        return choices[(place + random.integers(1, len(choices))) % len(choices)]
    position = get_position_within(distribution, value)
    for _ in range(20):
        found = get_value_within(
            distribution, _reflect_position(position + _SPREAD * random.standard_normal())
        )
        if found != value:
            return found
    return get_value_within(distribution, random.random())


def _reflect_position(position: float) -> float:
    """Return a position mirrored at 0 and 1 until it lies between them."""
    position = abs(position) % 2.0
    return 2.0 - position if position > 1.0 else position


def _has_value(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def _find_best(trials: Sequence[FrozenTrial], study: Study) -> FrozenTrial:
    from optuna.study import StudyDirection

    sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
    return min(trials, key=lambda trial: (sign * (trial.value or 0.0), -trial.number))
