"""Loading of untrusted Keras files.

A ``.keras`` archive holds the model's structure as JSON and its weights as
HDF5; an ``.h5`` file holds weights and, sometimes, a structure.  Their content
is not trusted: layers that hold code are rejected, links in HDF5 files are not
followed, and claimed sizes are checked against the file's size before memory
is allocated.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.messages import format_one_line
from nnpipe.formats.keras import (
    CONFIG,
    WeightsMismatch,
    compute_max_bytes,
    get_dataset,
    get_file_kind,
    get_member,
    iterate_datasets,
    open_weights,
    read_array,
    read_names,
    read_structure,
)
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning

# Loading of weights from Keras's HDF5 files into an existing model.
#
# Keras has two layouts.  The present one numbers layers by class (``layers/conv2d_1/vars/0``); the
# older one uses layer names (``conv1/conv1/kernel:0``), as in the files of ``keras.applications``.


def set_weights_from(file: Any, model: Any) -> None:
    """Set all weights of a Keras model from an open ``h5py.File``, or none of them.

    Raises
    ------
    WeightsMismatch
        If a weight is missing, unexpected, or of another shape.
    ValueError
        If the file refers to other files, or has neither layout.
    """
    old = get_member(file, "model_weights") if "model_weights" in file else file
    if "layer_names" in old.attrs or "layer_names0" in old.attrs:
        _set_old(old, model)
    elif "layers" in file:
        _set_present(file, model)
    else:
        raise ValueError("an HDF5 file without Keras weights")


def _set_present(file: Any, model: Any) -> None:
    import h5py

    given = dict(iterate_datasets(file))
    with create_temporary_folder() as folder:
        # The model's own file shows which weights it has and under which paths Keras looks for
        # them.
        path = folder / "expected.weights.h5"
        with suppress_copy_warning():
            model.save_weights(path)
        with h5py.File(path, "r+") as expected:
            wanted = dict(iterate_datasets(expected))
            _compare(
                {name: d.shape for name, d in wanted.items()},
                {name: d.shape for name, d in given.items()},
            )
            for name, target in wanted.items():
                target[...] = read_array(given[name])
        with suppress_copy_warning():
            model.load_weights(path)


def _set_old(group: Any, model: Any) -> None:
    layers = [layer for layer in model.layers if layer.weights]
    found = {
        name: read_names(get_member(group, name), "weight_names")
        for name in read_names(group, "layer_names")
    }
    found = {name: weights for name, weights in found.items() if weights}
    if found.keys() == {layer.name for layer in layers}:
        pairs = [(layer, layer.name) for layer in layers]
    elif len(found) == len(layers):
        pairs = list(zip(layers, found, strict=True))
    else:
        raise WeightsMismatch(f"{len(found)} layers with weights, the model has {len(layers)}")
    values = []
    for layer, name in pairs:
        held = [get_dataset(group, f"{name}/{weight}") for weight in found[name]]
        variables = _sort_weights(layer, found[name])
        if len(variables) != len(held):
            raise WeightsMismatch(
                f"layer {name} holds {len(held)} weights, the model has {len(variables)}"
            )
        for variable, weight, item in zip(variables, found[name], held, strict=True):
            if tuple(item.shape) != tuple(variable.shape):
                raise WeightsMismatch(
                    f"{weight} has shape {tuple(item.shape)}, the model's is "
                    f"{tuple(variable.shape)}"
                )
            values.append((variable, read_array(item)))
    for variable, value in values:
        variable.assign(value)


def _sort_weights(layer: Any, given: list[str]) -> list[Any]:
    """Return a layer's weights in the order of the ``given`` names, or in the older order if no
    names match.

    The weights of a nested model have another order if it is frozen.
    """
    by_name = {variable.path: variable for variable in layer.weights}
    wanted = [name.removesuffix(":0") for name in given]
    if by_name.keys() == set(wanted):
        return [by_name[name] for name in wanted]
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _compare(wanted: dict[str, tuple[int, ...]], given: dict[str, tuple[int, ...]]) -> None:
    for name, shape in wanted.items():
        if name not in given:
            raise WeightsMismatch(
                f"{name} is missing ({len(given)} weights, the model has {len(wanted)})"
            )
        if tuple(given[name]) != tuple(shape):
            raise WeightsMismatch(
                f"{name} has shape {tuple(given[name])}, the model's is {tuple(shape)}"
            )
    for name in given:
        if name not in wanted:
            raise WeightsMismatch(
                f"{name} is not in the model ({len(given)} weights, the model has {len(wanted)})"
            )


HARD_SIGMOID_2 = "hard_sigmoid_keras2"
"""The ``hard_sigmoid`` of Keras 1 and 2, clip(0.2 x + 0.5, 0, 1); that of Keras 3 is clip(x / 6
+ 0.5, 0, 1).
"""
_PACKAGE = "nnpipe"


def describe_function(name: str) -> dict[str, Any]:
    """Return the configuration of one of these functions, as Keras 3 writes it."""
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": f"{_PACKAGE}>{name}",
    }


@cache
def register() -> None:
    """Register these functions in Keras, so that this process can load models that use them."""
    import keras

    @keras.saving.register_keras_serializable(package=_PACKAGE, name=HARD_SIGMOID_2)  # type: ignore[untyped-decorator, unused-ignore]
    def hard_sigmoid_keras2(x: Any) -> Any:
        return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


_FOREIGN = re.compile(
    r"Could not locate (?:class|function) '([^']+)'|Unknown (?:layer|object|\w+ function): "
    r"'([^']+)'"
)
_CODE = {
    "Lambda": "a Lambda layer",
    "__lambda__": "a Python lambda",
    "TFSMLayer": "a TFSMLayer",
    "TorchModuleWrapper": "a TorchModuleWrapper",
    "JaxLayer": "a JaxLayer",
    "FlaxLayer": "a FlaxLayer",
}


class KerasRefusal(ArtifactError):
    """Raised if Keras cannot build the model of a valid file; ``cause`` states why."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


def load_model(path: str | Path) -> Any:
    """Return the model of a ``.keras`` archive, or of an ``.h5`` file with a structure, with its
    weights.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another format, or holds code; the
        message names it and the cause.
    KerasRefusal
        If Keras cannot build the model that it describes.
    """
    path = Path(path)
    import_keras()
    register()
    structure = read_structure(path)
    if structure is None:
        raise ArtifactError(
            f"{path}: holds weights and no structure; save the whole model, or name the class that "
            f"builds it"
        )
    config = parse_structure(path, structure)
    with open_weights(path) as weights:
        try:
            model = build_bounded(
                path, config, _build_legacy_model if get_file_kind(path) == "hdf5" else _build_model
            )
            if not hasattr(model, "inputs"):
                raise ValueError(f"{type(model).__name__} is no functional or sequential model")
            if not model.inputs:
                raise ValueError(
                    "its layers do not say what they take; give the first one an input_shape"
                )
            set_weights_from(weights, model)
        except WeightsMismatch as error:
            raise ArtifactError(
                f"{path}: its structure and its weights do not belong together: {error}"
            ) from None
        except Exception as error:  # a damaged description can fail anywhere in Keras
            cause = _find_cause(error) + _describe_age(weights)
            raise KerasRefusal(
                f"{path}: Keras cannot build the model: {cause}", f"Keras 3 refuses it: {cause}"
            ) from None
    return model


def build_bounded(
    path: Path, config: dict[str, Any], build: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """Return the model of a configuration, unless its weights would be larger than the file can
    hold.

    Raises
    ------
    Exception
        Any exception of Keras if it cannot build the model, and ValueError if the weights would be
        too large.
    """
    import keras

    build = build or _build_model
    with warnings.catch_warnings():
        # Advice of Keras to the file's author, which its reader cannot follow.
        warnings.filterwarnings("ignore", "Do not pass an `input_shape`", UserWarning)
        _check_size(keras, build, config, compute_max_bytes(path))
        return build(config)


def _build_model(config: dict[str, Any]) -> Any:
    import keras

    return keras.saving.deserialize_keras_object(config, safe_mode=True)


def _build_legacy_model(config: dict[str, Any]) -> Any:
    from keras.src.legacy.saving import saving_options, saving_utils
    from keras.src.saving import serialization_lib

    given = {key: value for key, value in config.items() if key != "compile_config"}
    with (
        saving_options.keras_option_scope(use_legacy_config=True),
        serialization_lib.SafeModeScope(True),
    ):
        return saving_utils.model_from_config(given)


def read_weights(path: str | Path, model: Any, owner: str) -> None:
    """Set the weights of ``model`` from a ``.keras``, ``.weights.h5`` or ``.h5`` file: all of them,
    or none.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another format, or belongs to another model than
        ``owner``.
    """
    path = Path(path)
    import_keras()
    with open_weights(path) as weights:
        try:
            set_weights_from(weights, model)
        except WeightsMismatch as error:
            raise ArtifactError(
                f"{path}: holds the weights of another model than {owner}: {error}"
            ) from None
        except Exception as error:  # h5py raises any exception for damaged content
            raise ArtifactError(
                f"{path}: the weights cannot be read: {format_one_line(error)}"
            ) from None


def _find_cause(error: BaseException) -> str:
    """Return the cause in an error of Keras, without its advice and the model's whole
    configuration.
    """
    import keras

    text = str(error)
    if found := _FOREIGN.search(text):
        name = next(filter(None, found.groups()))
        if hasattr(keras.layers, name):
            return f"it does not find its own {name}"
        return (
            f"{name!r} is no layer of Keras 3: of another version, or somebody's own; name its "
            f"class by "
            "own_layers (--own-layers), or export the model as ONNX or TensorFlow Lite where its "
            "code is"
        )
    for wrapping in ("Exception encountered:", "Error encountered during deserialization:"):
        text = text.rpartition(wrapping)[2]
    return format_one_line(ValueError(text))


def _describe_age(file: Any) -> str:
    """Return a remark if an HDF5 file is older than Keras 3, which explains unknown arguments;
    otherwise empty.
    """
    said = file.attrs.get("keras_version", b"")
    version = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
    if not re.fullmatch(r"[12]\.[\w.-]{1,20}", version):
        return ""
    return f" (the file is of Keras {version})"


def parse_structure(path: Path, text: bytes) -> dict[str, Any]:
    """Return the structure in a file, without the configuration of its training.

    Raises
    ------
    ArtifactError
        If it is damaged or holds code; the message names the layer.
    """
    try:
        config = parse_json(text)
        if not isinstance(config, dict):
            raise ValueError("not an object")
        code = _find_code(config)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: its {CONFIG} is damaged ({format_one_line(error)})") from None
    if code:
        raise ArtifactError(
            f"{path}: holds {code}, which would run code from the file; express it with other "
            f"layers"
        )
    # The configuration of the training does not matter here, and may name objects that do not exist
    # here.
    return config | {"compile_config": None}


def _find_code(found: Any) -> str:
    if isinstance(found, dict):
        name = found.get("class_name")
        if isinstance(name, str) and name in _CODE:
            inner = found.get("config")
            label = inner.get("name") if isinstance(inner, dict) else None
            return _CODE[name] + (f" ({str(label)[:60]!r})" if label else "")
        found = found.values()
    elif not isinstance(found, list):
        return ""
    return next((code for item in found if (code := _find_code(item))), "")


def _check_size(
    keras: Any, build: Callable[[dict[str, Any]], Any], config: dict[str, Any], limit: int
) -> None:
    """Build the model without its weights; raise ``ValueError`` if the weights would be larger
    than ``limit``.
    """
    import tensorflow
    from keras.src.backend.common import global_state

    # Keras lists the variables created in this scope to initialise them later; these must never be
    # initialised.
    pending = "uninitialized_variables"
    before = global_state.get_global_attribute(pending)
    made: list[Any] = []
    global_state.set_global_attribute(pending, made)
    try:
        with keras.StatelessScope(initialize_variables=False):
            build(copy.deepcopy(config))  # building modifies the configuration
    finally:
        global_state.set_global_attribute(pending, before)
    claimed = sum(
        math.prod(variable.shape) * tensorflow.as_dtype(variable.dtype).size for variable in made
    )
    if claimed > limit:
        raise ValueError(f"it claims {claimed:,} bytes of weights, far more than the file can hold")
