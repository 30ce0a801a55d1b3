"""An Optuna storage that shows the trials of a :class:`~nnpipe.searching.trial_store.TrialStore`
to samplers.
"""

from __future__ import annotations

import bisect
import copy
import math
import warnings
from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.parameters import (
    DiscreteParameter,
    IntParameter,
    PowerParameter,
    SearchParameter,
    UniformParameter,
)
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import SearchTrial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState


def build_distribution(parameter: SearchParameter) -> BaseDistribution:
    """Return Optuna's distribution for a parameter; a list in order becomes the places in it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case IntParameter():
            return IntDistribution(
                parameter.low, parameter.high, log=parameter.log, step=parameter.step
            )
        case UniformParameter(step=None):
            return FloatDistribution(parameter.low, parameter.high)
        case UniformParameter():
            return IntDistribution(0, (parameter.count or 1) - 1)
        case PowerParameter():
            return FloatDistribution(*parameter.bounds, log=True)
        case DiscreteParameter(ordered=True):
            return IntDistribution(0, parameter.count - 1)
    return CategoricalDistribution(parameter.choices())


def build_display_distribution(parameter: SearchParameter) -> BaseDistribution:
    """Return Optuna's distribution of the very values of a parameter, for readers; see
    :func:`build_distribution`.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    match parameter:
        case UniformParameter(step=float() | int()):
            greatest = parameter.get_value_at(1.0)
            return FloatDistribution(parameter.low, greatest, step=parameter.step)
        case DiscreteParameter():
            return CategoricalDistribution(parameter.choices())
    return build_distribution(parameter)


def is_encoded_by_place(parameter: SearchParameter) -> bool:
    """Return whether Optuna sees the places of a parameter's values instead of the values
    themselves.

    So it is with lists in order, and with real numbers that have a step: these would come back as
    other doubles.
    """
    match parameter:
        case DiscreteParameter(ordered=True):
            return True
        case UniformParameter(step=float() | int()):
            return True
    return False


def to_optuna(parameter: SearchParameter, value: Any) -> Any:
    """Return what Optuna calls a value of a parameter."""
    if is_encoded_by_place(parameter):
        return min(
            int(parameter.position(value) * (parameter.count or 1)), (parameter.count or 1) - 1
        )
    return value


def from_optuna(parameter: SearchParameter, value: Any) -> Any:
    """Return the value of a parameter for what Optuna calls it."""
    if is_encoded_by_place(parameter):
        return parameter.get_value_at((value + 0.5) / (parameter.count or 1))
    if isinstance(parameter, PowerParameter):
        least, greatest = parameter.bounds
        return min(max(value, least), greatest)
    return value


def to_ordered_parameter(distribution: BaseDistribution) -> SearchParameter | None:
    """Return the parameter with the values of Optuna's distribution; ``None`` if they are in no
    order.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(distribution, IntDistribution):
        return IntParameter(
            distribution.low, distribution.high, distribution.step, distribution.log
        )
    if isinstance(distribution, FloatDistribution) and distribution.log:
        return PowerParameter(math.log10(distribution.low), math.log10(distribution.high))
    if isinstance(distribution, FloatDistribution):
        return UniformParameter(distribution.low, distribution.high, distribution.step)
    return None


def get_value_within(distribution: BaseDistribution, position: float) -> Any:
    """Return the value at a position from 0 to 1 of an ordered distribution of Optuna, within
    its bounds.
    """
    parameter = to_ordered_parameter(distribution)
    assert parameter is not None
    value = parameter.get_value_at(min(max(position, 0.0), 1.0))
    return min(max(value, distribution.low), distribution.high)  # type: ignore[attr-defined]


def get_position_within(distribution: BaseDistribution, value: Any) -> float:
    """Return where a value lies in an ordered distribution of Optuna, from 0 to 1."""
    parameter = to_ordered_parameter(distribution)
    assert parameter is not None
    if isinstance(parameter, PowerParameter):
        value = min(max(value, parameter.bounds[0]), parameter.bounds[1])
    return parameter.position(value)


class ShownTrials:
    """The trials of a search in Optuna's form, of which so many are shown at most.

    A change costs hardly more with many trials than with few.

    Parameters
    ----------
    most
        How many ended trials are shown at most: the best half, and of the others evenly many of all
        times.  ``None`` shows all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._by_number: dict[int, FrozenTrial] = {}
        self._numbers: list[int] = []  # ascending
        self._trials: list[FrozenTrial] = []  # in the same order
        self._running: set[int] = set()
        self._count = 0  # of ends so far
        # losses, places among the ends, and numbers of the best half
        self._best: list[tuple[float, int, int]] = []
        self._others: list[tuple[int, int]] = []  # places and numbers of the others

    def __getitem__(self, number: int) -> FrozenTrial:
        """Return the trial of a number."""
        return self._by_number[number]

    def put(self, number: int, trial: FrozenTrial, loss: float | None) -> None:
        """Add a trial, or replace it by what it is now; ``loss`` is ``None`` while it runs."""
        self.drop(number)
        place = bisect.bisect_left(self._numbers, number)
        self._numbers.insert(place, number)
        self._trials.insert(place, trial)
        self._by_number[number] = trial
        if loss is None:
            self._running.add(number)
        elif self._most is not None:
            bisect.insort(self._best, (loss, self._count, number))
            self._count += 1
            if len(self._best) > self._most // 2:
                _, at, worst = self._best.pop()
                bisect.insort(self._others, (at, worst))

    def drop(self, number: int) -> None:
        """Forget a trial, if it is known."""
        if self._by_number.pop(number, None) is None:
            return
        place = bisect.bisect_left(self._numbers, number)
        del self._numbers[place], self._trials[place]
        if number in self._running:
            self._running.remove(number)
        elif self._most is not None:  # an ended trial does not change, so this is rare
            self._best = [each for each in self._best if each[-1] != number]
            self._others = [each for each in self._others if each[-1] != number]

    def list_shown(self) -> list[FrozenTrial]:
        """Return the trials that are shown, by number, in a new list."""
        if self._most is None or len(self._best) + len(self._others) <= self._most:
            return list(self._trials)
        places = np.linspace(0, len(self._others) - 1, self._most - self._most // 2).astype(
            np.int64
        )
        numbers = [number for _, _, number in self._best]
        numbers += [self._others[place][1] for place in places.tolist()]
        return [self._by_number[number] for number in sorted([*numbers, *self._running])]


STUDY_ID = 0
LIMITS = "constraints"  # the key of optuna.study._constrained_optimization
_START = datetime(2000, 1, 1)  # trials have durations, and no times of day


class TrialMirror:
    """What Optuna sees of a search: its trials, with the present space, and one trial that is being
    proposed.

    Nothing is kept here that does not follow from the trials, so it may be made again at any time,
    in any process. Trials that are waiting or not of the present space are left out; a space may
    thus grow and shrink.

    Parameters
    ----------
    space
        The parameters.
    objectives
        The objectives, with their directions.
    most
        How many ended trials are shown at most: the best half, and of the others evenly many of all
        times.  ``None`` shows all.
    """

    def __init__(self, space: SearchSpace, objectives: Objectives, most: int | None = None) -> None:
        self.space = space
        self.objectives = objectives
        self.distributions = {
            name: build_distribution(each) for name, each in space.parameters.items()
        }
        self._trials = ShownTrials(most)
        self._proposed: FrozenTrial | None = None
        self._next = 0
        self._study_attrs: dict[str, Any] = {}
        self._shared: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}

    def learn(self, trials: Sequence[SearchTrial]) -> None:
        """Take over trials that have changed."""
        for trial in trials:
            frozen = self.to_frozen_trial(trial)
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

    def to_frozen_trial(self, trial: SearchTrial) -> FrozenTrial | None:
        """Return Optuna's form of a trial; ``None`` for those that are left out."""
        from optuna.trial import FrozenTrial, TrialState

        configuration = trial.configuration
        if configuration is None or trial.state == "waiting" or not self.space.fits(configuration):
            return None
        state = {
            "running": TrialState.RUNNING,
            "finished": TrialState.COMPLETE,
            "failed": TrialState.FAIL,
            "pruned": TrialState.PRUNED,
        }[trial.state]
        values = None
        if state == TrialState.COMPLETE:
            if not set(self.objectives.measured) <= trial.values.keys():
                return None
            values = [trial.values[name] for name in self.objectives.names]
        # what was taken over from elsewhere has no time
        ended = _START + timedelta(seconds=trial.seconds or 0.0)
        return FrozenTrial(
            number=trial.number,
            trial_id=trial.number,
            state=state,
            value=None,
            values=values,
            params={
                name: to_optuna(self.space.parameters[name], value)
                for name, value in configuration.items()
            },
            distributions=self._get_distributions(tuple(configuration)),
            user_attrs={},
            system_attrs=self._build_notes(trial),
            intermediate_values=dict(trial.reports),
            datetime_start=_START,
            datetime_complete=ended if trial.ended else None,
        )

    def _build_notes(self, trial: SearchTrial) -> dict[str, Any]:
        """Return what is noted with a trial, with its distances to limits where Optuna's
        samplers look for them.
        """
        if not self.objectives.limits or trial.state != "finished":
            return dict(trial.notes)
        return {**trial.notes, LIMITS: tuple(self.objectives.compute_excesses(trial.values))}

    def _get_distributions(self, names: tuple[str, ...]) -> dict[str, BaseDistribution]:
        if names not in self._shared:
            self._shared[names] = {name: self.distributions[name] for name in names}
        return self._shared[names]

    def _list_all(self) -> list[FrozenTrial]:
        found = self._trials.list_shown()
        return found if self._proposed is None else [*found, self._proposed]

    # What follows is Optuna's interface, as far as samplers use it (optuna/storages/_base.py).

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials that are shown, by number."""
        from optuna.trial import TrialState

        if states is not None and not any(
            state in states for state in TrialState if state != TrialState.WAITING
        ):
            return []  # Optuna asks for waiting trials before each proposal, and there are none
        found = [trial for trial in self._list_all() if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_n_trials(
        self, study_id: int, state: Container[TrialState] | TrialState | None = None
    ) -> int:
        """Return the number of trials that are shown."""
        return sum(state is None or trial.state == state for trial in self._list_all())

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return the trial of a number."""
        if self._proposed is not None and trial_id == self._proposed.number:
            return self._proposed
        return self._trials[trial_id]

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Begin the trial that is to be proposed."""
        from optuna.trial import FrozenTrial, TrialState

        self._proposed = FrozenTrial(
            number=self._next,
            trial_id=self._next,
            state=TrialState.RUNNING,
            value=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
            datetime_start=_START,
            datetime_complete=None,
        )
        return self._next

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
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


def export_study(
    space: SearchSpace,
    objectives: Objectives,
    trials: Sequence[SearchTrial],
    storage: str | None,
    name: str,
    *,
    places: bool = False,
) -> Study:
    """Return a new study of Optuna with all trials that have ended.

    Why a trial failed, its worker and its origin are user attributes.

    Parameters
    ----------
    space, objectives, trials
        What was searched for, and the trials.
    storage, name
        The URL of a database, or ``None`` for memory, and the study's name in it.
    places
        Whether values of lists in order, and of real numbers with a step, become their places, from
        0, so that Optuna sees their order.

    Raises
    ------
    ConfigError
        If there is a study of this name in the storage already.
    MissingDependency
        If Optuna is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingDependency(
            "studies are exported to Optuna: pip install 'nnpipe[search]'"
        ) from None
    quiet = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            storage=storage, study_name=name, directions=list(objectives.directions)
        )
    except optuna.exceptions.DuplicatedStudyError:
        raise ConfigError(
            f"{storage}: there is a study {name!r} already; give this one another name"
        ) from None
    except Exception as error:
        raise ConfigError(f"{storage}: no study can be written there: {error}") from None
    finally:
        optuna.logging.set_verbosity(quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(objectives.names))
    mirror = TrialMirror(space, objectives)
    distributions = {
        name: build_display_distribution(each) for name, each in space.parameters.items()
    }
    found = []
    for trial in trials:
        frozen = mirror.to_frozen_trial(trial) if trial.ended else None
        if frozen is None:
            continue
        if not places:
            configuration = dict(trial.configuration or {})
            frozen.params = configuration
            frozen.distributions = {name: distributions[name] for name in configuration}
        about = {"message": trial.message, "worker": trial.worker, "origin": trial.origin}
        frozen.user_attrs = {name: text for name, text in about.items() if text}
        found.append(frozen)
    study.add_trials(found)
    return study
