"""Arguments shared by quantising compilers, declared once so that their options have the same
meaning.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.compilers.writing_compiler import WritingCompiler, has_weights_of_8_bits
from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError

# Tensors that a quantiser leaves in floats, and the operations that are then computed in floats.
#
# It does not suffice to keep an operation in floats: the operations around it round its inputs and
# results all the same.  A *tensor* stays in floats only if none of the operations that compute it
# or take it is quantised.  Some operations only clip or move values, such as ReLU or a
# transposition.  Quantisers merge them with the operation before or after them, so that rounding
# their result would be rounding what they take: the tensors on both sides of such an operation stay
# in floats together.

_NEAR = 3  # names to suggest


@dataclass(frozen=True)
class GraphStep:
    """An operation of any framework.

    Parameters
    ----------
    name
        Its name in the framework.
    inputs, outputs
        The names of the tensors that it takes and computes.
    passing
        Whether it only clips or moves the values of its first input.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passing: bool = False


def match_tensors(patterns: Sequence[str], known: Collection[str], owner: str) -> set[str]:
    """Return the tensors that names or patterns such as ``block1*`` stand for.

    Parameters
    ----------
    patterns
        A name stands for itself, even if it has the characters of a pattern.
    known
        The names of all tensors.
    owner
        The compiler's class, for the message.

    Raises
    ------
    ConfigError
        If a pattern stands for no tensor; the message lists names that are near.
    """
    found: set[str] = set()
    for pattern in patterns:
        matching = (
            {pattern}
            if pattern in known
            else {name for name in known if fnmatchcase(name, pattern)}
        )
        if not matching:
            told = ", ".join(map(repr, _suggest_names(pattern, known)))
            raise ConfigError(
                f"{owner}: --keep-float {pattern!r} is no tensor of the model; near it are {told}"
            )
        found |= matching
    return found


def _suggest_names(pattern: str, known: Collection[str]) -> list[str]:
    """Return the names nearest to one that is not there: first those that contain it, the
    shortest of them first.
    """
    part = pattern.strip("*?").lower()
    holding = sorted(
        (name for name in known if part and part in name.lower()),
        key=lambda name: (len(name), name),
    )
    alike = difflib.get_close_matches(pattern, sorted(known), n=_NEAR, cutoff=0.4)
    return list(dict.fromkeys([*holding, *alike]))[:_NEAR] or sorted(known)[:_NEAR]


def extend_over_passing_steps(tensors: Iterable[str], steps: Sequence[GraphStep]) -> set[str]:
    """Return tensors together with those that are clipped or moved to or from them."""
    beside: dict[str, set[str]] = {}
    for step in steps:
        if step.passing and step.inputs:
            for output in step.outputs:
                beside.setdefault(step.inputs[0], set()).add(output)
                beside.setdefault(output, set()).add(step.inputs[0])
    found, waiting = set(tensors), list(tensors)
    while waiting:
        fresh = beside.get(waiting.pop(), set()) - found
        found |= fresh
        waiting += fresh
    return found


def find_touching_steps(tensors: Collection[str], steps: Sequence[GraphStep]) -> list[GraphStep]:
    """Return the operations that compute or take any of the tensors."""
    wanted = set(tensors)
    return [step for step in steps if not wanted.isdisjoint((*step.inputs, *step.outputs))]


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
        Whether the tensors have the names that they get in the result, such as those of a
        converter, and not those that they have in the source.
    """

    names_from_result: ClassVar[bool] = False

    keep_float: tuple[str, ...] = argument(
        (),
        help="tensors to keep in floats, by their names in the model or by patterns such as "
        "'block1*'; what takes them is computed in floats, and in most runtimes what computes them",
    )

    def _match_keep_float(self, known: Collection[str]) -> set[str]:
        """Return the tensors named by ``keep_float``, among all names of the model.

        Raises
        ------
        ConfigError
            If a name or pattern stands for no tensor.
        """
        return match_tensors(self.keep_float, known, type(self).__name__)

    def _resolve_keep_float(self, steps: Sequence[GraphStep]) -> set[str]:
        """Return the tensors to keep in floats, with those that are clipped or moved to or from
        them.
        """
        return extend_over_passing_steps(
            self._match_keep_float(
                {name for step in steps for name in (*step.inputs, *step.outputs)}
            ),
            steps,
        )

    def _check_keep_float(self, quantises: bool, needed: str) -> None:
        """Raise an error if tensors are named and nothing is quantised."""
        if self.keep_float and not quantises:
            raise ConfigError(f"{type(self).__name__}: --keep-float needs {needed}")


class WeightQuantisingCompiler(WritingCompiler):
    """Base of compilers with options for the quantisation of weights."""

    weight_type: Literal["int8", "uint8"] = argument(
        "int8", help="integer type of quantised weights"
    )
    per_channel: bool = argument(
        True, help="use a separate scale for each output channel of a weight"
    )
    reduce_range: bool = argument(
        False, help="use 7 bits for weights, which avoids overflow on x86 processors without VNNI"
    )

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        if not has_weights_of_8_bits(destination, self.produces):
            return {}
        return {"weight_bits": 7 if self.reduce_range else 8}


class BlockwiseWeights(WritingCompiler):
    """Base of compilers that give each block of weights in a column a scale."""

    block_size: int = argument(
        32,
        help="weights in a column that share a scale, a power of two from 16 to 256",
        minimum=16,
        maximum=256,
    )
    symmetric: bool = argument(
        True, help="whether weights have no zero point beside the scale of their block"
    )

    def validate(self) -> None:
        """Check that the block size is a power of two."""
        super().validate()
        if self.block_size & (self.block_size - 1):
            raise ConfigError(
                f"--block-size should be 16, 32, 64, 128 or 256, not {self.block_size}"
            )
