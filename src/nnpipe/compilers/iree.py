"""Compilation of ONNX models to IREE modules."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.compilers._onnx import fix_batch, merge_into_one_file
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.sealed import SealedFile, write_sealed
from nnpipe.frameworks.iree import FORMAT, FUNCTION, is_supported_type, list_instruction_sets
from nnpipe.frameworks.onnx_known_faults import IREE, check_known_faults, find_known_faults
from nnpipe.frameworks.processors import FEATURES, MACHINE, get_machine

# GRU layers of ONNX models as products and sums, a few for each step, for compilers that do not
# know the layer.
#
# The equations are those of the operator ``GRU`` in ONNX
# (https://onnx.ai/onnx/operators/onnx__GRU.html), with its default activations.

_LONGEST = 512  # steps; each adds about 15 nodes for every direction
_DEFAULT = [b"Sigmoid", b"Tanh"]


def unroll_gru_layers(model: Any) -> Any:
    """Return an ``onnx.ModelProto`` with its GRU layers as other operations, where their number of
    steps is known.

    Layers with activations of their own, lengths that differ between samples, a limit on values, or
    weights that are computed stay as they are.
    """
    import onnx

    if not any(node.op_type == "GRU" for node in model.graph.node):
        return model
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        # Between layers, exporters compute shapes from shapes.
        for value in (
            *onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info,
            *model.graph.input,
        )
    }
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[Any] = []
    replaced: list[list[str]] = []
    for node in model.graph.node:
        unrolled = (
            _unroll_node(node, shapes, held, model.graph.initializer)
            if node.op_type == "GRU"
            else None
        )
        if unrolled is not None:
            replaced.append([name for name in node.input[1:4] if name])
        nodes += [node] if unrolled is None else unrolled
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input} | {
        value.name for value in model.graph.output
    }
    for name in {name for names in replaced for name in names} - used:
        model.graph.initializer.remove(held[name])
    return model


def _unroll_node(
    node: Any, shapes: Mapping[str, list[int]], held: Mapping[str, Any], kept: Any
) -> list[Any] | None:
    import onnx

    options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    inputs = [*node.input, "", "", "", "", ""][:6]
    steps = (shapes.get(inputs[0]) or [0])[0]
    directions = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}[
        options.get("direction", b"forward")
    ]
    plain = options.get("activations", _DEFAULT * len(directions)) == _DEFAULT * len(directions)
    known = all(not name or name in held for name in inputs[1:4])
    if (
        not plain
        or not known
        or inputs[4]
        or "clip" in options
        or options.get("layout")
        or not 0 < steps <= _LONGEST
    ):
        return None
    kernel, recurrent, bias = (
        onnx.numpy_helper.to_array(held[name]) if name else None for name in inputs[1:4]
    )
    assert kernel is not None
    assert recurrent is not None
    prefix = f"unrolled/{node.output[0] or node.output[1]}/"

    def add_constant(name: str, array: Any) -> str:
        kept.append(onnx.numpy_helper.from_array(np.array(array, order="C"), prefix + name))
        return prefix + name

    size = recurrent.shape[-1]
    bias = np.zeros((len(directions), 6 * size), kernel.dtype) if bias is None else bias
    nodes, wholes, lasts = [], [], []
    shared = {
        name: add_constant(name, array)
        for name, array in {
            "one": np.array(1, kernel.dtype),
            "start": np.array([0]),
            "axis": np.array([1]),
            "steps": np.full(steps, 1),
            "three": np.full(3, size),
            "two": np.full(2, size),
        }.items()
    }
    for number, backwards in enumerate(directions):
        of = f"{number}/"
        layer = _Direction(
            prefix + of,
            size,
            steps,
            backwards,
            bool(options.get("linear_before_reset", 0)),
            {
                "kernel": add_constant(of + "kernel", kernel[number].T),
                "recurrent": add_constant(of + "recurrent", recurrent[number, : 2 * size].T),
                "recurrent_new": add_constant(
                    of + "recurrent_new", recurrent[number, 2 * size :].T
                ),
                "bias": add_constant(of + "bias", bias[number, : 3 * size]),
                "recurrent_bias": add_constant(
                    of + "recurrent_bias", bias[number, 3 * size : 5 * size]
                ),
                "recurrent_bias_new": add_constant(
                    of + "recurrent_bias_new", bias[number, 5 * size :]
                ),
                **shared,
            },
        )
        initial = ""
        if inputs[5]:
            initial = f"{prefix}{of}initial"
            nodes.append(
                onnx.helper.make_node(
                    "Gather", [inputs[5], add_constant(of + "which", number)], [initial], axis=0
                )
            )
        made, whole, last = layer.nodes(inputs[0], initial)
        nodes += made
        wholes.append(whole)
        lasts.append(last)
    for parts, axis_of, output in ((wholes, 1, 0), (lasts, 0, 1)):
        if len(node.output) > output and node.output[output]:
            nodes.append(
                onnx.helper.make_node("Concat", parts, [node.output[output]], axis=axis_of)
            )
    return nodes


class _Direction:
    """The nodes of one direction of one layer."""

    def __init__(
        self,
        prefix: str,
        size: int,
        steps: int,
        backwards: bool,
        reset_after: bool,
        weights: Mapping[str, str],
    ) -> None:
        self.prefix, self.size, self.steps, self.weights = prefix, size, steps, weights
        self.backwards, self.reset_after = backwards, reset_after
        self._made: list[Any] = []

    def nodes(self, x: str, initial: str) -> tuple[list[Any], str, str]:
        """Return the nodes, and the names of all states, ``(steps, 1, n, size)``, and of the
        last, ``(1, n, size)``.
        """
        w = self.weights
        given = self._add_node(
            "Add", "given", self._add_node("MatMul", "product", x, w["kernel"]), w["bias"]
        )
        split = [f"{self.prefix}given/{step}" for step in range(self.steps)]
        self._add("Split", [given, self.weights["steps"]], split, axis=0)
        state, states = initial, [""] * self.steps
        for step in self._list_steps():
            now = self._add_node("Squeeze", f"{step}/given", split[step], w["start"])
            state = self._add_step(f"{step}/", now, state)
            states[step] = self._add_node("Unsqueeze", f"{step}/kept", state, w["start"])
        joined = f"{self.prefix}states"
        self._add("Concat", states, [joined], axis=0)
        whole = self._add_node("Unsqueeze", "whole", joined, w["axis"])
        return self._made, whole, states[self._list_steps()[-1]]

    def _list_steps(self) -> list[int]:
        steps = list(range(self.steps))
        return steps[::-1] if self.backwards else steps

    def _add_step(self, of: str, given: str, state: str) -> str:
        """Return the state after a step, from the input's part ``(n, 3 * size)`` and the state
        before, if any.
        """
        w, names = self.weights, [f"{self.prefix}{of}{name}" for name in ("update", "reset", "new")]
        self._add("Split", [given, w["three"]], names, axis=1)
        own = [f"{self.prefix}{of}own/{name}" for name in ("update", "reset")]
        self._add(
            "Split", [self._add_state_product(of + "gates", state, ""), w["two"]], own, axis=-1
        )
        gates = [
            self._add_node("Add", f"{of}gate+/{n}", name, part)
            for n, (name, part) in enumerate(zip(names, own, strict=False))
        ]
        update, reset = (
            self._add_node("Sigmoid", f"{of}gate/{n}", gate) for n, gate in enumerate(gates)
        )
        new = self._add_node(
            "Tanh",
            of + "tanh",
            self._add_node("Add", of + "sum", names[2], self._add_recalled_state(of, reset, state)),
        )
        rest = self._add_node(
            "Mul", of + "rest", self._add_node("Sub", of + "1-", w["one"], update), new
        )
        return (
            rest
            if not state
            else self._add_node(
                "Add", of + "state", rest, self._add_node("Mul", of + "old", update, state)
            )
        )

    def _add_recalled_state(self, of: str, reset: str, state: str) -> str:
        """Return what the new state takes from the one before."""
        if self.reset_after:
            return self._add_node(
                "Mul", of + "left", reset, self._add_state_product(of + "recalled", state, "_new")
            )
        left = self._add_node("Mul", of + "left", reset, state) if state else ""
        return self._add_state_product(of + "recalled", left, "_new")

    def _add_state_product(self, name: str, state: str, which: str) -> str:
        """Return the product with the state and the bias; without a state, which is 0 at first,
        the bias alone.
        """
        bias = self.weights[f"recurrent_bias{which}"]
        if not state:
            return bias
        return self._add_node(
            "Add",
            f"{name}+",
            self._add_node("MatMul", name, state, self.weights[f"recurrent{which}"]),
            bias,
        )

    def _add_node(self, kind: str, name: str, *inputs: str) -> str:
        output = f"{self.prefix}{name}"
        self._add(kind, inputs, [output])
        return output

    def _add(self, kind: str, inputs: Any, outputs: list[str], **attributes: int) -> None:
        import onnx

        self._made.append(onnx.helper.make_node(kind, list(inputs), outputs, **attributes))


log = logging.getLogger("nnpipe")
_NATIVE, _GENERIC = "native", "generic"
_TILES = "--iree-opt-data-tiling"
_CHANNELS_LAST = (
    "--iree-preprocessing-pass-pipeline="
    "builtin.module(util.func(iree-preprocessing-convert-conv-to-channels-last))"
)
_CANNOT = "it cannot compile"
_OPSET = 17  # IREE supports older operator sets in part only


class _StepTimeout(CompileError):
    """Raised if a step takes too long."""


class _UnsupportedOperation(CompileError):
    """Raised if an operation cannot be compiled at all."""


class IREECompiler(WritingCompiler, FixesBatch):
    """Compiles ONNX models to IREE modules of machine code, in subprocesses."""

    requires: ClassVar[tuple[str, ...]] = ("iree.compiler", "onnx")
    install: ClassVar[str] = "nnpipe[iree]"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    one_file: ClassVar[bool] = True
    produces: ClassVar[str] = FORMAT
    suffix: ClassVar[str] = ".vmfb"
    packages: ClassVar[tuple[str, ...]] = ("iree-base-compiler", "onnx")

    target: str = argument(
        _NATIVE,
        help="processor to compile for: native (this one), generic (any of this kind), or a "
        "triple such as aarch64-linux-gnu",
    )
    mcpu: str = argument(
        "", help="LLVM's name of the processor model, such as cortex-a72; only with a triple"
    )
    data_tiling: bool = argument(True, help="lay tensors out in tiles that fit the processor")
    channels_last: bool = argument(
        True, help="compute convolutions with channels last, which is faster on CPUs"
    )
    compile_timeout: float = argument(
        600.0, help="seconds after which a compiler step is aborted", minimum=1.0
    )

    def validate(self) -> None:
        """Check that a processor model is only given with a triple."""
        if self.mcpu and self.target in (_NATIVE, _GENERIC):
            raise ConfigError(
                f"{type(self).__name__}: --mcpu needs a triple as --target, not {self.target}"
            )

    def performance_caveats(self) -> tuple[str, ...]:
        """Return handicaps: generic code, no data tiling, channels first."""
        generic = ("code for any processor",) if self.target == _GENERIC else ()
        first = () if self.channels_last else ("convolutions with channels first",)
        return (
            *super().performance_caveats(),
            *generic,
            *(() if self.data_tiling else ("no data tiling",)),
            *first,
        )

    def variant(self) -> str:
        """Return the number format of the computation."""
        return "fp32"

    def target_name(self) -> str:
        """Return the name of the processor."""
        return self.target

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return the nodes that IREE is known to compute wrongly."""
        return find_known_faults(path, "IREE", IREE)

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model, io = self._prepare_model(artifact, folder)
            mlir, module = folder / "model.mlir", folder / "model.vmfb"
            self._run(
                [
                    sys.executable,
                    "-m",
                    "iree.compiler.tools.import_onnx",
                    str(model),
                    "-o",
                    str(mlir),
                ],
                folder,
            )
            function = _find_function_name(mlir)
            flags, notes = self._choose_target()
            command = [
                _find_compiler(),
                str(mlir),
                "-o",
                str(module),
                "--iree-input-type=onnx",
                *flags,
            ]
            self._run_best(command, mlir, artifact.path)
            write_sealed(
                destination,
                SealedFile(module.read_bytes(), FORMAT, io, notes | {FUNCTION: function}),
            )
        return io

    def _prepare_model(self, artifact: Artifact, folder: Path) -> tuple[Path, IOSpec]:
        """Return the model as one file with an operator set that IREE supports and the requested
        batch size.
        """
        import onnx

        whole = merge_into_one_file(artifact.path, folder)
        io = read_onnx(whole).io(artifact.io)
        for spec in io:
            if not is_supported_type(spec.dtype):
                raise CompileError(
                    f"tensor {spec.name!r} is {spec.dtype}, which cannot be put into or got from "
                    f"IREE"
                )
        model = onnx.load_model(str(whole))
        onnx.checker.check_model(model)
        check_known_faults(artifact.path, "IREE", IREE)
        versions = [
            entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")
        ]
        if versions and versions[0] < _OPSET:
            model = onnx.version_converter.convert_version(model, _OPSET)
        if self.batch is not None:
            fix_batch(model, io, self.batch)
        model = unroll_gru_layers(model)  # IREE has no GRU
        prepared = folder / "prepared.onnx"
        onnx.save_model(model, str(prepared))
        io = read_onnx(prepared).io(io)
        return prepared, IOSpec(
            *(tuple(TensorSpec(s.name, s.shape, s.dtype) for s in side) for side in _get_sides(io))
        )

    def _run_best(self, command: Sequence[str], mlir: Path, source: Path) -> None:
        """Compile for the fastest code; what IREE cannot do with this model is left out, with a
        warning.
        """
        last = self.channels_last and _has_text(mlir, "onnx.Conv")
        wanted = {_TILES: "data tiling"} if self.data_tiling else {}
        wanted |= {_CHANNELS_LAST: "convolutions with channels last"} if last else {}
        failed: CompileError | None = None
        for flags in dict.fromkeys((tuple(wanted), *((each,) for each in wanted), ())):
            try:
                self._run([*command, *flags], mlir.parent)
            except (_StepTimeout, _UnsupportedOperation):
                raise
            except CompileError as error:
                failed = failed or error
                continue
            if failed:
                without = " and ".join(told for flag, told in wanted.items() if flag not in flags)
                log.warning(
                    "%s: compiled without %s, since IREE cannot do it here: %s",
                    source,
                    without,
                    failed,
                )
            return
        assert failed is not None
        raise failed

    def _choose_target(self) -> tuple[list[str], dict[str, Any]]:
        flags = [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-input-demote-f64-to-f32=false",  # otherwise float64 inputs would become float32
        ]
        if self.target == _NATIVE:
            return [*flags, "--iree-llvmcpu-target-cpu=host"], {
                MACHINE: get_machine(),
                FEATURES: list_instruction_sets(),
            }
        if self.target == _GENERIC:
            return [*flags, "--iree-llvmcpu-target-cpu=generic"], {MACHINE: get_machine()}
        cpu = [f"--iree-llvmcpu-target-cpu={self.mcpu or 'generic'}"]
        return [*flags, f"--iree-llvmcpu-target-triple={self.target}", *cpu], {
            MACHINE: get_machine(self.target)
        }

    def _run(self, command: Sequence[str], folder: Path) -> None:
        """Run a step in a subprocess, so that a crash or hang only leads to an error."""
        step = "IREE's importer" if "-m" in command else "iree-compile"
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                timeout=self.compile_timeout,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise _StepTimeout(
                f"{step} did not end within {self.compile_timeout:g} s; allow more with "
                f"--compile-timeout"
            ) from None
        if done.returncode < 0:
            raise CompileError(f"{step} crashed (signal {-done.returncode})")
        if done.returncode:
            cause = _find_cause(done.stderr.decode("utf-8", "replace"))
            raise (_UnsupportedOperation if cause.startswith(_CANNOT) else CompileError)(
                f"{step} failed: {cause}"
            )


def _find_compiler() -> str:
    from iree.compiler.tools.binaries import find_tool

    return str(find_tool("iree-compile"))


def _has_text(mlir: Path, text: str) -> bool:
    with open(mlir, encoding="utf-8", errors="replace") as handle:
        return any(text in line for line in handle)


def _find_function_name(mlir: Path) -> str:
    """Return the name of the function that the importer derived from the graph's name."""
    with open(mlir, encoding="utf-8", errors="replace") as handle:
        for line in handle:
            found = re.search(r"func\.func @(?:\"([^\"]+)\"|([\w$.-]+))", line)
            if found:
                return found[1] or found[2]
    raise CompileError("IREE's importer wrote no function")


def _find_cause(said: str) -> str:
    """Return the first error, which causes the others, or the last line if none is marked as an
    error.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [line for line in lines if re.search(r"\berror: |Error\b", line)]
    unknown = re.search(r"torch\.operator.*\"onnx\.(\w+)\"", marked[0]) if marked else None
    if unknown:
        return f"{_CANNOT} {unknown[1]} as the model uses it"
    found = marked[0] if marked else lines[-1] if lines else "it did not say why"
    return re.sub(r"^\S*model\.mlir:\d+:\d+: ", "", found)[:300]


def _get_sides(io: IOSpec) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    return io.inputs, io.outputs
