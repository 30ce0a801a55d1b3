"""The engine of a search: proposes configurations and prunes trials, from the trials of a store
alone.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_samplers import SearchSampler
from nnpipe.searching.parameters import SearchParameter
from nnpipe.searching.pruners import SearchPruner
from nnpipe.searching.samplers import GridSearch, check_installed, check_objectives
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_mirror import STUDY_ID, TrialMirror, from_optuna
from nnpipe.searching.trial_store import Proposal, TrialLease, TrialStore, build_configuration_key

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study

_ATTEMPTS = 5  # of the sampler, before a configuration near its last one is tried
_NEAR = 200  # configurations near it, before all are gone through
_MOST_COUNTED = 1_000_000
_MOST_DRAWN = 20_000


class SearchEngine:
    """Chooses the configurations of trials, and which trials are to end early.

    It reads the trials from the store and keeps nothing that does not follow from them, so any
    number of engines may work on one store, and one that starts later goes on as the last one would
    have.  The numbers that a proposal is drawn with depend on the seed and the trial's number
    alone.  Methods may be called by several threads.

    Parameters
    ----------
    space
        What is searched.
    objectives
        The objectives with their directions.
    store
        Where the trials are.
    sampler
        Chooses configurations.
    pruner
        Ends trials early; ``None`` ends none.
    prune_by
        The objective that intermediate values are of; needed where there are several.
    seed
        Makes proposals repeatable.

    Raises
    ------
    ConfigError
        If sampler, pruner and objectives do not fit together.
    MissingDependency
        If a package that the sampler needs is not installed.
    """

    def __init__(
        self,
        space: SearchSpace,
        objectives: Objectives,
        store: TrialStore,
        sampler: SearchSampler,
        pruner: SearchPruner | None = None,
        prune_by: str | None = None,
        seed: int = 0,
    ) -> None:
        check_objectives(sampler, len(objectives.names))
        check_installed(sampler)
        if seed < 0:
            raise ConfigError(f"seed: expected a whole number of at least 0, found {seed}")
        self.space, self.objectives, self.store = space, objectives, store
        self._settings, self._seed = sampler, seed
        self._judge = pruner.create_judge() if pruner else None
        needs_name = pruner is not None or prune_by is not None
        self.prune_by = objectives.one(prune_by, "prune_by") if needs_name else objectives.only
        self._lock = threading.RLock()
        self._version = 0
        self._keys: set[str] = set()
        self._by_number: dict[int, str] = {}
        self._grid: Iterator[dict[str, Any]] | None = None
        self._rest: Iterator[dict[str, Any]] | None = None
        self._sampled: _SamplerStudy | None = None
        if isinstance(sampler, GridSearch):
            self._grid = sampler.iter_configurations(space)
        else:
            self._sampled = _SamplerStudy(TrialMirror(space, objectives, sampler.most), sampler)

    def propose(self, number: int) -> Proposal | None:
        """Return the configuration for a trial; ``None`` if every configuration has been tried.

        Raises
        ------
        ConfigError
            If no configuration is found that the constraints allow.
        """
        with self._lock:
            self._learn()
            if self._sampled is None:
                assert self._grid is not None
                return self._find_first_new(self._grid)
            configuration: dict[str, Any] = {}
            for attempt in range(_ATTEMPTS):
                configuration, notes = self._sampled.configuration(
                    number, self._draw(number, attempt)
                )
                if self._is_new(configuration):
                    return Proposal(configuration, notes)
            return self._find_near(
                configuration, notes, np.random.default_rng(self._draw(number, _ATTEMPTS))
            )

    def report(self, lease: TrialLease, step: int, value: float) -> bool:
        """Store an intermediate value of the objective that trials are pruned by; return whether
        the trial should end.

        Raises
        ------
        LeaseLost
            If the trial is no longer the worker's own.
        """
        self.store.report(lease, step, value)
        with self._lock:
            if self._judge is None:
                return False
            self._learn()
            return self._judge.should_prune(lease.trial.number, step)

    def _learn(self) -> None:
        changes = self.store.list_changes(self._version)
        self._version = changes.version
        for trial in changes.trials:
            if trial.configuration is not None and trial.number not in self._by_number:
                self._by_number[trial.number] = build_configuration_key(trial.configuration)
                self._keys.add(self._by_number[trial.number])
            if self._judge is not None:
                sign = -1.0 if self.objectives.by_name[self.prune_by] == "maximize" else 1.0
                self._judge.learn(
                    trial.number, {step: sign * value for step, value in trial.reports}
                )
        if self._sampled is not None:
            self._sampled.mirror.learn(changes.trials)

    def _is_new(self, configuration: dict[str, Any]) -> bool:
        if not self.space.allows(configuration):
            return False
        return self.store.repeats or build_configuration_key(configuration) not in self._keys

    def _draw(self, number: int, attempt: int) -> int:
        return int(np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)[0])

    def _find_first_new(self, configurations: Iterator[dict[str, Any]]) -> Proposal | None:
        for configuration in configurations:
            if self._is_new(configuration):
                return Proposal(configuration)
        return None

    def _find_near(
        self, start: dict[str, Any], notes: dict[str, Any], random: np.random.Generator
    ) -> Proposal | None:
        """Return a new configuration that differs from one in as few parameters as possible."""
        for attempt in range(_NEAR):
            many = 1 + attempt * len(start) // _NEAR
            names = set(
                random.choice(list(start), size=min(many, len(start)), replace=False).tolist()
            )

            def choose(name: str, parameter: SearchParameter, names: set[str] = names) -> Any:
                return (
                    start[name]
                    if name in start and name not in names
                    else parameter.get_value_at(random.random())
                )

            configuration = self.space.configuration(choose)
            if self._is_new(configuration):
                return Proposal(configuration, notes)
        if self.space.count is not None and self.space.count <= _MOST_COUNTED:
            # What this goes past stays tried, or not allowed, for ever.
            self._rest = self._rest or self.space.iter_configurations()
            return self._find_first_new(self._rest)
        for _ in range(_MOST_DRAWN):
            configuration = self.space.configuration(
                lambda _, parameter: parameter.get_value_at(random.random())
            )
            if self._is_new(configuration):
                return Proposal(configuration, notes)
        raise ConfigError(
            f"of {_MOST_DRAWN:,} configurations drawn at random, the constraints allow no new one"
        )


class _SamplerStudy:
    """Optuna's study of a search, asked for one configuration at a time."""

    def __init__(self, mirror: TrialMirror, settings: SearchSampler) -> None:
        self.mirror = mirror
        self._settings = settings
        self._sampler: BaseSampler | None = None
        self._study: Study | None = None

    def configuration(self, number: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a configuration for a trial, and what is to be noted with it."""
        from optuna.distributions import CategoricalDistribution, IntDistribution
        from optuna.study import Study

        new = self._sampler is None
        limited = bool(self.mirror.objectives.limits)
        self._sampler = (
            self._settings.create(seed, limited)
            if new
            else self._settings.fresh_copy(self._sampler, seed, limited)  # type: ignore[arg-type]
        )
        if self._study is None:
            name = self.mirror.get_study_name_from_id(STUDY_ID)
            self._study = Study(name, self.mirror, self._sampler)  # type: ignore[arg-type]
        self._study.sampler = self._sampler
        self.mirror.begin(number)
        with warnings.catch_warnings():
            # of experimental arguments, and of parameters that not all trials have
            warnings.simplefilter("ignore")
            trial = self._study.ask()

            def choose(name: str, parameter: SearchParameter) -> Any:
                each = self.mirror.distributions[name]
                if isinstance(each, CategoricalDistribution):
                    found: Any = trial.suggest_categorical(name, each.choices)
                elif isinstance(each, IntDistribution):
                    found = trial.suggest_int(
                        name, each.low, each.high, step=each.step, log=each.log
                    )
                else:
                    found = trial.suggest_float(name, each.low, each.high, log=each.log)  # type: ignore[attr-defined]
                return from_optuna(parameter, found)

            configuration = self.mirror.space.configuration(choose)
        noted = self.mirror.proposed.system_attrs
        self.mirror.end()
        return configuration, {
            key: value for key, value in noted.items() if key.startswith(self._settings.notes)
        }
