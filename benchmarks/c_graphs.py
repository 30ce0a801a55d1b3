"""Whether C of random graphs in 8-bit numbers is right, and without a fault that a sanitiser finds.

Graphs of one to six operators, of the most used kinds and, every second one, of many kinds, are
computed by LiteRT's reference kernels and, as C, by programs with AddressSanitizer and
UndefinedBehaviorSanitizer: with the kernels for any core, and with those for the DSP and the vector
extension of Cortex-M, whose instructions are then computed in C.  Of every graph, one copy has some
of its bytes damaged, and another has other shapes, types, scales, options or references; where
these still become C, this runs under the sanitisers, too, although nothing says what it should
compute. Four hundred graphs are one program, because a C compiler needs most of its time for
kernels that they share.  The goal is that all undamaged graphs agree to the bit, and that there is
no finding.

Run ``python benchmarks/c_graphs.py --graphs 10000`` (some ten minutes of processor time), by
default 500 graphs, or with ``--quick`` 100.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _table import EPYC, report, skip_without

from nnpipe.compilers._c_code.source import Source, generate_source
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import read_program
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.c_operator import SanitiserFinding, run_sanitized
from nnpipe.testing.integer_graphs import generate_integer_graph
from nnpipe.testing.model_files import mutate_graph
from nnpipe.testing.wide_integer_graphs import generate_wide_integer_graph

MACROS: tuple[tuple[str, ...], ...] = ((), ("NN_DSP_IN_C",), ("NN_DSP_IN_C", "NN_MVE_IN_C"))
TOGETHER = 400
LARGEST_ARENA = 1 << 22  # a damaged graph may ask for gigabytes


@dataclass
class Graph:
    """A graph that became C: its inputs, what is expected if anything is, and what came of it."""

    seed: int
    kind: str
    source: Source
    batch: Batch
    expected: Batch | None
    outcome: str = ""


def inputs(io: IOSpec, rng: np.random.Generator) -> Batch:
    """Return random inputs."""
    found = {}
    for spec in io.inputs:
        kind = np.dtype(spec.dtype)
        shape = [n or 0 for n in spec.shape]
        count = int(np.prod(shape))
        values = rng.integers(0, 2 if kind.kind == "b" else 256, count * kind.itemsize, np.uint8)
        found[spec.name] = values.view(kind).reshape(shape)
    return found


def graph_of(data: bytes, folder: Path, seed: int, kind: str) -> Graph | str:
    """Return a graph that became C, or why there is none."""
    path = folder / "graph.tflite"
    path.write_bytes(data)
    try:
        source = generate_source(read_program(path), 0)
    except NNPipeError:
        return "refused"
    except Exception:
        print(f"seed {seed}, {kind}:\n{traceback.format_exc()}")
        return "finding"
    if source.plan.size > LARGEST_ARENA:
        return "too large to run"
    batch = inputs(source.io, np.random.default_rng(seed))
    expected = None
    if kind == "as it is":
        model = Artifact.create(path, "tflite", read_tflite(path).io)
        with LiteRTRuntime(reference_kernels=True).load(model) as reference:
            expected = {name: array.copy() for name, array in reference.infer(batch).items()}
    return Graph(seed, kind, source, batch, expected)


def judge(graphs: list[Graph]) -> None:
    """Compute graphs in one program for each set of macros and note what came of each."""
    for defines in MACROS:
        found = None
        while found is None:
            left = [graph for graph in graphs if graph.outcome != "finding"]
            try:
                found = run_sanitized([(graph.source, [graph.batch]) for graph in left], defines)
            except SanitiserFinding as error:
                broken = left[error.graph]
                print(f"seed {broken.seed}, {broken.kind}: {error}")
                broken.outcome = "finding"
        for graph, (outputs,) in zip(left, found, strict=True):
            if graph.expected is None:
                graph.outcome = "runs"
            elif graph.outcome != "different":
                same = all(
                    np.array_equal(outputs[name], wanted) for name, wanted in graph.expected.items()
                )
                graph.outcome = "exact" if same else "different"
                if not same:
                    print(
                        f"seed {graph.seed}, {' '.join(defines) or 'any core'}: other outputs than "
                        f"expected"
                    )


def damaged(data: bytes, seed: int) -> bytes:
    """Return a copy with up to eight bytes changed."""
    rng = np.random.default_rng(seed)
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        found[int(rng.integers(len(found)))] = int(rng.integers(256))
    return bytes(found)


def outcomes(seeds: range, folder: Path) -> dict[str, Counter[str]]:
    """Return how many graphs had which outcome: of graphs as they are, and of damaged copies."""
    counts: dict[str, Counter[str]] = {}
    graphs: list[Graph] = []
    for seed in seeds:
        data = (generate_wide_integer_graph if seed % 2 else generate_integer_graph)(
            seed, 1 + seed % 6
        )
        copies = {
            "as it is": data,
            "damaged": damaged(data, seed),
            "changed": mutate_graph(data, np.random.default_rng(seed)),
        }
        for kind, content in copies.items():
            found = graph_of(content, folder, seed, kind)
            if isinstance(found, str):
                counts.setdefault(kind, Counter())[found] += 1
            else:
                graphs.append(found)
    judge(graphs)
    for graph in graphs:
        counts.setdefault(graph.kind, Counter())[graph.outcome] += 1
    return counts


def main() -> int:
    """Compute the graphs and print what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=500, help="number of graphs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first graph")
    parser.add_argument("--quick", action="store_true", help="100 graphs")
    options = parser.parse_args()
    skip_without("gcc")
    count = 100 if options.quick else options.graphs
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for first in range(options.first, options.first + count, TOGETHER):
            some = range(first, min(first + TOGETHER, options.first + count))
            for kind, found in outcomes(some, Path(folder)).items():
                counts.setdefault(kind, Counter()).update(found)
            print(f"{some.stop - options.first} of {count} graphs", file=sys.stderr)
    rows = [
        {"graphs": kind, "outcome": outcome, "count": n}
        for kind, found in counts.items()
        for outcome, n in found.items()
    ]
    exact = counts["as it is"]["exact"]
    holds = exact == count and not any(found["finding"] for found in counts.values())
    return report(
        rows,
        "C of random graphs: exact",
        float(exact),
        "graphs",
        float(count),
        exact / max(count, 1),
        "all agree to the bit, and no sanitiser finds a fault",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
