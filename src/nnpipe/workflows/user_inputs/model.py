"""Saving models from Python as files that wrappers open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, ConversionError, NNPipeError
from nnpipe.core.files import replacing
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.formats.transformers_folder import CONFIGURATION
from nnpipe.frameworks.torch_dynamic_shapes import dynamic_shapes
from nnpipe.modelwrappers.files.file_formats import format_of, wrapper_of
from nnpipe.workflows.user_inputs.data import Arrays

_MODULE, _KERAS = "torch.nn.modules.module.Module", ("keras.src.models.model.Model", "keras.models.Model")
Models = list[tuple[ModelWrapper, Path]]


def models_of(
    model: Any, folder: Path, samples: Arrays | None, preparation: Mapping[str, Any], *, as_given: bool
) -> Models:
    """Return wrappers that open a model, each with its file; the first is the model in its own framework.

    Parameters
    ----------
    model
        The path of a model file, or of a folder that ``save_pretrained`` of transformers wrote; an ``nn.Module`` of
        PyTorch; a Keras model; a live model; a wrapper, which has new weights or those of its own file; or
        ``(wrapper, path)`` with the file of its weights.
    folder
        The folder for the file, if there is none yet.
    samples
        Some preprocessed samples for tracing an ``nn.Module``.
    preparation
        The preprocessing that the model expects, as options of
        :class:`~nnpipe.modelwrappers.files.onnx.ONNXModel`: ``{"scale": 255}``.
    as_given
        Whether to use samples unchanged if neither ``preparation`` nor a description specifies the preprocessing.

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
        if (Path(model) / CONFIGURATION).is_file():
            return _of_folder(Path(model), samples, dict(preparation))
        return _of_file(Path(model), dict(preparation), as_given)
    above = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(model).__mro__}
    if _MODULE in above:
        return _of_file(_exported(model, folder / "model.pt2", samples), dict(preparation), as_given)
    if above & set(_KERAS):
        path = folder / "model.keras"
        with replacing(path) as temporary:
            model.save(temporary)
        return _of_file(path, dict(preparation), as_given)
    raise ConfigError(
        "a model is a file, a torch.nn.Module, a model of Keras, or a LiveModel or ModelWrapper of nnpipe, not "
        f"{type(model).__name__}"
    )


def _of_folder(path: Path, samples: Arrays | None, preparation: dict[str, Any]) -> Models:
    """Return the wrapper of a folder of transformers; texts have the length of the samples."""
    cls = find("TransformersModel", ModelWrapper)
    cls.check_installed()
    texts = (
        [array for array in samples.inputs.values() if array.dtype.kind == "i" and array.ndim == 2] if samples else []
    )
    length = {"sequence_length": texts[0].shape[1]} if texts else {}
    return [(cls.from_json({"model_folder": str(path), **length, **preparation}), path)]


def _of_file(path: Path, preparation: dict[str, Any], as_given: bool) -> Models:
    cls = wrapper_of(format_of(path))
    if cls is None:
        raise ConfigError(f"{path}: no model wrapper here opens {format_of(path)} files")
    cls.check_installed()

    def made(cls: type[ModelWrapper], argument: str) -> ModelWrapper:
        wrapper = cls.from_json({argument: str(path), **preparation})
        if not as_given or wrapper.preparation().known:
            return wrapper
        return cls.from_json({argument: str(path), "scale": 1.0, **preparation})

    models = [(made(cls, "model_path"), path)]
    declared = find("DeclaredModel", ModelWrapper)
    if cls.weights_format in ("onnx", "keras") and not declared.missing():
        with suppress(NNPipeError):  # a network with layers that nnpipe cannot describe
            models.append((made(declared, "network"), path))
    return models


def _exported(module: Any, path: Path, samples: Arrays | None) -> Path:
    """Export a PyTorch module, for any number of samples if it supports that, and return the path."""
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
                shapes = dynamic_shapes(module, tuple({0: free} for _ in example))
                program = torch.export.export(module, example, dynamic_shapes=shapes)
            except Exception:  # of several classes; most modules with a fixed number of samples fail here
                one = tuple(tensor[:1] for tensor in example)
                program = torch.export.export(module, one)
    except Exception as error:  # its errors have no common base class but Exception
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConversionError(f"torch.export cannot follow {type(module).__name__}: {first}") from error
    finally:
        module.train(training)
    with replacing(path) as temporary:
        torch.export.save(program, temporary)
    return path
