"""The stages of which workflows consist: prepare, train, load and plan."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.bounded_json import read_object
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.files import save, write_text
from nnpipe.core.foreign_text import join_lines
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan, plan
from nnpipe.core.progress import Progress
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_settings import iter_differences, to_json_value
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.workflows.progress import show_progress

_SUFFIXES = {"onnx": ".onnx", "tflite": ".tflite", "keras": ".keras", "torch-export": ".pt2"}
log = logging.getLogger("nnpipe")


def prepare_dataset(dataset: Dataset) -> Dataset:
    """Check that a data set can be used, prepare it, tell once how it is understood, and return
    it.
    """
    dataset.check_installed()
    dataset.prepare()
    if "reading_notes" not in vars(dataset):  # which are found once
        for note in dataset.reading_notes:
            log.info("%s: %s", type(dataset).__name__, join_lines([note]))
    return dataset


def fit(
    wrapper: ModelWrapper,
    dataset: Dataset,
    options: TrainingOptions,
    path: Path,
    progress: Progress = show_progress,
) -> Artifact:
    """Train a new model, save its weights and return them; raise the errors of
    :func:`train_and_save`.
    """
    return train_and_save(wrapper, dataset, options, path, progress)[0]


def train_and_save(
    wrapper: ModelWrapper,
    dataset: Dataset,
    options: TrainingOptions,
    path: Path,
    progress: Progress = show_progress,
) -> tuple[Artifact, TrainingHistory]:
    """Train a new model, fitted to the data set, save its weights, and return them with the
    training's history.

    Raises
    ------
    ConfigError
        If the model cannot be trained, does not fit the data set, or could not be saved.  This is
        checked before anything slow.
    ArtifactError
        If saving fails in spite of this check; the message says where the weights are instead.
    """
    wrapper.check_installed()
    if not wrapper.offers("train"):
        raise ConfigError(
            f"{type(wrapper).__name__} cannot be trained; it only runs models that are trained "
            f"already"
        )
    wrapper.check_saving(path)
    if options.run_folder is not None:
        RunFolder(options.run_folder).check()
    prepare_dataset(dataset)
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
                made
                if meaning is None
                else made.update_meaning(meaning.with_class_names(dataset.spec.class_names))
            )
            return described.update_trained(history.to_json())

        return save(write, path), history


def _size_of(model: LiveModel) -> int:
    """Return the size of a model's weights in bytes; 0 if it does not show them."""
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
    makes: bool = False,
    retrain: bool = False,
    progress: Progress = show_progress,
) -> None:
    """Train the model unless exactly this training has been done; the weights are at ``path``
    afterwards.

    ``record`` is the file that describes the training that was done.  Without ``options``, the
    weights at ``path`` are used as they are; with ``makes``, those that the wrapper's arguments
    name are written there before, unless the weights there were trained.
    """
    if options is None:
        if makes and not _is_trained(path):
            with wrapper.open() as model:
                model.save(path)
        return
    wanted = _describe_training(wrapper, dataset, options)
    changes = None if retrain else _find_changes(record, wanted, path)
    if changes == []:
        log.info(
            "using the weights in %s: this training has been done (--retrain repeats it)", path
        )
        return
    if changes:
        log.info("training again: %s", ", ".join(changes))
    record.unlink(missing_ok=True)
    fit(wrapper, dataset, options, path, progress)
    write_text(record, json.dumps(wanted, indent=2) + "\n")


def is_trained(
    wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions, path: Path, record: Path
) -> bool:
    """Return whether exactly this training has been done, so that :func:`train_once` would do
    nothing.
    """
    return _find_changes(record, _describe_training(wrapper, dataset, options), path) == []


def record_training(
    wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions, record: Path
) -> None:
    """Record that a training was done, possibly elsewhere, whose weights are here."""
    write_text(record, json.dumps(_describe_training(wrapper, dataset, options), indent=2) + "\n")


def _describe_training(
    wrapper: ModelWrapper, dataset: Dataset, options: TrainingOptions
) -> dict[str, Any]:
    prepare_dataset(dataset)
    wanted = {
        "wrapper": wrapper.describe(),
        "dataset": dataset.describe(),
        "training": options.to_json(),
    }
    wanted["data"] = DatasetSequence(dataset).settings()["content"]
    shown: dict[str, Any] = hide_settings_secrets(wanted)
    return shown


def _is_trained(path: Path) -> bool:
    try:
        return bool(Artifact.read(path).trained)
    except ArtifactError:
        return False


def _find_changes(record: Path, wanted: Mapping[str, Any], model_path: Path) -> list[str] | None:
    """Return the differences to the recorded training; None if there is none, or its weights are
    gone.
    """
    try:
        Artifact.read(model_path)
        stored = read_object(record)
        # an older record lacks newer options
        stored["training"] = TrainingOptions().to_json() | stored["training"]
        found = iter_differences(stored, to_json_value(wanted), frozenset({"data"}))
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
    """Return the formats between the stages, and check that everything that the stages need is
    installed.

    With ``remote``, the runtime's packages are needed on the target, not here.
    """
    found = plan(
        type(wrapper),
        [type(c) for c in compilers],
        type(runtime),
        export,
        lambda: components(ModelCompiler),
    )
    for component in (wrapper, *compilers, *([] if remote else [runtime])):
        component.check_ready()
    if isinstance(wrapper, FileModel):
        wrapper.check_takers([*map(type, compilers), type(runtime)], remote)
    return found


def get_file_suffix(way: Plan, compilers: Sequence[ModelCompiler]) -> str:
    """Return the usual ending of the file that the last of these compilers writes, or else the
    export.
    """
    return (
        compilers[-1].suffix
        if compilers and compilers[-1].suffix
        else _SUFFIXES.get(way.export, "." + way.export)
    )
