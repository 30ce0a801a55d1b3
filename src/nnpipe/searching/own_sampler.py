"""The base of samplers that are no class of Optuna and yet samplers for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState


class OwnSampler(ABC):
    """A sampler for one objective that is an :class:`optuna.samplers.BaseSampler` although Optuna is imported late.

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
            raise ValueError(f"{self.title} has one objective; for several, use 'nsga2', 'tpe' or 'random'")

    @abstractmethod
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that are chosen together."""

    @abstractmethod
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of parameters that are chosen together."""

    @abstractmethod
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of any other parameter."""

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Do nothing."""

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Do nothing."""
