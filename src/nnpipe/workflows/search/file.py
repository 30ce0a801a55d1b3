"""The content of a search file, checked completely before the first trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.architectures.architecture_schema import architecture_schema
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys, read_settings
from nnpipe.measuring.constraints import metric_of
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import Objectives
from nnpipe.searching.pruners import PRUNERS, SearchPruner, pruner_from_json
from nnpipe.searching.sampler import SearchSampler
from nnpipe.searching.samplers import SAMPLERS, sampler_from_json
from nnpipe.searching.space import SearchSpace, space_schema
from nnpipe.searching.trial_store import MemoryTrials
from nnpipe.workflows.pipeline.entries import count_of, text_of
from nnpipe.workflows.pipeline.schema_parts import DIALECT, Schema, object_schema
from nnpipe.workflows.search.searched_architecture import SearchedArchitecture
from nnpipe.workflows.search.subjects import SearchedFunction, SearchedPipeline, SearchSubject
from nnpipe.workflows.search.warm_start import check_query

TRIALS = 100
_KEYS = (
    "title", "function", "arguments", "pipeline", "candidate", "architecture", "space", "constraints", "objectives",
    "sampler", "pruner", "prune_by", "trials", "seed", "repeats", "warm_start", "output",
)  # fmt: skip


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
        data = check_keys(dict(settings), _KEYS, "search", () if "architecture" in settings else ("space",))
        subject = _subject(data)
        title = text_of(data.get("title", "search"), "title")
        space = _space(data, subject)
        objectives = _objectives(data.get("objectives"), isinstance(subject, SearchedPipeline))
        subject.check(space, objectives)
        repeats = data.get("repeats", False)
        if not isinstance(repeats, bool):
            raise ConfigError(f"repeats: expected true or false, found {repeats!r}")
        seed = data.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ConfigError(f"seed: expected a whole number of at least 0, found {seed!r}")
        prune_by = None if data.get("prune_by") is None else text_of(data["prune_by"], "prune_by")
        query = "" if data.get("warm_start") is None else check_query(text_of(data["warm_start"], "warm_start"))
        found = cls(
            title, subject, space, objectives, sampler_from_json(data.get("sampler", "tpe")),
            None if data.get("pruner") is None else pruner_from_json(data["pruner"]), prune_by,
            count_of(data.get("trials", TRIALS), "trials"), seed, repeats, query, data,
        )  # fmt: skip
        # An engine checks whether these fit together.
        SearchEngine(space, objectives, MemoryTrials(), found.sampler, found.pruner, found.prune_by, seed)
        return found

    @property
    def facts(self) -> dict[str, str]:
        """What is searched and how, by name, for reports."""
        return {**self.subject.facts, **facts_of(self.sampler, self.pruner, self.trials, self.seed, self.repeats)}

    def to_json(self) -> dict[str, Any]:
        """Return what the run database keeps of the search."""
        return {
            **self.subject.to_json(), "space": self.space.to_json(), "objectives": dict(self.objectives.by_name),
            "sampler": self.sampler.to_json(), "pruner": self.pruner.to_json() if self.pruner else None,
            "prune_by": self.prune_by, "trials": self.trials, "seed": self.seed, "repeats": self.repeats,
        }  # fmt: skip


def facts_of(
    sampler: SearchSampler, pruner: SearchPruner | None, trials: int, seed: int, repeats: bool
) -> dict[str, str]:
    """Return how something is searched, by name, for reports."""
    return {
        "Sampler": _told(sampler.to_json()),
        "Pruner": "none" if pruner is None else _told(pruner.to_json()),
        "Trials at most": f"{trials:,}",
        "Seed": str(seed),
        "A configuration": "may be tried again" if repeats else "is tried once",
    }


def _told(settings: Mapping[str, Any]) -> str:
    more = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "kind")
    return str(settings["kind"]) + (f" ({more})" if more else "")


def _subject(data: Mapping[str, Any]) -> SearchSubject:
    if (data.get("function") is None) == (data.get("pipeline") is None):
        raise ConfigError("search: give either function: an import path, or pipeline: a file or its content")
    if data.get("function") is not None:
        if data.get("architecture") is not None:
            raise ConfigError("search: a function has no architecture; give a pipeline that trains the networks")
        if data.get("candidate") is not None:
            raise ConfigError("search: a function has no candidate")
        arguments = data.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise ConfigError(f"arguments: expected an object, found {type(arguments).__name__}")
        return SearchedFunction.imported(text_of(data["function"], "function"), arguments)
    if data.get("arguments") is not None:
        raise ConfigError("search: a pipeline has no arguments; change its settings in its own file")
    given = data["pipeline"]
    settings = given if isinstance(given, dict) else read_settings(Path(text_of(given, "pipeline")))
    candidate = "" if data.get("candidate") is None else text_of(data["candidate"], "candidate")
    output = Path(text_of(data.get("output", "build/search"), "output"))
    if data.get("architecture") is not None:
        return SearchedArchitecture(data["architecture"], settings, candidate, output)
    return SearchedPipeline(settings, candidate, output)


def _space(data: Mapping[str, Any], subject: SearchSubject) -> SearchSpace:
    parameters, constraints = data.get("space") or {}, data.get("constraints") or []
    if isinstance(subject, SearchedArchitecture) and isinstance(parameters, dict) and isinstance(constraints, list):
        return subject.space(parameters, constraints)
    return SearchSpace.from_json(parameters, constraints)


def _objectives(given: Any, of_pipeline: bool) -> Objectives:
    if given is None and not of_pipeline:
        return Objectives({"value": "minimize"})
    if of_pipeline and isinstance(given, list) and given:
        metrics = [metric_of(text_of(name, f"objectives.{place}")) for place, name in enumerate(given)]
        return Objectives({each.name: "minimize" if each.less_is_better else "maximize" for each in metrics})
    if not isinstance(given, dict):
        more = ", or a list of metrics" if of_pipeline else ""
        raise ConfigError(f"objectives: expected names, each with minimize or maximize{more}")
    return Objectives(given)


def schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of search files."""
    text, count = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}

    def of_kinds(kinds: Mapping[str, Any], what: str) -> Schema:
        entry = {"type": "object", "properties": {"kind": {"enum": list(kinds)}}, "required": ["kind"]}
        return {"anyOf": [{"enum": list(kinds)}, entry], "description": what}

    root = object_schema(
        {
            "title": text | {"description": "the search's name in the run database", "default": "search"},
            "function": text | {"description": "the import path of a Python function, such as package.module.train"},
            "arguments": {"type": "object", "description": "arguments of the function that are the same in all trials"},
            "pipeline": {"type": ["string", "object"], "description": "a pipeline file, or its content"},
            "candidate": text | {"description": "the candidate whose metrics count; left out: the last one"},
            "architecture": architecture_schema(),
            "space": space_schema(),
            "constraints": {"type": "array", "items": text | {"description": "such as: units * layers <= 4096"}},
            "objectives": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"enum": ["minimize", "maximize"]}, "minProperties": 1},
                    {"type": "array", "items": text, "minItems": 1},
                ],
                "description": "each with its direction; of a pipeline, a list of metrics will do",
            },
            "sampler": of_kinds(SAMPLERS, "chooses configurations; left out: tpe"),
            "pruner": of_kinds(PRUNERS, "ends trials early; left out: none"),
            "prune_by": text | {"description": "the objective that a function reports, where there are several"},
            "trials": count | {"default": TRIALS},
            "seed": {"type": "integer", "minimum": 0, "default": 0},
            "repeats": {"type": "boolean", "default": False, "description": "whether to try a configuration again"},
            "warm_start": text
            | {"description": "a condition on earlier runs, whose values the search knows at its start"},
            "output": text | {"description": "folder for the pipelines' results", "default": "build/search"},
        },
    )
    either = {"anyOf": [{"required": ["space"]}, {"required": ["architecture"]}]}
    return {"$schema": DIALECT, "title": "nnpipe search", **root, **either}
