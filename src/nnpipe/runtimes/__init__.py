"""Runtimes, which run compiled models.

This package offers the classes and, for authors, the base of runtimes of sealed models; each is
imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.runtimes.c import CRuntime as CRuntime
    from nnpipe.runtimes.executorch import ExecuTorchRuntime as ExecuTorchRuntime
    from nnpipe.runtimes.genai import ONNXRuntimeGenAI as ONNXRuntimeGenAI
    from nnpipe.runtimes.iree import IREERuntime as IREERuntime
    from nnpipe.runtimes.keras import KerasRuntime as KerasRuntime
    from nnpipe.runtimes.litert import LiteRTRuntime as LiteRTRuntime
    from nnpipe.runtimes.onnxruntime import ONNXRuntime as ONNXRuntime
    from nnpipe.runtimes.openvino import OpenVINORuntime as OpenVINORuntime
    from nnpipe.runtimes.pytorch import PyTorchRuntime as PyTorchRuntime
    from nnpipe.runtimes.sealed_runtime import SealedRuntime as SealedRuntime
    from nnpipe.runtimes.torch_inductor import TorchInductorRuntime as TorchInductorRuntime
    from nnpipe.runtimes.tvm import TVMRuntime as TVMRuntime

__getattr__ = lazy_getattr(
    __name__,
    {
        "c": ("CRuntime",),
        "executorch": ("ExecuTorchRuntime",),
        "genai": ("ONNXRuntimeGenAI",),
        "iree": ("IREERuntime",),
        "keras": ("KerasRuntime",),
        "litert": ("LiteRTRuntime",),
        "onnxruntime": ("ONNXRuntime",),
        "openvino": ("OpenVINORuntime",),
        "pytorch": ("PyTorchRuntime",),
        "sealed_runtime": ("SealedRuntime",),
        "torch_inductor": ("TorchInductorRuntime",),
        "tvm": ("TVMRuntime",),
    },
)
