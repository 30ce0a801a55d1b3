"""Each framework as its makers would run it: our figure against its own tool's, our default against
its best option.

ResNet8, ResNet20 and MobileNetV2 (0.35, 96 x 96), one sample a call, one thread, in floats.  For
each framework:

* Our reported median (:func:`nnpipe.measuring.loop.measure` on the session that every command
  measures) is within 5 % of that of the framework's own tool on the same artifact: OpenVINO's
  benchmark_app, iree-benchmark-module, TVM's time_evaluator, torch.utils.benchmark; a bare loop
  around the framework's own call where it has none in Python. Where a framework can be called in
  several ways, the fastest is its own.
* Our default is at most 1.3 times slower than the best of a search through the options.

Whatever cannot hold is ``marked`` with its reason, here and in docs/defaults.md: by the component,
such as TVM without tuning, whose results and reports say so too, or below in
``_fair_frameworks.py`` for as far as the reason goes.

All candidates of a row are open at once and take turns of some 20 ms, so that a machine's noise
falls on all alike.  They are opened five times, since where a model's numbers come to lie in memory
makes it faster or slower by some percent for as long as it is open (Mytkowicz et al. 2009,
"Producing wrong data without doing anything obviously wrong").  A ratio is the median over all
rounds of the medians' ratio in a round, and its interval of 95 % stands beside it.

Run ``python benchmarks/fair.py`` (three quarters of an hour, most of it compiling) or with
``--quick`` (ResNet8 on frameworks that compile fast; under a minute).  ``--only openvino,tvm`` and
``--models ResNet20`` choose what is run, ``--seconds`` for how long a row is timed,
``--tune-seconds`` for how long TVM is tuned.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import numpy as np
from _fair_frameworks import QUICK, Framework, Way, frameworks
from _fair_models import NAMES, exported
from _fair_tools import Timer, warming
from _table import EPYC, report

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.measuring.loop import Window

TOOL_GOAL, BEST_GOAL = 0.05, 1.3
TURN_SECONDS = 0.02
OPENINGS = 5
MOST_CALLS, FEWEST_CALLS, FEWEST_ROUNDS = 50, 4, 3  # rounds of an opening
DEFAULT, TOOL = "default", "its tool"


@dataclass
class Candidate:
    """A configuration that is ready to run."""

    session: InferenceSession
    inputs: dict[str, np.ndarray]

    def time(self, calls: int) -> list[float]:
        """Measure some calls as every command does."""
        batches = [self.inputs] * calls
        with Window(self.session) as window:
            samples = window.check(batches)
            window.warm_up(batches, warming(calls))
            window.run_chunk(batches, samples, keep=False)
            found = window.series()
        return [int(nanoseconds) / 1e9 for nanoseconds in found["latency_ns"]]


@dataclass
class Compiled:
    """A configuration that can be opened."""

    artifact: Artifact
    runtime: Runtime
    handicaps: tuple[str, ...]

    def opened(self, stack: contextlib.ExitStack) -> Candidate:
        """Load the model; ``stack`` closes it."""
        session = stack.enter_context(self.runtime.load(self.artifact))
        inputs = {
            spec.name: np.random.default_rng(0)
            .standard_normal((1, *spec.shape[1:]))
            .astype(spec.dtype)
            for spec in session.io.inputs
        }
        return Candidate(session, inputs)


def compiled(source: Artifact, way: Way, folder: Path) -> Compiled:
    compilers, runtime = way.made()
    artifact = source
    for number, compiler in enumerate(compilers):
        artifact = compiler.compile(
            artifact, folder / f"{len(list(folder.iterdir()))}-{number}{compiler.suffix}"
        )
    parts: list[Component] = [*compilers, runtime]
    return Compiled(
        artifact, runtime, tuple(told for part in parts for told in part.performance_caveats())
    )


# -- timing
# ---------------------------------------------------------------------------------------------


def turns(
    timers: Mapping[str, Timer], seconds: float, clock: Any = monotonic
) -> dict[str, list[list[float]]]:
    """Let candidates take turns in rounds of random order; return the seconds of each one's
    calls, by round.
    """
    calls = {}
    for name, timer in timers.items():
        timer(1)  # the very first call does what no later one does
        calls[name] = min(MOST_CALLS, max(FEWEST_CALLS, int(TURN_SECONDS / median(timer(3)))))
    order, shuffle = list(timers), random.Random(0).shuffle
    found: dict[str, list[list[float]]] = {name: [] for name in timers}
    end = clock() + seconds
    # Our loop collects garbage before each turn; what frameworks leave lying takes it longer than
    # the turn.
    gc.collect()
    gc.freeze()
    try:
        while len(found[order[0]]) < FEWEST_ROUNDS or clock() < end:
            shuffle(order)
            for name in order:
                found[name].append(timers[name](calls[name]))
    finally:
        gc.unfreeze()
    return found


@dataclass(frozen=True)
class Ratio:
    """A median ratio with its interval of 95 %."""

    value: float
    low: float
    high: float


def ratio_of(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> Ratio:
    """Return the median over rounds of how the medians of two compare, and the signs' interval
    of that median.
    """
    ratios = sorted(median(mine) / median(theirs) for mine, theirs in zip(one, other, strict=True))
    count = len(ratios)
    place, tail = -1, 0.0
    while (
        place + 1 < count / 2 and (tail := tail + math.comb(count, place + 1) / 2**count) <= 0.025
    ):
        place += 1
    place = max(place, 0)
    return Ratio(median(ratios), ratios[place], ratios[count - 1 - place])


@contextlib.contextmanager
def failing_alone(where: str, name: str) -> Iterator[None]:
    """Go on without an option that fails, and print why; the default must not fail."""
    try:
        yield
    except NNPipeError as error:
        if name == DEFAULT:
            raise
        print(f"{where}: {error}", file=sys.stderr)


# -- rows
# -----------------------------------------------------------------------------------------------


def row_of(
    model: str, title: str, framework: Framework, source: Artifact, seconds: float, quick: bool
) -> dict:
    """Time our default, the framework's own tool and its options, all in turns."""
    with tempfile.TemporaryDirectory() as place:
        ways = {DEFAULT: framework.default}
        ways |= {
            option: way for option, way in framework.others.items() if not (quick and way.slow)
        }
        ready: dict[str, Compiled] = {}
        found: dict[str, list[list[float]]] = {}
        for name, way in ways.items():
            with failing_alone(f"{title}, {model}, {name}", name):
                ready[name] = compiled(source, way, Path(place))
        for _ in range(OPENINGS):
            with contextlib.ExitStack() as stack:
                open_ones: dict[str, Candidate] = {}
                for name in list(ready):
                    with failing_alone(f"{title}, {model}, {name}", name):
                        open_ones[name] = ready[name].opened(stack)
                ready = {name: ready[name] for name in open_ones}
                timers: dict[str, Timer] = {
                    name: candidate.time for name, candidate in open_ones.items()
                }
                ours = ready[DEFAULT]
                timers[TOOL] = stack.enter_context(
                    framework.tool(ours.artifact, open_ones[DEFAULT].inputs)
                )
                for name, taken in turns(timers, seconds / OPENINGS).items():
                    found.setdefault(name, []).extend(taken)
        found = {
            name: taken for name, taken in found.items() if name in {*ready, TOOL}
        }  # the rest could be opened once
    us = {
        name: median(second for turn in taken for second in turn) * 1e6
        for name, taken in found.items()
    }
    tool = ratio_of(found[DEFAULT], found[TOOL])
    options = {
        name: ratio_of(found[DEFAULT], found[name]) for name in found if name not in (DEFAULT, TOOL)
    }
    best = max(options, key=lambda name: options[name].value, default=DEFAULT)
    slower = options.get(best, Ratio(1.0, 1.0, 1.0))
    if slower.value < 1:
        best, slower = DEFAULT, Ratio(1.0, 1.0, 1.0)
    print(
        f"{title}, {model}: {', '.join(f'{name} {time:.4g} us' for name, time in us.items())}",
        file=sys.stderr,
    )
    return {
        "model": model,
        "framework": title,
        "ours, us": us[DEFAULT],
        "its tool, us": us[TOOL],
        "ratio": tool.value,
        "from": tool.low,
        "to": tool.high,
        "best option": best,
        "slower": slower.value,
        "rounds": len(found[DEFAULT]),
        "marked": "; ".join(marks_of(framework, ours.handicaps, tool.value, slower.value)),
    }


def marks_of(
    framework: Framework, handicaps: Sequence[str], tool: float, slower: float
) -> list[str]:
    """Return the reasons for which a row need not hold: the component's own, and those known
    here as far as they go.
    """
    missed: dict[str, tuple[bool, float]] = {
        "tool": (abs(tool - 1) > TOOL_GOAL, tool),
        "option": (slower > BEST_GOAL, slower),
    }
    told = list(handicaps)
    for mark in framework.marks:
        missing, ratio = missed[mark.goal]
        if missing and mark.least <= ratio <= mark.most:
            told.append(f"{mark.goal}: {mark.reason}")
    return told


def parts_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Judge a row by its medians."""
    where = f"{row['framework']}, {row['model']}"
    told = [mark for mark in row["marked"].split("; ") if mark]
    known = any(mark.startswith("tool: ") for mark in told)
    # A handicap of our default excuses a faster option, but no other reading of the same artifact.
    slow = any(not mark.startswith("tool: ") for mark in told)
    off = abs(row["ratio"] - 1) / TOOL_GOAL
    far = (row["slower"] - 1) / (BEST_GOAL - 1)
    return [
        {
            "name": f"reported median against its own tool: {where}",
            "value": row["ours, us"],
            "unit": "us",
            "reference": row["its tool, us"],
            "ratio": row["ratio"],
            "goal": f"within {TOOL_GOAL:.0%}, or marked",
            "holds": off <= 1 or known,
            "marked": off > 1 and known,
            "excess": off,
            "seen_on": EPYC,
        },
        {
            "name": f"default against the best option: {where}",
            "value": row["ours, us"],
            "unit": "us",
            "reference": row["ours, us"] / row["slower"],
            "ratio": row["slower"],
            "goal": f"at most {BEST_GOAL}, or marked",
            "holds": far <= 1 or slow,
            "marked": far > 1 and slow,
            "excess": far,
            "seen_on": EPYC,
        },
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="ResNet8 on frameworks that compile fast"
    )
    parser.add_argument("--only", default="", help="frameworks, joined by commas")
    parser.add_argument("--models", default=",".join(NAMES), help="models, joined by commas")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each row is timed")
    parser.add_argument(
        "--tune-seconds", type=float, default=300.0, help="how long TVM is tuned; 0: not"
    )
    options = parser.parse_args()
    # Before anything is imported that would make threads.
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    known = frameworks(0.0 if options.quick else options.tune_seconds)
    chosen = [name for name in options.only.split(",") if name] or (
        QUICK if options.quick else list(known)
    )
    models = ["ResNet8"] if options.quick else options.models.split(",")
    for given, those in ((chosen, known), (models, NAMES)):
        if unknown := [name for name in given if name not in those]:
            parser.error(f"{', '.join(unknown)}: not known; there are {', '.join(those)}")
    seconds = min(options.seconds, 4.0) if options.quick else options.seconds
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            sources: dict[str, Artifact] = {}
            for title in chosen:
                framework = known[title]
                try:
                    if framework.source not in sources:
                        sources[framework.source] = exported(model, framework.source, Path(folder))
                    source = sources[framework.source]
                    rows.append(row_of(model, title, framework, source, seconds, options.quick))
                except (NNPipeError, ImportError, OSError, subprocess.CalledProcessError) as error:
                    failed.append(f"{title}, {model}: {error}")
                    print(failed[-1], file=sys.stderr)
    parts = [part for row in rows for part in parts_of(row)]
    if not parts:
        print("nothing could be measured", file=sys.stderr)
        return 1
    worst = max(parts, key=lambda part: (not part["holds"], not part["marked"], part["excess"]))
    fields = {
        key: worst[key]
        for key in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")
    }
    return report(
        rows, **fields, holds=all(part["holds"] for part in parts) and not failed, parts=parts
    )


if __name__ == "__main__":
    sys.exit(main())
