"""What a sweep over 64 devices costs beyond the slowest device's own time.

The devices are simulated: each has a server of its own on a port of this machine, with the real
protocol, and a runtime that sleeps instead of computing, for a time that differs from device to
device.  The servers are threads of one process.  The same sweep is carried out on the slowest
device alone, and then on all; how much longer that takes is the cost.

    python benchmarks/device_fleet.py [--quick] [--devices 64]
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from _table import EPYC, report

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Listener, ServerOptions
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.datasets.arrays import write_arrays
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.protocols.server.serve import serve
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.sweep.sweep import sweep

GOAL = 1.05
SAMPLES, CLASSES = 60, 4


class SleepingRuntime(Runtime):
    """Takes a time for each inference, and gives the same answer to all."""

    accepts = ("onnx",)
    seconds: float = argument(0.01, help="that an inference takes", minimum=0.0)

    def _load(self, artifact: Artifact) -> InferenceSession:
        return _SleepingSession(artifact.io, self.seconds)


class _SleepingSession(InferenceSession):
    def __init__(self, io: IOSpec, seconds: float) -> None:
        self.io, self._seconds, self._size = io, seconds, 1

    def _put(self, batch: Batch) -> None:
        self._size = len(next(iter(batch.values())))

    def _run(self) -> None:
        time.sleep(self._seconds)

    def _get(self) -> dict[str, np.ndarray]:
        return {"scores": np.tile(np.arange(CLASSES, dtype=np.float32), (self._size, 1))}


def serve_all(seconds: list[float], told: Connection) -> None:
    """Serve a runtime for each of these times, and send the ports; ends when the other side
    does.
    """
    logging.disable(logging.CRITICAL)
    ports: dict[int, int] = {}
    ready = threading.Barrier(len(seconds) + 1)

    def one(number: int) -> None:
        def listening(listener: Listener) -> None:
            ports[number] = int(getattr(listener, "name", ":0").rpartition(":")[2])
            ready.wait()

        options = ServerOptions(isolate=False)
        serve(
            NetworkProtocol(port=0),
            SleepingRuntime(seconds=seconds[number]),
            options,
            ready=listening,
        )

    for number in range(len(seconds)):
        threading.Thread(target=one, args=(number,), daemon=True).start()
    ready.wait()
    told.send([ports[number] for number in range(len(seconds))])
    told.recv()


def settings(folder: Path, ports: list[int], targets: list[str], output: str) -> dict[str, Any]:
    """Return a sweep of two batch sizes on these devices."""
    labels = np.arange(SAMPLES) % CLASSES
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (SAMPLES, 6)).astype(np.float32)
    data = write_arrays(folder / "data", {"image": samples}, labels)
    model = write_onnx_classifier(folder / "model.onnx", samples, labels)
    devices = [
        {
            "name": f"device-{number:02d}",
            "protocol": {"class": "NetworkProtocol", "arguments": {"port": port, "timeout": 60}},
            "cost_per_piece": number,
        }
        for number, port in enumerate(ports)
    ]
    return {
        "title": "fleet",
        "output": str(folder / output),
        "dataset": data.describe(),
        "models": [
            {
                "title": "m",
                "class": "ONNXModel",
                "arguments": {"model_path": str(model), "scale": 1},
            }
        ],
        "runtimes": ["ONNXRuntime"],
        "as_trained": False,
        "batch_sizes": [1, 2],
        "verify": {"verify_samples": 0},
        "measure": {"measure_seconds": 0.0, "measure_samples": 10, "warmup_runs": 1},
        "accept_doubts": ["chance", "constant", "collapsed"],
        "objectives": ["latency_median", "size"],
        "devices": devices,
        "targets": targets,
    }


def timed(content: dict[str, Any]) -> tuple[float, float, int]:
    """Carry out a sweep; return how long it took, how much processor time, and how many
    candidates were measured.
    """
    begin, before = time.monotonic(), _processor_time()
    found = sweep(content)
    return time.monotonic() - begin, _processor_time() - before, len(found.judged)


def _processor_time() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="16 devices, and 8 s instead of half a minute a measurement",
    )
    parser.add_argument("--devices", type=int, help="how many devices (default: 64)")
    options = parser.parse_args()
    count = options.devices or (16 if options.quick else 64)
    logging.getLogger("nnpipe").setLevel(logging.ERROR)
    slowest = 0.7 if options.quick else 2.5
    seconds = [slowest * (0.3 + 0.7 * (number + 1) / count) for number in range(count)]
    ours, theirs = multiprocessing.Pipe()
    servers = multiprocessing.get_context("spawn").Process(
        target=serve_all, args=(seconds, theirs), daemon=True
    )
    servers.start()
    ports = ours.recv()
    with tempfile.TemporaryDirectory(prefix="nnpipe-fleet-") as where:
        folder = Path(where)
        last = f"device-{count - 1:02d}"
        alone, cpu_alone, _ = timed(settings(folder, ports, [last], "alone"))
        together, cpu, measured = timed(settings(folder, ports, ["all"], "together"))
    ours.send("end")
    servers.join(10)
    rows = [
        {"devices": 1, "candidates": 2, "seconds": alone, "CPU seconds": cpu_alone, "times": 1.0},
        {
            "devices": count,
            "candidates": measured,
            "seconds": together,
            "CPU seconds": cpu,
            "times": together / alone,
        },
    ]
    ratio = together / alone
    holds = ratio <= GOAL and measured == 2 * count
    return report(
        rows,
        f"a sweep over {count} simulated devices, against the slowest alone",
        together,
        "s",
        alone,
        ratio,
        f"<= {GOAL}",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
