"""Opening Keras files that may come from anybody.

A ``.keras`` archive holds the model's structure as JSON and its weights as
HDF5; an ``.h5`` file holds weights and, sometimes, a structure.  Nothing in
them is trusted: no layer that carries code is made, no link in an HDF5 file
is followed, and what a file claims is held against what it holds before
memory is taken.
"""

from __future__ import annotations

import copy
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.kinds import check_there, told
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.keras_weights import WeightsMismatch, set_weights_from

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_CONFIG_LIMIT = 64 << 20
_EXPANSION_LIMIT = 16  # Keras does not compress; who recompresses weights gains a tenth
_SLACK = 1 << 20
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_ZIP_MAGIC = b"PK"
_FOREIGN = re.compile(r"Could not locate (?:class|function) '([^']+)'|Unknown (?:layer|object|\w+ function): '([^']+)'")
_CODE = {
    "Lambda": "a Lambda layer",
    "__lambda__": "a Python lambda",
    "TFSMLayer": "a TFSMLayer",
    "TorchModuleWrapper": "a TorchModuleWrapper",
    "JaxLayer": "a JaxLayer",
    "FlaxLayer": "a FlaxLayer",
}


def load_model(path: str | Path) -> Any:
    """Build the model of a ``.keras`` archive or of an ``.h5`` file with a structure, with its weights.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, of another kind, or holds code; the
        message names it and the cause.
    """
    path = Path(path)
    _, keras = import_keras()
    kind = _kind(path)
    if kind == "keras":
        with _archive(path) as archive:
            config = _config(path, _member(path, archive, _CONFIG, _CONFIG_LIMIT))
        build: Callable[[dict[str, Any]], Any] = partial(keras.saving.deserialize_keras_object, safe_mode=True)
    elif kind == "hdf5":
        with open_weights(path) as file:
            config = _config(path, _old_config(path, file))
        build = _built_as_of_old
    else:
        raise ArtifactError(f"{path}: neither a .keras archive nor an .h5 file{told(path, 'KerasModel')}")
    with open_weights(path) as weights:
        limit = path.stat().st_size * _EXPANSION_LIMIT + _SLACK
        try:
            _check_size(keras, build, config, limit)
            model = build(config)
            if not hasattr(model, "inputs"):
                raise ValueError(f"{type(model).__name__} is no functional or sequential model")
            if not model.inputs:
                raise ValueError("its layers do not say what they take; give the first one an input_shape")
            set_weights_from(weights, model)
        except WeightsMismatch as error:
            raise ArtifactError(f"{path}: its structure and its weights do not belong together: {error}") from None
        except Exception as error:  # a damaged description can fail anywhere in Keras
            raise ArtifactError(f"{path}: Keras cannot build the model: {_cause(error)}{_age(weights)}") from None
    return model


def _old_config(path: Path, file: Any) -> bytes:
    """Read the structure in an HDF5 file, which says it in an attribute."""
    text = file.attrs.get("model_config")
    if text is None:
        raise ArtifactError(
            f"{path}: holds weights and no structure; save the whole model, or name the class that builds it"
        )
    data = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    if len(data) > _CONFIG_LIMIT:
        raise ArtifactError(f"{path}: its structure is {len(data):,} bytes long, far more than any model's")
    return data


def _built_as_of_old(config: dict[str, Any]) -> Any:
    from keras.src.legacy.saving import saving_options, saving_utils
    from keras.src.saving import serialization_lib

    given = {key: value for key, value in config.items() if key != "compile_config"}
    with saving_options.keras_option_scope(use_legacy_config=True), serialization_lib.SafeModeScope(True):
        return saving_utils.model_from_config(given)


def read_weights(path: str | Path, model: Any, owner: str) -> None:
    """Set the weights of ``model`` from a ``.keras``, ``.weights.h5`` or ``.h5`` file: all of them, or none.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or foreign, or belongs to another model than ``owner``.
    """
    path = Path(path)
    import_keras()
    with open_weights(path) as weights:
        try:
            set_weights_from(weights, model)
        except WeightsMismatch as error:
            raise ArtifactError(f"{path}: holds the weights of another model than {owner}: {error}") from None
        except Exception as error:  # h5py raises what it likes for damaged content
            raise ArtifactError(f"{path}: the weights cannot be read: {one_line(error)}") from None


@contextmanager
def open_weights(path: Path) -> Iterator[Any]:
    """Open the HDF5 weights of a Keras file of any kind, as an ``h5py.File``."""
    import h5py

    kind = _kind(path)
    if kind == "keras":
        limit = path.stat().st_size * _EXPANSION_LIMIT + _SLACK
        with _archive(path) as archive:
            source: Any = io.BytesIO(_member(path, archive, _WEIGHTS, limit))
    elif kind == "hdf5":
        source = path
    else:
        raise ArtifactError(f"{path}: not a Keras file, .keras or HDF5{told(path, 'KerasModel')}")
    try:
        file = h5py.File(source, "r")
    except Exception as error:
        raise ArtifactError(f"{path}: damaged or truncated: {one_line(error)}") from None
    with file:
        yield file


def one_line(error: BaseException) -> str:
    """Give an error's message as one line of bearable length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


def _cause(error: BaseException) -> str:
    """Give the heart of an error that Keras has wrapped in advice and in the whole description of the model."""
    text = str(error)
    if found := _FOREIGN.search(text):
        return (
            f"{next(filter(None, found.groups()))!r} is no layer of Keras but somebody's own; export the model as ONNX "
            "or TensorFlow Lite where its code is, or write a wrapper that has it"
        )
    for wrapping in ("Exception encountered:", "Error encountered during deserialization:"):
        text = text.rpartition(wrapping)[2]
    return one_line(ValueError(text))


def _age(file: Any) -> str:
    """Tell that an HDF5 file is older than Keras 3, if it is: that is why a layer's arguments are not known."""
    said = file.attrs.get("keras_version", b"")
    version = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
    if not re.fullmatch(r"[12]\.[\w.-]{1,20}", version):
        return ""
    return f" (the file is of Keras {version}; open it there, or with tf_keras, and export it as ONNX or .tflite)"


def _kind(path: Path) -> str:
    check_there(path)
    with open(path, "rb") as handle:
        start = handle.read(len(_HDF5_MAGIC))
    if not start:
        raise ArtifactError(f"{path}: the file is empty")
    if start.startswith(_ZIP_MAGIC):
        return "keras"
    return "hdf5" if start == _HDF5_MAGIC else "else"


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ArtifactError(f"{path}: damaged or truncated archive ({one_line(error)})") from None
    with archive:
        yield archive


def _member(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ArtifactError(
            f"{path}: an archive without {name}, so not a Keras model{told(path, 'KerasModel')}"
        ) from None
    if info.file_size > limit:
        raise ArtifactError(f"{path}: its {name} claims {info.file_size:,} bytes, far more than the file can hold")
    try:
        return archive.read(info)
    except Exception as error:  # zlib, checksums, encryption: each has errors of its own
        raise ArtifactError(f"{path}: its {name} is damaged ({one_line(error)})") from None


def _config(path: Path, text: bytes) -> dict[str, Any]:
    try:
        config = json.loads(text)
        if not isinstance(config, dict):
            raise ValueError("not an object")
        code = _code_in(config)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: its {_CONFIG} is damaged ({one_line(error)})") from None
    if code:
        raise ArtifactError(f"{path}: holds {code}, which would run code from the file; express it with other layers")
    # How it was trained does not matter here, and may name things that are not here.
    return config | {"compile_config": None}


def _code_in(found: Any) -> str:
    if isinstance(found, dict):
        name = found.get("class_name")
        if isinstance(name, str) and name in _CODE:
            inner = found.get("config")
            label = inner.get("name") if isinstance(inner, dict) else None
            return _CODE[name] + (f" ({str(label)[:60]!r})" if label else "")
        found = found.values()
    elif not isinstance(found, list):
        return ""
    return next((code for item in found if (code := _code_in(item))), "")


def _check_size(keras: Any, build: Callable[[dict[str, Any]], Any], config: dict[str, Any], limit: int) -> None:
    """Build the model without its weights, and refuse it if the weights would be larger than the file allows."""
    import tensorflow
    from keras.src.backend.common import global_state

    # Keras keeps a list of the variables made in this scope, to fill them later on; these are never to be filled.
    pending = "uninitialized_variables"
    before = global_state.get_global_attribute(pending)
    made: list[Any] = []
    global_state.set_global_attribute(pending, made)
    try:
        with keras.StatelessScope(initialize_variables=False):
            build(copy.deepcopy(config))  # it takes the config apart
    finally:
        global_state.set_global_attribute(pending, before)
    claimed = sum(math.prod(variable.shape) * tensorflow.as_dtype(variable.dtype).size for variable in made)
    if claimed > limit:
        raise ValueError(f"it claims {claimed:,} bytes of weights, far more than the file can hold")
