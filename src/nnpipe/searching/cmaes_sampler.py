"""CMA-ES, as a sampler for Optuna that keeps nothing but the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.optuna_values import ordered_parameter, position_within, value_within
from nnpipe.searching.own_sampler import OwnSampler

if TYPE_CHECKING:
    from cmaes import CMA
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_SIGMA = 1 / 6  # the first standard deviation, as a share of each range


class CMAESSampler(OwnSampler):
    """Covariance matrix adaptation (Hansen and Ostermeier 2001), for numbers and lists in order.

    Each generation are the finished trials that come next by number, so the distribution follows from the trials
    alone.  Optuna's own sampler stores it as a pickle with every generation.  Choices without an order are random,
    as are parameters that do not exist in every trial.

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

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all trials have."""
        return {name: each for name, each in self._common.calculate(study).items() if not each.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a point of the present normal distribution, and random choices where there is no order."""
        self.check_objectives(study)
        space = {name: each for name, each in search_space.items() if ordered_parameter(each) is not None}
        found = {
            name: self.random.sample_independent(study, trial, name, each)
            for name, each in search_space.items()
            if name not in space
        }
        if space:
            optimizer = self._up_to_date(study, space)
            optimizer.reseed_rng(int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]))
            point = optimizer.ask().tolist()
            found |= {name: value_within(each, point[place]) for place, (name, each) in enumerate(space.items())}
        return found

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a random value."""
        self.check_objectives(study)
        return self.random.sample_independent(study, trial, param_name, param_distribution)

    def _up_to_date(self, study: Study, space: dict[str, BaseDistribution]) -> CMA:
        """Return the optimiser after all whole generations."""
        from cmaes import CMA
        from optuna.study import StudyDirection
        from optuna.trial import TrialState

        optimizer = self._optimizer
        if optimizer is None or self._space != space:
            size = len(space)
            optimizer = CMA(
                mean=np.full(size, 0.5), sigma=_SIGMA, bounds=np.tile([0.0, 1.0], (size, 1)), seed=0,
                n_max_resampling=10 * size, population_size=self.population,
            )  # fmt: skip
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
            optimizer.tell([
                (
                    np.array([position_within(each, trial.params[name]) for name, each in space.items()]),
                    sign * (trial.value or 0.0),
                )
                for trial in generation
            ])  # fmt: skip
            self._told |= {trial.number for trial in generation}
        return optimizer
