"""One sweep on three devices at once, one of which is killed amid: this machine, ARM Linux, and a
Cortex-M7.

The keyword network of MLPerf Tiny is compiled to C, and runs in three places: here, built by this
machine's compiler; in the server in C for ARM Linux, emulated by QEMU; and in the firmware of a
Cortex-M7 without an operating system, emulated by QEMU (``QemuTarget``).  The Cortex-M7 is killed
while it measures, and starts again.  The goal is that every row is there and right: on all devices
as many clips as LiteRT's reference kernels, which C of ``CCompiler`` repeats bit by bit; times on
Linux, and instructions on the Cortex-M7.  (LiteRT's default kernels round otherwise, and are right
on two clips more.)

It needs ``apt install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-user
gcc-aarch64-linux-gnu libc6-dev-arm64-cross``, and the shared data.

    python benchmarks/three_devices.py [--quick] [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from _table import DATA, EPYC, existing, report, skip_without

from nnpipe.measuring.run import Run
from nnpipe.measuring.run_figures import compute_count_figure
from nnpipe.workflows.devices.c_server import build_server
from nnpipe.workflows.sweep.sweep import sweep
from nnpipe.workflows.sweep.sweep_result import SweepResult

LINUX = "aarch64-linux-gnu-gcc"
REFERENCE = {"class": "LiteRTRuntime", "arguments": {"reference_kernels": True}}
TOOLS = ("qemu-system-arm", "arm-none-eabi-gcc", "qemu-aarch64", "aarch64-linux-gnu-gcc")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def emulators() -> list[int]:
    """Return the processes of emulated boards that this one has started, directly or not."""
    found, parents = [], {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # it has ended
        parents[int(folder.name)] = int(rest.split()[1])
        if name.startswith("qemu-system-arm"):
            found.append(int(folder.name))

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return [process for process in found if is_ours(process)]


def settings(
    data: Path, output: Path, devices: list[dict[str, Any]], samples: int | None
) -> dict[str, Any]:
    """Return a sweep of the keyword network in C on devices."""
    transform = {
        "transform": "MFCC",
        "transform_options": [
            "num_coefficients=10",
            "lower_hz=20",
            "upper_hz=4000",
            "normalise=maximum",
        ],
    }
    path = str(data / "models/mlperf_tiny_kws/kws_ref_model.tflite")
    return {
        "title": "keywords",
        "output": str(output),
        "dataset": {
            "class": "SpeechCommandsDataset",
            "arguments": {"dataset_root": str(data / "speech_commands")},
        },
        "models": [
            {
                "title": "keywords",
                "class": "TFLiteModel",
                "arguments": {"model_path": path, **transform},
            }
        ],
        "compilers": [{"class": "CCompiler", "arguments": {"arena_seconds": 0}}, []],
        "runtimes": ["CRuntime", REFERENCE],
        "measure": {"measure_seconds": 0.0, "warmup_runs": 1, "measure_samples": samples},
        "verify": {"verify_samples": 8},
        "objectives": ["accuracy", "size"],
        "choose": "accuracy",
        "constraints": ["size <= 1 MB"],
        "devices": devices,
        "targets": ["all"],
        "target_patience": 60,
    }


def kill_amid(output: Path, killed: list[float]) -> None:
    """Kill the emulated board while a measurement on it is unfinished and others may be
    finished.
    """
    while not list((output / "models").glob("*.c")):
        time.sleep(0.1)
    while not killed:
        time.sleep(1.5)
        for process in emulators():
            os.kill(process, signal.SIGKILL)
            killed.append(time.monotonic())


def told(found: SweepResult, name: str, compiled: bool = True) -> dict[str, Any]:
    """Return what a device's row says: that of the compiled model, or of the file in LiteRT."""
    (one,) = [each for each in found.by_device if each.device.name == name]
    points = [(each.run, each.done.point) for each in one.judged]
    own = [
        (run, point)
        for run, point in points
        if point.device == one.device and point.runtime is not None
    ]
    runs = [run for run, point in own if bool(point.compilers) == compiled]
    run: Run | None = runs[0] if runs else None
    right = (
        0
        if run is None or run.evaluation is None
        else int(np.count_nonzero(run.evaluation.arrays["rank"] == 0))
    )
    count = None if run is None else compute_count_figure(run, "instructions")
    inference = {} if run is None else run.series["inference"].columns
    return {
        "device": name,
        "runtime": "C" if compiled else "LiteRT's reference",
        "rows": len(runs),
        "right": right,
        "ms": round(float(np.median(inference["target_ns"])) / 1e6, 3)
        if "target_ns" in inference
        else "",
        "M instructions": ""
        if count is None or count.value is None
        else round(count.value / 1e6, 2),
        "as source": "" if run is None else run.verification.get("verdict", ""),
        "certified": one.device.name in found.certificates,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="60 clips instead of 180")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    skip_without(*TOOLS)
    existing(options.data)
    samples = 60 if options.quick else None
    with tempfile.TemporaryDirectory(prefix="nnpipe-three-") as where:
        folder = Path(where)
        here = {"name": "here", "cost_per_piece": 900}
        sweep(settings(options.data, folder / "first", [here], 2))
        models = sorted((folder / "first" / "models").glob("*.c"))
        program = folder / "server"
        build_server(models, program, compiler=LINUX, flags=("-static",))
        port = free_port()
        linux = subprocess.Popen(["qemu-aarch64", str(program), "--port", str(port)])
        lines = {
            "cortex-m7": {"class": "QemuTarget", "arguments": {"core": "cortex-m7"}},
            "arm-linux": {"class": "NetworkProtocol", "arguments": {"port": port, "timeout": 10}},
        }
        devices = [
            here,
            *(
                {
                    "name": name,
                    "cost_per_piece": cost,
                    "runtimes": ["CRuntime"],
                    "protocol": lines[name],
                }
                for name, cost in (("cortex-m7", 9), ("arm-linux", 60))
            ),
        ]
        killed: list[float] = []
        try:
            content = settings(options.data, folder / "all", devices, samples)
            (folder / "all").mkdir()
            threading.Thread(target=kill_amid, args=(folder / "all", killed), daemon=True).start()
            begin = time.monotonic()
            found = sweep(content)
            seconds = time.monotonic() - begin
        finally:
            linux.kill()
            linux.wait()
        rows = [told(found, name) for name in ("here", "cortex-m7", "arm-linux")]
        rows.append(told(found, "here", compiled=False))
        print(found, file=sys.stderr)
        print(json.dumps({"seconds": round(seconds, 1), "killed": bool(killed)}), file=sys.stderr)
    right = {row["right"] for row in rows}
    holds = (
        len(right) == 1
        and bool(killed)
        and all(row["rows"] == 1 for row in rows)
        and rows[1]["M instructions"] != ""
        and rows[1]["ms"] == ""
        and rows[2]["ms"] != ""
        and found.device is not None
        and found.device.name == "cortex-m7"
    )
    value = float(sum(row["rows"] for row in rows[:3]))
    return report(
        rows,
        "a sweep on three devices, one killed amid",
        value,
        "rows that are there",
        3.0,
        value / 3,
        "all three devices, as many right as by LiteRT's reference kernels",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
