"""The stages that workflows put together: prepare, train, load and plan."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.files import write_text
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan, plan
from nnpipe.core.progress import Progress
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.saving import save
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_settings import differences, plain
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.workflows.progress import bar

_SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "keras": ".keras", "torch-export": ".pt2"}
log = logging.getLogger("nnpipe")


def prepared(dataset: Dataset) -> Dataset:
    """Check that a data set can be used, and make it ready."""
    dataset.check_installed()
    dataset.prepare()
    return dataset


def fit(
    wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions, path: Path, progress: Progress = bar
) -> Artifact:
    """Train a fresh model and save its weights; raises as :func:`trained`."""
    return trained(wrapper, dataset, options, path, progress)[0]


def trained(
    wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions, path: Path, progress: Progress = bar
) -> tuple[Artifact, TrainingHistory]:
    """Train a fresh model, fitted to the data set, and save its weights; give these and what happened.

    Raises
    ------
    ConfigError
        If the model cannot be trained, does not fit the data set, or could not be saved; before anything slow.
    ArtifactError
        If it cannot be saved all the same; the message says where it is instead.
    """
    wrapper.check_installed()
    if not wrapper.offers("train"):
        raise ConfigError(f"{type(wrapper).__name__} cannot be trained; it only runs models that are trained already")
    wrapper.check_saving(path)
    if options.run_folder is not None:
        RunFolder(options.run_folder).check()
    prepared(dataset)
    wrapper = wrapper.for_dataset(dataset.spec)
    with wrapper.open() as model:
        model.start(options)
        wrapper.check_saving(path, _size_of(model))
        log.info("training %s on %s", type(wrapper).__name__, type(dataset).__name__)
        history = model.train(dataset, options, progress)
        if history.epochs:
            log.info("%s", history)

        def write(there: Path) -> Artifact:
            made = model.save(there)
            meaning = made.meaning or wrapper.meaning_of_files()
            described = (
                made if meaning is None else made.update_meaning(meaning.with_class_names(dataset.spec.class_names))
            )
            return described.update_trained(history.to_json())

        return save(write, path), history


def _size_of(model: LiveModel) -> int:
    """Return the bytes that a model's weights have, or 0 where it does not show them."""
    try:
        return sum(array.nbytes for array in model.get_weights().values())
    except NotSupported:
        return 0


def train_once(
    wrapper: ModelWrapper,
    dataset: Dataset,
    options: TrainingOptions | None,
    path: Path,
    *,
    record: Path,
    retrain: bool = False,
    progress: Progress = bar,
) -> None:
    """Train unless exactly this training has been done, and leave the weights at ``path``.

    ``record`` is where it is noted what was trained; without ``options`` the weights at ``path`` are taken as they are.
    """
    if options is None:
        return
    prepared(dataset)
    wanted = {"wrapper": wrapper.describe(), "dataset": dataset.describe(), "training": options.to_json()}
    wanted["data"] = DatasetSequence(dataset).settings()["content"]
    changes = None if retrain else _changes(record, wanted, path)
    if changes == []:
        log.info("using the weights in %s: this training has been done (--retrain repeats it)", path)
        return
    if changes:
        log.info("training again: %s", ", ".join(changes))
    record.unlink(missing_ok=True)
    fit(wrapper, dataset, options, path, progress)
    write_text(record, json.dumps(wanted, indent=2) + "\n")


def _changes(record: Path, wanted: Mapping[str, Any], model_path: Path) -> list[str] | None:
    """Return what differs from the training that was done; None where none was, or its weights are gone."""
    try:
        Artifact.read(model_path)
        stored = json.loads(record.read_text("utf-8"))
        stored["training"] = TrainingOptions().to_json() | stored["training"]  # an older record has fewer options
        found = differences(stored, plain(wanted), frozenset({"data"}))
    except (ArtifactError, OSError, ValueError, KeyError, TypeError):
        return None
    return [f"{name} was {was!r} and is {comes!r}" for name, was, comes in found]


def check_plan(
    wrapper: ModelWrapper,
    compilers: Sequence[ModelCompiler],
    runtime: Runtime,
    export: str | None = None,
    *,
    remote: bool = False,
) -> Plan:
    """Find the way through the formats, and check that all that every stage needs is there.

    With ``remote`` the runtime's are needed on the target, not here.
    """
    found = plan(type(wrapper), [type(c) for c in compilers], type(runtime), export, lambda: components(ModelCompiler))
    for component in (wrapper, *compilers, *([] if remote else [runtime])):
        component.check_ready()
    if isinstance(wrapper, FileModel):
        wrapper.check_takers([*map(type, compilers), type(runtime)], remote)
    return found


def suffix(way: Plan, compilers: Sequence[ModelCompiler]) -> str:
    """Return the usual ending of the file that the last of these compilers, or else the export, makes."""
    return compilers[-1].suffix if compilers and compilers[-1].suffix else _SUFFIXES.get(way.export, "." + way.export)
