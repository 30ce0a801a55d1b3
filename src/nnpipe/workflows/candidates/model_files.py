"""Recognising a model file on a command line, and choosing the wrapper that opens it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnpipe.core.arguments import list_arguments
from nnpipe.core.artifact import BUILT_BYTES, Artifact, get_sidecar_path
from nnpipe.core.bounded_json import read_object
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import compute_sha256
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import components, find
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.model_folder import CONFIGURATION as GENAI_CONFIGURATION
from nnpipe.formats.model_folder import LISTING, TRANSFORMERS_CONFIGURATION, compute_listed_size
from nnpipe.formats.onnx import read_onnx
from nnpipe.frameworks.c_source import FORMAT as C_SOURCE
from nnpipe.modelwrappers.files.file_formats import FORMATS, find_format, find_wrapper


def find_file_wrapper(token: str) -> type[Component] | None:
    """Return the wrapper class for a file that is named instead of a class; ``None`` if it is
    not a file.
    """
    path = Path(token)
    if not path.name:  # a folder such as "." or "/"
        return None
    if not path.exists() and len(path.parts) < 2 and path.suffix.lower() not in FORMATS:
        return None
    format = find_format(path)  # the file is checked when it is opened, so that -h works without it
    found = find_wrapper(format)
    if found is None:
        raise ConfigError(
            f"{path}: no model wrapper here opens {format} files; name the wrapper's class and "
            f"give --model-path"
        )
    return found


def find_generator_wrapper(path: Path) -> type[ModelWrapper] | None:
    """Return the wrapper class for a folder with a model that generates text; ``None`` if it is no
    such folder.

    Raises
    ------
    ArtifactError
        If its configuration is damaged.
    """
    if (path / GENAI_CONFIGURATION).is_file():
        return find("ONNXRuntimeGenAIModel", ModelWrapper)
    if not (path / TRANSFORMERS_CONFIGURATION).is_file():
        return None
    kinds = read_object(path / TRANSFORMERS_CONFIGURATION).get("architectures")
    named = [each for each in kinds if isinstance(each, str)] if isinstance(kinds, list) else []
    generates = any(each.endswith(("ForCausalLM", "LMHeadModel")) for each in named)
    return find("TransformersGenerator", ModelWrapper) if generates else None


def require_wrapper(file: str) -> type[Component]:
    """Return the wrapper class for a model file, or for a folder with a model that generates text.

    Raises
    ------
    ConfigError
        If no wrapper opens it.
    """
    found = find_generator_wrapper(Path(file)) or find_file_wrapper(file)
    if found is None:
        raise ConfigError(f"{file}: no pipeline file and no model file that is known here")
    return found


def create_file_wrapper(file: str, options: argparse.Namespace) -> Any:
    """Return the wrapper of a model file, with its options from the command line, and the file's
    path.

    Of a folder with a model that generates text, the wrapper alone is returned.

    Raises
    ------
    ConfigError
        If the file does not exist, or no wrapper opens it.
    """
    path = Path(file)
    if find_generator_wrapper(path) is not None:
        return require_wrapper(file).from_argparse(
            argparse.Namespace(**{**vars(options), "model_folder": path})
        )
    if not path.is_file():
        raise ConfigError(f"{file}: no such model file")
    given = argparse.Namespace(**{**vars(options), "model_path": path})
    return require_wrapper(file).from_argparse(given), path


def set_model_path(
    options: argparse.Namespace, role: str, wanted: str, always: bool = False
) -> None:
    """Set ``model_path``: from ``--model-path`` if the role names a class, else to the file that it
    names.

    Raises
    ------
    ConfigError
        If ``--model-path`` is missing (``wanted`` describes it in the message), or is given with a
        file.  Without ``always``, it may be missing for a class whose arguments state where weights
        come from.
    """
    named = getattr(options, role.lower())
    if find_file_wrapper(named) is not None:
        if options.model_path is not None:
            raise ConfigError(f"--model-path is for a class as {role}; {named} is a file already")
        options.model_path = Path(named)
    elif options.model_path is None and (always or not find(named, ModelWrapper).makes_weights):
        raise ConfigError(f"--model-path is missing: {wanted}")


def with_weights(wrapper: Component, path: Path | None) -> Any:
    """Return a wrapper with the file of its weights, or alone if it makes them itself, as
    workflows take a model.
    """
    return wrapper if path is None else (wrapper, path)


def find_runtime(path: Path, format: str) -> Runtime:
    """Return an installed runtime for files of a format, preferably the one that is made for it.

    Raises
    ------
    ConfigError
        If there is no such runtime.
    """
    takers = [
        cls
        for cls in components(Runtime)
        if format in cls.accepts and not _has_required_arguments(cls)
    ]
    takers.sort(key=lambda cls: cls.accepts.index(format))
    for cls in takers:
        if not cls.missing():
            return cls()
    if takers:
        takers[0].check_installed()
    raise ConfigError(f"{path}: no runtime here runs {format}")


def read_artifact(path: Path, format: str, runtime: Runtime | None) -> Artifact:
    """Return a model file's description: the one beside it, or else what a runtime reads from
    the file.
    """
    if get_sidecar_path(path).is_file():
        return Artifact.read(path)
    return Artifact(path, format, _read_io_spec(path, format, runtime), compute_sha256(path))


def compute_model_size(
    artifact: Artifact, stats: Mapping[str, Any] = MappingProxyType({})
) -> int | None:
    """Return the bytes that a model takes: as it was built, or those of its file and the files of
    its weights.

    ``None`` for a C source of which nobody tells what was built: its text is as long as it is
    written, and its constants alone are less than any file.

    Parameters
    ----------
    artifact
        The model file.
    stats
        What the session tells that runs it.
    """
    built = get_built_bytes(stats)
    if built is not None or artifact.format == C_SOURCE:
        return built
    if artifact.format == "onnx":
        with contextlib.suppress(ArtifactError):  # a runtime may read what is unknown here
            return read_onnx(artifact.path).bytes_in_all
    if artifact.format == LISTING:
        return compute_listed_size(artifact.path)
    return artifact.size


def get_built_bytes(stats: Mapping[str, Any]) -> int | None:
    """Return the bytes of code and constants that a session tells; ``None`` for those that run a
    file as it is.
    """
    board, target = stats.get("board"), stats.get("target")
    if isinstance(board, Mapping):
        told = board.get("flash_bytes")
    else:
        told = (target if isinstance(target, Mapping) else stats).get(BUILT_BYTES)
    return told if type(told) is int and told >= 0 else None  # a target may tell anything


def read_class_names(path: Path) -> tuple[str, ...]:
    """Return the names of classes in the description beside weights: those of the data that they
    were trained on.
    """
    if not get_sidecar_path(path).is_file():
        return ()
    meaning = Artifact.read(path, check=False).meaning
    outputs = () if meaning is None else meaning.outputs
    return next((each.class_names for each in outputs if each.class_names), ())


def remove_model(path: Path) -> None:
    """Remove a model file that was made here, its description, and the files of its weights."""
    weights = [
        each for each in path.parent.glob("*.weights") if each.name.startswith(f"{path.name}.")
    ]
    for each in (path, get_sidecar_path(path), *weights):
        each.unlink(missing_ok=True)


def _read_io_spec(path: Path, format: str, runtime: Runtime | None) -> IOSpec:
    reader: Any = getattr(runtime, "io_of", None)
    if reader is not None:
        found: IOSpec = reader(path)
        return found
    wrapper = find_wrapper(format)
    if wrapper is None:
        raise ArtifactError(
            f"{path}: nothing beside it says what it takes and gives, and no wrapper here can tell"
        )
    wrapper.check_installed()
    return wrapper.from_json({"model_path": str(path)}).io


def _has_required_arguments(cls: type[Component]) -> bool:
    return any(declared.required for declared in list_arguments(cls))
