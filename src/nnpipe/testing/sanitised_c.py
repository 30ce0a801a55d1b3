"""Runs C sources of models under the sanitisers of GCC and Clang, which end a program at the first fault."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

_FLAGS = ("-std=c99", "-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_OWN_NAMES = re.compile(r"\b(nn_arena|nn_input|nn_output|nn_run|nn_reset|nn_constant_\d+|NN_ARENA_BYTES)\b")
_SECONDS = 300
_MAIN = """
#include <stdio.h>
static const struct { void *(*in)(int32_t); const void *(*out)(int32_t); void (*run)(void); int32_t runs; } graphs[] = {
    %s
};
static const int32_t sizes[] = {%s}; /* of each graph's inputs and outputs, in bytes; each list ends with -1 */
int main(void) {
    const int32_t *next = sizes;
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        const int32_t *in = next, *out = in;
        while (*out >= 0) out++;
        out++;
        for (next = out; *next >= 0; next++) {}
        next++;
        fprintf(stderr, "graph %%d\\n", (int)g);
        for (int32_t r = 0; r < graphs[g].runs; r++) {
            for (int32_t n = 0; in[n] >= 0; n++)
                if (fread(graphs[g].in(n), 1, in[n], stdin) != (size_t)in[n]) return 3;
            graphs[g].run();
            for (int32_t n = 0; out[n] >= 0; n++) fwrite(graphs[g].out(n), 1, out[n], stdout);
        }
    }
    return 0;
}
"""


class SourceParts(Protocol):
    """The C source of a graph: kernels that several graphs may share, what is its own, its inputs and outputs."""

    @property
    def kernels(self) -> Sequence[str]:
        """Texts, each after those that it needs."""

    @property
    def body(self) -> str:
        """The graph's memory, constants and functions."""

    @property
    def io(self) -> IOSpec:
        """Inputs and outputs with all lengths."""


class SanitiserFinding(AssertionError):
    """A sanitiser has ended the program, or the program did not end.

    Parameters
    ----------
    graph
        Which graph was computed.
    told
        The report.
    """

    def __init__(self, graph: int, told: str) -> None:
        super().__init__(f"graph {graph}: {told[:2000]}")
        self.graph = graph


def sanitised_outputs(
    graphs: Sequence[tuple[SourceParts, Sequence[Batch]]], defines: Sequence[str] = ()
) -> list[list[dict[str, np.ndarray]]]:
    """Return the outputs of graphs, computed by one program with AddressSanitizer and UndefinedBehaviorSanitizer.

    Parameters
    ----------
    graphs
        For each graph its source, and the inputs by name of one run after the other.
    defines
        Macros to define, such as ``NN_DSP_IN_C``, with which instructions of a microcontroller are computed in C.

    Returns
    -------
    list of list of dict
        For each graph and each run, the outputs by name.

    Raises
    ------
    SanitiserFinding
        If a sanitiser finds a fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "main.c"), Path(folder, "main")
        source.write_text(_program(graphs))
        macros = [f"-D{each}" for each in defines]
        subprocess.run(["cc", *_FLAGS, *macros, "-o", str(program), str(source)], check=True, capture_output=True)
        given = b"".join(
            np.ascontiguousarray(batch[spec.name]).tobytes()
            for parts, batches in graphs
            for batch in batches
            for spec in parts.io.inputs
        )
        try:
            done = subprocess.run([str(program)], input=given, capture_output=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise SanitiserFinding(*_place(error.stderr or b"", f"no end within {_SECONDS} s")) from None
    if done.returncode != 0:
        raise SanitiserFinding(*_place(done.stderr, f"exit status {done.returncode}"))
    return _outputs(graphs, done.stdout)


def joined_source(graphs: Sequence[SourceParts]) -> str:
    """Return one C source of several graphs: kernels once, and names that each graph has with its number."""
    kernels = dict.fromkeys(text for parts in graphs for text in parts.kernels)
    bodies = [_OWN_NAMES.sub(rf"\g<1>_{n}", parts.body) for n, parts in enumerate(graphs)]
    return "\n".join([*kernels, *bodies])


def _program(graphs: Sequence[tuple[SourceParts, Sequence[Batch]]]) -> str:
    entries = [f"{{nn_input_{n}, nn_output_{n}, nn_run_{n}, {len(runs)}}}" for n, (_, runs) in enumerate(graphs)]
    sizes = [
        str(size)
        for parts, _ in graphs
        for side in (parts.io.inputs, parts.io.outputs)
        for size in [*(_bytes(spec) for spec in side), -1]
    ]
    return joined_source([parts for parts, _ in graphs]) + _MAIN % (", ".join(entries), ", ".join(sizes))


def _place(errors: bytes, otherwise: str) -> tuple[int, str]:
    """Return which graph was computed last, and what was told then."""
    *_, last = ["graph -1\n", *re.split(r"(?m)(?=^graph \d+$)", errors.decode(errors="replace"))]
    head, _, told = last.partition("\n")
    return int(head.split()[1]), told.strip() or otherwise


def _outputs(
    graphs: Sequence[tuple[SourceParts, Sequence[Batch]]], written: bytes
) -> list[list[dict[str, np.ndarray]]]:
    at, found = 0, list[list[dict[str, np.ndarray]]]()
    for parts, batches in graphs:
        found.append([])
        for _ in batches:
            found[-1].append({})
            for spec in parts.io.outputs:
                kind, size = np.dtype(spec.dtype), _bytes(spec)
                flat = np.frombuffer(written, kind, size // kind.itemsize, at)
                found[-1][-1][spec.name] = flat.reshape([length or 0 for length in spec.shape])
                at += size
    return found


def _bytes(spec: TensorSpec) -> int:
    return int(np.prod([length or 0 for length in spec.shape], dtype=np.int64)) * np.dtype(spec.dtype).itemsize
