"""The server in C: a program for Linux that is small enough for a router, with models linked in."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnpipe.core.discoverable import C
from nnpipe.core.errors import CompileError, ConfigError, MissingTool
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.c_source import (
    FORMAT,
    FUNCTIONS,
    compute_loaded_size,
    get_function_names,
    read_c_source,
)
from nnpipe.protocols.target_c import CORE, FOLDER, PROOF, SERVER
from nnpipe.workflows.devices.inspection import write_trial_models

_MODEL = ("-std=c99", "-O2", "-ffp-contract=off", "-w")
_SERVER = ("-std=gnu11", "-Os", "-D_GNU_SOURCE", "-Wall", "-Wextra")
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
_ALIGN = 8
_COMPILERS = {
    ".tflite": "TFLiteModel CCompiler",
    ".onnx": "ONNXModel ONNXToTorch,TorchToTFLite,CCompiler",
}


@dataclass(frozen=True)
class BuiltServer:
    """A program that serves models.

    Attributes
    ----------
    path
        The program.
    size
        Its size in bytes.
    own_size
        What is loaded of the same program without a model, in bytes; the file is larger, for
        linkers align its parts.
    models
        The names of its models.
    """

    path: Path
    size: int
    own_size: int
    models: tuple[str, ...]

    def __str__(self) -> str:
        what = "a model" if len(self.models) == 1 else f"{len(self.models)} models"
        names = ", ".join(self.models)
        return (
            f"{self.path}: {self.size:,} bytes ({self.own_size:,} without models), with {what}: "
            f"{names}"
        )


def build_server(
    models: Sequence[Path],
    destination: Path,
    compiler: str | None = None,
    flags: Sequence[str] = (),
) -> BuiltServer:
    """Build a server for models that are C sources of ``CCompiler``.

    A host that offers one of them is told that the server has it already; it takes no others, so
    that no client brings code to the machine.

    Parameters
    ----------
    models
        The C sources.
    destination
        The program to write.
    compiler
        The C compiler, such as that for another processor (default: this computer's).
    flags
        Further flags for the compiler, such as ``-static``.

    Raises
    ------
    ArtifactError
        If a source is damaged, or was not made by nnpipe.
    ConfigError
        If two sources are the same model, or one is a model that was not compiled yet.
    MissingTool
        If there is no such compiler.
    CompileError
        If the compiler fails; the message is its first error.
    """
    for path in models:
        if path.suffix.lower() in _COMPILERS:
            raise ConfigError(
                f"{path} is no C source; nnpipe inference_tester {_COMPILERS[path.suffix.lower()]} "
                f"CRuntime ... --compiled-model-path {path.stem}.c makes one of it"
            )
    command = _find_compiler(compiler)
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        # so that a device with this server can be tried out
        (trial,) = write_trial_models(folder, (FORMAT,))
        entries = [
            _prepare_entry(path, number, folder)
            for number, path in enumerate((*models, trial.path))
        ]
        digests = [entry.digest for entry in entries]
        for number, digest in enumerate(digests):
            if digest in digests[:number]:
                first, second = digests.index(digest), number
                raise ConfigError(
                    f"{[*models, trial.path][second]} is the same model as {models[first]}"
                )
        objects = [
            _compile_object(command, [*_SERVER, *flags], path, folder)
            for path in (*CORE, PROOF, *SERVER)
        ]
        parts = [
            _compile_object(command, [*_MODEL, *flags], entry.wrapper, folder) for entry in entries
        ]
        empty = _link_server(command, flags, folder, objects, [], "empty")
        program = _link_server(command, flags, folder, [*objects, *parts], entries, "server")
        shutil.copyfile(program, destination)
        destination.chmod(0o755)
        return BuiltServer(
            destination,
            destination.stat().st_size,
            compute_loaded_size(empty),
            tuple(path.name for path in models),
        )


@dataclass(frozen=True)
class _Entry:
    """A model in the server's table."""

    name: str
    digest: str
    row: str
    declared: str
    wrapper: Path
    inputs: int
    tensors: int


def _prepare_entry(path: Path, number: int, folder: Path) -> _Entry:
    io, notes = read_c_source(path)
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    sizes = [_count_bytes(spec) for spec in io]
    source = folder / f"source{number}.c"
    source.write_bytes(content)
    wrapper = folder / f"model{number}.c"
    names = [f"m{number}_{function}" for function in FUNCTIONS]
    renamed = "".join(
        f"#define {old} {new}\n" for old, new in zip(get_function_names(notes), names, strict=True)
    )
    wrapper.write_text(
        f'{renamed}#include "{source.name}"\n'
        f"uint8_t *const m{number}_arena = nn_arena.bytes;\nconst uint32_t m{number}_arena_bytes = "
        f"NN_ARENA_BYTES;\n"
    )
    given, found, run, reset = names
    declared = (
        f"void *{given}(int32_t); const void *{found}(int32_t); void {run}(void); void "
        f"{reset}(void);\n"
        f"extern uint8_t *const m{number}_arena; extern const uint32_t m{number}_arena_bytes;\n"
        f"static const uint32_t m{number}_sizes[] = {{{', '.join(map(str, sizes))}}};\n"
    )
    described = json.dumps(io.to_json(), separators=(",", ":"))
    row = (
        f"    {{{_format_literal(path.name)}, {{{', '.join(map(str, digest.digest()))}}}, "
        f"{len(content)}u,\n"
        f"     {_format_literal(described)},\n"
        f"     {given}, {found}, {run}, {reset}, &m{number}_arena, &m{number}_arena_bytes, "
        f"{len(io.inputs)}, {len(io.outputs)}, m{number}_sizes}},\n"
    )
    return _Entry(
        path.name, digest.hexdigest(), row, declared, wrapper, _compute_payload(io), len(sizes)
    )


def _format_table(entries: Sequence[_Entry]) -> str:
    """Return the source of the table of models."""
    largest = max((entry.inputs for entry in entries), default=0)
    tensors = max((entry.tensors for entry in entries), default=0)
    rows = "".join(entry.row for entry in entries) or "    {0}\n"
    return (
        f'#include "models.h"\n\n{"".join(entry.declared for entry in entries)}\n'
        f"const struct nnpipe_linked_model nnpipe_models[] = {{\n{rows}}};\n"
        f"const uint32_t nnpipe_model_count = {len(entries)};\n"
        f"struct nnpipe_tensor nnpipe_places[{max(tensors, 1)}];\n"
        f"uint8_t nnpipe_kept_inputs[{max(largest, 1)}];\nconst uint32_t nnpipe_largest = "
        f"{largest}u;\n"
    )


def _format_literal(text: str) -> str:
    """Return a string of C."""
    return (
        '"'
        + "".join(
            c if c.isascii() and c.isprintable() and c not in '"\\?' else _escape_character(c)
            for c in text
        )
        + '"'
    )


def _escape_character(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def _count_bytes(spec: TensorSpec) -> int:
    return math.prod(length or 0 for length in spec.shape) * np.dtype(spec.dtype).itemsize


def _compute_payload(io: IOSpec) -> int:
    sizes = [_count_bytes(spec) for spec in io.inputs]
    return sum(-(-size // _ALIGN) * _ALIGN for size in sizes[:-1]) + sum(sizes[-1:])


def _find_compiler(compiler: str | None) -> str:
    if compiler is None:
        return C.check("the server in C")
    if shutil.which(compiler) is None:
        package = (
            f": apt install gcc-{compiler.removesuffix('-gcc')}"
            if compiler.endswith("-gcc")
            else ""
        )
        raise MissingTool(f"there is no compiler {compiler!r} on the PATH{package}")
    return compiler


def _compile_object(command: str, flags: Sequence[str], source: Path, folder: Path) -> Path:
    made = folder / f"{source.stem}.o"
    include = ("-I", str(FOLDER), "-I", str(FOLDER / "server"))
    _run([command, *flags, *_SECTIONS, *include, "-c", str(source), "-o", str(made)], source.name)
    return made


def _link_server(
    command: str,
    flags: Sequence[str],
    folder: Path,
    objects: Sequence[Path],
    entries: Sequence[_Entry],
    name: str,
) -> Path:
    table = folder / f"{name}_models.c"
    table.write_text(_format_table(entries))
    parts = [*objects, _compile_object(command, [*_SERVER, *flags], table, folder)]
    made = folder / name
    strip = () if any(flag.startswith("-fsanitize") for flag in flags) else ("-s",)
    _run(
        [command, *flags, *strip, "-Wl,--gc-sections", *map(str, parts), "-o", str(made)],
        "the server",
    )
    return made


def _run(command: Sequence[str], what: str) -> None:
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=environment
    )
    if done.returncode:
        lines = [
            line for line in done.stderr.splitlines() if "error" in line or "undefined" in line
        ]
        told = lines[0] if lines else done.stderr.strip() or "?"
        raise CompileError(f"{command[0]} cannot compile {what}: {' '.join(told.split())[:300]}")
