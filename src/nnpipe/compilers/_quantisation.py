"""Arguments shared by quantising compilers, declared once so that their options have the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument


class IntegerIOCompiler(WritingCompiler):
    """Base of compilers whose results may have integer inputs and outputs."""

    inference_input_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's inputs"
    )
    inference_output_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's outputs"
    )


class WeightQuantisingCompiler(WritingCompiler):
    """Base of compilers with options for the quantisation of weights."""

    weight_type: Literal["int8", "uint8"] = argument("int8", help="integer type of quantised weights")
    per_channel: bool = argument(True, help="use a separate scale for each output channel of a weight")
    reduce_range: bool = argument(
        False, help="use 7 bits for weights, which avoids overflow on x86 processors without VNNI"
    )

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        return {"weight_bits": 7 if self.reduce_range else 8}
