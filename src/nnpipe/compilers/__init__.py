"""Compilers, which convert, optimise and quantise models.

This package offers the classes and, for authors, the base of compilers that write one file; each is
imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.compilers.c import CCompiler as CCompiler
    from nnpipe.compilers.executorch import ExecuTorchCompiler as ExecuTorchCompiler
    from nnpipe.compilers.genai import ONNXRuntimeGenAIBuilder as ONNXRuntimeGenAIBuilder
    from nnpipe.compilers.iree import IREECompiler as IREECompiler
    from nnpipe.compilers.onnx_compression import ONNXCompressor as ONNXCompressor
    from nnpipe.compilers.onnx_optimizer import ONNXEqualizer as ONNXEqualizer
    from nnpipe.compilers.onnx_optimizer import ONNXFloat16 as ONNXFloat16
    from nnpipe.compilers.onnx_optimizer import ONNXPruner as ONNXPruner
    from nnpipe.compilers.onnx_optimizer import ONNXRuntimeOptimizer as ONNXRuntimeOptimizer
    from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer as ONNXDynamicQuantizer
    from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer as ONNXStaticQuantizer
    from nnpipe.compilers.onnx_quantizer import ONNXWeightQuantizer as ONNXWeightQuantizer
    from nnpipe.compilers.onnx_to_torch import ONNXToTorch as ONNXToTorch
    from nnpipe.compilers.openvino import OpenVINOCompiler as OpenVINOCompiler
    from nnpipe.compilers.tflite import TFLiteCompiler as TFLiteCompiler
    from nnpipe.compilers.tflite import TFLiteSlimmer as TFLiteSlimmer
    from nnpipe.compilers.tflite import TorchToTFLite as TorchToTFLite
    from nnpipe.compilers.torch_float16 import TorchFloat16 as TorchFloat16
    from nnpipe.compilers.torch_inductor import TorchInductorCompiler as TorchInductorCompiler
    from nnpipe.compilers.torch_pruner import TorchChannelPruner as TorchChannelPruner
    from nnpipe.compilers.torch_pruner import TorchClusterer as TorchClusterer
    from nnpipe.compilers.torch_pruner import TorchPruner as TorchPruner
    from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer as TorchPT2EQuantizer
    from nnpipe.compilers.tvm import TVMCompiler as TVMCompiler
    from nnpipe.compilers.writing_compiler import WritingCompiler as WritingCompiler

__getattr__ = lazy_getattr(
    __name__,
    {
        "c": ("CCompiler",),
        "executorch": ("ExecuTorchCompiler",),
        "genai": ("ONNXRuntimeGenAIBuilder",),
        "iree": ("IREECompiler",),
        "onnx_compression": ("ONNXCompressor",),
        "onnx_optimizer": ("ONNXEqualizer", "ONNXFloat16", "ONNXPruner", "ONNXRuntimeOptimizer"),
        "onnx_quantizer": ("ONNXDynamicQuantizer", "ONNXStaticQuantizer", "ONNXWeightQuantizer"),
        "onnx_to_torch": ("ONNXToTorch",),
        "openvino": ("OpenVINOCompiler",),
        "tflite": ("TFLiteCompiler", "TFLiteSlimmer", "TorchToTFLite"),
        "torch_float16": ("TorchFloat16",),
        "torch_inductor": ("TorchInductorCompiler",),
        "torch_pruner": ("TorchChannelPruner", "TorchClusterer", "TorchPruner"),
        "torch_quantizer": ("TorchPT2EQuantizer",),
        "tvm": ("TVMCompiler",),
        "writing_compiler": ("WritingCompiler",),
    },
)
