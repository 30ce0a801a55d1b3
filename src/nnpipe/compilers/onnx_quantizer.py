"""Quantisation of ONNX models to 8 bits, by ONNX Runtime."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.compilers._onnx import (
    ONNXRewriter,
    compute_in_float32,
    convert_constant_nodes,
    copy_shared_outputs,
    find_surviving_tensors,
    list_onnx_steps,
    merge_into_one_file,
    optimize_onnx_file,
    unpack_blocks,
)
from nnpipe.compilers._onnx_bias_correction import (
    MOST_SAMPLES,
    add_zero_biases,
    correct_biases,
    restore_dead_biases,
)
from nnpipe.compilers._onnx_integer_io import set_integer_inputs, set_integer_outputs
from nnpipe.compilers._quantisation import (
    BlockwiseWeights,
    FloatKeepingCompiler,
    IntegerIOCompiler,
    WeightQuantisingCompiler,
    extend_over_passing_steps,
    find_touching_steps,
)
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_network import read_contents

PRODUCTS = ("MatMul", "Gemm")


ATTENTION_TYPES = (*PRODUCTS, "Conv", "ConvTranspose", "Gather")


DYNAMIC_TYPES = (*PRODUCTS, "Attention", "LSTM", "Gather", "EmbedLayerNormalization")


_FUSED = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention"})


_PASSING = frozenset({"Cast", "Dropout", "Identity", "Mul", "Reshape", "Transpose", "Where"})


def has_attention(graph: Any) -> bool:
    """Return whether a matrix product takes the result of a softmax, or an operator computes
    attention whole.

    A mask of -3e38 in the range of a tensor leaves nothing of its other values when that is rounded
    to 8 bits.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto``; its nodes are in topological order.
    """
    weighed: set[str] = set()  # tensors that come from a softmax
    for node in graph.node:
        if node.op_type in _FUSED:
            return True
        if node.op_type == "Softmax" or (
            node.op_type in _PASSING and weighed.intersection(node.input)
        ):
            weighed.update(node.output)
        elif node.op_type in ("MatMul", "Einsum") and weighed.intersection(node.input):
            return True
    return False


def find_added_biases(graph: Any) -> list[str]:
    """Return the names of Add nodes that only add a constant to a product of matrices with constant
    weights.

    Rounded before that, the sum would be rounded to nearly the same steps again, and a bias of less
    than half a step would have no effect at all.
    """
    constants = {constant.name for constant in graph.initializer}
    products = {
        node.output[0]
        for node in graph.node
        if node.op_type == "MatMul" and constants.intersection(node.input)
    }
    return [
        node.name
        for node in graph.node
        if node.op_type == "Add" and node.name
        if products.intersection(node.input) and constants.intersection(node.input)
    ]


def find_activation_gathers(graph: Any) -> list[str]:
    """Return the names of Gather nodes that pick from activations, which gain nothing from being
    rounded.
    """
    constants = {constant.name for constant in graph.initializer}
    return [
        node.name
        for node in graph.node
        if node.op_type == "Gather" and node.input[0] not in constants
    ]


_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}


_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}


_ADDING = frozenset(
    "Add Gemm Conv ConvTranspose BatchNormalization InstanceNormalization "
    "LayerNormalization".split()
)


_OPSET = 13  # the first in which QuantizeLinear supports scales per channel


_IR_VERSION = 7  # of operator set 13; from version 4 on, weights need not be inputs


class _OperatorChoice(ONNXRewriter, WeightQuantisingCompiler):
    """Base of quantisers of which one can say what they quantise."""

    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    operator_types: tuple[str, ...] = argument(
        (),
        help="operators such as Conv to quantise; by default all that ONNX Runtime can quantise "
        "from samples, but in models with attention only matrix products, convolutions and "
        "embeddings, and matrix products without samples",
    )


class ONNXStaticQuantizer(_OperatorChoice, IntegerIOCompiler, FloatKeepingCompiler):
    """Quantises ONNX models to 8 bits, with ranges of activations from calibration samples (QDQ
    form).
    """

    activation_type: Literal["int8", "uint8"] = argument(
        "uint8", help="integer type of quantised activations"
    )
    calibration_method: Literal["minmax", "entropy", "percentile"] = argument(
        "minmax",
        help=(
            "how to choose the range of an activation; all but minmax keep all activations in "
            "memory"
        ),
    )
    percentile: float = argument(
        99.99,
        help="percentage of the values that the range covers, for the percentile method",
        minimum=50.0,
        maximum=100.0,
    )
    correct_biases: bool = argument(
        False,
        help="shift the biases of convolutions and Gemm such that the mean of each channel is "
        "that of the model in floats, for samples; it helps most with --no-per-channel",
    )

    def validate(self) -> None:
        """Check that kernels exist for the pair of types."""
        if self.activation_type == "int8" and self.weight_type == "uint8":
            raise ConfigError(f"{type(self).__name__}: int8 activations need int8 weights")

    def needs_calibration(self) -> bool:
        """Return true: ranges of activations are calibrated."""
        return True

    def claims(self) -> tuple[Claim, ...]:
        """Return 8-bit weights and activations."""
        return ("int8",)

    def performance_caveats(self) -> tuple[str, ...]:
        """Return a handicap for types that ONNX Runtime multiplies slowly, as signed ones on
        x86.
        """
        slow = self.activation_type == "int8" and platform.machine().lower() in ("x86_64", "amd64")
        return ("signed activations, which ONNX Runtime multiplies slowly on x86",) if slow else ()

    def variant(self) -> str:
        """Return the kind of quantisation."""
        return "int8-corrected" if self.correct_biases else "int8"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx
        from onnxruntime.quantization import (
            CalibrationMethod,
            QuantFormat,
            QuantType,
            quantize_static,
        )

        assert calibration is not None  # checked by compile()
        with tempfile.TemporaryDirectory() as folder:
            quantised = Path(folder, "quantised.onnx")
            prepared = _prepare_model(artifact.path, Path(folder), with_biases=self.correct_biases)
            graph = onnx.load_model(str(prepared), load_external_data=False).graph
            attention = has_attention(graph)
            types = self.operator_types or (ATTENTION_TYPES if attention else ())
            as_floats = self.inference_output_type == "float32"
            biases = (
                find_added_biases(graph)
                if as_floats and not attention and not self.operator_types
                else []
            )
            # Their results go to operators in floats: rounding them would only double the error.
            unrounded = (
                () if not as_floats else PRODUCTS if attention else ("MatMul",) if biases else ()
            )
            floats = self._find_float_operations(artifact.path, graph) if self.keep_float else []
            quantize_static(
                str(prepared),
                str(quantised),
                _CalibrationReader(iter(calibration())),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(types) or None,
                nodes_to_exclude=[
                    *(find_activation_gathers(graph) if attention else biases),
                    *floats,
                ]
                or None,
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                activation_type=getattr(QuantType, _TYPES[self.activation_type]),
                weight_type=getattr(QuantType, _TYPES[self.weight_type]),
                calibrate_method=getattr(CalibrationMethod, _METHODS[self.calibration_method]),
                extra_options={
                    "CalibPercentile": self.percentile,
                    "OpTypesToExcludeOutputQuantization": list(unrounded),
                    "TensorQuantOverrides": self._find_overrides(graph) if self.per_channel else {},
                    # Otherwise, operations such as reshaping before the first computation would use
                    # floats.
                    "ForceQuantizeNoInputCheck": self.inference_input_type != "float32",
                },
            )
            model = onnx.load_model(str(quantised))
            if self.per_channel:
                restore_dead_biases(onnx.load_model(str(prepared)).graph, model.graph)
            if self.correct_biases:
                correct_biases(
                    onnx.load_model(str(prepared)), model, list(islice(calibration(), MOST_SAMPLES))
                )
        if self.inference_input_type != "float32":
            set_integer_inputs(model.graph, self.inference_input_type)
        if self.inference_output_type != "float32":
            set_integer_outputs(model.graph, self.inference_output_type)
        onnx.save_model(model, str(destination))
        return read_onnx(destination).io(artifact.io)

    def _find_overrides(self, graph: Any) -> dict[str, list[dict[str, Any]]]:
        """Return the weights to quantise with one scale: ONNX Runtime (1.31) fails on channels
        of transposed groups.
        """
        from onnxruntime.quantization import QuantType

        grouped = [
            node.input[1]
            for node in graph.node
            if node.op_type == "ConvTranspose"
            and any(each.name == "group" and each.i > 1 for each in node.attribute)
        ]
        one = {
            "quant_type": getattr(QuantType, _TYPES[self.weight_type]),
            "reduce_range": self.reduce_range,
        }
        return {name: [one] for name in grouped}

    def _find_float_operations(self, source: Path, graph: Any) -> list[str]:
        """Return the nodes of the prepared graph that compute or take tensors to keep in floats."""
        import onnx

        before = list_onnx_steps(onnx.load_model(str(source), load_external_data=False).graph)
        steps = list_onnx_steps(graph)
        there = {name for step in steps for name in (*step.inputs, *step.outputs)}
        known = there.union(name for step in before for name in (*step.inputs, *step.outputs))
        names = {
            survivor
            for name in self._match_keep_float(known)
            for survivor in find_surviving_tensors(name, before, there)
        }
        return [
            step.name
            for step in find_touching_steps(extend_over_passing_steps(names, steps), steps)
        ]


class ONNXDynamicQuantizer(_OperatorChoice):
    """Quantises weights of ONNX models to 8 bits, and activations in every inference; needs no
    samples.

    Convolutions stay in floats unless ``operator_types`` names them: ONNX Runtime takes several
    times as long for dynamically quantised ones.
    """

    def claims(self) -> tuple[Claim, ...]:
        """Return 8-bit weights and dynamically quantised activations."""
        return ("int8-weights",)

    def variant(self) -> str:
        """Return the kind of quantisation."""
        return "dynamic"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        types = self.operator_types or DYNAMIC_TYPES
        with tempfile.TemporaryDirectory() as folder:
            prepared = _prepare_model(artifact.path, Path(folder))
            kinds = {kind.rpartition(".")[2] for kind in read_contents(prepared).operations}
            if kinds.isdisjoint(types):
                raise CompileError(
                    f"there is no {', '.join(types)} to quantise; --operator-types names others, "
                    f"such as Conv, which "
                    "is slower than in floats"
                )
            quantize_dynamic(
                str(prepared),
                str(destination),
                op_types_to_quantize=list(types),
                per_channel=self.per_channel,
                reduce_range=self.reduce_range,
                weight_type=getattr(QuantType, _TYPES[self.weight_type]),
            )
        return read_onnx(destination).io(artifact.io)


class _CalibrationReader:
    """Passes batches to ONNX Runtime's calibrator one by one."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch, or ``None`` at the end."""
        batch = next(self._batches, None)
        return None if batch is None else dict(batch)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return map(dict, self._batches)


def _prepare_model(source: Path, folder: Path, with_biases: bool = False) -> Path:
    """Return the model in the best form for quantisation: a recent operator set, fused, with
    inferred shapes.
    """
    import onnx

    model = onnx.load_model(str(merge_into_one_file(source, folder)))
    _hide_constants(model.graph)
    convert_constant_nodes(model.graph)
    unpack_blocks(model.graph)
    compute_in_float32(model.graph, "FLOAT16", "DOUBLE")
    model.ir_version = max(model.ir_version, _IR_VERSION)
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if versions and versions[0] < _OPSET:
        model = onnx.version_converter.convert_version(model, _OPSET)
    recent, fused, shaped = (folder / name for name in ("recent.onnx", "fused.onnx", "shaped.onnx"))
    onnx.save_model(model, str(recent))
    optimize_onnx_file(recent, fused, "ORT_ENABLE_BASIC")
    model = onnx.load_model(str(fused))
    _name_nodes(model.graph)
    if with_biases:
        add_zero_biases(model.graph)
    _flatten_biases(model.graph)
    _separate_biases(model.graph)
    _forget_stated_shapes(model.graph)
    # their ranges are taken for those of what they read
    copy_shared_outputs(model.graph, "Relu", "Clip")
    onnx.save_model(onnx.shape_inference.infer_shapes(model), str(shaped))
    return shaped


def _hide_constants(graph: Any) -> None:
    """Remove weights from the list of inputs, where old files list them and they cannot be
    folded.
    """
    constants = {constant.name for constant in graph.initializer}
    kept = [value for value in graph.input if value.name not in constants]
    del graph.input[:]
    graph.input.extend(kept)


def _name_nodes(graph: Any) -> None:
    """Name nodes without a name, or with that of another node, after their first result."""
    taken: set[str] = set()
    for node in graph.node:
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}/{next(filter(None, node.output), '')}"
        taken.add(node.name)


def _flatten_biases(graph: Any) -> None:
    """Reshape biases of Gemm from row vectors to vectors: the quantiser fails on the former
    (ONNX Runtime 1.31).
    """
    added = {node.input[2] for node in graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    elsewhere = {
        name
        for node in graph.node
        for name in node.input
        if node.op_type != "Gemm" or name != node.input[-1]
    }
    for constant in graph.initializer:
        if constant.name in added - elsewhere and len(constant.dims) == 2 and constant.dims[0] == 1:
            del constant.dims[0]


def _separate_biases(graph: Any) -> None:
    """Copy vectors that several nodes add.

    ONNX Runtime (1.31) gives a shared bias the scale of one of them, and copies those of
    normalisations under names that other tensors may have.
    """
    vectors = {constant.name: constant for constant in graph.initializer if len(constant.dims) == 1}
    seen: set[str] = set()
    for node in graph.node:
        if node.op_type not in _ADDING:
            continue
        for place, name in enumerate(node.input):
            if name in seen:
                copy = graph.initializer.add()
                copy.CopyFrom(vectors[name])
                copy.name = node.input[place] = f"{name}/{node.output[0]}"
            elif name in vectors:
                seen.add(name)


def _forget_stated_shapes(graph: Any) -> None:
    """Remove separate shapes of constants, which PyTorch writes: the quantiser transposes
    constants but not these.
    """
    constants = {constant.name for constant in graph.initializer}
    kept = [value for value in graph.value_info if value.name not in constants]
    del graph.value_info[:]
    graph.value_info.extend(kept)


class ONNXWeightQuantizer(BlockwiseWeights, ONNXRewriter):
    """ONNX models whose matrix products have weights of 4 or 8 bits, in blocks with a scale each.

    All else stays in floats, and no samples are needed.  It is for models whose time and size are
    those of their weights, such as language models.  The products become ONNX Runtime's own
    operator ``MatMulNBits``, so that no other runtime takes the result.  Convolutions and
    embeddings stay as they are.
    """

    lowers: ClassVar[str] = "the weights of matrix products (MatMul, Gemm)"

    bits: Literal["4", "8"] = argument("4", help="bits of each weight")

    def claims(self) -> tuple[Claim, ...]:
        """Return weights of so many bits."""
        return ("int8-weights",) if self.bits == "8" else ("int4-weights",)

    def variant(self) -> str:
        """Return the number of bits."""
        return f"int{self.bits}-weights"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load_model(str(merge_into_one_file(artifact.path, Path(folder))))
        convert_constant_nodes(model.graph)
        compute_in_float32(model.graph, "DOUBLE")
        quantizer = MatMulNBitsQuantizer(
            model,
            bits=int(self.bits),
            block_size=self.block_size,
            is_symmetric=self.symmetric,
            op_types_to_quantize=("MatMul",),
        )
        quantizer.model.replace_gemm_with_matmul()
        quantizer.process()
        onnx.save_model(quantizer.model.model, str(destination))
        return read_onnx(destination).io(artifact.io)
