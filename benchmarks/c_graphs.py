"""Whether C of random graphs in 8-bit numbers is right, and without a fault that a sanitiser finds.

Graphs of one to six operators are computed by LiteRT's reference kernels and, as C, by a program with
AddressSanitizer and UndefinedBehaviorSanitizer: with the kernels for any core, and with those for the DSP and the
vector extension of Cortex-M, whose instructions are then computed in C.  Of every graph, one copy has some of its bytes
changed; where it still becomes C, this runs under the sanitisers, too, although nothing says what it should compute.
The goal is that all undamaged graphs agree to the bit, and that there is no finding.

Run ``python benchmarks/c_graphs.py --graphs 10000`` (more than an hour), by default 100 graphs (a minute), or with
``--quick`` 25.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from _table import EPYC, report

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import random_integer_graph
from nnpipe.testing.sanitised_c import sanitised_outputs

MACROS: tuple[tuple[str, ...], ...] = ((), ("NN_DSP_IN_C",), ("NN_DSP_IN_C", "NN_MVE_IN_C"))


def inputs(io: IOSpec, rng: np.random.Generator) -> Batch:
    """Return random inputs."""
    found = {}
    for spec in io.inputs:
        kind = np.dtype(spec.dtype)
        count = int(np.prod([n or 1 for n in spec.shape]))
        found[spec.name] = (
            rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind).reshape([n or 1 for n in spec.shape])
        )
    return found


def verdict(data: bytes, folder: Path, seed: int, judged: bool) -> str:
    """Return what came of a graph."""
    rng = np.random.default_rng(seed)
    path = folder / "graph.tflite"
    path.write_bytes(data)
    try:
        source = Artifact.of(path, "tflite", read_tflite(path).io)
        made = CCompiler(arena_seconds=0).compile(source, folder / "graph.c")
        batch = inputs(made.io, rng)
        if sum(array.nbytes for array in batch.values()) > 1 << 24:
            return "too large to run"
    except NNPipeError:
        return "refused"
    try:
        all_found = [sanitised_outputs(made.path, made.io, batch, defines) for defines in MACROS]
    except AssertionError as error:
        print(f"graph {seed}, {'as it is' if judged else 'damaged'}: {error}")
        return "finding"
    if not judged:
        return "runs"
    with LiteRTRuntime(reference_kernels=True).load(source) as reference:
        expected = reference.infer(batch)
    if all(np.array_equal(found[name], expected[name]) for found in all_found for name in expected):
        return "exact"
    print(f"graph {seed}: other outputs than the reference kernels")
    return "different"


def damaged(data: bytes, seed: int) -> bytes:
    """Return a copy with up to eight bytes changed."""
    rng = np.random.default_rng(seed)
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        found[int(rng.integers(len(found)))] = int(rng.integers(256))
    return bytes(found)


def main() -> int:
    """Compute the graphs and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100, help="number of graphs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--quick", action="store_true", help="25 graphs")
    options = parser.parse_args()
    count = 25 if options.quick else options.graphs
    counts: dict[str, dict[str, int]] = {"as it is": {}, "damaged": {}}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + count):
            data = random_integer_graph(seed, 1 + seed % 6)
            for kind, content in (("as it is", data), ("damaged", damaged(data, seed))):
                found = verdict(content, Path(folder), seed, kind == "as it is")
                counts[kind][found] = counts[kind].get(found, 0) + 1
    rows = [
        {"graphs": kind, "outcome": outcome, "count": n}
        for kind, found in counts.items()
        for outcome, n in found.items()
    ]
    exact = counts["as it is"].get("exact", 0)
    holds = exact == count and not counts["damaged"].get("finding")
    return report(
        rows, "C of random graphs: exact", float(exact), "graphs", float(count), exact / max(count, 1),
        "all agree to the bit, and no sanitiser finds a fault", holds, seen_on=EPYC,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
