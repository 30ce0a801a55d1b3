"""An Optuna storage that shows the trials of a :class:`~nnpipe.searching.trial_store.TrialStore` to samplers."""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_values import distribution_of, to_optuna
from nnpipe.searching.shown_trials import ShownTrials
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import StudyDirection
    from optuna.trial import FrozenTrial, TrialState

STUDY_ID = 0
LIMITS = "constraints"  # the key of optuna.study._constrained_optimization
_START = datetime(2000, 1, 1)  # trials have durations, and no times of day


class TrialMirror:
    """What Optuna sees of a search: its trials, with the present space, and one trial that is being proposed.

    Nothing is kept here that does not follow from the trials, so it may be made again at any time, in any process.
    Trials that are waiting or not of the present space are left out; a space may thus grow and shrink.

    Parameters
    ----------
    space
        The parameters.
    objectives
        The objectives, with their directions.
    most
        How many ended trials are shown at most: the best half, and of the others evenly many of all times.  ``None``
        shows all.
    """

    def __init__(self, space: SearchSpace, objectives: Objectives, most: int | None = None) -> None:
        self.space = space
        self.objectives = objectives
        self.distributions = {name: distribution_of(each) for name, each in space.parameters.items()}
        self._trials = ShownTrials(most)
        self._proposed: FrozenTrial | None = None
        self._next = 0
        self._study_attrs: dict[str, Any] = {}
        self._shared: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}

    def learn(self, trials: Sequence[SearchTrial]) -> None:
        """Take over trials that have changed."""
        for trial in trials:
            frozen = self.frozen(trial)
            if frozen is None:
                self._trials.drop(trial.number)
                continue
            loss = None if not trial.ended else math.inf
            if trial.state == "finished":
                loss = self.objectives.losses(trial.values)[0]
            self._trials.put(trial.number, frozen, loss)

    def begin(self, number: int) -> None:
        """Make the next trial that Optuna asks for the one of this number."""
        self._next = number

    def end(self) -> None:
        """Show the trial that was proposed no more; it comes back from the store."""
        self._proposed = None

    @property
    def proposed(self) -> FrozenTrial:
        """The trial that is being proposed."""
        assert self._proposed is not None
        return self._proposed

    def frozen(self, trial: SearchTrial) -> FrozenTrial | None:
        """Return Optuna's form of a trial; ``None`` for those that are left out."""
        from optuna.trial import FrozenTrial, TrialState

        configuration = trial.configuration
        if configuration is None or trial.state == "waiting" or not self.space.fits(configuration):
            return None
        state = {
            "running": TrialState.RUNNING, "finished": TrialState.COMPLETE, "failed": TrialState.FAIL,
            "pruned": TrialState.PRUNED,
        }[trial.state]  # fmt: skip
        values = None
        if state == TrialState.COMPLETE:
            if not set(self.objectives.measured) <= trial.values.keys():
                return None
            values = [trial.values[name] for name in self.objectives.names]
        ended = _START + timedelta(seconds=trial.seconds or 0.0)  # what was taken over from elsewhere has no time
        return FrozenTrial(
            number=trial.number, trial_id=trial.number, state=state, value=None, values=values,
            params={name: to_optuna(self.space.parameters[name], value) for name, value in configuration.items()},
            distributions=self._distributions(tuple(configuration)),
            user_attrs={}, system_attrs=self._noted(trial), intermediate_values=dict(trial.reports),
            datetime_start=_START, datetime_complete=ended if trial.ended else None,
        )  # fmt: skip

    def _noted(self, trial: SearchTrial) -> dict[str, Any]:
        """Return what is noted with a trial, with its distances to limits where Optuna's samplers look for them."""
        if not self.objectives.limits or trial.state != "finished":
            return dict(trial.notes)
        return {**trial.notes, LIMITS: tuple(self.objectives.excesses(trial.values))}

    def _distributions(self, names: tuple[str, ...]) -> dict[str, BaseDistribution]:
        if names not in self._shared:
            self._shared[names] = {name: self.distributions[name] for name in names}
        return self._shared[names]

    def _all(self) -> list[FrozenTrial]:
        found = self._trials.shown()
        return found if self._proposed is None else [*found, self._proposed]

    # What follows is Optuna's interface, as far as samplers use it (optuna/storages/_base.py).

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials that are shown, by number."""
        from optuna.trial import TrialState

        if states is not None and not any(state in states for state in TrialState if state != TrialState.WAITING):
            return []  # Optuna asks for waiting trials before each proposal, and there are none
        found = [trial for trial in self._all() if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_n_trials(self, study_id: int, state: Container[TrialState] | TrialState | None = None) -> int:
        """Return the number of trials that are shown."""
        return sum(state is None or trial.state == state for trial in self._all())

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return the trial of a number."""
        if self._proposed is not None and trial_id == self._proposed.number:
            return self._proposed
        return self._trials[trial_id]

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Begin the trial that is to be proposed."""
        from optuna.trial import FrozenTrial, TrialState

        self._proposed = FrozenTrial(
            number=self._next, trial_id=self._next, state=TrialState.RUNNING, value=None, params={}, distributions={},
            user_attrs={}, system_attrs={}, intermediate_values={}, datetime_start=_START, datetime_complete=None,
        )  # fmt: skip
        return self._next

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Set a parameter of the trial that is being proposed."""
        self.proposed.params[param_name] = distribution.to_external_repr(param_value_internal)
        self.proposed.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Note something with the trial that is being proposed."""
        self.proposed.system_attrs[key] = value

    def get_trial_system_attrs(self, trial_id: int) -> Mapping[str, Any]:
        """Return what is noted with a trial."""
        return self.get_trial(trial_id).system_attrs

    def get_trial_number_from_id(self, trial_id: int) -> int:
        """Return the number of a trial, which is its identifier."""
        return trial_id

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Return the direction of each objective."""
        from optuna.study import StudyDirection

        kinds = {"minimize": StudyDirection.MINIMIZE, "maximize": StudyDirection.MAXIMIZE}
        return [kinds[direction] for direction in self.objectives.directions]

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return the identifier of the only study."""
        return STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:
        """Return the name of the only study."""
        return "search"

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return what a sampler computed from the trials and keeps for later."""
        return self._study_attrs

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Keep what a sampler computed from the trials; it is computed again after a new start."""
        self._study_attrs[key] = value

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> NoReturn:
        """Refuse: trials end in their store."""
        raise NotImplementedError("trials end in their store")
