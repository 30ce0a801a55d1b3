"""Searching the arguments of a Python function for its best value, in one call."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_samplers import SearchSampler
from nnpipe.searching.pruners import SearchPruner, parse_pruner
from nnpipe.searching.samplers import parse_sampler
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import MemoryTrials, TrialStore
from nnpipe.workflows.pipeline.entries import MOST
from nnpipe.workflows.search.file import NO_OBJECTIVES, describe_search
from nnpipe.workflows.search.result import SearchResult
from nnpipe.workflows.search.subjects import SearchedFunction
from nnpipe.workflows.search.workers import Evaluate, SearchWorkers, Watch


def search(
    function: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    objectives: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
    trials: int = 100,
    sampler: str | Mapping[str, Any] | SearchSampler = "tpe",
    pruner: str | Mapping[str, Any] | SearchPruner | None = None,
    prune_by: str | None = None,
    seed: int = 0,
    repeats: bool = False,
    workers: int = 1,
    store: TrialStore | None = None,
    watch: Watch | None = None,
) -> SearchResult:
    """Search the arguments of a function for those with the best value.

    No configuration is tried twice, unless ``repeats`` says so.  A trial whose function raises an
    exception has failed, and the search goes on; it ends if the first five all fail.

    Parameters
    ----------
    function
        Is called with the value of each parameter by name, and returns a finite number, or one for
        each objective by name.  If it has an argument ``report``, it is given a
        :class:`~nnpipe.workflows.search.subjects.TrialReport`: ``report(epoch, value)`` stores an
        intermediate value, and ends the trial if the pruner finds it not worth going on.
    space
        The parameters by name, as in the files of ``nnpipe search``: ``{"kind": "int", "low": 1,
        "high": 5}``, or objects of :mod:`nnpipe.searching.parameters`.  With ``"when": "optimiser
        == 'sgd'"`` one exists only where this holds; without a value the function's own default
        counts.
    objectives
        ``minimize`` or ``maximize`` by name, such as ``{"value": "minimize"}`` where a single
        number is returned.
    constraints
        Expressions that hold for every configuration, such as ``"units * layers <= 4096"``.
    trials
        The greatest number of trials.
    sampler
        ``random``, ``grid``, ``tpe``, ``cmaes``, ``nsga2``, ``gp`` or ``evolution``, or a kind with
        arguments: ``{"kind": "evolution", "population": 20}``.
    pruner
        ``median`` or ``asha``, or a kind with arguments: ``{"kind": "hyperband", "most": 27}``; by
        default none ends early.
    prune_by
        The objective that is reported; needed where there are several.
    seed
        Makes the search repeatable with one worker.
    repeats
        Whether a configuration may be tried again, for functions with noise.
    workers
        How many threads call the function at the same time.
    store
        Where the trials are; by default in memory.  A search goes on with the trials that the store
        has already.
    watch
        Is called with each trial that has ended.

    Returns
    -------
    SearchResult
        All trials, the best one, and the Pareto front.

    Raises
    ------
    ConfigError
        If arguments do not fit together, the function does not take a parameter, or the first
        trials all fail.
    MissingDependency
        If a package that the sampler needs is not installed.

    Examples
    --------
    >>> import nnpipe
    >>> def loss(rate, units, momentum=0.0):
    ...     return (units - 20) ** 2 / 100 + (rate - 0.01) ** 2 + momentum
    >>> found = nnpipe.search(loss, {
    ...     "rate": {"kind": "power", "low": -4, "high": -1},
    ...     "units": {"kind": "int", "low": 1, "high": 64},
    ... }, objectives={"value": "minimize"}, trials=40)
    >>> sorted(found.best.configuration)
    ['rate', 'units']
    """
    check_call(search, locals())
    declared = SearchSpace.from_json(space, list(constraints))
    if objectives is None:
        raise ConfigError(NO_OBJECTIVES)
    goals = Objectives(objectives)
    subject = SearchedFunction(function)
    subject.check(declared, goals)
    chooses, prunes = (
        parse_sampler(sampler),
        None if pruner is None else parse_pruner(pruner),
    )
    found = run_trials(
        subject.evaluate,
        declared,
        goals,
        trials=trials,
        sampler=chooses,
        pruner=prunes,
        prune_by=prune_by,
        seed=seed,
        workers=workers,
        store=MemoryTrials(repeats=repeats) if store is None else store,
        watch=watch,
    )
    facts = {**subject.facts, **describe_search(chooses, prunes, trials, seed, repeats)}
    return replace(found, title=f"Search of {subject.facts['Function']}", facts=facts)


def run_trials(
    evaluate: Evaluate,
    space: SearchSpace,
    objectives: Objectives,
    *,
    trials: int,
    sampler: SearchSampler,
    pruner: SearchPruner | None,
    prune_by: str | None,
    seed: int,
    workers: int,
    store: TrialStore,
    watch: Watch | None,
    name: str | None = None,
) -> SearchResult:
    """Carry out a search whose parts have been checked each for itself; ``name`` is that of this
    process.
    """
    check_range("trials", trials, 1, MOST)
    check_range("workers", workers, 1, 256)
    engine = SearchEngine(space, objectives, store, sampler, pruner, prune_by, seed)
    SearchWorkers(
        engine,
        evaluate,
        trials,
        watch or (lambda trial: None),
        name or f"{socket.gethostname()}-{os.getpid()}",
    ).run(workers)
    return SearchResult(space, objectives, store.trials())
