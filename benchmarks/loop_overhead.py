"""What nnpipe's measuring loop costs around ONNX Runtime, against bare Python loops in the same
run.

A model of one small convolution (8 filters over 3 x 32 x 32, some ten
microseconds on one thread) goes through

* a bare loop around ``session.run(None, feed)``,
* a bare loop around the same with I/O binding,
* nnpipe's loop with the runtime ``ONNXRuntime``,

in short rounds, so that most are not interrupted by other processes, each in
another random order; and then in longer rounds through

* nnpipe's loop again, watched by the sampler of processor and memory,
* ``measure`` as a whole, with all it does before and after the loop: checking
  inputs, collecting garbage, putting the columns together.

All keep stamps and outputs and run with garbage collection off.  "Whole loop"
is everything from the first put to the last get, per sample.

Goals: the whole loop costs at most 2 µs a sample more than the bare loop
around ``session.run``, and the median that nnpipe reports is within 5 % of
that of the bare loop that makes the same call of ONNX Runtime.

Run ``python benchmarks/loop_overhead.py`` (about 15 s) or with ``--quick`` (about 5 s).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import onnx
from _table import EPYC, interleave, report
from onnx import TensorProto, helper, numpy_helper

from nnpipe.core.artifact import Artifact
from nnpipe.core.session import InferenceSession
from nnpipe.measuring.loop import Window
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.runtimes.onnxruntime import ONNXRuntime

COST_GOAL_US, MEDIAN_GOAL = 2.0, 0.05
INTERVAL_SECONDS = 0.05
Feeds = list[dict[str, np.ndarray]]


class Loop:
    """One way around; keeps the figures of each round."""

    def __init__(self, go: Callable[[Feeds], tuple[int, Any]], feeds: Feeds) -> None:
        self.go, self.feeds = go, feeds
        self.whole_us: list[float] = []
        self.median_us: list[float] = []

    def __call__(self) -> None:
        total, latencies = self.go(self.feeds)
        self.whole_us.append(total / len(self.feeds) / 1e3)
        self.median_us.append(float(np.median(latencies)) / 1e3)


def make_model(path: Path) -> None:
    filters = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "filters"], ["h"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["y"]),
        ],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 1, 1])],
        [numpy_helper.from_array(filters, "filters")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def bare_run(native: Any) -> Callable[[Feeds], tuple[int, Any]]:
    def go(feeds: Feeds) -> tuple[int, Any]:
        latencies, outputs = [], []
        begin = perf_counter_ns()
        for feed in feeds:
            start = perf_counter_ns()
            found = native.run(None, feed)
            end = perf_counter_ns()
            latencies.append(end - start)
            outputs.append(found)
        return perf_counter_ns() - begin, latencies

    return go


def bare_binding(native: Any) -> Callable[[Feeds], tuple[int, Any]]:
    def go(feeds: Feeds) -> tuple[int, Any]:
        binding = native.io_binding()
        binding.bind_output("y", "cpu")
        latencies, outputs = [], []
        begin = perf_counter_ns()
        for feed in feeds:
            binding.bind_cpu_input("x", feed["x"])
            start = perf_counter_ns()
            native.run_with_iobinding(binding)
            end = perf_counter_ns()
            latencies.append(end - start)
            outputs.append(binding.copy_outputs_to_cpu())
        return perf_counter_ns() - begin, latencies

    return go


def ours(window: Window, sampler: UsageSampler | None = None) -> Callable[[Feeds], tuple[int, Any]]:
    def go(feeds: Feeds) -> tuple[int, Any]:
        before, calls = window.busy_ns, window.calls
        with nullcontext() if sampler is None else sampler.record():
            outputs = window.run_chunk(feeds, [1] * len(feeds))
        assert len(outputs) == len(feeds)
        return window.busy_ns - before, window.series()["latency_ns"][calls:]

    return go


def whole_call(session: InferenceSession) -> Callable[[Feeds], tuple[int, Any]]:
    def go(feeds: Feeds) -> tuple[int, Any]:
        begin = perf_counter_ns()
        with Window(session) as window:
            outputs = window.run_chunk(feeds, window.check(feeds))
            series = window.series()
        assert len(outputs) == len(feeds)
        return perf_counter_ns() - begin, series["latency_ns"]

    return go


def call_made(session: Any, feed: dict[str, np.ndarray]) -> str:
    """Say which call of ONNX Runtime a session makes."""
    made = []
    native = session._native
    for name in ("run", "run_with_iobinding"):
        original = getattr(native, name)
        setattr(
            native,
            name,
            lambda *given, name=name, original=original: (made.append(name), original(*given))[1],
        )
    session.infer(feed)
    del native.run, native.run_with_iobinding
    return made[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    random = np.random.default_rng(1)
    feeds = [{"x": random.standard_normal((1, 3, 32, 32)).astype(np.float32)} for _ in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "convolution.onnx"
        make_model(path)
        runtime = ONNXRuntime(num_threads=1)
        session = runtime.load(Artifact.create(path, "onnx", runtime.io_of(path)))
    native = session._native  # type: ignore[attr-defined]
    same_call = {"run": "bare, run", "run_with_iobinding": "bare, I/O binding"}[
        call_made(session, feeds[0])
    ]
    with Window(session) as window, UsageSampler(INTERVAL_SECONDS) as sampler:
        window.check(feeds)
        loops = {
            "bare, run": Loop(bare_run(native), feeds),
            "bare, I/O binding": Loop(bare_binding(native), feeds),
            "nnpipe": Loop(ours(window), feeds),
        }
        longer = {
            "bare, run, long rounds": Loop(bare_run(native), feeds * 50),
            "nnpipe, long rounds": Loop(ours(window), feeds * 50),
            "nnpipe, sampler": Loop(ours(window, sampler), feeds * 50),
            "nnpipe, whole call": Loop(whole_call(session), feeds * 50),
        }
        for candidates, rounds in ((loops, 150 if quick else 600), (longer, 5 if quick else 15)):
            interleave(candidates, 1)
            for loop in candidates.values():
                loop.whole_us.clear()
                loop.median_us.clear()
            interleave(candidates, rounds)
    loops |= longer

    # Each round is compared with itself, so that a machine that drifts does not matter.
    def more(name: str, reference: str) -> float:
        return median(
            a - b for a, b in zip(loops[name].whole_us, loops[reference].whole_us, strict=True)
        )

    def ratio(name: str, reference: str) -> float:
        return median(
            a / b for a, b in zip(loops[name].median_us, loops[reference].median_us, strict=True)
        )

    rows = [
        {
            "loop": name,
            "whole loop µs": median(loop.whole_us),
            "more than bare run µs": more(
                name, "bare, run, long rounds" if name in longer else "bare, run"
            ),
            "median latency µs": median(loop.median_us),
        }
        for name, loop in loops.items()
    ]
    cost, off = more("nnpipe", "bare, run"), ratio("nnpipe", same_call)
    parts = [
        {
            "name": "whole loop",
            "value": median(loops["nnpipe"].whole_us),
            "unit": "µs/sample",
            "reference": median(loops["bare, run"].whole_us),
            "difference": cost,
            "goal": f"at most {COST_GOAL_US:g} µs more",
            "holds": cost <= COST_GOAL_US,
            "seen_on": EPYC,
        },
        {
            "name": f"median latency against {same_call}",
            "value": median(loops["nnpipe"].median_us),
            "unit": "µs",
            "reference": median(loops[same_call].median_us),
            "ratio": off,
            "goal": f"within {MEDIAN_GOAL:.0%}",
            "holds": abs(off - 1) <= MEDIAN_GOAL,
            "seen_on": EPYC,
        },
        {
            "name": "median latency with the sampler",
            "value": median(loops["nnpipe, sampler"].median_us),
            "unit": "µs",
            "reference": median(loops["nnpipe, long rounds"].median_us),
            "ratio": ratio("nnpipe, sampler", "nnpipe, long rounds"),
            "goal": "shown",
            "holds": True,
            "seen_on": EPYC,
        },
    ]
    return report(
        rows,
        "loop overhead",
        cost,
        "µs/sample more than bare",
        parts[0]["reference"],
        parts[0]["value"] / parts[0]["reference"],
        f"whole loop at most {COST_GOAL_US:g} µs a sample more, median within {MEDIAN_GOAL:.0%}",
        all(part["holds"] for part in parts),
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
