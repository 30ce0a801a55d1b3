"""What the operators of a graph become: statements of C, kernels that they call, and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_graph import ProgramOperator, ProgramTensor, TFLiteProgram

C_TYPES = {
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
}
SUFFIXES = {
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "float32": "f32",
}


@dataclass(frozen=True)
class CKernel:
    """A file of C in the folder ``kernels``, and what replaces the words in it that are to be
    replaced.
    """

    file: str
    words: tuple[tuple[str, str], ...] = ()


@dataclass
class CStep:
    """One operator's work: kernels in the order of their definitions, files or texts, and a call.

    A place for a tensor in a statement is ``{in0}``, ``{out0}``; for a constant ``{name}``;
    ``{scratch}`` for as many bytes of memory as ``scratch`` says, which lie at a multiple of 16 and
    hold anything.
    """

    statement: str
    kernels: Sequence[CKernel | str] = ()
    constants: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    before: Sequence[str] = ()
    scratch: int = 0


class OperatorView:
    """An operator with its tensors at hand, for the functions that turn operators into steps."""

    def __init__(self, program: TFLiteProgram, operator: ProgramOperator) -> None:
        self.operator = operator
        self._program = program
        self.inputs = [self._tensor(n) if n >= 0 else None for n in operator.inputs]
        self.outputs = [self._tensor(n) for n in operator.outputs]

    def select_inputs(self, *places: int) -> OperatorView:
        """Return a view of the operator with some of its inputs; those that are not there are
        left out.
        """
        inputs = tuple(
            self.operator.inputs[n] if n < len(self.operator.inputs) else -1 for n in places
        )
        return OperatorView(self._program, replace(self.operator, inputs=inputs))

    def _tensor(self, number: int) -> ProgramTensor:
        found = self._program.tensors[number]
        if found is None:
            raise CompileError("a tensor has a type that is not known")
        return found

    def state(self, place: int) -> ProgramTensor:
        """Return an input that keeps its value from one run to the next."""
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None or not found.variable:
            raise CompileError(f"its input {place} keeps no state")
        return found

    def input(self, place: int) -> ProgramTensor:
        """Return an input that must be there."""
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise CompileError(f"its input {place} is missing")
        if found.variable:
            raise CompileError("it keeps a state")
        return found

    def intermediate(self, place: int) -> ProgramTensor:
        """Return the tensor that describes a value inside of the operator."""
        numbers = self.operator.intermediates
        if not 0 <= place < len(numbers) or not 0 <= numbers[place] < len(self._program.tensors):
            raise CompileError(f"its intermediate tensor {place} is missing")
        return self._tensor(numbers[place])

    def output(self) -> ProgramTensor:
        """Return the only output."""
        if len(self.outputs) != 1:
            raise CompileError(f"it has {len(self.outputs)} outputs")
        return self.outputs[0]

    def constant(self, place: int) -> npt.NDArray[np.generic]:
        """Return the content of an input that must be constant."""
        found = self.input(place).content
        if found is None:
            raise CompileError(f"its input {place} is not constant")
        return found

    def integers(self, place: int) -> list[int]:
        """Return the content of an input as whole numbers."""
        found = self.constant(place)
        if found.dtype.kind not in "iu":
            raise CompileError(f"its input {place} is {found.dtype}")
        return [int(n) for n in found.reshape(-1)]

    def types(self) -> tuple[str, ...]:
        """Return the types of its inputs and outputs."""
        return tuple(t.spec.dtype for t in [*self.inputs, *self.outputs] if t is not None)

    def axis(self, number: int, rank: int) -> int:
        """Return the place of an axis among several; a negative number counts from the last one."""
        found = number + rank if number < 0 else number
        if not 0 <= found < rank:
            raise CompileError(f"it has no axis {number}")
        return found

    def expect(self, holds: bool, what: str) -> None:
        """Raise :class:`CompileError` unless something holds."""
        if not holds:
            raise CompileError(what)

    def expect_shape(self, shape: Sequence[int]) -> None:
        """Check the shape of the output: whatever is written lies inside of it."""
        found = self.output().shape
        if tuple(shape) != found:
            raise CompileError(f"its output is {found} where {tuple(shape)} is computed")

    def make_no_kernel_error(self) -> CompileError:
        """Return the error for types that no kernel computes."""
        return CompileError(f"no kernel for {', '.join(self.types())}")


Builder = Callable[[OperatorView], "CStep | None"]
"""Makes the step of an operator; None if the output is the input under another shape."""


def format_float(value: float) -> str:
    """Return a 32-bit float as C writes it, to the bit."""
    if value != value:
        raise CompileError("an option is not a number")
    if value in (float("inf"), float("-inf")):
        return "3.4028235e38f" if value > 0 else "-3.4028235e38f"
    return f"{float(np.float32(value)).hex()}f" if value else "0.0f"


def format_initializer(values: Sequence[object]) -> str:
    """Return the initialiser of an array or a structure."""
    return "{" + ", ".join(map(str, values)) + "}"


def format_struct(kind: str, name: str, values: Sequence[object]) -> str:
    """Return the definition of a constant structure."""
    return f"static const {kind} {name} = {format_initializer(values)};"
