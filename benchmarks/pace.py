"""Whether ``--pace`` reads what an application meets that sleeps between calls.

Planted: a model that takes 500 µs, and 300 µs more where the call before ended
more than 5 ms ago, here and behind a server.  Its own clock is the reference.

Real: one convolution in ONNX Runtime, called by a script that knows nothing of
nnpipe and sleeps between calls, in turns with ``run_paced``; each in both ways
to call it, of arrays and by I/O binding.  These must not be mixed: warm they
are 2 µs apart, and cold 60 µs.

Goals: medians at the pace are within 5 % of what the planted model took by its
own clock, and within 5 % of 800 µs; and within 15 % of the script's, whose own
rounds differ by as much.

    python benchmarks/pace.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from _serving import server
from _table import EPYC, report
from loop_overhead import make_model

from nnpipe.core.artifact import Artifact
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.measuring.pace import Pace, PacedCalls, run_paced
from nnpipe.protocols.client.session import open_session
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.fakes import FakeRuntime, write_fake_model

PACE = Pace.parse("20ms")
SPIN_US, COLD_US = 500, 300
IO = IOSpec((TensorSpec("x", (4,), "uint8"),), (TensorSpec("taken_ns", (1,), "int64"),))
BATCH = {"x": np.zeros(4, np.uint8)}
GOAL, REAL_GOAL = 0.05, 0.15
SCRIPT = """
import json, sys, time
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x, period, taken = np.ones((1, 3, 32, 32), np.float32), float(sys.argv[2]), []
if sys.argv[3] == "binding":
    value = ort.OrtValue.ortvalue_from_numpy(x)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    run, given, put = session.run_with_iobinding, (binding,), lambda: value.update_inplace(x)
else:
    run, given, put = session.run, (None, {"x": x}), lambda: None
for _ in range(200):
    run(*given)
for line in sys.stdin:
    taken = []
    due = time.perf_counter()
    for _ in range(int(line)):
        due = max(due + period, time.perf_counter())
        time.sleep(max(due - time.perf_counter(), 0))
        put()
        start = time.perf_counter_ns()
        run(*given)
        taken.append(time.perf_counter_ns() - start)
    print(json.dumps(taken), flush=True)
"""


class Telling(InferenceSession):
    """Passes everything on, and keeps what the model says that each run took."""

    def __init__(self, session: InferenceSession) -> None:
        self.io = session.io
        self.own_ns: list[int] = []
        self._session = session

    def _put(self, batch: Any) -> None:
        self._session._put(batch)

    def _run(self) -> None:
        self._session._run()

    def _get(self) -> dict[str, np.ndarray]:
        found = self._session._get()
        self.own_ns.append(int(found["taken_ns"][0]))
        return found


def median_us(found: PacedCalls, times: np.ndarray | None = None) -> float:
    slept = found.series["asleep"] == 1
    return float(np.median((found.series["latency_ns"] if times is None else times)[slept])) / 1e3


def planted(calls: int) -> list[dict[str, Any]]:
    """Read the planted penalty here and on a target."""
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_fake_model(folder, IO, spin_us=SPIN_US, cold_us=COLD_US, tell_time=True)
        here = Telling(stack.enter_context(FakeRuntime().load(model)))
        line = stack.enter_context(server(FakeRuntime))
        remote = stack.enter_context(open_session(line, model))
        there = Telling(remote)
        for name, session in (("planted, here", here), ("planted, on a target", there)):
            found = run_paced(session, [BATCH], PACE, calls=calls)
            slept = found.series["asleep"] == 1
            times = None
            if session is there:
                start = found.series["start_ns"] + found.origin_ns
                times = remote.split(start, start + found.series["latency_ns"])["target_ns"]
            own = float(np.median(np.array(session.own_ns)[slept])) / 1e3
            read = median_us(found, times)
            rows.append(
                {"what": name, "read µs": read, "truth µs": own, "ratio": read / own, "goal": GOAL}
            )
            rows.append(
                {
                    "what": f"{name}, as written",
                    "read µs": read,
                    "truth µs": float(SPIN_US + COLD_US),
                    "ratio": read / (SPIN_US + COLD_US),
                    "goal": GOAL,
                }
            )
    return rows


def real(rounds: int, calls: int, way: str) -> dict[str, Any]:
    """Set a script that sleeps between calls against ``run_paced``, in turns; both call in the
    same way.
    """
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
        make_model(path)
        runtime = ONNXRuntime(num_threads=1, io_binding=way == "binding")
        session = stack.enter_context(
            runtime.load(Artifact.create(path, "onnx", runtime.io_of(path)))
        )
        feed = {"x": np.ones((1, 3, 32, 32), np.float32)}
        for _ in range(200):
            session.infer(feed)
        script = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(path), str(PACE.period_ns / 1e9), way],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert script.stdin is not None
        assert script.stdout is not None
        ours, theirs, tight = [], [], []
        for number in range(rounds):
            script.stdin.write(f"{calls}\n")
            script.stdin.flush()
            theirs += json.loads(script.stdout.readline())
            ours.append(median_us(run_paced(session, [feed], PACE, calls=calls, seed=number)))
            for _ in range(100):
                start = time.perf_counter_ns()
                session.run()
                tight.append(time.perf_counter_ns() - start)
        script.stdin.close()
    read, truth = float(np.median(ours)), float(np.median(theirs)) / 1e3
    name = f"ONNX Runtime by {way}, a script that sleeps (tight loop: {np.median(tight) / 1e3:.1f})"
    return {
        "what": name,
        "read µs": read,
        "truth µs": truth,
        "ratio": read / truth,
        "goal": REAL_GOAL,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three quarters of a minute instead of three"
    )
    quick = parser.parse_args().quick
    rows = planted(200 if quick else 1000)
    rows += [real(*((5, 60) if quick else (20, 100)), way) for way in ("arrays", "binding")]
    parts = [
        {
            "name": row["what"],
            "value": row["read µs"],
            "unit": "µs",
            "reference": row["truth µs"],
            "ratio": row["ratio"],
            "goal": f"within {row['goal']:.0%}",
            "holds": abs(row["ratio"] - 1) <= row["goal"],
            "seen_on": EPYC,
        }
        for row in rows
    ]
    worst = max(
        parts,
        key=lambda part: abs(part["ratio"] - 1) / (REAL_GOAL if "script" in part["name"] else GOAL),
    )
    fields = {
        name: worst[name]
        for name in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(rows, **fields, holds=all(part["holds"] for part in parts), parts=parts)


if __name__ == "__main__":
    sys.exit(main())
