"""Reading the weights in Keras's HDF5 files into a model that is there already.

Keras has written two layouts.  The present one numbers layers by class
(``layers/conv2d_1/vars/0``); the older one goes by layer name
(``conv1/conv1/kernel:0``) and is what ``keras.applications`` publishes.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.frameworks.keras import copying_variables

_ATTRIBUTE_LIMIT = 1 << 20  # names of layers or weights; far above any real model
_DEPTH_LIMIT = 64


class WeightsMismatch(Exception):
    """The file's weights are not those of the model."""


def set_weights_from(file: Any, model: Any) -> None:
    """Set all weights of a Keras model from an open ``h5py.File``, or none of them.

    Raises
    ------
    WeightsMismatch
        If a weight is missing, too many, or of another shape.
    ValueError
        If the file refers to other files, or is not of either layout.
    """
    old = _child(file, "model_weights") if "model_weights" in file else file
    if "layer_names" in old.attrs or "layer_names0" in old.attrs:
        _set_old(old, model)
    elif "layers" in file:
        _set_present(file, model)
    else:
        raise ValueError("an HDF5 file without Keras weights")


def _set_present(file: Any, model: Any) -> None:
    import h5py

    given = dict(_datasets(file))
    with tempfile.TemporaryDirectory(prefix="nnpipe-") as folder:
        # What the model itself would write says which weights it has and where Keras looks for them.
        path = Path(folder) / "expected.weights.h5"
        with copying_variables():
            model.save_weights(path)
        with h5py.File(path, "r+") as expected:
            wanted = dict(_datasets(expected))
            _compare({name: d.shape for name, d in wanted.items()}, {name: d.shape for name, d in given.items()})
            for name, target in wanted.items():
                target[...] = _read(given[name])
        with copying_variables():
            model.load_weights(path)


def _set_old(group: Any, model: Any) -> None:
    layers = [layer for layer in model.layers if layer.weights]
    found = {name: _names(_child(group, name), "weight_names") for name in _names(group, "layer_names")}
    found = {name: weights for name, weights in found.items() if weights}
    if found.keys() == {layer.name for layer in layers}:
        pairs = [(layer, layer.name) for layer in layers]
    elif len(found) == len(layers):
        pairs = list(zip(layers, found, strict=True))
    else:
        raise WeightsMismatch(f"{len(found)} layers with weights, the model has {len(layers)}")
    values = []
    for layer, name in pairs:
        datasets = [_dataset(group, f"{name}/{weight}") for weight in found[name]]
        variables = _in_order(layer, found[name])
        if len(variables) != len(datasets):
            raise WeightsMismatch(f"layer {name} holds {len(datasets)} weights, the model has {len(variables)}")
        for variable, weight, dataset in zip(variables, found[name], datasets, strict=True):
            if tuple(dataset.shape) != tuple(variable.shape):
                raise WeightsMismatch(
                    f"{weight} has shape {tuple(dataset.shape)}, the model's is {tuple(variable.shape)}"
                )
            values.append((variable, _read(dataset)))
    for variable, value in values:
        variable.assign(value)


def _in_order(layer: Any, names: list[str]) -> list[Any]:
    """Give a layer's weights in the order of ``names``, or in the order of old if the names say nothing.

    The order of a frozen model inside a model differs from that of a free one.
    """
    by_name = {variable.path: variable for variable in layer.weights}
    wanted = [name.removesuffix(":0") for name in names]
    if by_name.keys() == set(wanted):
        return [by_name[name] for name in wanted]
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _compare(wanted: dict[str, tuple[int, ...]], given: dict[str, tuple[int, ...]]) -> None:
    for name, shape in wanted.items():
        if name not in given:
            raise WeightsMismatch(f"{name} is missing ({len(given)} weights, the model has {len(wanted)})")
        if tuple(given[name]) != tuple(shape):
            raise WeightsMismatch(f"{name} has shape {tuple(given[name])}, the model's is {tuple(shape)}")
    for name in given:
        if name not in wanted:
            raise WeightsMismatch(f"{name} is not in the model ({len(given)} weights, the model has {len(wanted)})")


def _datasets(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List the model's weights in a file of the present layout; what an optimiser left there is passed over."""
    import h5py

    if prefix.count("/") > _DEPTH_LIMIT:
        raise ValueError("groups within groups without end")
    for name in group:
        path = f"{prefix}{name}"
        if path == "optimizer":
            continue
        item = _child(group, name)
        if isinstance(item, h5py.Group):
            yield from _datasets(item, path + "/")
        else:
            yield path, _checked(path, item)


def _dataset(group: Any, path: str) -> Any:
    for part in path.split("/"):
        group = _child(group, part)
    return _checked(path, group)


def _child(group: Any, name: str) -> Any:
    """Give a member of a group unless it is a link, which may lead to another file."""
    import h5py

    link = group.get(name, getclass=True, getlink=True) if isinstance(group, h5py.Group) else None
    if link is None:
        raise WeightsMismatch(f"{name} is announced and missing")
    if link is not h5py.HardLink:
        raise ValueError(f"{name} is a link, which is not followed")
    return group[name]


def _checked(path: str, item: Any) -> Any:
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biuf":
        raise ValueError(f"{path} is not an array of numbers")
    if item.external or item.is_virtual:
        raise ValueError(f"{path} lies in another file, which is not followed")
    return item


def _read(dataset: Any) -> np.ndarray:
    return np.asarray(dataset[()])


def _names(group: Any, name: str) -> list[str]:
    """Read a list of names; long ones are spread over ``name0``, ``name1``, ..."""
    parts = [name] if name in group.attrs else []
    while name not in group.attrs and f"{name}{len(parts)}" in group.attrs:
        parts.append(f"{name}{len(parts)}")
    names: list[str] = []
    for part in parts:
        attribute = group.attrs.get_id(part)
        if math.prod(attribute.shape or ()) * attribute.dtype.itemsize > _ATTRIBUTE_LIMIT:
            raise ValueError(f"{part} is too long")
        names += [text.decode("utf-8") if isinstance(text, bytes) else str(text) for text in group.attrs[part]]
    return names
