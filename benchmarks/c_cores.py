"""What C of models needs on emulated Cortex-M3, M4 and M7: flash, memory, instructions, and whether it is right there.

Each TensorFlow Lite file is compiled by ``CCompiler``, built by ``arm-none-eabi-gcc -O2`` and run in QEMU on random
inputs; outputs are held against LiteRT's reference kernels.  Instructions are counted by QEMU's clock, in steps of 40:
they are not cycles.  Cortex-M4 and M7 use the DSP extension.  The goal is that every output is exact, and that code
takes at most 20 kB of flash beyond the constants.

Run ``python benchmarks/c_cores.py FILE.tflite ...``; it needs ``apt install gcc-arm-none-eabi qemu-system-arm
libnewlib-arm-none-eabi``.  ``--samples`` sets the number of inputs (by default 3), ``--quick`` means one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _table import EPYC, report

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.formats.tflite import read_tflite
from nnpipe.runtimes.litert import LiteRTRuntime

BOARD = Path(__file__).with_name("cortex_m")
FLOATS = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
CORES = {"cortex-m3": ("mps2-an385", ()), "cortex-m4": ("mps2-an386", FLOATS), "cortex-m7": ("mps2-an500", FLOATS)}
INSTRUCTIONS_A_TICK = 40  # SysTick runs at 25 MHz
MOST_CODE = 20_000
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


def run(core: str, model: Path, samples: Path, folder: Path) -> tuple[int, int, list[int]]:
    """Return bytes of code and constants, bytes of memory, and what the firmware tells."""
    machine, floats = CORES[core]
    command = ["arm-none-eabi-gcc", f"-mcpu={core}", "-mthumb", *floats, "-O2", "-ffp-contract=off", "-w"]
    objects = [str(folder / f"{path.stem}.o") for path in (model, samples, BOARD / "start.c")]
    for path, made in zip((model, samples, BOARD / "start.c"), objects, strict=True):
        standard = "-std=c99" if path == model else "-std=gnu99"
        subprocess.run([*command, standard, "-c", str(path), "-o", made], check=True)
    linked = ["-nostartfiles", "-T", str(BOARD / "board.ld"), *objects, "-o", str(folder / "firmware.elf")]
    subprocess.run([*command, *linked], check=True)
    sizes = subprocess.run(["arm-none-eabi-size", objects[0]], capture_output=True, text=True, check=True).stdout
    text, data, bss = (int(number) for number in sizes.splitlines()[1].split()[:3])
    emulated = subprocess.run(
        ["qemu-system-arm", "-M", machine, "-display", "none", "-monitor", "none", "-semihosting", "-icount", "shift=0",
         "-kernel", str(folder / "firmware.elf")],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    told = (emulated.stdout + emulated.stderr).split()
    if len(told) != 3 or not all(word.isdigit() for word in told):
        raise SystemExit(f"{core}: {' '.join(told)[:300]}")
    return text + data, bss, [int(word) for word in told]


def main() -> int:
    """Run all models on all cores and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", type=Path, nargs="+", help="TensorFlow Lite files in 8-bit numbers, of one input and output"
    )
    parser.add_argument("--samples", type=int, default=3, help="number of inputs")
    parser.add_argument("--quick", action="store_true", help="one input")
    options = parser.parse_args()
    if not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        raise SystemExit(f"arm-none-eabi-gcc or qemu-system-arm is not installed: {APT}")
    rows, largest, exact = [], 0, True
    for path in options.models:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            copy = folder / "source.tflite"
            shutil.copyfile(path, copy)
            source = Artifact.of(copy, "tflite", read_tflite(copy).io)
            made = CCompiler().compile(source, folder / "model.c")
            write_samples(source, 1 if options.quick else options.samples, folder / "samples.c")
            for core in CORES:
                flash, memory, (wrong, least, most) = run(core, made.path, folder / "samples.c", folder)
                code = flash - made.outcome["constant_bytes"]
                largest, exact = max(largest, code), exact and not wrong
                rows.append({
                    "model": path.stem, "core": core, "flash B": flash, "beyond constants B": code, "memory B": memory,
                    "arena planned B": made.outcome["arena_bytes"], "wrong bytes": wrong,
                    "M instructions": f"{least * INSTRUCTIONS_A_TICK / 1e6:.2f}", "ticks apart": most - least,
                })  # fmt: skip
    holds = exact and largest <= MOST_CODE and all(row["memory B"] == row["arena planned B"] for row in rows)
    return report(
        rows, "C on Cortex-M: flash beyond constants", float(largest), "bytes", float(MOST_CODE), largest / MOST_CODE,
        "every output exact, code at most 20 kB beyond the constants, memory as planned", holds, seen_on=EPYC,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
