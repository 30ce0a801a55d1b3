"""Loading of weights from Keras's HDF5 files into an existing model.

Keras has two layouts.  The present one numbers layers by class
(``layers/conv2d_1/vars/0``); the older one uses layer names
(``conv1/conv1/kernel:0``), as in the files of ``keras.applications``.
"""

from __future__ import annotations

from typing import Any

from nnpipe.core.leases import temporary_folder
from nnpipe.formats.hdf5 import WeightsMismatch, array, child, dataset, datasets, names
from nnpipe.frameworks.keras import copying_variables


def set_weights_from(file: Any, model: Any) -> None:
    """Set all weights of a Keras model from an open ``h5py.File``, or none of them.

    Raises
    ------
    WeightsMismatch
        If a weight is missing, unexpected, or of another shape.
    ValueError
        If the file refers to other files, or has neither layout.
    """
    old = child(file, "model_weights") if "model_weights" in file else file
    if "layer_names" in old.attrs or "layer_names0" in old.attrs:
        _set_old(old, model)
    elif "layers" in file:
        _set_present(file, model)
    else:
        raise ValueError("an HDF5 file without Keras weights")


def _set_present(file: Any, model: Any) -> None:
    import h5py

    given = dict(datasets(file))
    with temporary_folder() as folder:
        # The model's own file shows which weights it has and under which paths Keras looks for them.
        path = folder / "expected.weights.h5"
        with copying_variables():
            model.save_weights(path)
        with h5py.File(path, "r+") as expected:
            wanted = dict(datasets(expected))
            _compare({name: d.shape for name, d in wanted.items()}, {name: d.shape for name, d in given.items()})
            for name, target in wanted.items():
                target[...] = array(given[name])
        with copying_variables():
            model.load_weights(path)


def _set_old(group: Any, model: Any) -> None:
    layers = [layer for layer in model.layers if layer.weights]
    found = {name: names(child(group, name), "weight_names") for name in names(group, "layer_names")}
    found = {name: weights for name, weights in found.items() if weights}
    if found.keys() == {layer.name for layer in layers}:
        pairs = [(layer, layer.name) for layer in layers]
    elif len(found) == len(layers):
        pairs = list(zip(layers, found, strict=True))
    else:
        raise WeightsMismatch(f"{len(found)} layers with weights, the model has {len(layers)}")
    values = []
    for layer, name in pairs:
        held = [dataset(group, f"{name}/{weight}") for weight in found[name]]
        variables = _in_order(layer, found[name])
        if len(variables) != len(held):
            raise WeightsMismatch(f"layer {name} holds {len(held)} weights, the model has {len(variables)}")
        for variable, weight, item in zip(variables, found[name], held, strict=True):
            if tuple(item.shape) != tuple(variable.shape):
                raise WeightsMismatch(f"{weight} has shape {tuple(item.shape)}, the model's is {tuple(variable.shape)}")
            values.append((variable, array(item)))
    for variable, value in values:
        variable.assign(value)


def _in_order(layer: Any, given: list[str]) -> list[Any]:
    """Return a layer's weights in the order of the ``given`` names, or in the older order if no names match.

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
            raise WeightsMismatch(f"{name} is missing ({len(given)} weights, the model has {len(wanted)})")
        if tuple(given[name]) != tuple(shape):
            raise WeightsMismatch(f"{name} has shape {tuple(given[name])}, the model's is {tuple(shape)}")
    for name in given:
        if name not in wanted:
            raise WeightsMismatch(f"{name} is not in the model ({len(given)} weights, the model has {len(wanted)})")
