"""Convert a model and data that a user passes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.progress import Progress, silent
from nnpipe.datasets.arrays import write_arrays
from nnpipe.workflows.user_inputs.data import Arrays, arrays_of
from nnpipe.workflows.user_inputs.model import Models, models_of

_TRAINING, _TEST = 0, 2


@dataclass(frozen=True)
class Given:
    """A model with its files, and the data that it runs on.

    Parameters
    ----------
    models
        Wrappers that open the model, each with its file; the first is the model in its own framework.
    dataset
        The data; ``None`` where none were given.
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
    """Write a model and data where other processes can read them.

    Parameters
    ----------
    model
        A path, an ``nn.Module``, a model of Keras, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``.
    data
        Samples to test on, as :func:`~nnpipe.workflows.user_inputs.data.arrays_of` takes them, or a
        :class:`~nnpipe.core.dataset.Dataset`; ``None`` where nothing is tested.
    folder
        Where files are written, if any are needed.
    preparation
        What the model wants of samples, as the options of its wrapper say it.
    calibration
        What quantisers observe, in the form of ``data``.  If left out, some of ``data`` are put aside for it.
    calibration_samples
        How many are put aside; a fifth of all at most, and none for 0.
    class_names
        Names of the classes in order of their number.
    seed
        Draws the samples that are put aside.
    progress
        Shows how far reading the data is.

    Raises
    ------
    ConfigError
        If model and data are nothing that is known here, or do not fit together.
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
    """Return what opens a model, as :class:`Given` has it; arrays of floats go in as they are by default."""
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
    return Arrays(inputs, np.concatenate([calibration.labels, data.labels])), split


def _put_aside(count: int, calibration_samples: int, seed: int) -> Any:
    if count < 2 and calibration_samples:
        raise ConfigError("data should hold more than one sample")
    aside = max(1, min(calibration_samples, count // 5)) if calibration_samples else 0
    split = np.full(count, _TEST, np.int8)
    split[np.random.default_rng(seed).permutation(count)[:aside]] = _TRAINING
    return split


def _written(arrays: Arrays, split: Any, models: Models, folder: Path, class_names: Sequence[str]) -> Dataset:
    """Write arrays where other processes can read them."""
    wrapper, inputs = models[0][0], arrays.inputs
    names = tuple(class_names) or tuple(map(str, range(max(int(arrays.labels.max()) + 1, _classes(wrapper)))))
    if len(inputs) == 1:  # the only one goes to the only one, whatever it is called
        inputs = {wrapper.io.inputs[0].name.replace("/", "_") or "input": next(iter(inputs.values()))}
    return write_arrays(folder, inputs, arrays.labels, split=split, class_names=names)


def _classes(wrapper: ModelWrapper) -> int:
    """Return how many classes the only output of a model has; 0 where that cannot be told."""
    outputs = wrapper.io.outputs
    last = outputs[0].shape[-1] if len(outputs) == 1 and len(outputs[0].shape) == 2 else None
    return last or 0


@contextmanager
def working_folder(folder: str | Path | None = None) -> Iterator[Path]:
    """Yield a folder that is kept, or a temporary one where none is named."""
    if folder is not None:
        yield Path(folder)
        return
    made = tempfile.mkdtemp(prefix="nnpipe-")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
