"""Recognition of a file's type by its content, for messages that explain why it is not the
expected kind of model.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from nnpipe.core.errors import ArtifactError

_PAGE = (b"<!doctype html", b"<html", b"<?xml")
_SEALED = b"NNPIPE-1"
# a pickled number at the start of files of PyTorch before 1.6
_OLD_TORCH = bytes.fromhex("80028a0a6cfc9c46")
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd")
# They are tried in this order, because a TorchScript archive also holds a data.pkl.
_ARCHIVES = (
    ("/archive_format", "an exported PyTorch program, for TorchExportModel"),
    (
        "serialized_exported_program.json",
        "an exported program of PyTorch 2.8 or older; export it anew",
    ),
    (
        "/constants.pkl",
        "TorchScript, which cannot be checked before it runs; export the model with "
        "torch.export.save",
    ),
    (
        "/data.pkl",
        "written by torch.save: weights without a structure, or a pickled model; export the model "
        "with torch.export.save, or name the wrapper that builds it",
    ),
    ("model.weights.h5", "a Keras model, for KerasModel"),
    ("schema.json", "an estimator saved by skops, for SklearnModel"),
    (".npy", "arrays of NumPy, not a model"),
)


def describe_file_type(path: Path, own: str | None = None) -> str:
    """Return what a file is, to be appended to a message that it is not the expected kind.

    Parameters
    ----------
    path
        The file; only its start, its end and the names in an archive are read.
    own
        The wrapper that expected the file.  If the file is of this wrapper's kind, it must be
        damaged, and there is no hint.

    Returns
    -------
    str
        ``" (it is ...)"``, or the empty string if the type is not recognised.
    """
    try:
        found = _describe_content(path)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return ""
    return f" (it is {found})" if found and (own is None or own not in found) else ""


def check_there(path: Path) -> None:
    """Raise :class:`ArtifactError` unless ``path`` is a file; for known kinds of folders it says
    what to do instead.
    """
    if path.is_file():
        return
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such model file")
    if (path / "saved_model.pb").is_file():
        raise ArtifactError(
            f"{path}: a TensorFlow SavedModel, a folder; convert it: python -m tf2onnx.convert "
            f"--saved-model {path} --output model.onnx --opset 18"
        )
    if (path / "genai_config.json").is_file():
        raise ArtifactError(
            f"{path}: a folder of onnxruntime-genai, not a model file; "
            f"name ONNXRuntimeGenAIModel instead, with --model-folder {path}"
        )
    if (path / "config.json").is_file():
        raise ArtifactError(
            f"{path}: a folder, not a model file; if save_pretrained of transformers wrote it, "
            f"name TransformersModel instead, with --model-folder {path} --model-path {path}, or, "
            f"if it generates text, TransformersGenerator with --model-folder {path}"
        )
    raise ArtifactError(f"{path}: a folder, not a model file")


def _describe_content(path: Path) -> str:
    with open(path, "rb") as handle:
        start = handle.read(64)
        handle.seek(max(path.stat().st_size - len(_SEALED), 0))
        end = handle.read(len(_SEALED))
    if not start:
        return "empty"
    if end == _SEALED:
        return "compiled by nnpipe: it runs in a runtime and has no wrapper"
    if start[4:8] == b"TFL3":
        return "a TensorFlow Lite model, for TFLiteModel"
    if start[4:6] == b"ET":
        return "an ExecuTorch program, for ExecuTorchRuntime"
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return "HDF5, for KerasModel if a Keras model is in it"
    if start.startswith(b"PK"):
        return _describe_archive(path)
    if start.startswith(_OLD_TORCH):
        return (
            "written by an old torch.save: weights without a structure; name the wrapper that "
            "builds the model"
        )
    if start.startswith(b"\x80") and start[1:2] in b"\x02\x03\x04\x05":
        return "a pickle, which could run code and is not loaded"
    if start.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS, not the file itself: git lfs pull fetches it"
    if start.lstrip().startswith(b"<?xml") and b"<net " in start:
        return (
            "the structure of an OpenVINO model (IR), whose weights lie beside it as .bin; nnpipe "
            "makes such files itself: name the ONNX or TensorFlow Lite file that it was converted "
            "from"
        )
    if start.lstrip().lower().startswith(_PAGE):
        return "a web page, not a model: the download went wrong"
    if start.startswith(b"\x7fELF"):
        return "machine code for Linux"
    if start.startswith(_COMPRESSED):
        return "compressed; unpack it"
    if start.startswith(b"\x08\x01\x12"):
        return (
            "perhaps the graph in a TensorFlow SavedModel; name its folder to see how to convert it"
        )
    if start[:1] == b"\x08" and start[2:3] in (b"\x12", b"\x1a", b"\x3a"):
        return "perhaps an ONNX model, for ONNXModel"
    return ""


def _describe_archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for mark, kind in _ARCHIVES:
        if any(("/" + name).endswith(mark) for name in names):
            return kind
    return "a zip archive of something else"


class Damaged(ValueError):
    """An error about bytes that do not follow the format."""
