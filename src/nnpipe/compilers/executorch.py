"""Compilation of exported PyTorch programs to ExecuTorch programs, in floats or 8-bit integers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.compilers._quantisation import FloatKeepingCompiler
from nnpipe.compilers._requantisation import (
    check_quantised,
    list_fx_steps,
    widen_results,
    wrap_quantizer,
)
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import SLOW_PARTS, Artifact, Claim
from nnpipe.core.batching import FixesBatch, with_batch
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, generate_random_batch
from nnpipe.formats.sealed import SealedFile, read_sealed, write_sealed
from nnpipe.frameworks.executorch import FORMAT, MOST, STATE, load_method
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_bounded import (
    export_positional,
    find_bounded_lengths,
    list_tensors_in_order,
    make_positional_module,
    read_program_io,
    with_longest,
)
from nnpipe.frameworks.torch_program import compute_constant_kernels, keep_integers, load_program
from nnpipe.frameworks.torch_state import restore_buffers

_LABOURING = (
    "convolution",
    "addmm",
    "bmm",
    "mm",
    "linear",
    "pool",
    "norm",
    "softmax",
    "gelu",
    "erf",
    "upsample",
    "grid_sampler",
)
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


def fit_windows(program: Any) -> None:
    """Cut windows of average pooling that reach beyond all of their input; the result is the same.

    ExecuTorch's kernel visits every place of a window, also outside of the input: 640 x 640
    places for an input of 2 x 2 take 0.26 s (ExecuTorch 1.5).

    Parameters
    ----------
    program
        A ``torch.export.ExportedProgram``; it is changed.
    """
    import torch

    for node in program.graph.nodes:
        if node.target is not torch.ops.aten.avg_pool2d.default:
            continue
        lengths = node.args[0].meta["val"].shape[-2:]
        windows = tuple(node.args[1]) * (2 // len(node.args[1]))
        given = dict(
            zip(
                ("stride", "padding", "ceil_mode", "count_include_pad", "divisor"),
                node.args[2:],
                strict=False,
            )
        )
        padding = given.get("padding", 0)
        whole = all(
            isinstance(length, int) and window >= length
            for window, length in zip(windows, lengths, strict=True)
        )
        if whole and given.get("divisor") is None and padding in (0, [0], [0, 0]):
            node.args = (node.args[0], list(lengths), list(lengths))


def find_slow_parts(program: Any, lowered: Any) -> list[str]:
    """Return in short texts what takes long in a program for ExecuTorch.

    Parameters
    ----------
    program
        The ``torch.export.ExportedProgram`` before it was lowered.
    lowered
        That of the ``EdgeProgramManager`` after partitioning.
    """
    found = (
        ["recurrent layers are unrolled into their steps"]
        if _RECURRENT & set(_list_portable_operators(program))
        else []
    )
    portable = [
        name
        for name in _list_portable_operators(lowered)
        if any(part in name for part in _LABOURING)
    ]
    return found + ([f"portable kernels for {', '.join(portable)}"] if portable else [])


def _list_portable_operators(program: Any) -> list[str]:
    """Return the names of the operators that no backend took, each once."""
    names = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    found = (re.search(r"\baten\.(\w+)", name) for name in names)
    return list(dict.fromkeys(match[1] for match in found if match))


class ExecuTorchCompiler(FloatKeepingCompiler, FixesBatch):
    """Compiles exported PyTorch programs to ExecuTorch programs, which run wherever ExecuTorch
    does.
    """

    requires: ClassVar[tuple[str, ...]] = ("executorch", "torch")
    install: ClassVar[str] = "nnpipe[executorch]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    # it compiles them, and the results are wrong
    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".pte"
    packages: ClassVar[tuple[str, ...]] = ("executorch", "torch", "torchao")

    backend: Literal["xnnpack", "portable"] = argument(
        "xnnpack",
        help=(
            "kernels to compute with: XNNPACK's, or the portable ones, which are correct but very "
            "slow"
        ),
    )
    precision: Literal["fp32", "int8"] = argument(
        "fp32", help="fp32 keeps the model's numbers, int8 quantises weights and activations (PT2E)"
    )
    per_channel: bool = argument(
        True, help="use a separate scale for each output channel of a weight; for int8"
    )
    max_batch: int = argument(
        32,
        help="greatest batch size if it is free; memory is planned for it, and 1 fixes it",
        minimum=1,
    )
    max_length: int | None = argument(
        None,
        help="greatest length of other free axes, such as that of texts; memory is planned for "
        "it; by default the greatest that the program states",
        minimum=2,
    )

    def validate(self) -> None:
        """Check that the backend has kernels for integers if they were asked for."""
        super().validate()
        self._check_keep_float(self.precision == "int8", f"--precision int8, not {self.precision}")
        if self.precision == "int8" and self.backend != "xnnpack":
            raise ConfigError(
                f"{type(self).__name__}: --precision int8 needs --backend xnnpack, not "
                f"{self.backend}"
            )

    def needs_calibration(self) -> bool:
        """Return whether activations are quantised to integers."""
        return self.precision == "int8"

    def claims(self) -> tuple[Claim, ...]:
        """Return the number format: that of the source, or 8-bit integers."""
        return ("int8",) if self.precision == "int8" else ("float",)

    def performance_caveats(self) -> tuple[str, ...]:
        """Return a handicap for the slow portable kernels."""
        return (
            *super().performance_caveats(),
            *(("portable kernels",) if self.backend == "portable" else ()),
        )

    def variant(self) -> str:
        """Return kernels and precision."""
        return f"{self.backend}-{self.precision}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        loaded = load_program(artifact.path)
        lengths = find_bounded_lengths(loaded, self.max_length)
        io, most = with_batch(loaded.io, self.batch), 1 if self.batch else self.max_batch
        with suppress_output():
            program = export_positional(make_positional_module(loaded), io, most, lengths)
        if calibration is not None and self.precision == "int8":
            # Read outside the block, so that errors about samples keep their messages.
            samples = [
                _repeat_sample(list_tensors_in_order(io, batch), self.batch)
                for batch in calibration()
            ]
            with suppress_output():
                program = export_positional(
                    self._quantize_program(program, io, samples), io, most, lengths
                )
        found = read_program_io(program, io)
        fit_windows(program)
        with suppress_output():
            content, slow, keeps_state = self._lower_program(program)
        notes: dict[str, Any] = {SLOW_PARTS: slow} if slow else {}
        if keeps_state:
            notes[STATE] = True
        if any(spec.shape[:1] == (None,) for spec in found.inputs):
            notes[MOST] = self.max_batch
        self._check(content, with_longest(found, lengths), artifact.path)
        write_sealed(destination, SealedFile(content, FORMAT, found, notes))
        return found

    def _describe_outcome(self, destination: Path) -> Mapping[str, Any]:
        notes = read_sealed(destination, FORMAT).notes
        return {SLOW_PARTS: notes[SLOW_PARTS]} if SLOW_PARTS in notes else {}

    def _quantize_program(self, program: Any, io: IOSpec, samples: list[list[Any]]) -> Any:
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        quantiser = XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=self.per_channel)
        )
        module = program.module(check_guards=False)
        keep_integers(module)
        compute_constant_kernels(module)
        before = list_fx_steps(module, [spec.name for spec in io.inputs])
        prepared = prepare_pt2e(
            module,
            wrap_quantizer(
                quantiser, self._resolve_keep_float if self.keep_float else None, before
            ),
        )
        for tensors in samples:
            with restore_buffers(program, prepared):
                prepared(*tensors)
        widen_results(prepared)
        converted = convert_pt2e(prepared)
        # in the compiled program, XNNPACK's part says nothing of types
        check_quantised(converted, "xnnpack")
        return converted

    def _lower_program(self, program: Any) -> tuple[bytes, list[str], bool]:
        import torch
        from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
        from executorch.exir.passes import MemoryPlanningPass
        from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

        partitioners = []
        if self.backend == "xnnpack":
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

            partitioners = [XnnpackPartitioner()]
        edge = to_edge_transform_and_lower(program, partitioner=partitioners)
        lowered = edge.exported_program()
        if any("quantized_decomposed" in str(node.target) for node in lowered.graph.nodes):
            raise CompileError(
                f"{self.backend} has no kernels for all of its quantised operations; quantise it "
                f"for XNNPACK "
                "(TorchPT2EQuantizer --quantizer xnnpack, or --precision int8 here)"
            )
        # Inputs stay in the caller's memory: planned memory would be reused for other tensors.
        planning = MemoryPlanningPass(alloc_graph_input=False)
        # else all kernels are, which is a handicap
        slow = find_slow_parts(program, lowered) if partitioners else []
        # Without it, what the program keeps from one run to the next begins with anything.
        kept = lowered.graph_signature.buffers_to_mutate.values()
        buffers = lowered.graph_signature.inputs_to_buffers.items()
        first_values = InitializedMutableBufferPass(
            [name for name, buffer in buffers if buffer in kept]
        )
        config = ExecutorchBackendConfig(
            passes=[first_values] if kept else [], memory_planning_pass=planning
        )
        with torch.no_grad():
            return bytes(edge.to_executorch(config).buffer), slow, bool(kept)

    def _check(self, content: bytes, io: IOSpec, source: Path) -> None:
        """Check that the program takes one sample and the largest batch asked for."""
        method, _program = load_method(content, source)
        meta = method.method_meta()
        for place, spec in enumerate(io.inputs):
            planned = meta.input_tensor_meta(place).sizes()
            if spec.shape[:1] == (None,) and planned[0] < self.max_batch:
                raise CompileError(
                    f"ExecuTorch plans memory for no more than {planned[0]} samples of "
                    f"{spec.name!r}; use --max-batch {planned[0]}"
                )
        with suppress_output():
            method.set_inputs(list_tensors_in_order(io, generate_random_batch(io, 1)))
            method.execute()


def _repeat_sample(sample: list[Any], batch: int | None) -> list[Any]:
    """Return a batch of copies of one sample, if a batch size is set."""
    return [
        tensor.expand(batch, *tensor.shape[1:]) if batch and tensor.ndim else tensor
        for tensor in sample
    ]
