"""Weights of PyTorch modules: untrusted files, and arrays by name."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import show_shape
from nnpipe.modelwrappers.frameworks.inspection import check_weights

_SHOWN = 3
# Older versions of PyTorch did not store this counter; inference does not use it.
_OPTIONAL = ".num_batches_tracked"


def read_state(path: Path) -> dict[str, Any]:
    """Read a state dict from a file of safetensors or of ``torch.save``; its content states which.

    Files of ``torch.save`` are unpickled with ``weights_only``, so that no code
    in them runs.  They may hold a state dict or ``{"state_dict": ...}``; the
    prefix ``"module."`` of data-parallel training is removed.

    Returns
    -------
    dict
        CPU tensors by name.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or holds more than weights; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file of weights")
    try:
        with path.open("rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot read it: {error.strerror or error}") from None
    # A safetensors file begins with the length of its header, whose bytes may be those of a zip
    # file or a pickle.
    if start.startswith((b"PK", b"\x80")) and start[8:] != b"{":
        return _extract_state(path, _read_pickled(path))
    return _read_safetensors(path)


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(str(path)))
    except (SafetensorError, ValueError, KeyError, RuntimeError, OSError) as error:
        raise ArtifactError(
            f"{path}: neither whole safetensors nor what torch.save writes: "
            f"{format_one_line(error)}"
        ) from None


def _read_pickled(path: Path) -> Any:
    import pickle

    import torch

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > path.stat().st_size:
                raise ArtifactError(
                    f"{path}: compressed, which torch.save never does; it is not loaded"
                )
        # For a path, PyTorch would choose the format by its ending.
        with path.open("rb") as stream:
            return torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Damaged pickles raise the same error as those that try to call a function.
        text = str(error).partition("\n\nCheck the documentation")[0]
        called = re.search(r"GLOBAL (\S+)|but got (<.*>)", text)
        if called:
            raise ArtifactError(
                f"{path}: asks for {called[1] or called[2]} to be called, not only for weights; it "
                f"is not loaded"
            ) from None
        cause = format_one_line(text.rpartition("error: ")[2], 160)
        raise ArtifactError(f"{path}: damaged, or not what torch.save writes: {cause}") from None
    except ArtifactError:
        raise
    except Exception as error:  # damaged pickles fail in every way there is
        raise ArtifactError(
            f"{path}: damaged, or not what torch.save writes: {format_one_line(error, 160)}"
        ) from None


def _extract_state(path: Path, content: Any) -> dict[str, Any]:
    import torch

    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise ArtifactError(f"{path}: holds a {type(content).__name__}, not weights by name")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ArtifactError(f"{path}: {name!r} is a {type(value).__name__}, not a weight")
    if all(name.startswith("module.") for name in content):
        return {name.removeprefix("module."): value for name, value in content.items()}
    return dict(content)


def load_state(module: Any, state: Mapping[str, Any], path: Path) -> None:
    """Set the weights of a module, after a check that all of them fit.

    Raises
    ------
    ArtifactError
        If weights are missing, unexpected or of another shape; the message names them and the file.
    """
    import torch

    own = module.state_dict()
    wrong = [
        f"{name} has shape {show_shape(tuple(state[name].shape))} instead of "
        f"{show_shape(tuple(own[name].shape))}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    wrong += [
        f"{name} holds {_get_dtype_name(state[name])} instead of {_get_dtype_name(own[name])}"
        for name in own
        if name in state and state[name].is_floating_point() != own[name].is_floating_point()
    ]
    missing = [name for name in own if name not in state and not name.endswith(_OPTIONAL)]
    left_over = [name for name in state if name not in own]
    faults = [*_list("it lacks", missing), *_list("the model has no", left_over), *_list("", wrong)]
    if faults:
        raise ArtifactError(f"{path}: weights of another model: {'; '.join(faults)}")
    with torch.no_grad():
        for name, value in own.items():
            if name in state:
                value.copy_(state[name])


def _list(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{what} {', '.join(names[:_SHOWN])}{more}".strip()]


def get_arrays(
    owner: object, own: Mapping[str, Any], names: Iterable[str] | None
) -> dict[str, np.ndarray]:
    """Copy weights and buffers by their names in a state dict; bfloat16 ones as float32, which
    holds them.
    """
    import torch

    chosen = list(own if names is None else names)
    check_weights(owner, chosen, own)
    tensors = {name: own[name].detach().cpu() for name in chosen}
    return {
        name: (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()
        for name, tensor in tensors.items()
    }


def set_arrays(owner: object, own: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Replace some weights and buffers of a state dict, once all of them are known to fit."""
    import torch

    check_weights(owner, weights, own)
    fresh = {}
    for name, array in weights.items():
        given = torch.from_numpy(np.array(array))
        if given.shape != own[name].shape:
            raise SpecMismatch(
                f"weight {name!r} has shape {show_shape(tuple(own[name].shape))}, not "
                f"{show_shape(tuple(given.shape))}"
            )
        if given.is_floating_point() != own[name].is_floating_point():
            raise SpecMismatch(
                f"weight {name!r} holds {_get_dtype_name(own[name])}, not {_get_dtype_name(given)}"
            )
        fresh[name] = given
    with torch.no_grad():
        for name, given in fresh.items():
            own[name].copy_(given)


def _get_dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
