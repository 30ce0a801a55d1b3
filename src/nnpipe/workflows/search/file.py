"""The content of a search file, checked completely before the first trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.architectures.architecture_space import architecture_schema
from nnpipe.compilers.layer_forms import FORMS
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.query import parse_condition
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.settings import check_keys
from nnpipe.measuring.validity_warning import BARRING
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.optuna_samplers import SearchSampler
from nnpipe.searching.pruners import PRUNERS, SearchPruner, parse_pruner
from nnpipe.searching.samplers import SAMPLERS, parse_sampler
from nnpipe.searching.space import SearchSpace, build_space_schema
from nnpipe.searching.trial_store import EarlierTrial, MemoryTrials
from nnpipe.workflows.compression import subject as compression
from nnpipe.workflows.pipeline.entries import MOST, count_of, parse_seed, parse_text
from nnpipe.workflows.pipeline.schema import DIALECT, Schema, build_object_schema
from nnpipe.workflows.search import measured_subject
from nnpipe.workflows.search.searched_pipeline import SearchedArchitecture, SearchedPipeline
from nnpipe.workflows.search.subjects import SearchedFunction, SearchSubject
from nnpipe.workflows.sweep.file import CONFIRMATIONS


def check_query(query: str) -> str:
    """Return a condition on runs; raise :class:`ConfigError` if it cannot be read."""
    try:
        parse_condition(query)
    except ConfigError as error:
        raise ConfigError(f"warm_start: {error}") from None
    return query


def warm_start(
    database: RunDatabase,
    search: str,
    store: DatabaseTrials,
    query: str,
    space: SearchSpace,
    objectives: Objectives,
) -> int:
    """Take over what the runs that fulfil a condition found, as finished trials that do not count.

    Of a search these are its finished trials, of another run its configuration with its statistics.
    Those that are not of the space, or lack an objective, are left out, as are those that were
    taken over before.

    Parameters
    ----------
    database
        Where the runs are.
    search, store
        The search that begins, and its trials.
    query
        A condition on runs, such as ``experiment = widths and created > 2026-11-01``.
    space, objectives
        What is searched, and what for.

    Returns
    -------
    int
        How many trials were taken over.
    """
    found = [run for run in database.runs.find(query, order="created") if run.id != search]
    searches = database.searches.select_searches([run.id for run in found])
    known = {trial.origin for trial in store.trials()}
    earlier: list[EarlierTrial] = []
    for run in found:
        each = (
            _iter_search_trials(database, run)
            if run.id in searches
            else _iter_run_trials(run, space)
        )
        earlier += [
            trial
            for trial in each
            if trial.origin not in known and _is_suitable(trial, space, objectives)
        ]
    return store.take_over(
        EarlierTrial(
            trial.configuration,
            {name: trial.values[name] for name in objectives.names},
            trial.origin,
        )
        for trial in earlier
    )


def _iter_search_trials(database: RunDatabase, run: RunRecord) -> Iterator[EarlierTrial]:
    for trial in DatabaseTrials(database, run.id).trials():
        # What that search took over itself is found where it came from.
        if trial.state == "finished" and trial.configuration is not None and not trial.origin:
            yield EarlierTrial(
                trial.configuration, trial.values, f"trial {trial.number} of search {run.id[:12]}"
            )


def _iter_run_trials(run: RunRecord, space: SearchSpace) -> Iterator[EarlierTrial]:
    values = {name: _get_value(run.configuration, name) for name in space.parameters}
    present = {name: value for name, value in values.items() if value is not None}
    yield EarlierTrial(present, run.statistics, f"run {run.id[:12]}")


def _is_suitable(trial: EarlierTrial, space: SearchSpace, objectives: Objectives) -> bool:
    values = [trial.values.get(name, math.nan) for name in objectives.names]
    return all(map(math.isfinite, values)) and space.fits(trial.configuration)


def _get_value(tree: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path such as ``optimiser.rate``; ``None`` if there is none."""
    found: Any = tree
    for name in path.split("."):
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping):
            found = found.get(name)
        else:
            return None
    return found


TRIALS = 100
_KEYS = (
    "title",
    "function",
    "arguments",
    "pipeline",
    "candidate",
    "architecture",
    "space",
    "constraints",
    "objectives",
    "sampler",
    "pruner",
    "prune_by",
    "trials",
    "seed",
    "repeats",
    "warm_start",
    "output",
    *compression.KEYS,
    *measured_subject.KEYS,
)


@dataclass(frozen=True)
class SearchSettings:
    """A whole search; its title is its name in the run database."""

    title: str
    subject: SearchSubject
    space: SearchSpace
    objectives: Objectives
    sampler: SearchSampler
    pruner: SearchPruner | None
    prune_by: str | None
    trials: int
    seed: int
    repeats: bool
    warm_start: str
    given: Mapping[str, Any]  # the content of the file

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """Return the search of these settings.

        Raises
        ------
        NNPipeError
            If a setting is wrong; the message names its place in the file.
        """
        data = check_keys(dict(settings), tuple(dict.fromkeys(_KEYS)), "search")
        _check_subject(data)
        title = parse_text(data.get("title", "search"), "title")
        subject, space, objectives = (
            _parse_compression(data) if data.get("compress") is not None else _parse_subject(data)
        )
        subject.check(space, objectives)
        repeats = data.get("repeats", False)
        if not isinstance(repeats, bool):
            raise ConfigError(f"repeats: expected true or false, found {repeats!r}")
        seed = parse_seed(data.get("seed", 0))
        prune_by = (
            None if data.get("prune_by") is None else parse_text(data["prune_by"], "prune_by")
        )
        query = (
            ""
            if data.get("warm_start") is None
            else check_query(parse_text(data["warm_start"], "warm_start"))
        )
        found = cls(
            title,
            subject,
            space,
            objectives,
            parse_sampler(data.get("sampler", "tpe")),
            None if data.get("pruner") is None else parse_pruner(data["pruner"]),
            prune_by,
            count_of(data.get("trials", TRIALS), "trials"),
            seed,
            repeats,
            query,
            data,
        )
        # An engine checks whether these fit together.
        SearchEngine(
            space, objectives, MemoryTrials(), found.sampler, found.pruner, found.prune_by, seed
        )
        return found

    @property
    def facts(self) -> dict[str, str]:
        """What is searched and how, by name, for reports."""
        return {
            **self.subject.facts,
            **describe_search(self.sampler, self.pruner, self.trials, self.seed, self.repeats),
        }

    def to_json(self) -> dict[str, Any]:
        """Return what the run database keeps of the search."""
        return {
            **self.subject.to_json(),
            "space": self.space.to_json(),
            "objectives": dict(self.objectives.by_name),
            "sampler": self.sampler.to_json(),
            "pruner": self.pruner.to_json() if self.pruner else None,
            "prune_by": self.prune_by,
            "trials": self.trials,
            "seed": self.seed,
            "repeats": self.repeats,
        }


def describe_search(
    sampler: SearchSampler, pruner: SearchPruner | None, trials: int, seed: int, repeats: bool
) -> dict[str, str]:
    """Return how something is searched, by name, for reports."""
    return {
        "Sampler": _format_settings(sampler.to_json()),
        "Pruner": "none" if pruner is None else _format_settings(pruner.to_json()),
        "Trials at most": f"{trials:,}",
        "Seed": str(seed),
        "A configuration": "may be tried again" if repeats else "is tried once",
    }


def _format_settings(settings: Mapping[str, Any]) -> str:
    more = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "kind")
    return str(settings["kind"]) + (f" ({more})" if more else "")


def _check_subject(data: Mapping[str, Any]) -> None:
    """Raise an error unless the file has one subject, and only keys that belong to it."""
    given = [key for key in ("function", "pipeline", "compress") if data.get(key) is not None]
    if len(given) != 1:
        raise ConfigError(
            "search: give one of function: an import path, pipeline: a file or its content, and "
            "compress: a model"
        )
    if given[0] == "function" and data.get("architecture") is not None:
        raise ConfigError(
            "search: a function has no architecture; give a pipeline that trains the networks"
        )
    foreign = {
        "function": ("candidate", *compression.KEYS[1:-1], *measured_subject.KEYS),
        "pipeline": ("arguments", *compression.KEYS[1:-1]),
        "compress": (
            "function",
            "arguments",
            "pipeline",
            "candidate",
            "architecture",
            "space",
            "pruner",
            "prune_by",
            "repeats",
        ),
    }[given[0]]
    for key in foreign:
        if data.get(key) is not None:
            raise ConfigError(f"{key}: this key does not belong to a search with {given[0]}")
    if given[0] != "compress" and data.get("architecture") is None and data.get("space") is None:
        raise ConfigError("search: the key 'space' is missing")


def _parse_compression(data: Mapping[str, Any]) -> tuple[SearchSubject, SearchSpace, Objectives]:
    of_space, of_metrics = measured_subject.split_constraints(data.get("constraints"), ())
    if of_space:
        raise ConfigError(f"constraints: {of_space[0]!r} is on no metric; {measured_subject.HINT}")
    subject = compression.SearchedCompression.from_settings(data, of_metrics)
    return subject, subject.space(), subject.objectives()


def _parse_subject(data: Mapping[str, Any]) -> tuple[SearchSubject, SearchSpace, Objectives]:
    """Return a function or a pipeline, with its space and its objectives."""
    if data.get("function") is not None:
        arguments = data.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise ConfigError(f"arguments: expected an object, found {type(arguments).__name__}")
        space = SearchSpace.from_json(data["space"], data.get("constraints") or [])
        function = SearchedFunction.from_path(parse_text(data["function"], "function"), arguments)
        return function, space, _parse_objectives(data.get("objectives"))
    parameters = {} if data.get("space") is None else data["space"]
    of_space, of_metrics = measured_subject.split_constraints(
        data.get("constraints"), parameters if isinstance(parameters, dict) else ()
    )
    if data.get("architecture") is not None and isinstance(parameters, dict):
        searched = SearchedArchitecture.from_settings(data, of_metrics)
        return (
            searched,
            searched.space(parameters, of_space),
            searched.choice.build_objectives(searched.choice.list_limits()),
        )
    space = SearchSpace.from_json(parameters, of_space)
    subject = SearchedPipeline.from_settings(data, of_metrics)
    return subject, space, subject.choice.build_objectives(subject.choice.list_limits())


NO_OBJECTIVES = (
    "objectives: nothing says whether less of what the function returns is better; say it, such as "
    "{value: minimize}"
)


def _parse_objectives(given: Any) -> Objectives:
    if given is None:
        raise ConfigError(NO_OBJECTIVES)
    if not isinstance(given, dict):
        raise ConfigError("objectives: expected names, each with minimize or maximize")
    return Objectives(given)


def build_search_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of search files."""
    text, count = (
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 1, "maximum": MOST},
    )

    def build_kind_schema(kinds: Mapping[str, Any], what: str) -> Schema:
        entry = {
            "type": "object",
            "properties": {"kind": {"enum": list(kinds)}},
            "required": ["kind"],
        }
        return {"anyOf": [{"enum": list(kinds)}, entry], "description": what}

    root = build_object_schema(
        {
            "title": text
            | {"description": "the search's name in the run database", "default": "search"},
            "function": text
            | {"description": "the import path of a Python function, such as package.module.train"},
            "arguments": {
                "type": "object",
                "description": "arguments of the function that are the same in all trials",
            },
            "pipeline": {
                "type": ["string", "object"],
                "description": "a pipeline file, or its content",
            },
            "candidate": text
            | {"description": "the candidate whose metrics count; left out: the last one"},
            "architecture": architecture_schema(),
            "space": build_space_schema(),
            "constraints": {
                "type": "array",
                "items": text
                | {
                    "description": "such as: units * layers <= 4096, or of models: latency_p90 <= 2 ms"
                },
            },
            "objectives": {
                "anyOf": [
                    {
                        "type": "object",
                        "additionalProperties": {"enum": ["minimize", "maximize"]},
                        "minProperties": 1,
                    },
                    {"type": "array", "items": text, "minItems": 1},
                ],
                "description": "each with its direction; of a pipeline, a list of metrics will do",
            },
            "sampler": build_kind_schema(SAMPLERS, "chooses configurations; left out: tpe"),
            "pruner": build_kind_schema(PRUNERS, "ends trials early; left out: none"),
            "prune_by": text
            | {"description": "the objective that a function reports, where there are several"},
            "trials": count | {"default": TRIALS},
            "seed": {"type": "integer", "minimum": 0, "default": 0},
            "repeats": {
                "type": "boolean",
                "default": False,
                "description": "whether to try a configuration again",
            },
            "warm_start": text
            | {
                "description": "a condition on earlier runs, whose values the search knows at its start"
            },
            "output": text
            | {"description": "folder for the results of models", "default": "build/search"},
            **_build_model_keys(),
        },
    )
    either = {"anyOf": [{"required": [key]} for key in ("space", "architecture", "compress")]}
    return {"$schema": DIALECT, "title": "nnpipe search", **root, **either}


def _build_model_keys() -> Schema:
    """Return the keys of searches whose trials are models that are measured."""
    text, count = (
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 1, "maximum": MOST},
    )
    return {
        "compress": {
            "type": "object",
            "description": "a trained model: class, arguments, path, training, title",
        },
        "dataset": {
            "type": ["string", "object"],
            "description": "the data of the model to compress",
        },
        "activations": {
            "type": "array",
            "items": {"enum": list(compression.ACTIVATIONS)},
            "minItems": 1,
            "description": "what the compressed model computes with; left out: both are tried",
        },
        "forms": {
            "type": "array",
            "items": text,
            "minItems": 2,
            "description": f"forms of layers: {FORMS}",
            "default": list(compression.FORMS),
        },
        "measure": {
            "type": "object",
            "description": "how the best models are measured, as in sweep files",
        },
        "verify": {"type": "object", "description": "as in sweep files"},
        "calibration_samples": count | {"default": 128},
        "search_samples": count
        | {"default": 1000, "description": "the samples that trials are judged on"},
        "time_limit": {
            "type": "number",
            "minimum": 0,
            "description": "seconds that each step may take",
        },
        "choose": text
        | {
            "description": "the metric by which the best model is chosen; left out: the first objective"
        },
        "confirmations": count | {"default": CONFIRMATIONS},
        "accept_doubts": {"type": "array", "items": {"enum": sorted(BARRING)}},
        "confidence": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 1, "default": 0.95},
        "budget": {
            "type": ["string", "number"],
            "description": "how long to measure pipelines, as in sweep files",
        },
    }
