"""Arguments that quantising compilers share, declared once so that their options mean the same."""

from __future__ import annotations

from typing import Literal

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument


class IntegerIOCompiler(WritingCompiler):
    """A compiler whose result may take and give integers."""

    inference_input_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's inputs"
    )
    inference_output_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's outputs"
    )


class WeightQuantisingCompiler(WritingCompiler):
    """A compiler that lets one choose how weights become integers."""

    weight_type: Literal["int8", "uint8"] = argument("int8", help="integer type of quantised weights")
    per_channel: bool = argument(True, help="give each output channel of a weight a scale of its own")
    reduce_range: bool = argument(
        False, help="use 7 bits of a weight, which avoids overflow on x86 processors without VNNI"
    )
