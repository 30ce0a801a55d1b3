"""How much of a run the recorded steps of each runtime cover, and whether rows and run add up.

MobileNetV2 1.0 for 224 pixels, with random weights, is compiled for each runtime, in floats and in
8 bits.  It runs on a batch that takes 5 ms or more, and ``InferenceSession.profile`` records 30
runs.  The columns of the table:

* ``coverage``: the share of a run that belongs to steps, the median over the runs;
* ``exact``: whether the steps and "not attributed" add up to the run's wall time, in each run;
* ``precision``: the share of the steps' time whose type of numbers is known.

The goals of coverage are 0.95 for ONNX Runtime, TVM and IREE, 0.88 for LiteRT and ExecuTorch, and
0.80 for OpenVINO. PyTorch and Keras have none, and are shown.

Run ``python benchmarks/profile_coverage.py`` (some minutes on two cores, of which compiling takes
most), with ``--runtime LiteRT`` for one runtime, or with ``--quick`` (under 60 s): those that
compile fast, and smaller pictures in larger batches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _table import EPYC, report

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import generate_random_inputs
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession, measure_runs
from nnpipe.modelwrappers.classification.mobilenet import (
    PyTorchPetDatasetMobileNetV2,
    TensorFlowPetDatasetMobileNetV2,
)

RUNS, LEAST_NS, MOST_SAMPLES = 30, 5_000_000, 64
SIDE, QUICK_SIDE = 224, 96
SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2", "keras": ".keras"}
CALIBRATION = 4


@dataclass(frozen=True)
class Way:
    """How the network gets to a runtime, and the share of a run that its steps have to cover."""

    runtime: str
    title: str
    export: str
    compilers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    goal: float | None = None
    quick: bool = False
    running: Mapping[str, Any] = field(default_factory=dict)


WAYS = (
    Way("ONNXRuntime", "float", "onnx", (), 0.95, True),
    Way("ONNXRuntime", "int8", "onnx", (("ONNXStaticQuantizer", {}),), 0.95, True),
    Way("TVMRuntime", "float", "onnx", (("TVMCompiler", {"fixed_batch": 1}),), 0.95),
    Way("IREERuntime", "float", "onnx", (("IREECompiler", {"fixed_batch": 1}),), 0.95),
    Way(
        "LiteRTRuntime", "float", "keras", (("TFLiteCompiler", {"target": "default"}),), 0.88, True
    ),
    Way("LiteRTRuntime", "int8", "keras", (("TFLiteCompiler", {"target": "int8"}),), 0.88, True),
    Way("ExecuTorchRuntime", "float", "torch-export", (("ExecuTorchCompiler", {}),), 0.88),
    Way(
        "ExecuTorchRuntime",
        "int8",
        "torch-export",
        (("ExecuTorchCompiler", {"precision": "int8"}),),
        0.88,
    ),
    Way("OpenVINORuntime", "float", "onnx", (("OpenVINOCompiler", {}),), 0.80, True),
    Way("OpenVINORuntime", "int8", "onnx", (("OpenVINOCompiler", {"precision": "int8"}),), 0.80),
    Way("PyTorchRuntime", "float", "torch-export"),
    Way("KerasRuntime", "float", "keras"),
)


class SmallPictures(PyTorchPetDatasetMobileNetV2):
    """MobileNetV2 for pictures of 96 pixels."""

    side = QUICK_SIDE


@dataclass
class Files:
    """The network's files, each written when it is first asked for."""

    folder: Path
    pixels: int

    def exported(self, format: str) -> Artifact:
        """Return the network in a format."""
        path = self.folder / f"network{SUFFIXES[format]}"
        if path.is_file():
            return Artifact.read(path)
        if format == "keras":
            size = (self.pixels, self.pixels)
            wrapper: Any = TensorFlowPetDatasetMobileNetV2(
                from_scratch=True, alpha=1.0, input_size=size
            )
            return wrapper.open().export(path, format)
        import torch

        torch.manual_seed(0)
        network = PyTorchPetDatasetMobileNetV2 if self.pixels == SIDE else SmallPictures
        with network(from_scratch=True).open() as model:
            return model.export(path, format)

    def compiled(self, way: Way) -> Artifact:
        """Return the network as a way has it."""
        made = self.exported(way.export)
        random = np.random.default_rng(0)
        spec = made.io.inputs[0]
        samples = [
            {spec.name: random.standard_normal((1, *spec.shape[1:])).astype(np.float32)}
            for _ in range(CALIBRATION)
        ]
        for name, arguments in way.compilers:
            compiler = find(name, ModelCompiler).from_json(dict(arguments))
            path = self.folder / f"{way.runtime}-{way.title}{compiler.suffix}"
            made = (
                Artifact.read(path)
                if path.is_file()
                else compiler.compile(made, path, lambda: samples)
            )
        return made


def profiled(session: InferenceSession) -> tuple[int, OperationTimes]:
    """Return the samples in a batch that takes long enough, if the model takes so many, and the
    times of its steps.
    """
    (spec,) = session.io.inputs
    samples = 1
    while True:
        batch = generate_random_inputs(
            session.io, {spec.name: (samples, *(int(each or 1) for each in spec.shape[1:]))}
        )
        session.put(batch)
        measure_runs(session, 2)
        if (
            spec.shape[0] is not None
            or samples >= MOST_SAMPLES
            or measure_runs(session, 5).min() >= 1.2 * LEAST_NS
        ):
            return samples, session.profile(batch, RUNS)
        samples *= 2


def row_of(way: Way, files: Files) -> dict[str, Any]:
    """Return the table's row of one way."""
    start = time.perf_counter()
    artifact = files.compiled(way)
    runtime = find(way.runtime, Runtime).from_json({"num_threads": 1, **way.running})
    compiling = time.perf_counter() - start
    with runtime.load(artifact) as session:
        samples, times = profiled(session)
    known = sum(kernel.ns.sum() for kernel in times.kernels if kernel.precision)
    added = times.table_ns.sum(axis=0) + times.unattributed_ns
    return {
        "runtime": way.runtime,
        "numbers": way.title,
        "samples": samples,
        "steps": len(times.kernels),
        "run ms": float(np.median(times.plain_ns)) / 1e6,
        "coverage": times.coverage,
        "goal": way.goal if way.goal is not None else "",
        "exact": bool(np.allclose(added, times.wall_ns, rtol=1e-12)),
        "overhead": times.overhead,
        "precision": float(known / max(times.table_ns.sum(), 1.0)),
        "doubts": len(times.doubts),
        "compiled s": compiling,
    }


def rows(ways: list[Way], files: Files) -> Iterator[dict[str, Any]]:
    """Yield the rows of all ways that are installed here."""
    for way in ways:
        try:
            row = row_of(way, files)
        except NNPipeError as error:
            print(f"left out: {way.runtime} {way.title}: {str(error)[:200]}", flush=True)
            continue
        print(f"{way.runtime} {way.title}: {row['coverage']:.3f}", flush=True)
        yield row


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="only runtimes that compile fast")
    parser.add_argument("--runtime", default="", help="only this one, such as LiteRT")
    parser.add_argument(
        "--folder", type=Path, help="keep the network's files here, and take them from here"
    )
    given = parser.parse_args(argv)
    chosen = [
        way
        for way in WAYS
        if given.runtime.lower() in way.runtime.lower() and (way.quick or not given.quick)
    ]
    with tempfile.TemporaryDirectory(prefix="coverage-") as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        table = list(rows(chosen, Files(folder, QUICK_SIDE if given.quick else SIDE)))
    judged = [row for row in table if row["goal"] != ""]
    if not judged:
        print("no runtime with a goal is installed, or has that name")
        return 1
    parts = [
        {
            "name": f"{row['runtime']} {row['numbers']}",
            "value": row["coverage"],
            "unit": "share of a run",
            "reference": row["goal"],
            "ratio": row["coverage"] / row["goal"],
            "goal": f"at least {row['goal']:.2f}",
            "holds": row["coverage"] >= row["goal"] and row["exact"],
            "seen_on": EPYC,
        }
        for row in judged
    ]
    least = min(parts, key=lambda part: part["ratio"])
    return report(
        table,
        name="profile_coverage",
        value=least["value"],
        unit="share of a run",
        reference=least["reference"],
        ratio=least["ratio"],
        goal="each runtime at least its goal, rows that add up to each run",
        holds=all(part["holds"] for part in parts),
        parts=parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
