"""Compressing the weights of one ONNX model again and again, in different forms."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._onnx import ONNXRewriter, merge_into_one_file, optimize_onnx_file
from nnpipe.compilers._onnx_packing import (
    DOMAIN,
    PackedConstants,
    estimate_packed_bytes,
    estimate_sparse_bytes,
    find_lossless_packing,
    slim_onnx_model,
)
from nnpipe.compilers.layer_forms import (
    LayerForm,
    RoundedWeights,
    assign_forms,
    compute_channel_scales,
    prune_weights,
    round_weights,
)
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.onnx import read_onnx

_ROWS = 8192  # places of a layer's input that are looked at, about
_FATAL = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ONNXLayer:
    """A convolution or matrix product with constant weights.

    Parameters
    ----------
    name
        The name of its node.
    node
        The ``onnx.NodeProto``.
    weight
        The constant that holds its weights: 32-bit floats, or 8-bit integers with scales.
    values
        The weights, in floats.
    scales
        The scale of each channel, if the constant is of integers; otherwise None.
    channels
        The axis of the weights that its results come from.
    """

    name: str
    node: Any
    weight: str
    values: npt.NDArray[np.float32]
    scales: npt.NDArray[np.float32] | None
    channels: int

    @property
    def matrix(self) -> Floats:
        """The weights as ``(channels, inputs)``."""
        return (
            np.moveaxis(self.values, self.channels, 0)
            .reshape(self.values.shape[self.channels], -1)
            .astype(float)
        )

    def restore_shape(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array like :attr:`matrix` in the shape of the weights."""
        shape = np.moveaxis(self.values, self.channels, 0).shape
        return np.ascontiguousarray(np.moveaxis(matrix.reshape(shape), 0, self.channels))

    @property
    def groups(self) -> int:
        """The number of groups of a convolution, each of which has inputs of its own."""
        return _get_attribute(self.node, "group", 1) if self.node.op_type == "Conv" else 1


def find_weight_layers(graph: Any) -> list[ONNXLayer]:
    """Return the layers of an ``onnx.GraphProto``, in its order; those that share their weights
    are left out.
    """
    from onnx import numpy_helper

    constants = {each.name: each for each in graph.initializer}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    makers = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    found = []
    for number, node in enumerate(graph.node):
        axis = _find_channel_axis(node)
        if axis is None or len(node.input) < 2 or uses[node.input[1]] != 1:
            continue
        name, scales = node.input[1], None
        if name in makers:
            maker = makers[name]
            name = maker.input[0]
            if any(each not in constants for each in maker.input) or uses[name] != 1:
                continue
            scales = numpy_helper.to_array(constants[maker.input[1]])
        if name not in constants or len(constants[name].dims) < 2:
            continue
        array = numpy_helper.to_array(constants[name])
        if scales is not None:
            place = (
                _get_attribute(makers[node.input[1]], "axis", 1) % array.ndim
                if scales.ndim
                else axis
            )
            if (
                array.dtype != np.int8
                or place != axis
                or _get_zero_points(makers[node.input[1]], constants).any()
            ):
                continue
            scales = np.broadcast_to(scales, (array.shape[axis],)).astype(np.float32)
            array = array * scales.reshape(
                [-1 if each == axis else 1 for each in range(array.ndim)]
            )
        if array.dtype == np.float32:
            found.append(
                ONNXLayer(node.name or f"{node.op_type}{number}", node, name, array, scales, axis)
            )
    return found


def _find_channel_axis(node: Any) -> int | None:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _get_attribute(node, "transB", 0) else 1
    return 1 if node.op_type == "MatMul" else None


def _get_zero_points(node: Any, constants: Mapping[str, Any]) -> npt.NDArray[Any]:
    from onnx import numpy_helper

    return numpy_helper.to_array(constants[node.input[2]]) if len(node.input) > 2 else np.zeros(1)


def _get_attribute(node: Any, name: str, default: int) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def compute_input_moments(
    model: Any, layers: Sequence[ONNXLayer], samples: Iterable[Batch], count: int
) -> dict[str, list[Floats]]:
    """Return the second moments of the inputs of layers, by name, one matrix for each group.

    Parameters
    ----------
    model
        An ``onnx.ModelProto``.
    layers
        Some of its layers.
    samples
        Batches of one sample.
    count
        About how many there are.
    """
    import onnxruntime
    from onnx import ModelProto, helper

    watched = ModelProto()
    watched.CopyFrom(model)
    given = {value.name for value in model.graph.input}
    known = {value.name for value in model.graph.output}
    wanted = list(
        dict.fromkeys(layer.node.input[0] for layer in layers if layer.node.input[0] not in given)
    )
    watched.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in wanted if name not in known
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(0)
    sums: dict[str, list[Floats]] = {}
    rows: dict[str, int] = {}
    for sample in samples:
        tensors = {
            **sample,
            **dict(zip(wanted, session.run(wanted, dict(sample)) if wanted else (), strict=True)),
        }
        for layer in layers:
            parts = list(
                _sample_rows(
                    layer, np.asarray(tensors[layer.node.input[0]]), max(1, _ROWS // count), random
                )
            )
            added = [part.T @ part for part in parts]
            before = sums.get(layer.name, [np.zeros_like(each) for each in added])
            sums[layer.name] = [one + other for one, other in zip(before, added, strict=True)]
            rows[layer.name] = rows.get(layer.name, 0) + len(parts[0])
    return {name: [each / max(rows[name], 1) for each in found] for name, found in sums.items()}


def _sample_rows(
    layer: ONNXLayer, values: npt.NDArray[Any], most: int, random: np.random.Generator
) -> Iterator[Floats]:
    """Yield some of the vectors that a layer multiplies with its weights: ``(rows, inputs)`` for
    each group.
    """
    if layer.node.op_type != "Conv":
        flat = values.reshape(-1, values.shape[-1])
        chosen = random.permutation(len(flat))[:most]
        yield flat[chosen].astype(float)
        return
    windows = _extract_windows(layer, values)  # (samples, channels, places..., kernel...)
    rank = layer.values.ndim - 2
    order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
    places = windows.transpose(order)
    indices = random.permutation(int(np.prod(places.shape[: 1 + rank])))[:most]
    taken = places[np.unravel_index(indices, places.shape[: 1 + rank])]
    for part in np.split(taken, layer.groups, axis=1):
        yield part.reshape(len(indices), -1).astype(float)


def _extract_windows(layer: ONNXLayer, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    lists = {each.name: list(each.ints) for each in layer.node.attribute if each.ints}
    texts = {each.name: each.s.decode() for each in layer.node.attribute if each.s}
    kernel = layer.values.shape[2:]
    rank = len(kernel)
    strides, dilations = (lists.get(name, [1] * rank) for name in ("strides", "dilations"))
    spans = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    pads = lists.get("pads", [0] * 2 * rank)
    if texts.get("auto_pad", "NOTSET").startswith("SAME"):
        sizes = values.shape[2:]
        needed = [
            max((-(-size // by) - 1) * by + span - size, 0)
            for size, by, span in zip(sizes, strides, spans, strict=True)
        ]
        pads = [each // 2 for each in needed] + [each - each // 2 for each in needed]
    padded = np.pad(values, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    found = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
    every = (slice(None), slice(None), *(slice(None, None, by) for by in (*strides, *dilations)))
    return found[every]


_OPSET = 13  # the first in which the nodes that unpack have their present forms
_LEAST = 64  # elements that are worth packing


class Compression:
    """One model, of which layers are stored in forms that are chosen for each file anew.

    The inputs of layers are observed once, and a layer is rounded once for each form.

    Parameters
    ----------
    model
        An ``onnx.ModelProto``, with its weights inside.
    calibration
        Samples by which the errors of weights make up for each other; None if each weight is
        rounded by itself.

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
        self._layers = {layer.name: layer for layer in find_weight_layers(model.graph)}
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

        The noise is what its results change by, squared, as a share of the results squared; without
        samples, that of the weights.
        """
        layer = self._layers[name]
        found = (
            self._get_rounded_layer(layer, form) if form.levels or form.sparsity else layer.values
        )
        if isinstance(found, RoundedWeights):
            sparse = found.pruned and bool(found.places.any())
            scales = compute_channel_scales(layer.matrix) if layer.scales is None else layer.scales
            size = estimate_packed_bytes(found.places, len(found.book), sparse) + (
                0 if layer.scales is not None else scales.nbytes
            )
            changed = found.values * scales[:, None].astype(np.float64)
        else:
            width = (
                1 if layer.scales is not None else 2 if form.levels == "half" else found.itemsize
            )
            size = min(found.size * width, int(found.size / 8 + width * np.count_nonzero(found)))
            if form.levels == "half":
                found = found.astype(np.float16)
            changed = (
                np.moveaxis(found, layer.channels, 0).reshape(layer.matrix.shape).astype(np.float64)
            )
        moments = self._get_moments(layer)
        pairs = zip(
            np.split(layer.matrix, len(moments)),
            np.split(changed, len(moments)),
            moments,
            strict=True,
        )
        energies = [
            (_compute_energy(one - other, own), _compute_energy(one, own))
            for one, other, own in pairs
        ]
        return size, sum(noise for noise, _ in energies) / max(
            sum(all_ for _, all_ in energies), 1e-300
        )

    def write(
        self, forms: Mapping[str, LayerForm], destination: Path, short_names: bool = True
    ) -> None:
        """Write the model with some layers in other forms, and everything packed that is smaller
        so.
        """
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
            if name not in gone | given and self._pack(
                name, onnx.numpy_helper.to_array(constant), packed
            ):
                gone.add(name)
        kept = [each for name, each in constants.items() if name not in gone]
        _replace(made, kept, packed)
        if short_names:
            slim_onnx_model(made)
        onnx.save_model(made, str(destination))

    def _store(
        self,
        layer: ONNXLayer,
        form: LayerForm,
        packed: PackedConstants,
        constants: Mapping[str, Any],
    ) -> set[str]:
        """Store a layer in a form; return the constants that are no longer needed."""
        from onnx import numpy_helper

        rounded = self._get_rounded_layer(layer, form)
        if isinstance(rounded, RoundedWeights):
            places = layer.restore_shape(rounded.places)
            units = layer.weight if layer.scales is not None else f"{layer.weight}/units"
            packed.add(units, places, rounded.book, rounded.pruned and bool(places.any()))
            if layer.scales is None:
                shape = [-1 if axis == layer.channels else 1 for axis in range(layer.values.ndim)]
                packed.scale(
                    layer.weight, units, compute_channel_scales(layer.matrix).reshape(shape)
                )
            return {layer.weight}
        if form.levels == "half" and layer.scales is None:
            packed.add_half(layer.weight, rounded)
            return {layer.weight}
        if layer.scales is not None:
            shape = [-1 if axis == layer.channels else 1 for axis in range(layer.values.ndim)]
            rounded = np.clip(np.rint(rounded / layer.scales.reshape(shape)), -128, 127).astype(
                np.int8
            )
        constants[layer.weight].CopyFrom(numpy_helper.from_array(rounded, layer.weight))
        return set()

    def _get_rounded_layer(self, layer: ONNXLayer, form: LayerForm) -> Any:
        key = layer.name, form
        if key not in self._rounded:
            self._rounded[key] = self._round_layer(layer, form)
        return self._rounded[key]

    def _round_layer(self, layer: ONNXLayer, form: LayerForm) -> Any:
        matrix, moments = layer.matrix, self._get_moments(layer)
        parts = np.split(matrix, len(moments))
        if form.levels in ("grid", "cluster"):
            scales = compute_channel_scales(matrix) if layer.scales is None else layer.scales
            if len(parts) > 1:  # each group has inputs of its own, but all share a codebook
                return round_weights(matrix, scales, None, form)
            return round_weights(matrix, scales, moments[0], form)
        if form.sparsity:
            matrix = np.concatenate(
                [
                    prune_weights(part, own, form.sparsity)
                    for part, own in zip(parts, moments, strict=True)
                ]
            )
        return layer.restore_shape(matrix).astype(np.float32)

    def _get_moments(self, layer: ONNXLayer) -> list[Any]:
        if self._calibration is None:
            return [None] * layer.groups
        if self._moments is None:
            samples = list(self._calibration())
            self._moments = compute_input_moments(
                self._model, list(self._layers.values()), samples, len(samples)
            )
        return self._moments[layer.name]

    def _pack(self, name: str, values: npt.NDArray[Any], packed: PackedConstants) -> bool:
        if values.size < _LEAST or values.dtype not in (np.float32, np.int8, np.uint8, np.int32):
            return False
        found = find_lossless_packing(values)
        if found is not None:
            packed.add(name, *found)
        elif estimate_sparse_bytes(values) < values.nbytes:
            packed.add_listed(name, values)
        else:
            return False
        return True


def _compute_energy(weights: Floats, moments: Floats | None) -> float:
    """Return the mean square of the results of weights, summed over channels."""
    product = weights if moments is None else weights @ moments
    return float((product * weights).sum())


def _replace(model: Any, constants: list[Any], packed: PackedConstants) -> None:
    """Replace the constants of a model, and add the nodes that unpack those that are packed."""
    from onnx import NodeProto, TensorProto, helper

    graph = model.graph
    constants = [TensorProto.FromString(each.SerializeToString()) for each in constants]
    nodes = [
        *packed.nodes,
        *(NodeProto.FromString(node.SerializeToString()) for node in graph.node),
    ]
    gone = {name for node in packed.nodes for name in node.output}
    inputs = [each for each in graph.input if each.name not in gone]
    for held, new in (
        (graph.initializer, [*constants, *packed.constants]),
        (graph.node, nodes),
        (graph.input, inputs),
    ):
        copies = [type(each).FromString(each.SerializeToString()) for each in new]
        del held[:]
        held.extend(copies)
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    functions = list(packed.functions(opset))
    if functions:
        model.functions.extend(functions)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        model.ir_version = max(model.ir_version, 8)  # the first with functions


class ONNXCompressor(ONNXRewriter):
    """Stores the weights of each layer in a form of its own, and packs them into as few bytes as
    these need.

    Layers can be rounded to evenly spaced values (``int4``), to those that k-means finds
    (``cluster16``), be pruned (``prune50``), or both (``prune50+int6``).  With calibration samples,
    the errors of weights make up for each other (GPTQ, Frantar et al. 2022, arXiv:2210.17323).
    What has few values already, such as the 8-bit weights of another compiler, is packed without
    loss.

    The weights are packed in the file itself: ONNX Runtime unpacks them when it loads the model,
    without anything of nnpipe, and then takes as long as for the unpacked model.  Put it behind
    ``ONNXStaticQuantizer`` to compute with 8-bit integers, and use it alone to compute with floats.
    """

    layers: tuple[str, ...] = argument(
        (),
        help="the form of each layer, such as 'conv1=int4' 'block*=cluster16' "
        "'dense=prune50+int6'; a name may be a pattern, and the last that fits counts; layers that "
        "are not named keep their values",
    )
    error_feedback: bool = argument(
        True,
        help=(
            "let the errors of rounded weights make up for each other, which needs calibration "
            "samples"
        ),
    )
    short_names: bool = argument(
        True, help="give nodes and tensors inside short names, which makes small files much smaller"
    )

    def needs_calibration(self) -> bool:
        """Return whether errors are to make up for each other."""
        return self.error_feedback and bool(self.layers)

    def claims(self) -> tuple[Claim, ...]:
        """Return what the forms do to weights."""
        forms = parse_forms(self.layers)
        found: list[Claim] = ["float"]
        if any(each.levels == "half" for each in forms):
            found.append("float16")
        if any(each.levels in ("grid", "cluster") for each in forms):
            found.append(
                "int8-weights"
                if all(each.count > 16 for each in forms if each.count)
                else "int4-weights"
            )
        if any(each.sparsity for each in forms):
            found.append("pruned")
        if any(each.levels == "cluster" for each in forms):
            found.append("clustered")
        return tuple(found)

    def variant(self) -> str:
        """Return that the file is compressed."""
        return "compressed"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        model = load_folded_model(artifact.path)
        compression = Compression(model, calibration if self.error_feedback else None)
        compression.write(
            assign_forms(self.layers, compression.names), destination, self.short_names
        )
        return read_onnx(destination).io(artifact.io)


def parse_forms(entries: Sequence[str]) -> list[Any]:
    """Return the forms in entries, whatever layers they name."""
    names = [entry.rpartition("=")[0] for entry in entries]
    return list(assign_forms(entries, names).values())


def load_folded_model(source: Path) -> Any:
    """Return the ``onnx.ModelProto`` of a file, with normalisations folded into the layers before
    them.

    A quantised model is returned as it is.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        whole = merge_into_one_file(source, Path(folder))
        model = onnx.load_model(str(whole))
        if any(node.op_type in ("DequantizeLinear", "QLinearConv") for node in model.graph.node):
            return model
        fused = Path(folder, "fused.onnx")
        optimize_onnx_file(whole, fused, "ORT_ENABLE_BASIC")
        return onnx.load_model(str(fused))
