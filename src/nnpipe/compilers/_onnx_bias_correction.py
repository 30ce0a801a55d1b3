"""Correction of the biases of quantised ONNX models.

Rounding weights and activations shifts the mean of what a layer computes, channel by channel.  The
shift is the same for every sample, so it can be subtracted from the bias: M. Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019
(arXiv:1906.04721), section 4.2 and appendix D, in the empirical form, in which samples give the
means.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx import find_node_inputs
from nnpipe.core.tensors import Batch

log = logging.getLogger("nnpipe")

MOST_SAMPLES = 64
"""Samples to take the means over: the values of all of them are in memory between two layers."""

_HELD_BACK = 4  # one sample in so many judges the correction
_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_INT32 = np.iinfo(np.int32)

Values = npt.NDArray[np.float64]


def add_zero_biases(graph: Any) -> None:
    """Add a bias of 0 to convolutions and matrix products that have none and whose weights are
    constants.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto`` in floats; it is modified in place, and nodes have unique names.
    """
    from onnx import numpy_helper

    sizes = {
        constant.name: tuple(constant.dims)
        for constant in graph.initializer
        if constant.data_type == 1
    }
    for node in graph.node:
        if node.op_type not in _LAYERS or len(node.input) > 2 or node.input[1] not in sizes:
            continue
        bias = f"{node.output[0]}/bias"
        zeros = np.zeros(_count_channels(node, sizes[node.input[1]]), np.float32)
        graph.initializer.append(numpy_helper.from_array(zeros, bias))
        node.input.append(bias)


def correct_biases(floats: Any, quantised: Any, samples: Sequence[Batch]) -> int:
    """Shift biases of a quantised model such that the means of its layers are those of the model in
    floats.

    Layers are corrected in order, each with the results of the corrected ones before it: the shift
    that they cause would otherwise be corrected twice.  If the outputs for samples that were held
    back are not closer to those in floats afterwards, all biases get their former values.

    Parameters
    ----------
    floats
        An ``onnx.ModelProto`` in floats.
    quantised
        The same model in QDQ form, with the same names of nodes; its biases are modified in place.
    samples
        Batches, most of which the means are taken over.

    Returns
    -------
    int
        The number of biases that were moved.
    """
    names = {node.name for node in floats.graph.node}
    layers = [layer for layer in _find_layers(quantised.graph) if layer.name in names]
    if not layers:
        return 0
    held = samples[: len(samples) // _HELD_BACK]
    samples = samples[len(held) :]
    exact, former = (
        _compute_outputs(floats, held),
        [layer.bias.constant.SerializeToString() for layer in layers],
    )
    error = _compute_error(_compute_outputs(quantised, held), exact)
    wanted = _measure_layer_means(floats, [layer.name for layer in layers], samples)
    for layer, results in zip(layers, _iter_layer_results(quantised, layers, samples), strict=True):
        shift = layer.bias.add_shift(
            wanted[layer.name]
            - np.mean([_compute_channel_means(array) for array in results], axis=0)
        )
        for array in results:  # what the layers after it take
            array += shift.astype(array.dtype).reshape(-1, *(1,) * (array.ndim - 2))
    if error and _compute_error(_compute_outputs(quantised, held), exact) >= error:
        for layer, stored in zip(layers, former, strict=True):
            layer.bias.constant.ParseFromString(stored)
        log.info(
            "correcting biases did not help on samples that were held back; they are as they were"
        )
        return 0
    return len(layers)


@dataclass
class _Bias:
    """The bias of a layer, in floats or in 32-bit integers with a scale."""

    constant: Any
    scale: Values | None

    def add_shift(self, shift: Values) -> Values:
        """Add to the bias as far as its type allows, and return what was added."""
        from onnx import numpy_helper

        before = numpy_helper.to_array(self.constant)
        if self.scale is None:
            after = (before + shift.reshape(before.shape)).astype(before.dtype)
        else:
            moved = before.astype(np.float64) + np.rint(shift / self.scale).reshape(before.shape)
            after = np.clip(moved, _INT32.min, _INT32.max).astype(np.int32)
        self.constant.CopyFrom(numpy_helper.from_array(after, self.constant.name))
        added = after.astype(np.float64) - before
        return np.ravel(added if self.scale is None else added * self.scale)


@dataclass
class _Layer:
    name: str
    output: str
    bias: _Bias


def _find_layers(graph: Any) -> list[_Layer]:
    from onnx import numpy_helper

    constants = {constant.name: constant for constant in graph.initializer}
    makers = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    found = []
    for node in graph.node:
        if node.op_type not in _LAYERS or len(node.input) < 3:
            continue
        bias, scale = node.input[2], None
        if bias in makers:
            bias, factor = makers[bias].input[:2]
            scale = (
                numpy_helper.to_array(constants[factor]).astype(np.float64)
                if factor in constants
                else None
            )
            if scale is None:
                continue
        if bias in constants and uses[bias] == 1 and uses[node.input[2]] == 1:
            found.append(_Layer(node.name, node.output[0], _Bias(constants[bias], scale)))
    return found


def _count_channels(node: Any, shape: tuple[int, ...]) -> int:
    given = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Conv":
        return shape[0]
    if node.op_type == "ConvTranspose":
        return shape[1] * (given.get("group") or 1)
    return shape[0] if given.get("transB") else shape[1]


def _compute_channel_means(array: npt.NDArray[np.floating[Any]]) -> Values:
    """Return the mean of each channel of the result of a layer, whose second axis has the
    channels.
    """
    found: Values = array.mean(axis=(0, *range(2, array.ndim)), dtype=np.float64)
    return found


def _measure_layer_means(
    model: Any, names: Sequence[str], samples: Sequence[Batch]
) -> dict[str, Values]:
    """Return the mean of each channel of the results of some layers."""
    made = {node.name: node.output[0] for node in model.graph.node}
    outputs = [made[name] for name in names]
    session = _create_session(_extract_part(model, outputs, ()))
    runs = (
        map(_compute_channel_means, session.run(outputs, _select_session_inputs(session, sample)))
        for sample in samples
    )
    return dict(
        zip(names, (np.mean(means, axis=0) for means in zip(*runs, strict=True)), strict=True)
    )


def _compute_outputs(model: Any, samples: Sequence[Batch]) -> list[list[Any]]:
    """Return the outputs of a model for each sample."""
    session = _create_session(model)
    return [session.run(None, _select_session_inputs(session, sample)) for sample in samples]


def _compute_error(found: Sequence[Sequence[Any]], exact: Sequence[Sequence[Any]]) -> float:
    """Return the noise by the signal of outputs, the sum over all of them; 0 if there are none
    in floats.
    """
    total = 0.0
    for ours, theirs in zip(zip(*found, strict=True), zip(*exact, strict=True), strict=True):
        if theirs[0].dtype.kind != "f" or any(
            a.shape != b.shape for a, b in zip(ours, theirs, strict=True)
        ):
            continue  # such as classes, or as many boxes as were found
        pairs = [
            (a.astype(np.float64), b.astype(np.float64)) for a, b in zip(ours, theirs, strict=True)
        ]
        signal = sum(float(np.square(b).sum()) for _, b in pairs)
        total += sum(float(np.square(a - b).sum()) for a, b in pairs) / signal if signal else 0.0
    return total


def _iter_layer_results(
    model: Any, layers: Sequence[_Layer], samples: Sequence[Batch]
) -> Iterator[list[Any]]:
    """Yield the results of each layer for all samples; those that were yielded before are what the
    next one takes.

    So all layers together cost as much as running the model once for each sample.
    """
    outputs = [layer.output for layer in layers]
    needs = [
        _find_sources(model.graph, output, set(outputs[:place]))
        for place, output in enumerate(outputs)
    ]
    last = {name: place for place, names in enumerate(needs) for name in names}
    known: dict[str, list[Any]] = {}
    for place, output in enumerate(outputs):
        taken = {name: known[name] for name in needs[place]}
        session = _create_session(_extract_part(model, [output], taken))
        known[output] = [
            session.run(
                [output],
                _select_session_inputs(
                    session, {**sample, **{name: arrays[n] for name, arrays in taken.items()}}
                ),
            )[0]
            for n, sample in enumerate(samples)
        ]
        yield known[output]
        known = {name: arrays for name, arrays in known.items() if last.get(name, -1) > place}


def _find_sources(graph: Any, output: str, known: set[str]) -> set[str]:
    """Return the known tensors from which a tensor is computed."""
    return {
        name
        for node in _find_nodes_between(graph, [output], known)
        for name in find_node_inputs(node)
    } & known


def _find_nodes_between(graph: Any, outputs: Sequence[str], known: Collection[str]) -> list[Any]:
    """Return the nodes that compute some tensors from the known ones and the inputs, in order."""
    makers = {
        name: number for number, node in enumerate(graph.node) for name in node.output if name
    }
    found: set[int] = set()
    waiting = [makers[name] for name in outputs]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += [
                makers[name]
                for name in find_node_inputs(graph.node[number])
                if name in makers and name not in known
            ]
    return [graph.node[number] for number in sorted(found)]


def _extract_part(model: Any, outputs: Sequence[str], known: Collection[str]) -> Any:
    """Return the part of a model that computes some tensors from the known ones and the inputs."""
    from onnx import TensorProto, helper

    nodes = _find_nodes_between(model.graph, outputs, known)
    taken = {name for node in nodes for name in find_node_inputs(node)}
    inputs = [value for value in model.graph.input if value.name in taken]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in known]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [constant for constant in model.graph.initializer if constant.name in taken]
    graph = helper.make_graph(nodes, "part", inputs, results, constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _create_session(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # The numbers of each layer by itself are asked for, not those of fused ones.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _select_session_inputs(session: Any, values: Batch) -> dict[str, Any]:
    return {each.name: values[each.name] for each in session.get_inputs()}


# Biases of channels whose weights are all 0, which ONNX Runtime (1.31) rounds to almost nothing.
#
# Its quantiser gives such a channel a scale of 1.  The bias, whose scale is that of the input times
# that of the weights, is then rounded to multiples of the input's scale.  Channels without weights
# are common: normalisations whose scale is initialised with 0, and pruning.

_LARGEST = 2.0**30  # the largest integer of a bias, half of the largest that 32 bits hold
_OF_DEAD_LAYERS = 2.0**-16  # the scale of weights in layers where no channel has any


def restore_dead_biases(floats: Any, quantised: Any) -> None:
    """Give channels without weights a scale with which their biases are exact.

    Parameters
    ----------
    floats
        An ``onnx.GraphProto`` in floats.
    quantised
        The same graph in QDQ form, with the same names of nodes and weights per channel; it is
        modified in place.
    """
    from onnx import numpy_helper

    biases = {
        node.name: node.input[2]
        for node in floats.node
        if node.op_type in _LAYERS and len(node.input) > 2
    }
    given = {constant.name: constant for constant in floats.initializer}
    constants = {constant.name: constant for constant in quantised.initializer}
    makers = {node.output[0]: node for node in quantised.node if node.op_type == "DequantizeLinear"}
    # layers may share weights, of which the first one changes the scale
    before: dict[str, Any] = {}

    for node in quantised.node:
        if biases.get(node.name) not in given or any(
            name not in makers for name in node.input[1:3]
        ):
            continue
        weight, bias = (makers[name] for name in node.input[1:3])
        names = [*weight.input, *bias.input[:2]]
        if len(names) != 5 or any(name not in constants for name in names):
            continue
        for name in names:
            before.setdefault(name, numpy_helper.to_array(constants[name]))
        weights, scales, zero, integers, bias_scales = (before[name] for name in names)
        if scales.size < 2 or bias_scales.size != scales.size:
            continue
        axis = next((each.i for each in weight.attribute if each.name == "axis"), 1)
        rows = np.moveaxis(weights, axis, 0).reshape(scales.size, -1)
        dead = ~np.any(rows != zero.reshape(-1, 1), axis=1)
        if not dead.any():
            continue
        finer = np.where(dead, _OF_DEAD_LAYERS if dead.all() else np.median(scales[~dead]), scales)
        finer_biases = bias_scales * finer / scales
        exact = np.rint(numpy_helper.to_array(given[biases[node.name]]).ravel() / finer_biases)
        if np.any(np.abs(exact[dead]) > _LARGEST):
            continue
        exact = np.where(dead, exact, integers.ravel()).reshape(integers.shape)
        for name, values in ((names[1], finer), (names[3], exact), (names[4], finer_biases)):
            constants[name].CopyFrom(
                numpy_helper.from_array(values.astype(before[name].dtype), name)
            )
