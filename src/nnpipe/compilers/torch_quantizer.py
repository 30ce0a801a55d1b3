"""Quantisation of exported PyTorch programs to 8 bits, by torchao's PT2E quantisation."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.compilers._quantisation import FloatKeepingCompiler
from nnpipe.compilers._requantisation import (
    check_quantised,
    list_fx_steps,
    widen_results,
    wrap_quantizer,
)
from nnpipe.compilers._torch_program_compiler import DistillingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError, MissingDependency
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import (
    QUANTISED,
    LoadedProgram,
    compute_constant_kernels,
    convert_to_tensors,
    export_changed_module,
    keep_integers,
    load_program,
    suppress_torch_logs,
)
from nnpipe.frameworks.torch_state import restore_buffers


def fold_normalisations(module: Any) -> None:
    """Fold batch normalisations into the convolutions and linear layers before them.

    torchao (0.18) does so itself before it observes a module, but not before it trains one: there,
    it expects normalisations that compute the statistics of batches, which a program for inference
    has no longer.
    """
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_

    _fuse_conv_bn_(module)
    _fuse_linear_bn_(module)


def begin_as_calibrated(trained: Any, calibrated: Any) -> None:
    """Copy the ranges of activations from a calibrated module into one that is to be trained, and
    hold them.

    So the training begins with what quantisation without training gives.  By itself, torchao begins
    with the range of the first batch and averages over hundreds more; and its ranges contain all
    values, where those of a calibration cut off values that are rare: a ResNet20 with three
    channels that are 300 times larger had 61 % right as calibrated, and only 41 % after 48 steps
    that began with ranges of all values.  Ranges of weights are always those of the present
    weights: averages would lag behind them and cut them off.

    Parameters
    ----------
    trained
        What ``prepare_qat_pt2e`` returns for a program.
    calibrated
        What ``prepare_pt2e`` returns for the same program, after it has been called on samples.
    """
    known = {node.args[0].name: observer for node, observer in _iter_observers(calibrated)}
    for node, rounding in _iter_observers(trained):
        own = rounding.activation_post_process
        if node.args[0].op == "get_attr":
            own.averaging_constant = 1.0
            continue
        scale, zero = known[node.args[0].name].calculate_qparams()
        own.min_val = ((rounding.quant_min - zero) * scale).reshape(())
        own.max_val = ((rounding.quant_max - zero) * scale).reshape(())
        rounding.scale.copy_(scale)
        rounding.zero_point.copy_(zero)
        rounding.disable_observer()


def _iter_observers(module: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the nodes that observe a tensor, each with its module."""
    for node in module.graph.nodes:
        if node.op == "call_module" and hasattr(
            observer := module.get_submodule(node.target), "calculate_qparams"
        ):
            yield node, observer


# Metadata about the PyTorch modules of operators, which torchao's x86 quantiser needs.
#
# The quantiser finds convolutions, and the operators to fuse them with, by metadata that the
# exporter writes.  Checked programs have lost this metadata; it is derived again from the
# operators.

_MODULES = {
    "conv1d": "Conv1d",
    "conv2d": "Conv2d",
    "batch_norm": "BatchNorm2d",
    "linear": "Linear",
    "relu": "ReLU",
    "relu_": "ReLU",
    "relu6": "ReLU6",
    "relu6_": "ReLU6",
    "hardtanh": "Hardtanh",
    "hardtanh_": "Hardtanh",
    "hardswish": "Hardswish",
    "hardswish_": "Hardswish",
    "silu": "SiLU",
    "silu_": "SiLU",
    "gelu": "GELU",
    "leaky_relu": "LeakyReLU",
    "leaky_relu_": "LeakyReLU",
    "tanh": "Tanh",
    "max_pool2d": "MaxPool2d",
    "avg_pool2d": "AvgPool2d",
    "adaptive_avg_pool2d": "AdaptiveAvgPool2d",
}


def tell_sources(module: Any) -> None:
    """Write the metadata into the graph of an exported module."""
    import torch

    for node in module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._schema.name.removeprefix("aten::")
        if name in ("add", "add_"):
            node.meta["source_fn_stack"] = [(node.name, operator.add)]
        elif name in _MODULES:
            node.meta["source_fn_stack"] = [(node.name, getattr(torch.nn, _MODULES[name]))]


class TorchPT2EQuantizer(DistillingCompiler, FloatKeepingCompiler):
    """Quantises exported PyTorch programs to 8 bits, with ranges of activations from calibration
    samples.

    The quantisation is part of the program: integers are dequantised before each
    operator, and results are quantised after it.  PyTorch runs it in this form,
    more slowly than the float program; the weights need a quarter of the space.
    Compilers that recognise the pattern make it fast.

    Batch normalisations are folded into convolutions.  Inputs and outputs stay
    floats.

    With ``fine_tuning_steps``, this is quantisation-aware training (Jacob et al.
    2018, arXiv:1712.05877): weights are trained while they and the activations
    are rounded, and gradients pass the rounding unchanged.  It needs no labels,
    as the outputs of the program in floats are what it learns.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "torchao")
    install: ClassVar[str] = "nnpipe[torch-int8]"
    packages: ClassVar[tuple[str, ...]] = ("torch", "torchao", "executorch")

    quantizer: Literal["x86", "xnnpack"] = argument(
        "x86",
        help="target of the quantisation: x86 (PyTorch's compiler on x86 processors) or xnnpack "
        "(ExecuTorch, which must be installed)",
    )
    reduce_range: bool = argument(
        False,
        help=(
            "use 7 bits for activations, which avoids overflow on x86 processors without VNNI; for "
            "x86"
        ),
    )
    per_channel: bool = argument(
        True, help="use a separate scale for each output channel of a weight; always done for x86"
    )

    def validate(self) -> None:
        """Check that the chosen quantiser supports the options."""
        super().validate()
        if self.quantizer == "x86" and not self.per_channel:
            raise ConfigError(f"{type(self).__name__}: --no-per-channel needs --quantizer xnnpack")
        if self.quantizer == "xnnpack" and self.reduce_range:
            raise ConfigError(f"{type(self).__name__}: --reduce-range needs --quantizer x86")

    def needs_calibration(self) -> bool:
        """Return true: ranges of activations are calibrated."""
        return True

    def claims(self) -> tuple[Claim, ...]:
        """Return 8-bit weights and activations, and whether weights were trained."""
        return ("int8", "fine-tuned") if self.fine_tuning_steps else ("int8",)

    def variant(self) -> str:
        """Return the kind of quantisation."""
        kind = "int8" if self.quantizer == "x86" else "int8-xnnpack"
        return f"{kind}-trained" if self.fine_tuning_steps else kind

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        assert calibration is not None  # checked by compile()
        loaded = load_program(artifact.path)
        with suppress_torch_logs():
            module = self._quantize_program(loaded, calibration)
        return self._save(export_changed_module(loaded, module), destination)

    def _quantize_program(self, loaded: LoadedProgram, calibration: Calibration) -> Any:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        prepared = self._prepare_program(loaded, calibration)
        if self.quantizer == "xnnpack":
            widen_results(prepared)
        converted = convert_pt2e(prepared)
        check_quantised(converted, self.quantizer)
        return converted

    def _prepare_program(self, loaded: LoadedProgram, calibration: Calibration) -> Any:
        """Return a module with the ranges of its activations, and with trained weights if that
        was asked for.
        """
        import torch
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

        calibrated = prepare_pt2e(*self._create_module_and_quantizer(loaded, training=False))
        with torch.no_grad():
            for batch in calibration():
                with restore_buffers(loaded.native, calibrated):
                    loaded.call(calibrated, convert_to_tensors(batch))
        if not self.fine_tuning_steps:
            return calibrated
        module, rules = self._create_module_and_quantizer(loaded, training=True)
        fold_normalisations(module)
        trained = prepare_qat_pt2e(module, rules)
        begin_as_calibrated(trained, calibrated)
        self._fine_tune(loaded, trained, {}, calibration, careful=True)
        return trained

    def _create_module_and_quantizer(
        self, loaded: LoadedProgram, training: bool
    ) -> tuple[Any, Any]:
        """Return a module of the program and the quantiser for it."""
        module = loaded.module()
        if any(str(node.target).startswith(QUANTISED) for node in module.graph.nodes):
            raise CompileError("it is quantised already")
        tell_sources(module)
        keep_integers(module)
        compute_constant_kernels(module)
        before = list_fx_steps(module, [spec.name for spec in loaded.io.inputs])
        return module, wrap_quantizer(
            self._create_quantizer(training),
            self._resolve_keep_float if self.keep_float else None,
            before,
        )

    def _create_quantizer(self, training: bool) -> Any:
        if self.quantizer == "x86":
            from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

            config = x86.get_default_x86_inductor_quantization_config(
                is_qat=training, reduce_range=self.reduce_range
            )
            return x86.X86InductorQuantizer().set_global(config)
        try:
            from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
        except ImportError:
            raise MissingDependency(
                "TorchPT2EQuantizer needs executorch for --quantizer xnnpack, which is not "
                "installed: pip install 'nnpipe[executorch]'"
            ) from None
        config = xnnpack.get_symmetric_quantization_config(
            is_per_channel=self.per_channel, is_qat=training
        )
        return xnnpack.XNNPACKQuantizer().set_global(config)
