"""Arguments shared by quantising compilers, declared once so that their options have the same meaning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.compilers._float_tensors import GraphStep, chosen, merged
from nnpipe.compilers._written_numbers import has_weights_of_8_bits
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError


class IntegerIOCompiler(WritingCompiler):
    """Base of compilers whose results may have integer inputs and outputs."""

    inference_input_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's inputs"
    )
    inference_output_type: Literal["float32", "int8", "uint8"] = argument(
        "float32", help="element type of the compiled model's outputs"
    )


class FloatKeepingCompiler(WritingCompiler):
    """Base of quantisers that leave some tensors in floats.

    Attributes
    ----------
    names_from_result
        Whether the tensors have the names that they get in the result, such as those of a converter, and not those
        that they have in the source.
    """

    names_from_result: ClassVar[bool] = False

    keep_float: tuple[str, ...] = argument(
        (),
        help="tensors to keep in floats, by their names in the model or by patterns such as 'block1*'; what takes them "
        "is computed in floats, and in most runtimes what computes them",
    )

    def _named(self, known: Collection[str]) -> set[str]:
        """Return the tensors named by ``keep_float``, among all names of the model.

        Raises
        ------
        ConfigError
            If a name or pattern stands for no tensor.
        """
        return chosen(self.keep_float, known, type(self).__name__)

    def _kept(self, steps: Sequence[GraphStep]) -> set[str]:
        """Return the tensors to keep in floats, with those that are clipped or moved to or from them."""
        return merged(self._named({name for step in steps for name in (*step.inputs, *step.outputs)}), steps)

    def _check_keep_float(self, quantises: bool, needed: str) -> None:
        """Raise an error if tensors are named and nothing is quantised."""
        if self.keep_float and not quantises:
            raise ConfigError(f"{type(self).__name__}: --keep-float needs {needed}")


class WeightQuantisingCompiler(WritingCompiler):
    """Base of compilers with options for the quantisation of weights."""

    weight_type: Literal["int8", "uint8"] = argument("int8", help="integer type of quantised weights")
    per_channel: bool = argument(True, help="use a separate scale for each output channel of a weight")
    reduce_range: bool = argument(
        False, help="use 7 bits for weights, which avoids overflow on x86 processors without VNNI"
    )

    def _outcome(self, destination: Path) -> Mapping[str, Any]:
        if not has_weights_of_8_bits(destination, self.produces):
            return {}
        return {"weight_bits": 7 if self.reduce_range else 8}


class BlockwiseWeights(WritingCompiler):
    """Base of compilers that give each block of weights in a column a scale."""

    block_size: int = argument(
        32, help="weights in a column that share a scale, a power of two from 16 to 256", minimum=16, maximum=256
    )
    symmetric: bool = argument(True, help="whether weights have no zero point beside the scale of their block")

    def validate(self) -> None:
        """Check that the block size is a power of two."""
        super().validate()
        if self.block_size & (self.block_size - 1):
            raise ConfigError(f"--block-size should be 16, 32, 64, 128 or 256, not {self.block_size}")
