"""Compressing the weights of one ONNX model again and again, in different forms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx_layers import ONNXLayer, input_moments, layers_of
from nnpipe.compilers._onnx_packing import DOMAIN, PackedConstants, listed_bytes, losslessly_packed, packed_bytes
from nnpipe.compilers._onnx_slimming import slim
from nnpipe.compilers._weight_rounding import RoundedWeights, pruned_weights, rounded_weights, scales_of
from nnpipe.compilers.layer_forms import LayerForm
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError

_OPSET = 13  # the first in which the nodes that unpack have their present forms
_LEAST = 64  # elements that are worth packing

Floats = npt.NDArray[np.float64]


class Compression:
    """One model, of which layers are stored in forms that are chosen for each file anew.

    The inputs of layers are observed once, and a layer is rounded once for each form.

    Parameters
    ----------
    model
        An ``onnx.ModelProto``, with its weights inside.
    calibration
        Samples by which the errors of weights make up for each other; None if each weight is rounded by itself.

    Raises
    ------
    CompileError
        If it has no layer with constant weights.
    """

    def __init__(self, model: Any, calibration: Calibration | None) -> None:
        import onnx

        versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
        if versions and versions[0] < _OPSET:
            model = onnx.version_converter.convert_version(model, _OPSET)
        self._model, self._calibration = model, calibration
        self._layers = {layer.name: layer for layer in layers_of(model.graph)}
        if not self._layers:
            raise CompileError("it has no convolution or matrix product with constant weights")
        self._moments: dict[str, list[Floats]] | None = None
        self._rounded: dict[tuple[str, LayerForm], Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(self._layers)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of weights of each layer."""
        return {name: layer.values.size for name, layer in self._layers.items()}

    def cost(self, name: str, form: LayerForm) -> tuple[int, float]:
        """Return about how many bytes a layer takes in a form, and its noise.

        The noise is what its results change by, squared, as a share of the results squared; without samples, that of
        the weights.
        """
        layer = self._layers[name]
        found = self._in_form(layer, form) if form.levels or form.sparsity else layer.values
        if isinstance(found, RoundedWeights):
            sparse = found.pruned and bool(found.places.any())
            scales = scales_of(layer.matrix) if layer.scales is None else layer.scales
            size = packed_bytes(found.places, len(found.book), sparse) + (
                0 if layer.scales is not None else scales.nbytes
            )
            changed = found.values * scales[:, None].astype(np.float64)
        else:
            width = 1 if layer.scales is not None else 2 if form.levels == "half" else found.itemsize
            size = min(found.size * width, int(found.size / 8 + width * np.count_nonzero(found)))
            if form.levels == "half":
                found = found.astype(np.float16)
            changed = np.moveaxis(found, layer.channels, 0).reshape(layer.matrix.shape).astype(np.float64)
        moments = self._moments_of(layer)
        pairs = zip(np.split(layer.matrix, len(moments)), np.split(changed, len(moments)), moments, strict=True)
        energies = [(_energy(one - other, own), _energy(one, own)) for one, other, own in pairs]
        return size, sum(noise for noise, _ in energies) / max(sum(all_ for _, all_ in energies), 1e-300)

    def write(self, forms: Mapping[str, LayerForm], destination: Path, short_names: bool = True) -> None:
        """Write the model with some layers in other forms, and everything packed that is smaller so."""
        import onnx

        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        packed = PackedConstants()
        constants = {each.name: each for each in made.graph.initializer}
        given = {value.name for value in (*made.graph.input, *made.graph.output)}
        gone = set()
        for name, form in forms.items():
            if form.levels or form.sparsity:
                gone |= self._store(self._layers[name], form, packed, constants)
        for name, constant in constants.items():
            if name not in gone | given and self._pack(name, onnx.numpy_helper.to_array(constant), packed):
                gone.add(name)
        kept = [each for name, each in constants.items() if name not in gone]
        _replace(made, kept, packed)
        if short_names:
            slim(made)
        onnx.save_model(made, str(destination))

    def _store(
        self, layer: ONNXLayer, form: LayerForm, packed: PackedConstants, constants: Mapping[str, Any]
    ) -> set[str]:
        """Store a layer in a form; return the constants that are no longer needed."""
        from onnx import numpy_helper

        rounded = self._in_form(layer, form)
        if isinstance(rounded, RoundedWeights):
            places = layer.restored(rounded.places)
            units = layer.weight if layer.scales is not None else f"{layer.weight}/units"
            packed.add(units, places, rounded.book, rounded.pruned and bool(places.any()))
            if layer.scales is None:
                shape = [-1 if axis == layer.channels else 1 for axis in range(layer.values.ndim)]
                packed.scale(layer.weight, units, scales_of(layer.matrix).reshape(shape))
            return {layer.weight}
        if form.levels == "half" and layer.scales is None:
            packed.add_half(layer.weight, rounded)
            return {layer.weight}
        if layer.scales is not None:
            shape = [-1 if axis == layer.channels else 1 for axis in range(layer.values.ndim)]
            rounded = np.clip(np.rint(rounded / layer.scales.reshape(shape)), -128, 127).astype(np.int8)
        constants[layer.weight].CopyFrom(numpy_helper.from_array(rounded, layer.weight))
        return set()

    def _in_form(self, layer: ONNXLayer, form: LayerForm) -> Any:
        key = layer.name, form
        if key not in self._rounded:
            self._rounded[key] = self._found(layer, form)
        return self._rounded[key]

    def _found(self, layer: ONNXLayer, form: LayerForm) -> Any:
        matrix, moments = layer.matrix, self._moments_of(layer)
        parts = np.split(matrix, len(moments))
        if form.levels in ("grid", "cluster"):
            scales = scales_of(matrix) if layer.scales is None else layer.scales
            if len(parts) > 1:  # each group has inputs of its own, but all share a codebook
                return rounded_weights(matrix, scales, None, form)
            return rounded_weights(matrix, scales, moments[0], form)
        if form.sparsity:
            matrix = np.concatenate(
                [pruned_weights(part, own, form.sparsity) for part, own in zip(parts, moments, strict=True)]
            )
        return layer.restored(matrix).astype(np.float32)

    def _moments_of(self, layer: ONNXLayer) -> list[Any]:
        if self._calibration is None:
            return [None] * layer.groups
        if self._moments is None:
            samples = list(self._calibration())
            self._moments = input_moments(self._model, list(self._layers.values()), samples, len(samples))
        return self._moments[layer.name]

    def _pack(self, name: str, values: npt.NDArray[Any], packed: PackedConstants) -> bool:
        if values.size < _LEAST or values.dtype not in (np.float32, np.int8, np.uint8, np.int32):
            return False
        found = losslessly_packed(values)
        if found is not None:
            packed.add(name, *found)
        elif listed_bytes(values) < values.nbytes:
            packed.add_listed(name, values)
        else:
            return False
        return True


def _energy(weights: Floats, moments: Floats | None) -> float:
    """Return the mean square of the results of weights, summed over channels."""
    product = weights if moments is None else weights @ moments
    return float((product * weights).sum())


def _replace(model: Any, constants: list[Any], packed: PackedConstants) -> None:
    """Replace the constants of a model, and add the nodes that unpack those that are packed."""
    from onnx import NodeProto, TensorProto, helper

    graph = model.graph
    constants = [TensorProto.FromString(each.SerializeToString()) for each in constants]
    nodes = [*packed.nodes, *(NodeProto.FromString(node.SerializeToString()) for node in graph.node)]
    gone = {name for node in packed.nodes for name in node.output}
    inputs = [each for each in graph.input if each.name not in gone]
    for held, new in ((graph.initializer, [*constants, *packed.constants]), (graph.node, nodes), (graph.input, inputs)):
        copies = [type(each).FromString(each.SerializeToString()) for each in new]
        del held[:]
        held.extend(copies)
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    functions = list(packed.functions(opset))
    if functions:
        model.functions.extend(functions)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        model.ir_version = max(model.ir_version, 8)  # the first with functions
