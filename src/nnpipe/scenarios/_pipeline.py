"""The stages that scenarios put together: train, export and compile, measure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component, overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan, plan
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.core.training import TrainingOptions
from nnpipe.measure.benchmark import MeasureOptions, benchmark
from nnpipe.measure.run import Run
from nnpipe.scenarios._progress import bar

_SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "keras": ".keras", "torch-export": ".pt2"}
log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Candidate:
    """One way to run a model.

    Without a runtime the model runs in its own framework.
    """

    title: str
    wrapper: ModelWrapper
    model_path: Path
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    artifact: Artifact | None = None

    def session(self) -> InferenceSession:
        """Load the model; this is what load time means."""
        if self.runtime is None or self.artifact is None:
            return self.wrapper.session()
        return self.runtime.load(self.artifact)


def prepared(dataset: Dataset) -> Dataset:
    """Check that a data set can be used, and make it ready."""
    dataset.check_installed()
    dataset.prepare()
    return dataset


def fit(wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions, path: Path) -> Artifact:
    """Train a fresh model and save its weights.

    Raises
    ------
    ConfigError
        If the model cannot be trained, or does not fit the data set.
    """
    wrapper.check_installed()
    if not overridden(wrapper, "train", ModelWrapper):
        raise ConfigError(f"{type(wrapper).__name__} cannot be trained; it only runs models that are trained already")
    prepared(dataset)
    wrapper = wrapper.for_dataset(dataset.spec)
    log.info("training %s on %s", type(wrapper).__name__, type(dataset).__name__)
    wrapper.train(dataset, options, bar)
    return wrapper.save(path)


def loaded(wrapper: ModelWrapper, dataset: Dataset, path: Path) -> ModelWrapper:
    """Make the data set ready, fit the wrapper to it and read the weights."""
    wrapper.check_installed()
    prepared(dataset)
    wrapper = wrapper.for_dataset(dataset.spec)
    wrapper.load(path)
    return wrapper


def check_plan(
    wrapper: ModelWrapper, compilers: Sequence[ModelCompiler], runtime: Runtime, export: str | None = None
) -> Plan:
    """Find the way through the formats, and check that every stage's packages are installed."""
    found = plan(type(wrapper), [type(c) for c in compilers], type(runtime), export, components(ModelCompiler))
    for component in (wrapper, *compilers, runtime):
        component.check_installed()
    return found


def compile_model(
    wrapper: ModelWrapper,
    dataset: Dataset,
    way: Plan,
    compilers: Sequence[ModelCompiler],
    path: Path,
    calibration_samples: int,
) -> Artifact:
    """Export a trained model and send it through the compilers; the last result lies at ``path``.

    What lies between is written beside it and kept, so that any step can be looked at.
    """

    def calibration() -> Iterable[Batch]:
        return map(wrapper.preprocess, dataset.calibration(calibration_samples))

    between = [
        path.with_name(f"{path.stem}.step{step}{_SUFFIXES.get(format, '.' + format)}")
        for step, format in enumerate((way.export, *way.formats[:-1]))
    ]
    steps = [*between, path] if compilers else [path]
    log.info("exporting %s as %s", type(wrapper).__name__, way.export)
    artifact = wrapper.export(steps[0], way.export)
    for compiler, destination in zip(compilers, steps[1:], strict=True):
        log.info("compiling with %s: %s", type(compiler).__name__, compiler.variant())
        artifact = compiler.compile(artifact, destination, calibration)
    return artifact


def measure_candidate(candidate: Candidate, dataset: Dataset, options: MeasureOptions, command: Sequence[str]) -> Run:
    """Measure a candidate on the test split."""
    runtime, artifact = candidate.runtime, candidate.artifact
    parts: dict[str, Component | Sequence[Component]] = {"compilers": candidate.compilers}
    if runtime is not None:
        parts["runtime"] = runtime
    if artifact is None and sidecar_of(candidate.model_path).is_file():
        artifact = Artifact.read(candidate.model_path)
    return benchmark(
        candidate.session,
        dataset=dataset,
        indices=dataset.split("test"),
        wrapper=candidate.wrapper,
        title=candidate.title,
        command=command,
        components=parts,
        artifact=artifact,
        options=options,
        progress=bar,
    )
