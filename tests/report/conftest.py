"""Runs to report on, made up but plausible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.comparison import Comparison, with_turns
from nnpipe.measuring.interleaving import Block, Record, Turn
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.report.layer_tables import MemoryUse

DIGITS = tuple("zero one two three four five six seven eight nine".split())


def made_up_run(
    title: str = "ONNX int8",
    *,
    seed: int = 0,
    calls: int = 400,
    median_ns: float = 40_000,
    samples: int = 360,
    class_names: tuple[str, ...] = DIGITS,
    accuracy: float = 0.97,
    gpu: bool = False,
    wire: bool = False,
    format: str = "onnx",
    size: int = 120_000,
) -> Run:
    random = np.random.default_rng(seed)
    latency = (median_ns * (0.9 + random.gamma(2, 0.06, calls))).astype(np.int64)
    latency[:: max(1, calls // 5)] *= 6
    start = np.cumsum(latency + 3000) - latency
    inference = {"start_ns": start, "latency_ns": latency, "samples": np.ones(calls, np.int64)}
    if wire:
        inference |= {
            "host_ns": latency // 10,
            "wire_ns": latency // 5,
            "target_ns": latency - latency * 3 // 10,
        }
    ticks = np.arange(0, int(start[-1]) + 1, max(1, int(start[-1]) // 150), dtype=np.int64)
    resources = {
        "time_ns": ticks,
        "cpu_percent": random.normal(95, 4, len(ticks)).clip(0),
        "machine_cpu_percent": random.normal(50, 3, len(ticks)).clip(0),
        "process_bytes": (310e6 + 2e6 * np.sin(np.arange(len(ticks)) / 9)).astype(np.int64),
        "memory_bytes": random.normal(5.1e9, 2e7, len(ticks)).astype(np.int64),
    }
    resources["machine_cpu_percent"][0] = np.nan  # as where the system's clock had not moved on
    if gpu:
        resources |= {
            "gpu_percent": random.uniform(40, 60, len(ticks)),
            "gpu_bytes": np.full(len(ticks), 1_200_000_000),
        }
    classes = len(class_names)
    truth = np.random.default_rng(1).integers(0, classes, samples)
    wrong = random.random(samples) > accuracy
    predicted = np.where(
        wrong, (truth + random.integers(1, max(2, classes), samples)) % classes, truth
    )
    rank = np.where(wrong, random.integers(1, max(2, classes), samples), 0).astype(np.uint16) % max(
        1, classes
    )
    return Run(
        title=title,
        command=("nnpipe", "inference_tester", "--title", title),
        components={
            "dataset": {
                "class": "nnpipe.datasets.digits.DigitsDataset",
                "arguments": {"split_seed": 0},
            },
            "wrapper": {"class": "nnpipe.modelwrappers.classification.CNN", "arguments": {}},
            "compilers": [
                {
                    "class": "nnpipe.compilers.onnx.ONNXStaticQuantizer",
                    "arguments": {"per_channel": True},
                },
            ],
            "runtime": {
                "class": "nnpipe.runtimes.onnxruntime.ONNXRuntime",
                "arguments": {"threads": 1},
            },
        },
        frameworks={"numpy": "2.1.0", "onnxruntime": "1.31.0"},
        host={
            "cpu": {
                "model": "A CPU at 3 GHz",
                "logical_cores": 2,
                "governor": "performance",
                "affinity": [0, 1],
            },
            "before": {"load_average": [seed / 10, 0.2, 0.1]},
        },
        timing={
            "import_ns": 700_000_000,
            "load_ns": 12_345_678 + seed,
            "first_ns": 1_234_567,
            "warmup": 10,
            "batch_size": 1,
        },
        series={"inference": Series(inference), "resources": Series(resources)},
        evaluation=Evaluation(
            "classification",
            {"truth": truth, "predicted": predicted, "rank": rank},
            tuple(class_names),
        ),
        artifact={
            "path": f"build/{title}.onnx",
            "format": format,
            "target": "cpu",
            "sha256": "0123456789abcdef" * 4,
            "size": size,
            "producer": {"class": "nnpipe.compilers.onnx.ONNXStaticQuantizer", "arguments": {}},
            "parent": {
                "path": "build/model.keras",
                "format": "keras",
                "target": "cpu",
                "sha256": "fedcba98" * 8,
            },
        },
        created="2026-01-02T03:04:05+00:00",
    )


def made_up_profile(seed: int = 0, steps: int = 12, runtime: str = "ONNXRuntime") -> LayerProfile:
    """The profile of a network whose steps compute two operations each, half of them
    convolutions.
    """
    random = np.random.default_rng(seed)
    parts = random.uniform(1_000, 9_000, steps + 1)
    rows = []
    for place, ns in enumerate(parts.tolist()):
        rest = place == steps
        kind = "not attributed" if rest else ("convolution", "pooling", "matrix product")[place % 3]
        names = () if rest else (f"stage{place}/conv", f"stage{place}/relu")
        numbers = (
            {}
            if rest
            else {"macs": 1000 * place, "others": 100, "bytes_read": 4000, "bytes_written": 2000}
        )
        rows.append(
            LayerTime(
                kind if rest else f"step{place}",
                kind,
                names,
                "" if rest else "FusedConv",
                "",
                "" if rest else "float32",
                ns,
                0.9 * ns,
                1.1 * ns,
                ns / parts.sum(),
                values=None if rest else 500,
                **numbers,
            )
        )
    times = LayerTimes(
        runtime,
        tuple(rows[:-1]),
        rows[-1],
        float(parts.sum()),
        0.9 * parts.sum(),
        0.96,
        0.1,
        (),
        30,
    )
    live = tuple(random.integers(1 << 20, 1 << 22, 2 * steps).tolist())
    return LayerProfile(
        times,
        ("2 convolutions ran in float32: 20 %",),
        live,
        None,
        MemoryUse(4 << 20, 9 << 20, 3 << 20),
    )


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., LayerProfile]:
    return made_up_profile


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    return made_up_run


@pytest.fixture(scope="session")
def comparison(make_run):
    """A slow one, a fast one, and one that cannot be told from the fast one; all under another
    load.
    """
    random = np.random.default_rng(0)
    turns = []
    for start in range(14):
        for round_ in range(4):
            for place, (candidate, ns) in enumerate(((0, 80_000), (1, 40_000), (2, 40_000))):
                begin = ((start * 4 + round_) * 3 + place) * 10_000_000
                latency = (ns * random.normal(1, 0.01, 30)).astype(np.int64)
                starts = np.cumsum(latency) - latency
                block = Block(start_ns=starts, latency_ns=latency, idle_ns=1_000_000, idle_cpu_ns=0)
                turns.append(Turn(start, round_, place, candidate, begin, block))
    runs = [
        make_run(title, seed=seed, calls=50)
        for seed, title in enumerate(("slow", "fast", "as <fast>"))
    ]
    plan = ComparisonPlan(margin=0.2)
    whole = tuple(with_turns(run, Record(turns), place) for place, run in enumerate(runs))
    return Comparison("three", plan, whole, {"gone": "it crashed"}, seconds=24.0)
