"""Converting a user's model and data."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, ConversionError, NNPipeError
from nnpipe.core.files import replace_atomically
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import list_names
from nnpipe.core.model import ModelWrapper
from nnpipe.core.progress import Progress, silent
from nnpipe.core.registry import find
from nnpipe.datasets.arrays import write_arrays
from nnpipe.formats.model_folder import TRANSFORMERS_CONFIGURATION
from nnpipe.frameworks.torch_program import build_dynamic_shapes
from nnpipe.modelwrappers.files.file_formats import find_wrapper, format_of
from nnpipe.tasks.regression.task import Regression
from nnpipe.workflows.user_inputs.data import Arrays, convert_to_arrays

_MODULE, _KERAS = (
    "torch.nn.modules.module.Module",
    ("keras.src.models.model.Model", "keras.models.Model"),
)
Models = list[tuple[ModelWrapper, Path]]


def create_wrappers(
    model: Any,
    folder: Path,
    samples: Arrays | None,
    preparation: Mapping[str, Any],
    *,
    as_given: bool,
) -> Models:
    """Return wrappers that open a model, each with its file; the first is the model in its own
    framework.

    Parameters
    ----------
    model
        The path of a model file, or of a folder that ``save_pretrained`` of transformers wrote; an
        ``nn.Module`` of PyTorch; a Keras model; a live model; a wrapper, which has new weights or
        those of its own file; or ``(wrapper, path)`` with the file of its weights.
    folder
        The folder for the file, if there is none yet.
    samples
        Some preprocessed samples for tracing an ``nn.Module``.
    preparation
        The preprocessing that the model expects, as options of
        :class:`~nnpipe.modelwrappers.files.onnx.ONNXModel`: ``{"scale": 255}``.
    as_given
        Whether to use samples unchanged if neither ``preparation`` nor a description specifies the
        preprocessing.

    Raises
    ------
    ConfigError
        If the model has another form.
    NNPipeError
        If a file cannot be read, or the model cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], ModelWrapper):
        return [(model[0], Path(model[1]))]
    if isinstance(model, ModelWrapper):
        with model.open() as opened:
            return [(model, opened.save(folder / "weights").path)]
    if isinstance(model, LiveModel):
        return [(model.wrapper, model.save(folder / "weights").path)]
    if isinstance(model, (str, Path)):
        if (Path(model) / TRANSFORMERS_CONFIGURATION).is_file():
            return _create_folder_wrappers(Path(model), samples, dict(preparation))
        return _create_file_wrappers(Path(model), dict(preparation), as_given)
    above = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(model).__mro__}
    if _MODULE in above:
        return _create_file_wrappers(
            _export_module(model, folder / "model.pt2", samples), dict(preparation), as_given
        )
    if above & set(_KERAS):
        path = folder / "model.keras"
        with replace_atomically(path) as temporary:
            model.save(temporary)
        return _create_file_wrappers(path, dict(preparation), as_given)
    raise ConfigError(
        "a model is a file, a torch.nn.Module, a model of Keras, or a LiveModel or ModelWrapper of "
        "nnpipe, not "
        f"{type(model).__name__}"
    )


def _create_folder_wrappers(
    path: Path, samples: Arrays | None, preparation: dict[str, Any]
) -> Models:
    """Return the wrapper of a folder of transformers; texts have the length of the samples."""
    cls = find("TransformersModel", ModelWrapper)
    cls.check_installed()
    texts = (
        [array for array in samples.inputs.values() if array.dtype.kind == "i" and array.ndim == 2]
        if samples
        else []
    )
    length = {"sequence_length": texts[0].shape[1]} if texts else {}
    return [(cls.from_json({"model_folder": str(path), **length, **preparation}), path)]


def _create_file_wrappers(path: Path, preparation: dict[str, Any], as_given: bool) -> Models:
    cls = find_wrapper(format_of(path))
    if cls is None:
        raise ConfigError(f"{path}: no model wrapper here opens {format_of(path)} files")
    cls.check_installed()

    def create_wrapper(cls: type[ModelWrapper], argument: str) -> ModelWrapper:
        wrapper = cls.from_json({argument: str(path), **preparation})
        if not as_given or wrapper.preparation().known:
            return wrapper
        return cls.from_json({argument: str(path), "scale": 1.0, **preparation})

    models = [(create_wrapper(cls, "model_path"), path)]
    declared = find("DeclaredModel", ModelWrapper)
    if cls.weights_format in ("onnx", "keras") and not declared.missing():
        with suppress(NNPipeError):  # a network with layers that nnpipe cannot describe
            models.append((create_wrapper(declared, "network"), path))
    return models


def _export_module(module: Any, path: Path, samples: Arrays | None) -> Path:
    """Export a PyTorch module, for any number of samples if it supports that, and return the
    path.
    """
    import torch

    if samples is None:
        raise ConfigError("an nn.Module is traced with samples: give data as arrays")
    example = tuple(torch.from_numpy(array[:2].copy()) for array in samples.inputs.values())
    training = module.training
    module.eval()
    try:
        free = torch.export.Dim("samples", min=1, max=1 << 20)
        with torch.no_grad():
            try:
                shapes = build_dynamic_shapes(module, tuple({0: free} for _ in example))
                program = torch.export.export(module, example, dynamic_shapes=shapes)
            # of several classes; most modules with a fixed number of samples fail here
            except Exception:
                one = tuple(tensor[:1] for tensor in example)
                program = torch.export.export(module, one)
    except Exception as error:  # its errors have no common base class but Exception
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConversionError(
            f"torch.export cannot follow {type(module).__name__}: {first}"
        ) from error
    finally:
        module.train(training)
    with replace_atomically(path) as temporary:
        torch.export.save(program, temporary)
    return path


log = logging.getLogger("nnpipe")

_TRAINING, _TEST = 0, 2


@dataclass(frozen=True)
class ImportedInputs:
    """A model with its files, and its data.

    Parameters
    ----------
    models
        Wrappers that open the model, each with its file; the first is the model in its own
        framework.
    dataset
        The data; ``None`` if none were given.
    """

    models: Models
    dataset: Dataset | None


def import_inputs(
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
) -> ImportedInputs:
    """Write a model and data to files that other processes can read, and return them.

    Parameters
    ----------
    model
        A path, an ``nn.Module``, a Keras model, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``.
    data
        Samples to test on, as for :func:`~nnpipe.workflows.user_inputs.data.convert_to_arrays`, or
        a :class:`~nnpipe.core.dataset.Dataset`; ``None`` for no test.
    folder
        The folder for files, if any are needed.
    preparation
        The preprocessing that the model expects, as options of its wrapper.
    calibration
        Samples for quantisers to observe, in the form of ``data``; by default some of ``data`` are
        reserved for this.
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
            raise ConfigError(
                "a data set has samples for calibration of its own: leave calibration out"
            )
        return ImportedInputs(import_model(model, folder, None, preparation), ready)
    tested = None if data is None else convert_to_arrays(data, progress)
    observed = None if calibration is None else convert_to_arrays(calibration, progress)
    samples = observed if tested is None else tested
    models = import_model(model, folder, samples, preparation)
    if samples is None:
        return ImportedInputs(models, None)
    if tested is None:
        joined, split = samples, np.full(len(samples), _TRAINING, np.int8)
    elif observed is not None:
        joined, split = _join_calibration(observed, tested)
    else:
        joined, split = tested, _put_aside(len(tested), calibration_samples, seed)
    return ImportedInputs(
        models, _write_dataset(joined, split, models, folder / "data", class_names)
    )


def import_model(
    model: Any, folder: Path, samples: Arrays | None, preparation: Mapping[str, Any] | None = None
) -> Models:
    """Return wrappers that open a model, as in :class:`ImportedInputs`; by default arrays of floats
    are used unchanged."""
    floats = samples is not None and all(
        array.dtype.kind == "f" for array in samples.inputs.values()
    )
    is_module = not isinstance(model, (str, Path, tuple, LiveModel, ModelWrapper))
    as_given = samples is not None and (floats or is_module)
    return create_wrappers(model, folder, samples, preparation or {}, as_given=as_given)


def _join_calibration(calibration: Arrays, data: Arrays) -> tuple[Arrays, Any]:
    if calibration.inputs.keys() != data.inputs.keys():
        raise ConfigError("calibration should have the same inputs as data")
    if any(
        calibration.inputs[name].shape[1:] != array.shape[1:] for name, array in data.inputs.items()
    ):
        raise ConfigError("samples for calibration should have the shape of those of data")
    inputs = {
        name: np.concatenate([calibration.inputs[name], array])
        for name, array in data.inputs.items()
    }
    split = np.repeat(np.array([_TRAINING, _TEST], np.int8), [len(calibration), len(data)])
    # quantisers see inputs only
    unused = np.zeros((len(calibration), *data.labels.shape[1:]), data.labels.dtype)
    return Arrays(inputs, np.concatenate([unused, data.labels]), data.class_names), split


def _put_aside(count: int, calibration_samples: int, seed: int) -> Any:
    if count < 2 and calibration_samples:
        raise ConfigError("data should hold more than one sample")
    aside = max(1, min(calibration_samples, count // 5)) if calibration_samples else 0
    split = np.full(count, _TEST, np.int8)
    split[np.random.default_rng(seed).permutation(count)[:aside]] = _TRAINING
    return split


def _write_dataset(
    arrays: Arrays, split: Any, models: Models, folder: Path, class_names: Sequence[str]
) -> Dataset:
    """Write arrays to files that other processes can read, and return their data set."""
    wrapper = models[0][0]
    inputs = _match_inputs(arrays.inputs, wrapper)
    if not arrays.are_classes or (not class_names and _is_regression(wrapper, arrays.labels)):
        return write_arrays(
            folder, inputs, arrays.labels.astype(np.float32), split=split, task=Regression.name
        )
    labels, names = arrays.labels, tuple(class_names) or arrays.class_names
    if arrays.class_names and class_names:
        if unknown := sorted(set(arrays.class_names) - set(names)):
            raise ConfigError(
                f"data has the class {unknown[0]!r}, which class_names lacks: {list_names(names)}"
            )
        labels = np.array([names.index(name) for name in arrays.class_names])[labels]
    names = names or tuple(map(str, range(max(int(labels.max()) + 1, _count_classes(wrapper)))))
    return write_arrays(folder, inputs, labels, split=split, class_names=names)


def _match_inputs(inputs: Mapping[str, Any], wrapper: ModelWrapper) -> dict[str, Any]:
    """Return samples under the names of the model's inputs, without those that it does not take."""
    taken = [spec.name for spec in wrapper.io.inputs]
    if len(inputs) == 1:  # a single input belongs to a single tensor, whatever their names
        return {taken[0].replace("/", "_") or "input": next(iter(inputs.values()))}
    if all(name.isdecimal() for name in inputs):
        # whose files keep no order
        if len(inputs) != len(taken) or wrapper.weights_format == "tflite":
            raise ConfigError(
                f"data gives {len(inputs)} inputs without names, the model takes "
                f"{list_names(taken)}: "
                "give a dict by name"
            )
        log.info("inputs by their order: %s", list_names(taken))
        return dict(zip(taken, inputs.values(), strict=True))
    if set(taken) < set(inputs):
        log.info(
            "left out, since the model does not take them: %s",
            list_names(sorted(set(inputs) - set(taken))),
        )
        return {name: inputs[name] for name in taken}
    return dict(inputs)


def _is_regression(wrapper: ModelWrapper, labels: Any) -> bool:
    """Return whether a model gives one real number a sample, and labels are not two classes."""
    outputs = wrapper.io.outputs
    one = len(outputs) == 1 and all(length == 1 for length in outputs[0].shape[1:])
    is_label = one and outputs[0].dtype.startswith(("int", "uint")) and outputs[0].scale is None
    return one and not is_label and int(labels.max()) > 1


def _count_classes(wrapper: ModelWrapper) -> int:
    """Return the number of classes of a model's only output; 0 if it is not known."""
    outputs = wrapper.io.outputs
    last = outputs[0].shape[-1] if len(outputs) == 1 and len(outputs[0].shape) == 2 else None
    return last or 0


@contextmanager
def create_working_folder(folder: str | Path | None = None) -> Iterator[Path]:
    """Yield the given folder, or else a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with create_temporary_folder() as made:
        yield made
