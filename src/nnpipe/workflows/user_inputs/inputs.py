"""Converting a user's model and data."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.leases import temporary_folder
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.naming import list_names
from nnpipe.core.progress import Progress, silent
from nnpipe.datasets.arrays import write_arrays
from nnpipe.tasks.regression.task import Regression
from nnpipe.workflows.user_inputs.data import Arrays, arrays_of
from nnpipe.workflows.user_inputs.model import Models, models_of

log = logging.getLogger("nnpipe")

_TRAINING, _TEST = 0, 2


@dataclass(frozen=True)
class Given:
    """A model with its files, and its data.

    Parameters
    ----------
    models
        Wrappers that open the model, each with its file; the first is the model in its own framework.
    dataset
        The data; ``None`` if none were given.
    """

    models: Models
    dataset: Dataset | None


def given(
    model: Any,
    data: Any,
    folder: Path,
    *,
    preparation: Mapping[str, Any] | None = None,
    calibration: Any = None,
    calibration_samples: int = 128,
    class_names: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Given:
    """Write a model and data to files that other processes can read, and return them.

    Parameters
    ----------
    model
        A path, an ``nn.Module``, a Keras model, a :class:`~nnpipe.core.live_model.LiveModel`, or ``(wrapper, path)``.
    data
        Samples to test on, as for :func:`~nnpipe.workflows.user_inputs.data.arrays_of`, or a
        :class:`~nnpipe.core.dataset.Dataset`; ``None`` for no test.
    folder
        The folder for files, if any are needed.
    preparation
        The preprocessing that the model expects, as options of its wrapper.
    calibration
        Samples for quantisers to observe, in the form of ``data``; by default some of ``data`` are reserved for this.
    calibration_samples
        Number of samples to reserve, at most a fifth of all; 0 for none.
    class_names
        Names of the classes in order of their number.
    seed
        Seed for drawing the reserved samples.
    progress
        Shows the progress of reading the data.

    Raises
    ------
    ConfigError
        If the model or the data have an unknown form, or do not fit together.
    NNPipeError
        If the model cannot be read or written.
    """
    ready = next((each for each in (data, calibration) if isinstance(each, Dataset)), None)
    if ready is not None:
        if data is not None and calibration is not None:
            raise ConfigError("a data set has samples for calibration of its own: leave calibration out")
        return Given(opened_by(model, folder, None, preparation), ready)
    tested = None if data is None else arrays_of(data, progress)
    observed = None if calibration is None else arrays_of(calibration, progress)
    samples = observed if tested is None else tested
    models = opened_by(model, folder, samples, preparation)
    if samples is None:
        return Given(models, None)
    if tested is None:
        joined, split = samples, np.full(len(samples), _TRAINING, np.int8)
    elif observed is not None:
        joined, split = _joined(observed, tested)
    else:
        joined, split = tested, _put_aside(len(tested), calibration_samples, seed)
    return Given(models, _written(joined, split, models, folder / "data", class_names))


def opened_by(model: Any, folder: Path, samples: Arrays | None, preparation: Mapping[str, Any] | None = None) -> Models:
    """Return wrappers that open a model, as in :class:`Given`; by default arrays of floats are used unchanged."""
    floats = samples is not None and all(array.dtype.kind == "f" for array in samples.inputs.values())
    is_module = not isinstance(model, (str, Path, tuple, LiveModel, ModelWrapper))
    as_given = samples is not None and (floats or is_module)
    return models_of(model, folder, samples, preparation or {}, as_given=as_given)


def _joined(calibration: Arrays, data: Arrays) -> tuple[Arrays, Any]:
    if calibration.inputs.keys() != data.inputs.keys():
        raise ConfigError("calibration should have the same inputs as data")
    if any(calibration.inputs[name].shape[1:] != array.shape[1:] for name, array in data.inputs.items()):
        raise ConfigError("samples for calibration should have the shape of those of data")
    inputs = {name: np.concatenate([calibration.inputs[name], array]) for name, array in data.inputs.items()}
    split = np.repeat(np.array([_TRAINING, _TEST], np.int8), [len(calibration), len(data)])
    unused = np.zeros((len(calibration), *data.labels.shape[1:]), data.labels.dtype)  # quantisers see inputs only
    return Arrays(inputs, np.concatenate([unused, data.labels]), data.class_names), split


def _put_aside(count: int, calibration_samples: int, seed: int) -> Any:
    if count < 2 and calibration_samples:
        raise ConfigError("data should hold more than one sample")
    aside = max(1, min(calibration_samples, count // 5)) if calibration_samples else 0
    split = np.full(count, _TEST, np.int8)
    split[np.random.default_rng(seed).permutation(count)[:aside]] = _TRAINING
    return split


def _written(arrays: Arrays, split: Any, models: Models, folder: Path, class_names: Sequence[str]) -> Dataset:
    """Write arrays to files that other processes can read, and return their data set."""
    wrapper = models[0][0]
    inputs = _taken_inputs(arrays.inputs, wrapper)
    if not arrays.are_classes or (not class_names and _predicts_a_number(wrapper, arrays.labels)):
        return write_arrays(folder, inputs, arrays.labels.astype(np.float32), split=split, task=Regression.name)
    labels, names = arrays.labels, tuple(class_names) or arrays.class_names
    if arrays.class_names and class_names:
        if unknown := sorted(set(arrays.class_names) - set(names)):
            raise ConfigError(f"data has the class {unknown[0]!r}, which class_names lacks: {list_names(names)}")
        labels = np.array([names.index(name) for name in arrays.class_names])[labels]
    names = names or tuple(map(str, range(max(int(labels.max()) + 1, _classes(wrapper)))))
    return write_arrays(folder, inputs, labels, split=split, class_names=names)


def _taken_inputs(inputs: Mapping[str, Any], wrapper: ModelWrapper) -> dict[str, Any]:
    """Return samples under the names of the model's inputs, without those that it does not take."""
    taken = [spec.name for spec in wrapper.io.inputs]
    if len(inputs) == 1:  # a single input belongs to a single tensor, whatever their names
        return {taken[0].replace("/", "_") or "input": next(iter(inputs.values()))}
    if all(name.isdecimal() for name in inputs):
        if len(inputs) != len(taken) or wrapper.weights_format == "tflite":  # whose files keep no order
            raise ConfigError(
                f"data gives {len(inputs)} inputs without names, the model takes {list_names(taken)}: "
                "give a dict by name"
            )
        log.info("inputs by their order: %s", list_names(taken))
        return dict(zip(taken, inputs.values(), strict=True))
    if set(taken) < set(inputs):
        log.info("left out, since the model does not take them: %s", list_names(sorted(set(inputs) - set(taken))))
        return {name: inputs[name] for name in taken}
    return dict(inputs)


def _predicts_a_number(wrapper: ModelWrapper, labels: Any) -> bool:
    """Return whether a model gives one real number a sample, and labels are not two classes."""
    outputs = wrapper.io.outputs
    one = len(outputs) == 1 and all(length == 1 for length in outputs[0].shape[1:])
    is_label = one and outputs[0].dtype.startswith(("int", "uint")) and outputs[0].scale is None
    return one and not is_label and int(labels.max()) > 1


def _classes(wrapper: ModelWrapper) -> int:
    """Return the number of classes of a model's only output; 0 if it is not known."""
    outputs = wrapper.io.outputs
    last = outputs[0].shape[-1] if len(outputs) == 1 and len(outputs[0].shape) == 2 else None
    return last or 0


@contextmanager
def working_folder(folder: str | Path | None = None) -> Iterator[Path]:
    """Yield the given folder, or else a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with temporary_folder() as made:
        yield made
