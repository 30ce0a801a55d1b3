"""Compilation of TensorFlow Lite models to C99 that needs no operating system."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from nnpipe.compilers._c_code.fixed_point import get_scale as get_scale
from nnpipe.compilers._c_code.fixed_point import get_zero_point as get_zero_point
from nnpipe.compilers._c_code.fixed_point import quantize_multiplier as quantize_multiplier
from nnpipe.compilers._c_code.operators.tables import build_float_lookup as build_float_lookup
from nnpipe.compilers._c_code.source import Source as Source
from nnpipe.compilers._c_code.source import generate_source
from nnpipe.compilers._c_code.step import Builder
from nnpipe.compilers._c_code.step import CKernel as CKernel
from nnpipe.compilers._c_code.step import CStep as CStep
from nnpipe.compilers._c_code.step import OperatorView as OperatorView
from nnpipe.compilers._c_code.step import format_float as format_float
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.discoverable import Discoverable
from nnpipe.core.errors import CompileError, ConfigError, NNPipeError
from nnpipe.core.registry import find, find_or_import, map_names_to_classes
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.tflite import TFLiteFile
from nnpipe.formats.tflite_graph import ProgramOperator, ProgramTensor, TFLiteProgram, read_program
from nnpipe.frameworks.c_source import FORMAT, PREFIX, is_prefix, read_c_source, write_c_source

_CUSTOM = 32  # the code of custom operators in the schema
EXP, LOG, SQRT = CKernel("exp.c"), CKernel("log.c"), CKernel("sqrt.c")
"""The functions ``float nn_exp(float)``, ``nn_log`` and ``nn_sqrt``, for ``uses``: there is no
library of C.
"""


class COperator(Discoverable):
    """An operator of TensorFlow Lite in C; a class in a plugin is found like a component.

    The kernels that CCompiler has come first.  The text of the kernel becomes part of the source as
    it is.

    Attributes
    ----------
    operator
        The name of the operator: of a custom one the name in the file, otherwise that in the
        schema, such as ``POW``.
    kernel
        Functions in C99 that need no library.  Names that begin with ``nn_`` are taken.
    uses
        Kernels that the functions call: of ``EXP``, ``LOG`` and ``SQRT``.

    Examples
    --------
    >>> class Halve(COperator):
    ...     'Half of each number.'
    ...     operator = "acme.Halve"
    ...     kernel = '''
    ... static void acme_halve(const float *in, float *out, int32_t count) {
    ...     for (int32_t i = 0; i < count; i++) out[i] = in[i] / 2;
    ... }'''
    ...     def step(self, op):
    ...         op.expect(op.types() == ("float32", "float32"), "it takes 32-bit floats only")
    ...         op.expect_shape(op.input(0).shape)
    ...         return CStep(f"acme_halve({{in0}}, {{out0}}, {op.output().count});")
    >>> list(find_own_builders([]))
    ['acme.Halve']
    """

    abstract: ClassVar[bool] = True
    operator: ClassVar[str] = ""
    kernel: ClassVar[str] = ""
    uses: ClassVar[tuple[CKernel, ...]] = ()

    @abstractmethod
    def step(self, op: OperatorView) -> CStep:
        """Return the call of the kernel for one operator of a graph; what
        ``build_float_lookup`` returns needs no ``kernel``.

        All that the file states must be checked: the kernel writes whatever is called for, and
        shapes in a file may be wrong.

        Parameters
        ----------
        op
            The operator: its types by ``op.types()``, ``op.input(0)`` and ``op.output()`` with
            ``shape``, ``count`` and ``spec``, constants by ``op.constant(1)``, a custom one's
            options by ``op.operator.custom_options``.

        Raises
        ------
        CompileError
            If the kernel does not compute its types or shapes; ``op.expect`` and
            ``op.expect_shape`` raise it.
        """


def find_own_builders(names: Iterable[str] = ()) -> Mapping[str, Builder]:
    """Return what makes steps by the names of operators: of plugins, the running program, and the
    named classes.

    Parameters
    ----------
    names
        Names of classes, or dotted paths, whose modules are imported.

    Raises
    ------
    ComponentNotFound
        If there is no such class, or its module cannot be imported.
    ConfigError
        If a named class does not say which operator it is for.
    """
    chosen = dict.fromkeys(
        find_or_import(name, COperator) or find(name, COperator) for name in names
    )
    found: dict[str, list[type[COperator]]] = {}
    for cls in chosen:
        if not cls.operator:
            raise ConfigError(
                f"{cls.get_dotted_path()} names no operator; set its attribute operator, such as "
                f"'POW'"
            )
        found.setdefault(cls.operator, []).append(cls)
    others: dict[str, list[type[COperator]]] = {}
    for cls in map_names_to_classes(COperator).values():
        others.setdefault(cls.operator, []).append(cls)
    return {
        name: _select_only_builder(classes) for name, classes in {**others, **found}.items() if name
    }


def _select_only_builder(classes: list[type[COperator]]) -> Builder:
    """Return what makes the step of an operator; if several classes are for it, it raises an
    error.
    """
    if len(classes) == 1:
        return _make_builder(classes[0], classes[0].get_dotted_path())

    def refuse_ambiguous(op: OperatorView) -> CStep:
        raise CompileError(
            f"{' and '.join(cls.get_dotted_path() for cls in classes)} are for it; name one in "
            f"own_operators"
        )

    return refuse_ambiguous


def generate_operator_source(
    operator: COperator,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    constants: Mapping[int, np.ndarray] = MappingProxyType({}),
    options: bytes = b"",
) -> Source:
    """Return the C source of a graph of one custom operator, as tests need it.

    Parameters
    ----------
    operator
        The operator.
    inputs, outputs
        Its tensors, with all lengths.
    constants
        The contents of those inputs that are constant, by their places.
    options
        The options of the operator in the file.

    Raises
    ------
    CompileError
        If it cannot become C.
    """
    specs = [*inputs, *outputs]
    tensors = [
        ProgramTensor(spec, tuple(length or 0 for length in spec.shape), constants.get(n), False)
        for n, spec in enumerate(specs)
    ]
    read = [n for n in range(len(inputs)) if n not in constants]
    made = list(range(len(inputs), len(specs)))
    io = IOSpec(tuple(specs[n] for n in read), tuple(outputs))
    file = TFLiteFile(io, {specs[n].name: n for n in read}, {specs[n].name: n for n in made})
    one = ProgramOperator(
        _CUSTOM, operator.operator, tuple(range(len(inputs))), tuple(made), None, (), options
    )
    return generate_source(
        TFLiteProgram(file, tuple(tensors), (one,)),
        0,
        {operator.operator: _make_builder(lambda: operator, type(operator).get_dotted_path())},
    )


def _make_builder(make: Callable[[], COperator], name: str) -> Builder:
    """Return what makes the step by an operator's class, which is not constructed before a model
    needs it.
    """

    def build(op: OperatorView) -> CStep:
        try:
            operator = make()
            step = operator.step(op)
        except NNPipeError:
            raise
        except Exception as error:
            raise CompileError(f"{name} failed: {type(error).__name__}: {error}") from error
        # A function that is not called would be a warning of the compiler.
        return (
            step
            if step.kernels
            else replace(step, kernels=(*operator.uses, operator.kernel.strip("\n") + "\n"))
        )

    return build


class CCompiler(WritingCompiler):
    """Writes TensorFlow Lite models as one file of C99 without libraries, for devices without an
    operating system.

    Weights are constants, and all values lie in one block of memory of known size.  Models in 8-bit
    numbers compute what LiteRT's reference kernels compute, bit by bit.  Operators that it lacks
    can be your own: a :class:`~nnpipe.compilers.c.COperator`.
    """

    accepts: ClassVar[tuple[str, ...]] = ("tflite",)
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".c"

    arena_seconds: int = argument(
        20,
        help=(
            "processor time for the search of the smallest arena, in seconds; 0 takes the first "
            "plan"
        ),
        minimum=0,
    )

    own_operators: tuple[str, ...] = argument(
        (),
        help="your own operators, such as mine.Pow; those of installed plugins need no option",
        metavar="CLASS",
    )
    prefix: str = argument(
        PREFIX,
        help=(
            "what the names of the file's functions begin with; models in one program need "
            "different ones"
        ),
    )

    def validate(self) -> None:
        """Check that the prefix can begin a name in C."""
        if not is_prefix(self.prefix):
            raise ConfigError(
                f"--prefix {self.prefix!r} cannot begin the name of a function: take letters, "
                f"digits and underscores, "
                "at most 40, and first no digit"
            )

    def claims(self) -> tuple[Claim, ...]:
        """Return that the model computes the same."""
        return ("float",)

    def target_name(self) -> str:
        """Return that any machine can run it."""
        return "generic"

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return the first operator that cannot become C."""
        program = read_program(path)
        try:
            generate_source(program, 0, find_own_builders(self.own_operators))
        except CompileError as error:
            return (str(error),)
        return ()

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        program = read_program(artifact.path)
        try:
            source = generate_source(
                program, self.arena_seconds, find_own_builders(self.own_operators), self.prefix
            )
        except (MemoryError, OverflowError) as error:
            raise CompileError(f"its sizes are too large ({type(error).__name__})") from None
        notes: dict[str, int | str] = {
            "arena_bytes": source.plan.size,
            "arena_lower_bound": source.plan.lower_bound,
            "constant_bytes": source.constant_bytes,
            "state_bytes": source.state_bytes,
        }
        if self.prefix != PREFIX:
            notes["prefix"] = self.prefix
        write_c_source(
            destination, f"/* Made by nnpipe's CCompiler. */\n{source.text}", source.io, notes
        )
        return source.io

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        return dict(read_c_source(destination)[1])
