"""What C of models needs on emulated Cortex-M3, M4, M7 and M55: flash, memory, instructions; and
whether it is right.

Each TensorFlow Lite file is compiled by ``CCompiler``, built by ``arm-none-eabi-gcc -O2`` and run
on random inputs by ``QemuTarget``, whose firmware tells flash, arena and stack; outputs are held
against LiteRT's reference kernels. Instructions are counted by QEMU's clock, in steps of 30 to 40:
they are not cycles.  Cortex-M4 and M7 use the DSP extension, Cortex-M55 the vector extension.  The
stack is predicted from the frames that the compiler states for each function, and measured by a
pattern that a run overwrites.  The goal is that every output is exact, that code takes at most 20
kB of flash beyond the constants, and that arena and stack are as predicted.

Run ``python benchmarks/c_cores.py [FILE.tflite ...]``; it needs ``apt install gcc-arm-none-eabi
qemu-system-arm libnewlib-arm-none-eabi``.  ``--most`` states goals: how many million instructions
each file may need on a Cortex-M4. ``--visual-wake-words`` adds the network of that name with random
weights, and its goal.  Without either, all four of MLPerf Tiny's networks are run, with their
goals.  ``--samples`` sets the number of inputs (by default 3), ``--quick`` means one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _table import DATA, EPYC, existing, report, skip
from _visual_wake_words import visual_wake_words

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import MissingTool
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.cortex_m.image import ARM_GCC, CORES, FORMAT, build_image, read_image
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.qemu import QEMU, QemuTarget
from nnpipe.runtimes.litert import LiteRTRuntime

MOST_CODE = 20_000
MOST_INSTRUCTIONS = {  # millions
    "mlperf_tiny_kws/kws_ref_model.tflite": 12.0,
    "mlperf_tiny_ic/pretrainedResnet_quant.tflite": 31.0,
    "mlperf_tiny_ad/ad01_int8.tflite": 0.8,
}


def batches(source: Artifact, count: int) -> list[dict[str, np.ndarray]]:
    """Return random inputs."""
    rng = np.random.default_rng(0)
    return [
        {
            spec.name: rng.integers(0, 256, [length or 1 for length in spec.shape], np.uint8).view(
                spec.dtype
            )
            for spec in source.io.inputs
        }
        for _ in range(count)
    ]


def measured(content: bytes, core: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a model needs on a core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "source.tflite"
        path.write_bytes(content)
        source = Artifact.create(path, "tflite", read_tflite(path).io)
        made = CCompiler().compile(source, folder / "model.c")
        image = folder / "model.bin"
        image.write_bytes(
            build_image(
                made, CORES[core], CORES[core].model_address, options.optimise, "c_cores.py"
            )
        )
        facts = read_image(image)
        wrong, inputs = 0, batches(source, 1 if options.quick else options.samples)
        with (
            open_session(QemuTarget(core=core), Artifact.create(image, FORMAT, made.io)) as session,
            LiteRTRuntime(reference_kernels=True).load(source) as reference,
        ):
            for batch in inputs:
                found, wanted = session.infer(batch), reference.infer(batch)
                wrong += sum(int(np.count_nonzero(found[name] != wanted[name])) for name in wanted)
            counts = session.columns(len(inputs))["target_counts"]
            board = session.stats()["board"]
    return {
        "flash B": board["flash_bytes"],
        "beyond constants B": board["flash_bytes"] - made.outcome["constant_bytes"],
        "memory B": board["arena_bytes"] + board["data_bytes"],
        "arena planned B": made.outcome["arena_bytes"],
        "stack B": board["stack_bytes"],
        "stack predicted B": facts.stack_bytes,
        "wrong elements": wrong,
        "M instructions": round(int(counts.min()) / 1e6, 2),
        "instructions apart": int(np.ptp(counts)),
    }


def goal(name: str, value: float, unit: str, most: float) -> dict[str, Any]:
    """Return how a figure compares with the most that it may be."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "reference": most,
        "ratio": value / most,
        "goal": f"<= {most:g}",
        "holds": value <= most,
        "seen_on": EPYC,
    }


def main() -> int:
    """Run all models on all cores and print what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", type=Path, nargs="*", help="TensorFlow Lite files in 8-bit numbers"
    )
    parser.add_argument(
        "--most",
        type=float,
        nargs="*",
        default=[],
        help="million instructions on a Cortex-M4, by file",
    )
    parser.add_argument(
        "--visual-wake-words", action="store_true", help="that network with random weights, too"
    )
    parser.add_argument("--samples", type=int, default=3, help="number of inputs")
    parser.add_argument("--optimise", default="-O2", help="the compiler's level of optimisation")
    parser.add_argument("--quick", action="store_true", help="one input")
    options = parser.parse_args()
    try:
        ARM_GCC.check("c_cores.py")
        QEMU.check("c_cores.py")
    except MissingTool as error:
        skip(str(error))
    if options.most and len(options.most) != len(options.models):
        raise SystemExit(f"--most has {len(options.most)} numbers for {len(options.models)} files")
    if not options.models and not options.visual_wake_words:
        options.models = [existing(DATA / "models" / name) for name in MOST_INSTRUCTIONS]
        options.most, options.visual_wake_words = [*MOST_INSTRUCTIONS.values()], True
    goals = dict(zip((path.stem for path in options.models), options.most, strict=False))
    contents = {path.stem: path.read_bytes() for path in options.models}
    if options.visual_wake_words:
        contents["visual_wake_words"], goals["visual_wake_words"] = visual_wake_words(), 31.0
    rows = []
    for name, content in contents.items():
        for core in CORES:
            rows.append({"model": name, "core": core, **measured(content, core, options)})
    largest = max(row["beyond constants B"] for row in rows)
    right = all(
        row["wrong elements"] == 0
        and row["memory B"] == row["arena planned B"]
        and row["stack B"] == row["stack predicted B"]
        for row in rows
    )
    parts = [
        goal(
            f"C on Cortex-M4: {row['model']}",
            row["M instructions"],
            "million instructions",
            goals[row["model"]],
        )
        for row in rows
        if row["core"] == "cortex-m4" and row["model"] in goals
    ]
    flash = goal("C on Cortex-M: flash beyond constants", float(largest), "bytes", float(MOST_CODE))
    flash["goal"] += ", every output exact, arena and stack as predicted"
    flash["holds"] = flash["holds"] and right
    worst = min([flash, *parts], key=lambda part: (part["holds"], -part["ratio"]))
    return report(
        rows,
        worst["name"],
        worst["value"],
        worst["unit"],
        worst["reference"],
        worst["ratio"],
        worst["goal"],
        flash["holds"] and all(part["holds"] for part in parts),
        [flash, *parts],
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
