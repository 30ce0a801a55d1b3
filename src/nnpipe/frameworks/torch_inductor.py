"""Programs compiled to machine code by PyTorch's AOTInductor."""

from __future__ import annotations

import io
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.core.discoverable import CXX
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import IOSpec, generate_random_batch
from nnpipe.formats.sealed import SealedFile
from nnpipe.frameworks.runtime_failures import make_runtime_failure, suppress_output
from nnpipe.frameworks.torch_bounded import read_program_io
from nnpipe.frameworks.torch_program import LoadedProgram, export_changed_module, is_quantised
from nnpipe.frameworks.torch_state import TorchState, find_program_state, list_state_buffers

FORMAT = "aoti"
_TORCH, _MACHINE, _VECTORS = "torch", "machine", "vectors"
INTEGERS = "integer kernels"
"""Key of the note in a file of a quantised program that states whether it computes with
integers, or why not.
"""
_USED = "used"
_SIZES = (1, 3)  # batch sizes to test, if the batch size is free
# relative error; rounding gives far less, saturation and wrong strides give 0.1 and more
_MOST_OFF = 0.02


def compile_package(loaded: LoadedProgram, tuned: bool, batch: int | None = None) -> SealedFile:
    """Return a program compiled for this machine's processor.

    Parameters
    ----------
    loaded
        The program.
    tuned
        Whether to benchmark alternative kernels.
    batch
        Fixed batch size; ``None`` leaves it as in the program.
    """

    module = loaded.module()
    if is_quantised(module) and list_state_buffers(loaded.native):
        raise CompileError(
            "it keeps values from one run to the next, which machine code of a quantised program "
            "does not forget; compile the program before it is quantised"
        )
    notes = {_TORCH: release(), _MACHINE: platform.machine(), _VECTORS: get_vector_instructions()}
    taken = loaded.io
    if batch is not None:
        taken = _with_shapes(
            loaded.io,
            read_program_io(
                export_changed_module(loaded, module, named=False, batch=batch), loaded.io
            ),
        )

    def compile_with(freezing: bool) -> bytes:
        program = export_changed_module(loaded, loaded.module(), named=False, batch=batch)
        return _compile_program(program, tuned, freezing)

    content, off = b"", ""
    if is_quantised(module):
        content, off = _compile_checked_integers(compile_with, module, loaded, taken)
        notes[INTEGERS] = off or _USED
    if not content:
        content = compile_with(freezing=not is_quantised(module))
    return SealedFile(content, FORMAT, taken, notes)


def _compile_program(program: Any, tuned: bool, freezing: bool) -> bytes:
    import torch
    from torch._inductor.utils import fresh_cache

    options: dict[str, Any] = with_compiler() | {
        "compile_threads": 1,  # no subprocesses that outlive the compilation
        # the number of threads is set at run time, not at compile time
        "cpp.dynamic_threads": True,
        "max_autotune": tuned,
        # Constant weights are arranged and folded ahead of time. With them, integer kernels replace
        # quantised operators; these are correct for some shapes only
        # (docs/reports/inductor-int8.md).
        "freezing": freezing,
    }
    packed = io.BytesIO()
    with fresh_cache(), torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            program, package_path=packed, inductor_configs=options
        )
    return packed.getvalue()


def _compile_checked_integers(
    made: Callable[[bool], bytes], module: Any, loaded: LoadedProgram, taken: IOSpec
) -> tuple[bytes, str]:
    """Compile with PyTorch's integer kernels, and check their results against the quantised
    program.

    Returns
    -------
    tuple
        The package and an empty text; or an empty package, and why these kernels cannot be used.
    """
    import torch

    try:
        content = made(True)
        call = torch._inductor.aoti_load_package(io.BytesIO(content)).loader.run
        worst = 0.0
        for seed, size in enumerate(_SIZES):
            batch = generate_random_batch(taken, size, seed)
            given = {name: torch.from_numpy(array) for name, array in batch.items()}
            with torch.no_grad():
                wanted = loaded.call(module, given)
            found = call([given[spec.name] for spec in loaded.io.inputs])
            worst = max(
                worst,
                *(_compute_distance(one, other) for one, other in zip(found, wanted, strict=True)),
            )
    except Exception as error:  # its errors share no base but Exception
        return b"", f"PyTorch's integer kernels cannot be used: {format_one_line(error)[:120]}"
    if not worst <= _MOST_OFF:
        return b"", f"PyTorch's integer kernels are off by {100 * worst:.0f} %"
    return content, ""


def _compute_distance(found: Any, wanted: Any) -> float:
    """Return the root mean square of the difference relative to that of ``wanted``; infinite if
    shapes differ.
    """
    if found.shape != wanted.shape:
        return float("inf")
    found, wanted = found.double(), wanted.double()
    off = float((found - wanted).square().mean().sqrt())
    return off / max(float(wanted.square().mean().sqrt()), 1e-12) if off else 0.0


def _with_shapes(io: IOSpec, found: IOSpec) -> IOSpec:
    """Return ``io`` with the shapes in ``found`` and its own quantisation."""
    sides = zip((io.inputs, io.outputs), (found.inputs, found.outputs), strict=True)
    return IOSpec(
        *(tuple(replace(a, shape=b.shape) for a, b in zip(*side, strict=True)) for side in sides)
    )


def explain_floats(file: SealedFile) -> str:
    """Return why a file of a quantised program computes with floats; empty if it does not."""
    told = str(file.notes.get(INTEGERS, _USED))
    return "" if told == _USED else told


def compile_call(
    loaded: LoadedProgram, bound: IOSpec, path: Path
) -> tuple[Callable[..., tuple[Any, ...]], TorchState | None]:
    """Return a program that ``torch.compile`` compiles in its first call, and again for another
    batch size.

    Returns
    -------
    tuple
        A function of the inputs of ``bound`` that returns its outputs, both in order; and the
        values that its calls may change.
    """
    import torch

    with suppress_output():
        # The traced call has positional tensors only.
        module = export_changed_module(loaded, loaded.module(), named=False).module(
            check_guards=False
        )
    order, picks = _find_places(loaded.io, bound)
    frozen = not is_quantised(module)  # see above
    compiled = torch.compile(
        module, fullgraph=True, options=with_compiler() | {"compile_threads": 1, "freezing": frozen}
    )
    seen: set[tuple[Any, ...]] = set()

    def call(*tensors: Any) -> tuple[Any, ...]:
        shapes = tuple(tensor.shape for tensor in tensors)
        try:
            given = [tensors[place] for place in order]
            if shapes in seen:
                found = compiled(*given)
            else:
                # Whether weights are constants is read from the settings when the program is first
                # traced.
                with suppress_output(), torch._inductor.config.patch(freezing=frozen):
                    found = compiled(*given)
        except Exception as error:  # its errors share no base but Exception
            raise make_runtime_failure(path, "PyTorch", "compile it", error) from None
        seen.add(shapes)
        return tuple(found[pick] for pick in picks)

    return call, find_program_state(loaded.native, dict(module.named_buffers()))


def load_package(file: SealedFile, bound: IOSpec, path: Path) -> Callable[..., tuple[Any, ...]]:
    """Load machine code, and return a function of the inputs of ``bound`` that returns its outputs,
    both in order.

    Raises
    ------
    ArtifactError
        If it was compiled for another processor or version of PyTorch.
    """
    import torch

    check_fits(file, path)
    try:
        with suppress_output():
            loader = torch._inductor.aoti_load_package(io.BytesIO(file.content)).loader
    except Exception as error:  # its errors share no base but Exception
        raise make_runtime_failure(path, "PyTorch", "load it", error) from None
    order, picks = _find_places(file.io, bound)

    def call(*tensors: Any) -> tuple[Any, ...]:
        try:
            found = loader.run([tensors[place] for place in order])
        except Exception as error:  # its errors share no base but Exception
            raise make_runtime_failure(path, "PyTorch", "run it", error) from None
        return tuple(found[pick] for pick in picks)

    return call


def _find_places(io: IOSpec, bound: IOSpec) -> tuple[list[int], list[int]]:
    """Return the indices in ``bound`` of the inputs of ``io``, and in ``io`` of the outputs of
    ``bound``.
    """
    given, found = [spec.name for spec in bound.inputs], [spec.name for spec in io.outputs]
    return [given.index(spec.name) for spec in io.inputs], [
        found.index(spec.name) for spec in bound.outputs
    ]


def check_fits(file: SealedFile, path: Path) -> None:
    """Raise :class:`ArtifactError` unless machine code is for this processor and this version of
    PyTorch.
    """
    notes = file.notes
    if notes.get(_TORCH) != release():
        raise ArtifactError(
            f"{path}: made by PyTorch {notes.get(_TORCH)}, which only that version can load, "
            f"and here is {release()}; compile it anew"
        )
    if notes.get(_MACHINE) != platform.machine() or notes.get(_VECTORS) not in (
        "",
        *list_vector_instructions(),
    ):
        made = f"{notes.get(_MACHINE)} with {notes.get(_VECTORS) or 'no vector instructions'}"
        raise ArtifactError(
            f"{path}: made for {made}, which this processor is not; compile it anew"
        )


def with_compiler() -> dict[str, Any]:
    """Return the option with the C++ compiler; by default PyTorch looks for one name only."""
    from torch._inductor import config

    found = CXX.find()
    return {"cpp.cxx": (*config.cpp.cxx, found)} if found else {}


def get_inductor_target() -> str:
    """Return the name of the processor that this machine compiles for."""
    return "-".join(filter(None, (platform.machine(), get_vector_instructions())))


def release() -> str:
    """Return the version of PyTorch without its build suffix."""
    import torch

    return str(torch.__version__).partition("+")[0]


def get_vector_instructions() -> str:
    """Return the vector instruction set that PyTorch compiles for on this machine; empty if
    none.
    """
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    with suppress_output():
        return str(pick_vec_isa()) if pick_vec_isa() else ""


def list_vector_instructions() -> list[str]:
    """Return the vector instruction sets of this processor."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    with suppress_output():
        return [str(isa) for isa in valid_vec_isa_list()]
