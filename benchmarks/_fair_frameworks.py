"""How benchmarks/fair.py runs each framework: our default, the options that are searched, and
its own tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from _fair_tools import (
    Tool,
    benchmark_app,
    executorch_loop,
    inductor_benchmark,
    iree_benchmark_module,
    keras_loop,
    litert_loop,
    onnxruntime_loop,
    time_evaluator,
    torch_benchmark,
)

from nnpipe.compilers.iree import IREECompiler
from nnpipe.core.arguments import argument
from nnpipe.core.batching import set_batch_size
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime

QUICK = ("onnxruntime", "openvino", "pytorch", "iree")
"""Frameworks that compile fast."""


class IREEWithFlags(IREECompiler):
    """IREE with more flags than nnpipe has options for."""

    flags: tuple[str, ...] = argument((), help="flags of iree-compile")

    def _choose_target(self) -> tuple[list[str], dict[str, Any]]:
        flags, notes = super()._choose_target()
        return [*flags, *self.flags], notes


@dataclass(frozen=True)
class Way:
    """A configuration of a framework: compilers and a runtime, with arguments that are not the
    usual ones.

    Attributes
    ----------
    slow
        Whether it takes long to compile, so that a quick run leaves it out.
    """

    runtime: str
    compilers: tuple[str | type[ModelCompiler], ...] = ()
    compiling: Mapping[str, Any] = field(default_factory=dict)
    running: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False

    def made(self) -> tuple[list[ModelCompiler], Runtime]:
        """Make the components, for one sample a call as every command does."""
        classes = [
            find(one, ModelCompiler) if isinstance(one, str) else one for one in self.compilers
        ]
        compilers = [set_batch_size(cls.from_json(dict(self.compiling)), 1) for cls in classes]
        return compilers, set_batch_size(
            find(self.runtime, Runtime).from_json(dict(self.running)), 1
        )


@dataclass(frozen=True)
class Mark:
    """A goal that a framework's row is known to miss, and why; it still fails where it is missed by
    more.

    Attributes
    ----------
    goal
        ``"tool"`` or ``"option"``.
    reason
        As the table and docs/defaults.md tell it.
    least, most
        The ratios for which the reason holds.
    """

    goal: str
    reason: str
    least: float
    most: float


@dataclass(frozen=True)
class Framework:
    """How a framework is run by default, what else its options offer, its own tool, and what is
    known to miss a goal.

    Attributes
    ----------
    source
        The format of the model that it starts from.
    """

    source: str
    default: Way
    others: Mapping[str, Way]
    tool: Tool
    marks: tuple[Mark, ...] = ()


def frameworks(tune_seconds: float) -> dict[str, Framework]:
    """Return the frameworks by name; TVM is tuned for so long, or not at all with 0."""
    any_size = {"fixed_batch": 0}
    iree, tvm, aoti = ("IREECompiler",), ("TVMCompiler",), ("TorchInductorCompiler",)
    openvino, executorch, tflite = (
        ("OpenVINOCompiler",),
        ("ExecuTorchCompiler",),
        ("TFLiteCompiler",),
    )

    def flagged(*flags: str) -> Way:
        return Way("IREERuntime", (IREEWithFlags,), {"flags": list(flags)}, slow=True)

    return {
        "onnxruntime": Framework(
            "onnx",
            Way("ONNXRuntime"),
            {
                "any number": Way("ONNXRuntime", running=any_size),
                "I/O binding": Way("ONNXRuntime", running={"io_binding": True}),
                "graph extended": Way("ONNXRuntime", running={"graph_optimisation": "extended"}),
                "optimised ahead": Way("ONNXRuntime", ("ONNXRuntimeOptimizer",)),
            },
            onnxruntime_loop,
        ),
        "openvino": Framework(
            "onnx",
            Way("OpenVINORuntime", openvino),
            {
                "any number": Way("OpenVINORuntime", openvino, running=any_size),
                "float16 weights": Way("OpenVINORuntime", openvino, {"precision": "fp16"}),
                "ONNX itself": Way("OpenVINORuntime"),
            },
            benchmark_app,
        ),
        "pytorch": Framework(
            "torch-export",
            Way("PyTorchRuntime"),
            {
                "as exported": Way("PyTorchRuntime", running={"channels_last": False}),
                "torch.compile": Way("PyTorchRuntime", running={"compile": True}, slow=True),
            },
            torch_benchmark,
        ),
        "iree": Framework(
            "onnx",
            Way("IREERuntime", iree),
            {
                "no data tiling": Way("IREERuntime", iree, {"data_tiling": False}, slow=True),
                "any number": Way("IREERuntime", iree, any_size, slow=True),
                "O3": flagged("--iree-opt-level=O3"),
                "all ukernels": flagged("--iree-llvmcpu-enable-ukernels=all"),
                "im2col": flagged("--iree-global-opt-use-im2col-for-convs"),
                "channels first": Way("IREERuntime", iree, {"channels_last": False}, slow=True),
            },
            iree_benchmark_module,
        ),
        "executorch": Framework(
            "torch-export",
            Way("ExecuTorchRuntime", executorch),
            {"any number": Way("ExecuTorchRuntime", executorch, any_size, slow=True)},
            executorch_loop,
        ),
        "inductor": Framework(
            "torch-export",
            Way("TorchInductorRuntime", aoti),
            {
                "tuned": Way("TorchInductorRuntime", aoti, {"max_autotune": True}, slow=True),
                "torch.compile": Way("PyTorchRuntime", running={"compile": True}, slow=True),
            },
            inductor_benchmark,
        ),
        "litert": Framework(
            "keras",
            Way("LiteRTRuntime", tflite),
            {"one sample": Way("LiteRTRuntime", tflite, {"fixed_batch": 1}, slow=True)},
            litert_loop,
        ),
        "keras": Framework(
            "keras",
            Way("KerasRuntime"),
            {
                "any number": Way("KerasRuntime", running=any_size),
                "not frozen": Way("KerasRuntime", running={"freeze": False}),
            },
            keras_loop,
        ),
        "tvm": Framework(
            "onnx",
            Way("TVMRuntime", tvm),
            {"tuned": Way("TVMRuntime", tvm, {"tune_seconds": tune_seconds}, slow=True)}
            if tune_seconds
            else {},
            time_evaluator,
        ),
    }
