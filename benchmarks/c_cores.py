"""What C of models needs on emulated Cortex-M3, M4, M7 and M55: flash, memory, instructions; and whether it is right.

Each TensorFlow Lite file is compiled by ``CCompiler``, built by ``arm-none-eabi-gcc -O2`` and run in QEMU on random
inputs; outputs are held against LiteRT's reference kernels.  Instructions are counted by QEMU's clock, in steps of 30
to 40: they are not cycles.  Cortex-M4 and M7 use the DSP extension, Cortex-M55 the vector extension.  The stack is
predicted from the frames that the compiler states for each function, and measured by a pattern that a run overwrites.
The goal is that every output is exact, that code takes at most 20 kB of flash beyond the constants, and that arena and
stack are as predicted.

Run ``python benchmarks/c_cores.py FILE.tflite ...``; it needs ``apt install gcc-arm-none-eabi qemu-system-arm
libnewlib-arm-none-eabi``.  ``--most`` states goals: how many million instructions each file may need on a Cortex-M4.
``--visual-wake-words`` adds the network of that name with random weights, and its goal.  ``--samples`` sets the number
of inputs (by default 3), ``--quick`` means one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _table import EPYC, report
from _visual_wake_words import visual_wake_words

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.litert import LiteRTRuntime

BOARD = Path(__file__).with_name("cortex_m")
FLOATS = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
MEGAHERTZ = {"mps2": 25, "mps3": 32}  # of SysTick, where QEMU takes a nanosecond for an instruction
CORES = {
    "cortex-m3": ("mps2-an385", ()), "cortex-m4": ("mps2-an386", FLOATS), "cortex-m7": ("mps2-an500", FLOATS),
    "cortex-m55": ("mps3-an547", ("-mfloat-abi=hard",)),
}  # fmt: skip
MOST_CODE = 20_000
NAKED = 40  # bytes that functions push for which the compiler states no frame
APT = "apt install gcc-arm-none-eabi qemu-system-arm libnewlib-arm-none-eabi"


def write_samples(source: Artifact, count: int, path: Path) -> None:
    """Write random inputs and the reference kernels' outputs as C."""
    rng = np.random.default_rng(0)
    given, wanted = [], []
    (spec,), (out,) = source.io.inputs, source.io.outputs
    with LiteRTRuntime(reference_kernels=True).load(source) as session:
        for _ in range(count):
            shape = [length or 1 for length in spec.shape]
            array = rng.integers(0, 256, shape, np.uint8).view(spec.dtype)
            given.append(array.tobytes())
            wanted.append(session.infer({spec.name: array})[out.name].tobytes())
    lines = ["#include <stdint.h>"]
    lines += [f"const int32_t input_bytes = {len(given[0])}, output_bytes = {len(wanted[0])}, samples = {count};"]
    for name, content in (("inputs", given), ("outputs", wanted)):
        lines.append(f"const uint8_t sample_{name}[] = {{{','.join(map(str, b''.join(content)))}}};")
    path.write_text("\n".join(lines) + "\n")


def predicted_stack(graph: str) -> int:
    """Return the bytes of the deepest chain of calls from ``nn_run`` in a call graph that GCC has written."""
    frames = {title: int(size) for title, size in re.findall(r'title: "([^"]+)" label: "[^"]*\\n(\d+) bytes', graph)}
    called: dict[str, set[str]] = {}
    for source, target in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        called.setdefault(source, set()).add(target)

    def deepest(name: str) -> int:
        own = NAKED if any(word in name for word in ("nn_add_products", "nn_add_rows")) else frames.get(name, 0)
        return own + max(map(deepest, called.get(name, ())), default=0)

    return deepest("nn_run")


def run(core: str, model: Path, samples: Path, folder: Path, level: str = "-O2") -> tuple[int, int, int, list[int]]:
    """Return bytes of code and constants, bytes of memory, the predicted stack, and what the firmware tells."""
    machine, floats = CORES[core]
    command = ["arm-none-eabi-gcc", f"-mcpu={core}", "-mthumb", *floats, level, "-ffp-contract=off", "-w"]
    objects = [str(folder / f"{path.stem}.o") for path in (model, samples, BOARD / "start.c")]
    for path, made in zip((model, samples, BOARD / "start.c"), objects, strict=True):
        standard = "-std=c99" if path == model else "-std=gnu99"
        subprocess.run([*command, standard, "-fcallgraph-info=su", "-c", str(path), "-o", made], check=True)
    linked = [
        "-nostartfiles",
        "-L",
        str(BOARD),
        "-T",
        str(BOARD / f"{machine[:4]}.ld"),
        *objects,
        "-o",
        str(folder / "firmware.elf"),
    ]
    subprocess.run([*command, *linked], check=True)
    sizes = subprocess.run(["arm-none-eabi-size", objects[0]], capture_output=True, text=True, check=True).stdout
    text, data, bss = (int(number) for number in sizes.splitlines()[1].split()[:3])
    emulated = subprocess.run(
        ["qemu-system-arm", "-M", machine, "-display", "none", "-monitor", "none", "-semihosting", "-icount", "shift=0",
         "-kernel", str(folder / "firmware.elf")],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    told = (emulated.stdout + emulated.stderr).split()
    if len(told) != 4 or not all(word.isdigit() for word in told):
        raise SystemExit(f"{core}: {' '.join(told)[:300]}")
    stack = predicted_stack((folder / f"{model.stem}.ci").read_text())
    return text + data, bss, stack, [int(word) for word in told]


def measured(content: bytes, core: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a model needs on a core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "source.tflite"
        path.write_bytes(content)
        source = Artifact.of(path, "tflite", read_tflite(path).io)
        made = CCompiler().compile(source, folder / "model.c")
        write_samples(source, 1 if options.quick else options.samples, folder / "samples.c")
        flash, memory, stack, told = run(core, made.path, folder / "samples.c", folder, options.optimise)
    wrong, least, most, touched = told
    return {
        "flash B": flash, "beyond constants B": flash - made.outcome["constant_bytes"], "memory B": memory,
        "arena planned B": made.outcome["arena_bytes"], "stack B": touched, "stack predicted B": stack,
        "wrong bytes": wrong, "M instructions": round(least / MEGAHERTZ[CORES[core][0][:4]] / 1e3, 2),
        "ticks apart": most - least,
    }  # fmt: skip


def goal(name: str, value: float, unit: str, most: float) -> dict[str, Any]:
    """Return how a figure compares with the most that it may be."""
    return {
        "name": name, "value": value, "unit": unit, "reference": most, "ratio": value / most, "goal": f"<= {most:g}",
        "holds": value <= most, "seen_on": EPYC,
    }  # fmt: skip


def main() -> int:
    """Run all models on all cores and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", type=Path, nargs="*", help="TensorFlow Lite files in 8-bit numbers, of one input and output"
    )
    parser.add_argument(
        "--most", type=float, nargs="*", default=[], help="million instructions on a Cortex-M4, by file"
    )
    parser.add_argument("--visual-wake-words", action="store_true", help="that network with random weights, too")
    parser.add_argument("--samples", type=int, default=3, help="number of inputs")
    parser.add_argument("--optimise", default="-O2", help="the compiler's level of optimisation")
    parser.add_argument("--quick", action="store_true", help="one input")
    options = parser.parse_args()
    if not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        raise SystemExit(f"arm-none-eabi-gcc or qemu-system-arm is not installed: {APT}")
    if options.most and len(options.most) != len(options.models):
        raise SystemExit(f"--most has {len(options.most)} numbers for {len(options.models)} files")
    goals = dict(zip((path.stem for path in options.models), options.most, strict=False))
    contents = {path.stem: path.read_bytes() for path in options.models}
    if options.visual_wake_words:
        contents["visual_wake_words"], goals["visual_wake_words"] = visual_wake_words(), 31.0
    if not contents:
        raise SystemExit("no files are named")
    rows = []
    for name, content in contents.items():
        for core in CORES:
            rows.append({"model": name, "core": core, **measured(content, core, options)})
    largest = max(row["beyond constants B"] for row in rows)
    right = all(
        row["wrong bytes"] == 0
        and row["memory B"] == row["arena planned B"]
        and row["stack B"] == row["stack predicted B"]
        for row in rows
    )
    parts = [
        goal(f"C on Cortex-M4: {row['model']}", row["M instructions"], "million instructions", goals[row["model"]])
        for row in rows
        if row["core"] == "cortex-m4" and row["model"] in goals
    ]
    flash = goal("C on Cortex-M: flash beyond constants", float(largest), "bytes", float(MOST_CODE))
    flash["goal"] += ", every output exact, arena and stack as predicted"
    flash["holds"] = flash["holds"] and right
    worst = min([flash, *parts], key=lambda part: (part["holds"], -part["ratio"]))
    return report(
        rows, worst["name"], worst["value"], worst["unit"], worst["reference"], worst["ratio"], worst["goal"],
        flash["holds"] and all(part["holds"] for part in parts), [flash, *parts], seen_on=EPYC,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
