"""Making and judging compressed forms of one model."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError
from nnpipe.core.plan import Plan
from nnpipe.core.registry import find
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import check_plan, get_file_suffix, train_once
from nnpipe.workflows.compression import subprocess_tasks
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.journal import compute_digest
from nnpipe.workflows.mixing.mix import select_search_samples
from nnpipe.workflows.pipeline.file import make_file_name
from nnpipe.workflows.recipes import PlannedRecipe, plan_recipe
from nnpipe.workflows.sweep.points import Model, Point

INT8, FLOAT = "int8", "float"
_WAYS = {INT8: "onnx-int8", FLOAT: "onnx"}


@dataclass
class Compressing:
    """One model, of which compressed forms are made and judged in ONNX Runtime.

    Methods may be called by several threads, and carry out one thing at a time.

    Parameters
    ----------
    model, dataset
        The model and its data, which are prepared.
    output
        Folder for all files.
    measure
        How the best ones are measured.
    calibration_samples
        How many samples the ranges of activations and the errors of weights follow from.
    search_samples
        On how many others trials are judged at most.
    time_limit
        The greatest time of each step in seconds; 0 for no limit.
    """

    model: Model
    dataset: Dataset
    output: Path
    measure: MeasureOptions
    calibration_samples: int
    search_samples: int
    time_limit: float
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stack: ExitStack = field(default_factory=ExitStack)
    _worker: Worker | None = None
    _floats: Mapping[str, Any] | None = None
    _sources: dict[str, Artifact] = field(default_factory=dict)

    def describe(self) -> Mapping[str, Any]:
        """Return what the results depend on, in the form of JSON."""
        return {
            "model": self.model.wrapper.describe(),
            "dataset": self.dataset.describe(),
            "calibration_samples": self.calibration_samples,
            "search_samples": self.search_samples,
        }

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stack.close()
            self._worker, self._floats = None, None

    def layers(self, activations: str) -> dict[str, int]:
        """Return the number of weights of each layer, by name."""
        found: dict[str, int] = self._send_request("reading the layers", activations, do="layers")
        return found

    def compute_costs(
        self, activations: str, names: Mapping[str, Sequence[str]], forms: Sequence[str]
    ) -> dict[str, dict[str, tuple[float, float]]]:
        """Return the bytes and the noise of parameters, each of which stands for some layers, by
        form.
        """
        layers = {layer: list(forms) for group in names.values() for layer in group}
        costs = self._send_request("rounding layers", activations, do="forms", forms=layers)
        return {
            parameter: {
                form: (
                    sum(costs[each][form][0] for each in group),
                    sum(costs[each][form][1] for each in group),
                )
                for form in forms
            }
            for parameter, group in names.items()
        }

    def make_trial_model(self, number: int, activations: str, layers: Sequence[str]) -> Artifact:
        """Return the compressed model of a trial, which is made unless its file is there."""
        path = self.output / "trials" / f"{number}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._send_request(
                "making it", activations, do="make", to=str(path), layers=list(layers)
            )
            return Artifact.read(path)

    def evaluate_model(self, made: Artifact, activations: str) -> dict[str, Any]:
        """Return the bytes, seconds and loss of a compressed model, the latter two with the ends
        of their intervals.
        """
        with self._lock:
            samples = select_search_samples(
                self.dataset, self.calibration_samples, self.search_samples
            )
            judged = {"indices": samples.tolist(), "metric": self.dataset.task.primary.name}
            if self._floats is None:
                self._floats = self._send_request(
                    "running the model in floats",
                    FLOAT,
                    self._prepare_source(FLOAT),
                    do="open",
                    **judged,
                )
            found = self._send_request("running it", activations, made, do="try", **judged)
            less = self.dataset.task.primary.less_is_better
            seconds, *between = (self._floats["seconds"] * ratio for ratio in found["times"])
            return {
                **found,
                "size": made.size,
                "samples": len(samples),
                "test_samples": len(self.dataset.split("test")),
                "seconds": seconds,
                "seconds_between": between,
                "value": self._floats["value"] + (found["loss"] if less else -found["loss"]),
            }

    def as_trained(self) -> Point:
        """Return the model in its own framework, which losses are told against."""
        return Point(f"{self.model.title} as trained", self.model, (), None, None, self.measure)

    def build_uniform_point(self) -> Point:
        """Return the model with 8 bits everywhere."""
        way = self._select_recipe(INT8)
        return Point(
            "8 bits everywhere", self.model, way.compilers, way.runtime, way.plan, self.measure
        )

    def build_point(self, title: str, activations: str, layers: Sequence[str]) -> Point:
        """Return a compressed model."""
        way = self._select_recipe(activations)
        compressor = find("ONNXCompressor", ModelCompiler).from_json({"layers": list(layers)})
        compilers = (*way.compilers, compressor)
        assert way.runtime is not None
        plan = check_plan(self.model.wrapper, compilers, way.runtime)
        return Point(title, self.model, compilers, way.runtime, plan, self.measure)

    def _select_recipe(self, activations: str) -> PlannedRecipe:
        return plan_recipe(_WAYS[activations], [(self.model.wrapper, self.model.path)])

    def _prepare_source(self, activations: str) -> Artifact:
        """Return the file that is compressed: the model as exported, or in 8-bit integers."""
        if activations not in self._sources:
            model = self.model
            train_once(
                model.wrapper,
                self.dataset,
                model.training,
                model.path,
                record=self.output / "trained" / f"{make_file_name(model.title)}.training.json",
                makes=model.makes_weights,
            )
            with ModelProcess(model.wrapper, self.dataset, model.path) as process:
                for each in (FLOAT, INT8):
                    self._sources[each] = self._compile_source(process, self._select_recipe(each))
        return self._sources[activations]

    def _compile_source(self, process: ModelProcess, way: PlannedRecipe) -> Artifact:
        plan: Plan | None = way.plan
        assert plan is not None
        described = [
            self.model.wrapper.describe(),
            self.model.path.stat().st_mtime_ns,
            self.calibration_samples,
        ]
        name = compute_digest([described, [each.describe() for each in way.compilers]])
        path = self.output / "sources" / f"{name}{get_file_suffix(plan, way.compilers)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return Artifact.read(path)
        except ArtifactError:
            return process.compile(
                plan, way.compilers, path, self.calibration_samples, self.time_limit
            )

    def _send_request(
        self, what: str, activations: str, made: Artifact | None = None, **request: Any
    ) -> Any:
        with self._lock:
            source = self._prepare_source(activations)
            way = self._select_recipe(activations)
            candidate = CandidateSpec(
                what, way.wrapper, way.path, way.compilers, way.runtime, made, dataset=self.dataset
            )
            if self._worker is None:
                self._worker = self._stack.enter_context(
                    Worker(f"{subprocess_tasks.__name__}:CompressionTrials", shown=True)
                )
            told = {
                "candidate": candidate.to_json(),
                "source": str(source.path),
                "calibration_samples": self.calibration_samples,
                **request,
            }
            return self._worker.attempt(what, told, self.time_limit)


Costs = Mapping[str, Mapping[str, tuple[float, float]]]
"""Of each layer and each form: the bytes, and the noise."""


def choose_forms(costs: Costs, price: float) -> dict[str, str]:
    """Return the form of each layer by which bytes and noise together cost least.

    Each layer's noise counts by itself, so that the choice of one does not depend on those of
    others.

    Parameters
    ----------
    costs
        Bytes and noise by layer and form.
    price
        How many bytes a doubling of the noise is worth that all layers together have.

    Examples
    --------
    >>> costs = {"a": {"int8": (100, 0.001), "int4": (50, 0.01)}, "b": {"int8": (9, 0.001), "int4": (5, 0.1)}}
    >>> choose_forms(costs, 2000.0)
    {'a': 'int4', 'b': 'int8'}
    """
    return {
        layer: min(
            forms, key=lambda form: (forms[form][0] + price * forms[form][1], forms[form][0])
        )
        for layer, forms in costs.items()
    }


def list_tradeoffs(costs: Costs, count: int) -> list[dict[str, str]]:
    """Return at most ``count`` different choices, from the most bytes to the most noise."""
    noises = [noise for forms in costs.values() for _, noise in forms.values() if noise > 0]
    if not noises:
        return [choose_forms(costs, 1.0)]
    sizes = [size for forms in costs.values() for size, _ in forms.values()]
    # At the first price even the least noise outweighs all bytes, and at the last no noise
    # outweighs a byte.
    start, end = math.log(sum(sizes) / min(noises)), math.log(min(sizes) / (10 * max(noises)))
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for step in range(400):
        chosen = choose_forms(costs, math.exp(start + (end - start) * step / 399))
        found[tuple(chosen.items())] = None
    every = list(found)
    if len(every) > count:
        every = [
            every[round(place * (len(every) - 1) / max(count - 1, 1))] for place in range(count)
        ]
    return [dict(each) for each in every]
