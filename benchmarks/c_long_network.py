"""How long it takes until a network of 200 operators is a program: as C, and as machine code.

Fifty blocks of a pointwise, a depthwise and another pointwise convolution and a sum, with random
weights of int8. ``CCompiler`` writes them as C, with its search for the smallest arena; then ``cc
-O2`` builds it for this computer, and ``arm-none-eabi-gcc -O2`` for a Cortex-M4, if it is
installed.  Outputs are held against LiteRT's reference kernels. The goal is that C and machine code
are there within 30 seconds.  Processor time is printed, too: it depends less on what else the
computer does.

Run ``python benchmarks/c_long_network.py``, or with ``--quick`` (40 operators); ``--operators``
sets their number.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from _table import EPYC, report, skip_without
from _visual_wake_words import Network

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.c import CRuntime
from nnpipe.runtimes.litert import LiteRTRuntime

MOST_SECONDS = 30.0
CORTEX_M4 = (
    "arm-none-eabi-gcc",
    "-mcpu=cortex-m4",
    "-mthumb",
    "-mfloat-abi=hard",
    "-mfpu=fpv4-sp-d16",
)


def long_network(operators: int) -> bytes:
    """Return a TensorFlow Lite file of residual blocks of four operators each."""
    network = Network(1, 24, 24, 16)
    for _ in range(operators // 4):
        network.convolution("CONV_2D", 32, 1, 1)
        network.convolution("DEPTHWISE_CONV_2D", 32, 3, 1)
        network.convolution("CONV_2D", 16, 1, 1)
        network.sum(3)
    return network.content()


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def timed(rows: list[dict[str, Any]], what: str, work: Callable[[], Any]) -> Any:
    """Note how long some work takes and return its result."""
    before, clock = processor_seconds(), perf_counter()
    found = work()
    seconds = perf_counter() - clock
    rows.append(
        {
            "what": what,
            "s": round(seconds, 2),
            "processor s": round(processor_seconds() - before, 2),
        }
    )
    return found


def main() -> int:
    """Compile the network and print how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--operators", type=int, help="number of operators, a multiple of four (200; quick: 40)"
    )
    parser.add_argument("--quick", action="store_true", help="a network of 40 operators")
    options = parser.parse_args()
    operators = options.operators or (40 if options.quick else 200)
    skip_without("cc")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "network.tflite"
        path.write_bytes(long_network(operators))
        source = Artifact.create(path, "tflite", read_tflite(path).io)
        made = timed(rows, "C", lambda: CCompiler().compile(source, folder / "network.c"))
        common = [
            "-std=c99",
            "-O2",
            "-ffp-contract=off",
            "-w",
            "-c",
            str(made.path),
            "-o",
            str(folder / "network.o"),
        ]
        timed(rows, "this computer", lambda: subprocess.run(["cc", *common], check=True))
        if shutil.which(CORTEX_M4[0]):
            timed(rows, "Cortex-M4", lambda: subprocess.run([*CORTEX_M4, *common], check=True))
        rng = np.random.default_rng(0)
        batch = {s.name: rng.integers(-128, 128, s.shape, np.int8) for s in made.io.inputs}
        with (
            CRuntime().load(made) as session,
            LiteRTRuntime(reference_kernels=True).load(source) as reference,
        ):
            expected, found = reference.infer(batch), session.infer(batch)
            exact = all(np.array_equal(found[key], expected[key]) for key in expected)
    seconds = sum(row["s"] for row in rows)
    print(
        f"arena: {made.outcome['arena_bytes']} bytes; at least "
        f"{made.outcome['arena_lower_bound']}; exact: {exact}"
    )
    return report(
        rows,
        f"C and machine code of {operators} operators",
        round(seconds, 2),
        "seconds",
        MOST_SECONDS,
        seconds / MOST_SECONDS,
        f"<= {MOST_SECONDS:g}, every output exact",
        exact and seconds <= MOST_SECONDS,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
