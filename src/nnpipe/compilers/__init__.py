"""Compilers, which convert, optimise and quantise models.

This package offers the classes and, for authors, the base of compilers that write one file; each is imported when it
is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.compilers.c import CCompiler as CCompiler
    from nnpipe.compilers.executorch import ExecuTorchCompiler as ExecuTorchCompiler
    from nnpipe.compilers.genai import ONNXRuntimeGenAIBuilder as ONNXRuntimeGenAIBuilder
    from nnpipe.compilers.iree import IREECompiler as IREECompiler
    from nnpipe.compilers.onnx_compressor import ONNXCompressor as ONNXCompressor
    from nnpipe.compilers.onnx_equalizer import ONNXEqualizer as ONNXEqualizer
    from nnpipe.compilers.onnx_float16 import ONNXFloat16 as ONNXFloat16
    from nnpipe.compilers.onnx_optimizer import ONNXRuntimeOptimizer as ONNXRuntimeOptimizer
    from nnpipe.compilers.onnx_pruner import ONNXPruner as ONNXPruner
    from nnpipe.compilers.onnx_quantizer import ONNXDynamicQuantizer as ONNXDynamicQuantizer
    from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer as ONNXStaticQuantizer
    from nnpipe.compilers.onnx_to_torch import ONNXToTorch as ONNXToTorch
    from nnpipe.compilers.onnx_weight_quantizer import ONNXWeightQuantizer as ONNXWeightQuantizer
    from nnpipe.compilers.openvino import OpenVINOCompiler as OpenVINOCompiler
    from nnpipe.compilers.tflite import TFLiteCompiler as TFLiteCompiler
    from nnpipe.compilers.tflite_slimmer import TFLiteSlimmer as TFLiteSlimmer
    from nnpipe.compilers.torch_channel_pruner import TorchChannelPruner as TorchChannelPruner
    from nnpipe.compilers.torch_clusterer import TorchClusterer as TorchClusterer
    from nnpipe.compilers.torch_float16 import TorchFloat16 as TorchFloat16
    from nnpipe.compilers.torch_inductor import TorchInductorCompiler as TorchInductorCompiler
    from nnpipe.compilers.torch_pruner import TorchPruner as TorchPruner
    from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer as TorchPT2EQuantizer
    from nnpipe.compilers.torch_to_tflite import TorchToTFLite as TorchToTFLite
    from nnpipe.compilers.tvm import TVMCompiler as TVMCompiler
    from nnpipe.compilers.writing_compiler import WritingCompiler as WritingCompiler

__getattr__ = lazy_getattr(
    __name__,
    {
        "c": ("CCompiler",),
        "executorch": ("ExecuTorchCompiler",),
        "genai": ("ONNXRuntimeGenAIBuilder",),
        "iree": ("IREECompiler",),
        "onnx_compressor": ("ONNXCompressor",),
        "onnx_equalizer": ("ONNXEqualizer",),
        "onnx_float16": ("ONNXFloat16",),
        "onnx_optimizer": ("ONNXRuntimeOptimizer",),
        "onnx_pruner": ("ONNXPruner",),
        "onnx_quantizer": (
            "ONNXDynamicQuantizer",
            "ONNXStaticQuantizer",
        ),
        "onnx_to_torch": ("ONNXToTorch",),
        "onnx_weight_quantizer": ("ONNXWeightQuantizer",),
        "openvino": ("OpenVINOCompiler",),
        "tflite": ("TFLiteCompiler",),
        "tflite_slimmer": ("TFLiteSlimmer",),
        "torch_channel_pruner": ("TorchChannelPruner",),
        "torch_clusterer": ("TorchClusterer",),
        "torch_float16": ("TorchFloat16",),
        "torch_inductor": ("TorchInductorCompiler",),
        "torch_pruner": ("TorchPruner",),
        "torch_quantizer": ("TorchPT2EQuantizer",),
        "torch_to_tflite": ("TorchToTFLite",),
        "tvm": ("TVMCompiler",),
        "writing_compiler": ("WritingCompiler",),
    },
)
