"""Conversion of ONNX and TensorFlow Lite models to OpenVINO, in floats or 8-bit integers."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.compilers._quantisation import FloatKeepingCompiler, GraphStep
from nnpipe.compilers.writing_compiler import has_weights_of_8_bits
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, MissingDependency
from nnpipe.core.messages import format_one_line
from nnpipe.core.native_output import suppress_log_messages
from nnpipe.core.processor import has_saturating_byte_sums
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.openvino_models import (
    OpenVINOModel,
    format_openvino_message,
    read_model,
    write_openvino,
)

_LEAST = 1e-30  # of weights that are not 0: in single precision their scale is not 0 either


@contextmanager
def use_own_ranges() -> Iterator[None]:
    """Let NNCF give every channel of weights that are not all 0 the range of its own values.

    It gives a channel at least 1 % of the range of the largest (``fix_zero_filters_symmetric`` in
    NNCF 3.4), so that a channel of weights a hundred times smaller becomes 0, although each has a
    scale.  It has no option for this. A version without this function is left as it is.
    """
    import nncf.quantization.fake_quantize as fake_quantize
    from nncf.tensor import functions

    name = "fix_zero_filters_symmetric"
    original = getattr(fake_quantize, name, None)
    if original is None:
        yield
        return

    def select_range(greatest: Any) -> Any:
        return functions.where(greatest > _LEAST, greatest, original(greatest))

    setattr(fake_quantize, name, select_range)
    try:
        yield
    finally:
        setattr(fake_quantize, name, original)


_PRESETS = {"performance": "PERFORMANCE", "mixed": "MIXED"}
# Operations whose rounded result is the result for the rounded input.
_PASSING = frozenset(
    (
        "Relu",
        "Clamp",
        "MaxPool",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "DepthToSpace",
        "SpaceToDepth",
        "Tile",
    )
)


class OpenVINOCompiler(FloatKeepingCompiler):
    """Converts ONNX and TensorFlow Lite models to OpenVINO; NNCF quantises them for int8."""

    requires: ClassVar[tuple[str, ...]] = ("openvino",)
    install: ClassVar[str] = "nnpipe[openvino]"
    accepts: ClassVar[tuple[str, ...]] = ("onnx", "tflite")
    produces: ClassVar[str] = "openvino"
    suffix: ClassVar[str] = ".openvino"
    packages: ClassVar[tuple[str, ...]] = ("openvino", "nncf")

    precision: Literal["fp32", "fp16", "int8"] = argument(
        "fp32",
        help=(
            "fp32 keeps the model's numbers, fp16 halves its weights, int8 quantises weights and "
            "activations"
        ),
    )
    activation_preset: Literal["performance", "mixed"] = argument(
        "performance",
        help=(
            "quantise activations symmetrically (performance), or asymmetrically where it helps "
            "(mixed); for int8"
        ),
    )
    activation_range: Literal["mean", "minmax"] = argument(
        "mean",
        help="range of quantised activations: the mean of the samples' ranges, beyond which "
        "values saturate, or the range of all samples; for int8",
    )
    bias_correction: Literal["fast", "accurate"] = argument(
        "fast",
        help=(
            "how to correct the shift caused by quantised weights; accurate takes much longer; for "
            "int8"
        ),
    )
    overflow_fix: Literal["auto", "enable", "first_layer", "disable"] = argument(
        "auto",
        help="use 7 bits of a weight, which avoids overflow on x86 processors without VNNI: in "
        "all layers (enable), in the first one or in none; auto enables it where this machine's "
        "processor overflows; for int8",
    )

    model_type: Literal["auto", "transformer", "other"] = argument(
        "auto",
        help="how NNCF treats attention: transformer keeps masks and softmax in floats; auto finds "
        "out whether the model has attention or embeddings; for int8",
    )

    def validate(self) -> None:
        """Check that tensors are only kept in floats if the others are quantised."""
        super().validate()
        self._check_keep_float(self.precision == "int8", f"--precision int8, not {self.precision}")

    def needs_calibration(self) -> bool:
        """Return whether activations are quantised to integers."""
        return self.precision == "int8"

    def claims(self) -> tuple[Claim, ...]:
        """Return the number format of the precision."""
        return ({"fp32": "float", "fp16": "float16", "int8": "int8"}[self.precision],)  # type: ignore[return-value]

    def variant(self) -> str:
        """Return the precision."""
        return self.precision

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import openvino

        model = read_model(artifact.path, artifact.format)
        native = model.native
        if calibration is not None and self.precision == "int8":
            native = self._quantize_model(model, calibration)
        with tempfile.TemporaryDirectory() as folder:
            xml = Path(folder, "model.xml")
            openvino.save_model(native, str(xml), compress_to_fp16=self.precision == "fp16")
            io, taken = model.io, model.taken
            del native, model  # frees their weights before those of the result are allocated
            write_openvino(destination, xml, io, taken)
        return read_model(destination, "openvino").io

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        if self.precision != "int8" or not has_weights_of_8_bits(destination, self.produces):
            return {}
        # NNCF's fix of the first layer leaves 8 bits in the others.
        return {"weight_bits": 7 if self._choose_overflow_fix() == "enable" else 8}

    def _choose_overflow_fix(self) -> str:
        if self.overflow_fix != "auto":
            return self.overflow_fix
        return "enable" if has_saturating_byte_sums() else "first_layer"

    def _quantize_model(self, model: OpenVINOModel, calibration: Calibration) -> Any:
        samples = [_index_inputs(model.taken, batch) for batch in calibration()]
        nncf = _import_nncf()
        _fold_constants(model.native)
        _widen_biases(model.native)
        kind = self.model_type
        if kind == "auto":
            kind = "transformer" if _is_transformer(model.native) else "other"
        floats = self._find_float_operations(model.native) if self.keep_float else []
        with (
            use_own_ranges(),
            suppress_log_messages("nncf"),
            _explain_errors(model.native, "other" if kind == "transformer" else "transformer"),
        ):
            return nncf.quantize(
                model.native,
                nncf.Dataset(samples),
                model_type=nncf.ModelType.TRANSFORMER if kind == "transformer" else None,
                preset=getattr(nncf.QuantizationPreset, _PRESETS[self.activation_preset]),
                subset_size=len(samples),
                # The plugin for CPUs takes no GRU whose weights are quantised.
                ignored_scope=nncf.IgnoredScope(
                    names=floats, types=["GRUSequence"], validate=False
                ),
                fast_bias_correction=self.bias_correction == "fast",
                advanced_parameters=self._make_advanced_parameters(),
            )

    def _find_float_operations(self, native: Any) -> list[str]:
        """Return the operations that take tensors to keep in floats; integer kernels can give
        floats.
        """
        steps = _list_steps(native)
        kept = self._resolve_keep_float(steps)
        return sorted({step.name for step in steps if not kept.isdisjoint(step.inputs)})

    def _make_advanced_parameters(self) -> Any:
        from nncf.quantization.advanced_parameters import (
            AdvancedQuantizationParameters,
            AdvancedSmoothQuantParameters,
            OverflowFix,
        )
        from nncf.quantization.range_estimator import RangeEstimatorParametersSet

        found = AdvancedQuantizationParameters(
            overflow_fix=getattr(OverflowFix, self._choose_overflow_fix().upper()),
            # Smoothing, NNCF's choice for transformers, made the errors of five of eight up to 17
            # times larger.
            smooth_quant_alphas=AdvancedSmoothQuantParameters(convolution=-1, matmul=-1),
        )
        if self.activation_range == "minmax":  # the mean is NNCF's own choice
            found.activations_range_estimator_params = RangeEstimatorParametersSet.MINMAX
        return found


def _list_steps(native: Any) -> list[GraphStep]:
    """Return the operations of a model, with the names that its source gave to their tensors.

    A tensor with several names has an operation that passes the values from one to the others.
    """
    found: list[GraphStep] = []
    for operation in native.get_ordered_ops():
        if operation.get_type_name() in ("Parameter", "Constant", "Result"):
            continue
        name = operation.get_friendly_name()
        made = [_get_names(port) for port in operation.outputs()]
        taken = [_get_names(port.get_source_output())[0] for port in operation.inputs()]
        passing = operation.get_type_name() in _PASSING
        found.append(GraphStep(name, tuple(taken), tuple(first for first, *_ in made), passing))
        found += [
            GraphStep(name, (first,), tuple(others), passing=True)
            for first, *others in made
            if others
        ]
    return found


def _get_names(port: Any) -> list[str]:
    return sorted(port.get_names()) or [f"{port.get_node().get_friendly_name()}:{port.get_index()}"]


def _is_transformer(native: Any) -> bool:
    """Return whether a model has attention, or embeddings, for which NNCF fails in models that
    it takes for others.
    """
    for operation in native.get_ordered_ops():
        kind = operation.get_type_name()
        if kind == "ScaledDotProductAttention":
            return True
        if kind == "Gather" and _is_table(operation.input_value(0).get_node()):
            return True
        if kind == "Softmax" and "MatMul" in _next_kinds(operation):
            return True
    return False


def _is_table(node: Any) -> bool:
    if node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    floats = node.get_element_type().get_type_name() in ("f32", "f16")
    return bool(node.get_type_name() == "Constant" and floats and len(node.shape) == 2)


def _next_kinds(operation: Any) -> set[str]:
    """Return the kinds of operations that take a result, directly or by way of those that only
    move numbers.
    """
    found: set[str] = set()
    waiting = [operation]
    while waiting:
        for target in waiting.pop().output(0).get_target_inputs():
            node = target.get_node()
            kind = node.get_type_name()
            if (
                kind in ("Reshape", "Transpose", "Select", "Convert", "Multiply")
                and kind not in found
            ):
                waiting.append(node)
            found.add(kind)
    return found


def _fold_constants(native: Any) -> None:
    """Fold computations on weights alone: for reshaped weights, NNCF would use the axes before
    reshaping.
    """
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(native)


def _widen_biases(native: Any) -> None:
    """Reshape biases of convolutions to full rank: NNCF corrects one of (8, 1, 1) by an array of
    (1, 8, 1, 1).
    """
    from openvino import opset13

    for operation in native.get_ordered_ops():
        if operation.get_type_name() != "Add":
            continue
        for bias, other in ((0, 1), (1, 0)):
            constant, rank = (
                operation.input_value(bias).get_node(),
                len(operation.output(0).get_partial_shape()),
            )
            convolved = (
                operation.input_value(other).get_node().get_type_name().endswith("Convolution")
            )
            if (
                convolved
                and constant.get_type_name() == "Constant"
                and 0 < len(constant.shape) < rank
            ):
                values = constant.data.reshape(
                    (1,) * (rank - len(constant.shape)) + tuple(constant.shape)
                )
                operation.input(bias).replace_source_output(opset13.constant(values).output(0))


def _import_nncf() -> Any:
    try:
        import nncf
    except ImportError:
        raise MissingDependency(
            "OpenVINOCompiler needs nncf for int8, which is not installed: pip install "
            "'nnpipe[openvino]'"
        ) from None
    return nncf


def _index_inputs(taken: tuple[str, ...], batch: Batch) -> dict[int, np.ndarray]:
    """Return a sample by the indices of the model's inputs, which may have no names."""
    return {place: np.ascontiguousarray(batch[name]) for place, name in enumerate(taken)}


@contextmanager
def _explain_errors(native: Any, other_type: str) -> Iterator[None]:
    """Turn NNCF's errors, of which many are defects of its own, into a line with the operator
    and what to try.
    """
    operations = {
        each.get_friendly_name(): each.get_type_name() for each in native.get_ordered_ops()
    }
    try:
        yield
    except Exception as error:  # they share no base but Exception
        message = format_openvino_message(
            format_one_line(error, 5000) if isinstance(error, KeyError) else error
        )
        named = [
            name
            for name in operations
            if re.search(rf"(?<![\w./]){re.escape(name)}(?![\w./])", message)
        ]
        place = max(named, key=len, default="")
        where = f" (at {operations[place]} {place!r})" if place else ""
        raise CompileError(
            f"NNCF cannot quantise it{where}: {message}; try --model-type {other_type}, or "
            f"--precision fp16"
        ) from error
