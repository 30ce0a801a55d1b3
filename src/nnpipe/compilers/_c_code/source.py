"""The C source of a graph: kernels, constants, and a function that calls the operators' kernels
one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.arena import ArenaPlan, Buffer, plan_arena
from nnpipe.compilers._c_code.operators.catalogue import BUILDERS
from nnpipe.compilers._c_code.step import C_TYPES, Builder, CKernel, CStep, OperatorView
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.tflite_graph import TFLiteProgram, get_operator_name

_KERNELS = Path(__file__).with_name("kernels")
_ALIGNMENT = 16
_LARGEST_ARENA = 1 << 30
_MOST_OPERATORS = 10_000
_LINE = 40  # numbers in a line
_HEAD = """#include <stdint.h>

#if defined(__GNUC__)
#define NN_ALIGNED __attribute__((aligned(4)))
#else
#define NN_ALIGNED
#endif
"""


@dataclass(frozen=True)
class Source:
    """The C source of a graph.

    Attributes
    ----------
    kernels
        Texts that sources of several graphs can share, each after those that it needs.
    body
        What is the graph's own: its memory, its constants and its functions.
    io
        Inputs and outputs with the lengths that the file states; memory is planned for these.
    plan
        The arena that it needs.
    constant_bytes
        Bytes of its constants.
    state_bytes
        Bytes of what it keeps from one run to the next.
    """

    kernels: tuple[str, ...]
    body: str
    io: IOSpec
    plan: ArenaPlan
    constant_bytes: int
    state_bytes: int

    @property
    def text(self) -> str:
        """The whole source."""
        return "\n".join([*self.kernels, self.body])


def generate_source(
    program: TFLiteProgram,
    seconds: int,
    own: Mapping[str, Builder] = MappingProxyType({}),
    prefix: str = "nn",
) -> Source:
    """Return the C source of a graph.

    Parameters
    ----------
    program
        The graph.
    seconds
        Processor time for the search of the smallest arena.
    own
        What makes the steps of operators that have no kernel here, by the names of the operators.
    prefix
        What the names of its functions begin with.

    Raises
    ------
    CompileError
        If an operator cannot become C; the message names it.
    """
    if len(program.operators) > _MOST_OPERATORS:
        raise CompileError(
            f"it has {len(program.operators)} operators, more than {_MOST_OPERATORS}"
        )
    steps: list[tuple[str, CStep, Sequence[int], Sequence[int]]] = []
    same: dict[int, int] = {}
    for number, operator in enumerate(program.operators):
        name, builder = BUILDERS.get(operator.code, ("", None))
        if builder is None:
            name = operator.custom[:60] or get_operator_name(operator.code)
            builder = own.get(operator.custom or name)
        if builder is None:
            told = f"the custom {name!r}" if operator.custom else name
            raise CompileError(
                f"operator {number} is {told}, for which CCompiler has no kernel; own_operators "
                f"(--own-operators) can "
                "name a class that has one"
            )
        try:
            with np.errstate(over="ignore"):  # factors that are too large are refused
                step = builder(OperatorView(program, operator))
        except (CompileError, ArtifactError) as error:
            raise CompileError(f"{name} (operator {number}): {error}") from None
        if step is None:
            same[operator.outputs[0]] = same.get(operator.inputs[0], operator.inputs[0])
        else:
            inputs = [same.get(n, n) for n in operator.inputs]
            steps.append((name, step, inputs, operator.outputs))
    return _Writer(program, steps, same, seconds).source(prefix)


class _Writer:
    def __init__(
        self,
        program: TFLiteProgram,
        steps: Sequence[tuple[str, CStep, Sequence[int], Sequence[int]]],
        same: dict[int, int],
        seconds: int,
    ) -> None:
        self._program, self._steps, self._same = program, steps, same
        self._constants: dict[bytes, tuple[str, npt.NDArray[np.generic]]] = {}
        self._inputs = list(program.file.inputs.values())
        self._outputs = [same.get(n, n) for n in program.file.outputs.values()]
        self._lives = self._compute_lifetimes()
        buffers = [
            Buffer(first, last + 1, self._count_bytes(n))
            for n, (first, last) in self._lives.items()
        ]
        scratch = {
            place: step.scratch for place, (_, step, _, _) in enumerate(steps) if step.scratch
        }
        buffers += [Buffer(place, place + 1, size) for place, size in scratch.items()]
        if sum(b.size for b in buffers) > _LARGEST_ARENA:
            raise CompileError("its values need more than 1 GB")
        self._plan = plan_arena(buffers, alignment=_ALIGNMENT, seconds=seconds)
        self._offsets = dict(zip(self._lives, self._plan.offsets, strict=False))
        self._scratch = dict(zip(scratch, self._plan.offsets[len(self._lives) :], strict=True))

    def _count_bytes(self, number: int) -> int:
        tensor = self._program.tensors[number]
        if tensor is None or tensor.spec.dtype not in C_TYPES:
            raise CompileError("a value has a type that C does not know")
        return tensor.count * np.dtype(tensor.spec.dtype).itemsize

    def _compute_lifetimes(self) -> dict[int, tuple[int, int]]:
        """Return the first and last step during which each value in the arena is needed."""
        found = dict.fromkeys(self._inputs, (0, 0))
        read = [number for _, _, inputs, _ in self._steps for number in inputs if number >= 0]
        # A state keeps its place between runs; it begins with zeros, as all of the arena does.
        found |= {number: (0, len(self._steps)) for number in read if self._is_state(number)}
        for place, (name, _, inputs, outputs) in enumerate(self._steps):
            for number in inputs:
                if number < 0 or self._get_content(number) is not None:
                    continue
                if number not in found:
                    raise CompileError(f"{name} reads a value before it is computed")
                found[number] = (found[number][0], max(found[number][1], place))
            for number in outputs:
                if number in found or number < 0:
                    raise CompileError(f"{name} writes a value that is there already")
                found[number] = (place, place)
        for number in self._outputs:
            if number in found:
                found[number] = (found[number][0], len(self._steps))
            elif self._get_content(number) is None:
                raise CompileError("an output is never computed")
        return found

    def _is_state(self, number: int) -> bool:
        tensor = self._program.tensors[number]
        return tensor is not None and tensor.variable

    def _get_content(self, number: int) -> npt.NDArray[np.generic] | None:
        tensor = self._program.tensors[number]
        return (
            None if tensor is None or tensor.variable or number in self._inputs else tensor.content
        )

    def _constant(self, content: npt.NDArray[np.generic]) -> str:
        array = np.ascontiguousarray(content)
        key = str(array.dtype).encode() + b" " + array.tobytes()
        if key not in self._constants:
            self._constants[key] = (f"nn_constant_{len(self._constants)}", array)
        return self._constants[key][0]

    def _format_address(self, number: int, writes: bool = False) -> str:
        content = self._get_content(number)
        if content is not None:
            return self._constant(content)
        tensor = self._program.tensors[number]
        kind = C_TYPES[tensor.spec.dtype]  # type: ignore[union-attr]
        return f"({'' if writes else 'const '}{kind} *)(nn_arena.bytes + {self._offsets[number]})"

    def _generate_statements(self) -> Iterator[str]:
        for place, (name, step, inputs, outputs) in enumerate(self._steps):
            read = [
                (n, number) for n, number in enumerate(inputs) if f"{{in{n}}}" in step.statement
            ]
            places = {f"in{n}": self._format_address(number) for n, number in read}
            places |= {
                f"out{n}": self._format_address(number, True) for n, number in enumerate(outputs)
            }
            places |= {key: self._constant(array) for key, array in step.constants.items()}
            if step.scratch:
                places["scratch"] = f"(void *)(nn_arena.bytes + {self._scratch[place]})"
            call = step.statement
            for key, where in places.items():
                call = call.replace("{" + key + "}", where)
            yield f"    {{ /* {_format_comment(name)} */"
            yield from (f"        {line}" for line in step.before)
            yield f"        {call}"
            yield "    }"

    def _generate_resets(self) -> Iterator[str]:
        """Yield what gives the states the zeros that they begin with."""
        for number in self._list_states():
            place = f"nn_arena.bytes[{self._offsets[number]} + n]"
            yield f"    for (int32_t n = 0; n < {self._count_bytes(number)}; n++) {place} = 0;"

    def _list_states(self) -> list[int]:
        return [number for number in self._lives if self._is_state(number)]

    def source(self, prefix: str) -> Source:
        calls = list(self._generate_statements())
        outputs = [self._format_address(number) for number in self._outputs]
        inputs = [self._format_address(number, True) for number in self._inputs]
        weights = sum(array.nbytes for _, array in self._constants.values())
        lines = [
            f"#define NN_ARENA_BYTES {max(self._plan.size, 1)}",
            "",
            "/* Memory of all values; the offsets below were planned for it. */",
            "static union { int64_t whole; double real; uint8_t bytes[NN_ARENA_BYTES]; } nn_arena;",
            "",
            *(_format_definition(name, array) for name, array in self._constants.values()),
            "",
            "/* Where to write an input before a run: it may be overwritten by the run. */",
            f"void *{prefix}_input(int32_t number) {{",
            *(f"    if (number == {n}) return {place};" for n, place in enumerate(inputs)),
            "    return 0;",
            "}",
            "",
            "/* Where to read an output after a run. */",
            f"const void *{prefix}_output(int32_t number) {{",
            *(f"    if (number == {n}) return {place};" for n, place in enumerate(outputs)),
            "    return 0;",
            "}",
            "",
            "/* Forget what earlier runs have left: to be called before a run that does not "
            "continue the last one. */",
            f"void {prefix}_reset(void) {{",
            *self._generate_resets(),
            "}",
            "",
            f"void {prefix}_run(void) {{",
            *calls,
            "}",
            "",
        ]
        kernels = (
            _HEAD,
            *_iter_kernel_texts(
                [kernel for _, step, _, _ in self._steps for kernel in step.kernels]
            ),
        )
        states = sum(map(self._count_bytes, self._list_states()))
        return Source(kernels, "\n".join(lines), self._build_io(), self._plan, weights, states)

    def _build_io(self) -> IOSpec:
        def fix_shape(spec: TensorSpec, number: int) -> TensorSpec:
            tensor = self._program.tensors[number]
            if tensor is None:
                raise CompileError(f"tensor {spec.name!r} has an unknown type")
            return replace(spec, shape=tensor.shape)

        file = self._program.file
        return IOSpec(
            tuple(fix_shape(spec, file.inputs[spec.name]) for spec in file.io.inputs),
            tuple(fix_shape(spec, file.outputs[spec.name]) for spec in file.io.outputs),
        )


def _iter_kernel_texts(kernels: Sequence[CKernel | str]) -> Iterator[str]:
    """Yield the text of each kernel once, in the order in which they were first named."""
    for kernel in dict.fromkeys(kernels):
        if isinstance(kernel, str):
            yield kernel
            continue
        text = (_KERNELS / kernel.file).read_text()
        for word, by in kernel.words:
            text = re.sub(rf"\b{word}\b" if word != "@" else word, by, text)
        yield text


def _format_comment(name: str) -> str:
    """Return the name of an operator in a file for a comment of C, which it cannot end."""
    return re.sub(r"[^\w.:-]", "_", name, flags=re.ASCII)


def _format_definition(name: str, array: npt.NDArray[np.generic]) -> str:
    flat = array.reshape(-1)
    if flat.dtype.kind == "f":
        numbers = [_format_real(float(x)) + ("f" if flat.dtype == np.float32 else "") for x in flat]
    elif flat.dtype == np.int64:
        numbers = [f"{x}LL" if x != -(1 << 63) else "INT64_MIN" for x in flat.tolist()]
    else:
        numbers = [str(int(x)) if x != -(1 << 31) else "INT32_MIN" for x in flat.tolist()]
    rows = [",".join(numbers[at : at + _LINE]) for at in range(0, len(numbers), _LINE)] or ["0"]
    aligned = " NN_ALIGNED" if flat.dtype == np.int8 else ""
    kind, length = C_TYPES[str(flat.dtype)], max(len(numbers), 1)
    return f"static const {kind} {name}[{length}]{aligned} = {{\n" + ",\n".join(rows) + "\n};"


def _format_real(x: float) -> str:
    if x != x or x in (float("inf"), float("-inf")):
        raise CompileError("a constant is not a finite number")
    return x.hex()
