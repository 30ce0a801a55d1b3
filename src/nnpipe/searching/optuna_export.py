"""A search as a study of Optuna, for its own analyses and for optuna-dashboard."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_values import shown_distribution
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial
from nnpipe.searching.trial_mirror import TrialMirror

if TYPE_CHECKING:
    from optuna.study import Study


def exported(
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
        Whether values of lists in order, and of real numbers with a step, become their places, from 0, so that Optuna
        sees their order.

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
        raise MissingDependency("studies are exported to Optuna: pip install 'nnpipe[search]'") from None
    quiet = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(storage=storage, study_name=name, directions=list(objectives.directions))
    except optuna.exceptions.DuplicatedStudyError:
        raise ConfigError(f"{storage}: there is a study {name!r} already; give this one another name") from None
    except Exception as error:
        raise ConfigError(f"{storage}: no study can be written there: {error}") from None
    finally:
        optuna.logging.set_verbosity(quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(objectives.names))
    mirror = TrialMirror(space, objectives)
    distributions = {name: shown_distribution(each) for name, each in space.parameters.items()}
    found = []
    for trial in trials:
        frozen = mirror.frozen(trial) if trial.ended else None
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
