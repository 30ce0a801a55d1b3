"""Whether comparisons tell the truth: no difference where there is none, a small one where it is,
as sure as they say.

With a convolutional network on ONNX Runtime, through the same workers as
``nnpipe compare``, each trial compares three candidates: the model, the same
model once more, and the same slowed down by 2 % inside the timed region.

* The first two are found to differ in at most 5 % of trials, the stated level,
  and the ratio found is off by less than 0.5 % in the median.
* That the third is slower is found in at least 95 % of trials: than the first or
  than the second, for whoever is slower than another beyond doubt falls out, and
  is held against nobody else from then on.

And in worlds made up (``_worlds.py``), with heavy tails, drift, bursts and
lucky starts beyond what real machines have, the intervals, at whatever look one
stopped, hold the true ratio at least as often as they say.

So do the intervals of a single run's quantiles, for calls that depend on each
other as in ``_simulations.py``: 10,000 calls each.

The reference, measured in the same run, is what one gets by measuring one after
the other, each in one process, for as long: the median of the first candidate's
calls in one start against that of the second's in the next.

Run ``python benchmarks/measurement_truth.py`` (1,000 worlds and 200 trials: an
hour on two cores) or with ``--quick`` (below a minute: as many trials as fit;
goals hold unless so few trials speak against them).
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _planted import PlantedModel, slowdown
from _simulations import simulations
from _table import EPYC, report
from _worlds import Weather, World
from onnx import TensorProto, helper, numpy_helper

from nnpipe.datasets.digits import DigitsDataset
from nnpipe.measuring.interleaving import Record, interleave
from nnpipe.measuring.paired_comparison import ComparisonPlan, Verdict, compare_all_pairs
from nnpipe.measuring.quantile_intervals import Sample
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.worker_pool import CandidatePool

CONFIDENCE, SLOWDOWN, SCALE = 0.95, 0.02, 16.0
SPINS = (0.05, 1.05 * (1 + SLOWDOWN) - 1)  # shares of a call's time
_SLOWER = 2  # the place of the slower one
FOUND_GOAL, DEVIATION_GOAL = 0.95, 0.005
WORLDS = {
    "all at once": Weather(),
    "heavy tails": Weather(drift=0.01, bursts=0.1, tails=0.2),
    "drift": Weather(drift=0.5, bursts=0.1, tails=0.001),
    "bursts": Weather(drift=0.01, bursts=15.0, tails=0.001),
}
RATIOS = (1.0, 1.005, 1.02, 1.3)
CALLS, SHARES = 10_000, (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Trial:
    """What one comparison found: of the two that are the same, and of each of them and the
    slower one.
    """

    same: Verdict
    slower: tuple[Verdict, Verdict]
    one_after_the_other: float
    seconds: float

    @property
    def alarm(self) -> bool:
        """Whether a difference was found where there is none."""
        return (
            self.same.interval is not None
            and not self.same.interval[0] <= 1 <= self.same.interval[1]
        )

    @property
    def found(self) -> bool:
        """Whether the planted slowdown was found, as one."""
        decided = [each for each in self.slower if each.kind != "undecided"]
        return bool(decided) and all(
            each.kind == "faster" and each.second == _SLOWER for each in decided
        )

    @property
    def planted(self) -> float:
        """The slower one's time by that of the first, as far as both ran."""
        first = self.slower[0]
        return first.ratio if first.second == _SLOWER else 1 / first.ratio


def make_model(path: Path) -> None:
    """Write a network of three convolutions for digits of 8 x 8."""
    random, nodes, constants, given, channels = np.random.default_rng(0), [], [], "image", 1
    for number, filters in enumerate((32, 64, 64)):
        weights = random.standard_normal((filters, channels, 3, 3)) / math.sqrt(9 * channels)
        constants.append(numpy_helper.from_array(weights.astype(np.float32), f"w{number}"))
        nodes.append(
            helper.make_node("Conv", [given, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1])
        )
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        given, channels = f"r{number}", filters
    dense = random.standard_normal((channels * 64, 10)).astype(np.float32)
    constants.append(numpy_helper.from_array(dense, "dense"))
    nodes.append(helper.make_node("Flatten", [given], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", "dense"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        constants,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def real_trial(model: Path, seed: int, max_seconds: float) -> Trial:
    """Compare the model with itself and with a slower one."""
    plan = ComparisonPlan(confidence=CONFIDENCE, margin=0.01, seed=seed, max_seconds=max_seconds)
    candidates = [
        CandidateSpec(title, PlantedModel(model_path=model, scale=SCALE, spin=spin), model)
        for title, spin in (("the model", SPINS[0]), ("again", SPINS[0]), ("slower", SPINS[1]))
    ]
    stage = CandidatePool(candidates, DigitsDataset(), limit=120.0)
    record = interleave(3, stage.open, plan)
    if record.failures:
        raise RuntimeError(f"a candidate failed: {record.failures}")
    found = {
        frozenset((each.first, each.second)): each
        for each in compare_all_pairs(record.compute_medians(3), plan)
    }
    slower = found[frozenset((0, _SLOWER))], found[frozenset((1, _SLOWER))]
    return Trial(found[frozenset((0, 1))], slower, alone(record), record.seconds)


def alone(record: Record) -> float:
    """Return the ratio that two runs in sequence would have given: all calls of a start against
    the next one's.
    """
    calls = [
        np.concatenate(
            [turn.block.latency_ns for turn in record.turns if (turn.start, turn.candidate) == each]
        )
        for each in ((0, 0), (1, 1))
    ]
    return float(np.median(calls[1]) / np.median(calls[0]))


def world_holds(weather: Weather, ratio: float, seed: int) -> tuple[bool, float, int]:
    """Compare two candidates in a world; say whether the interval holds the true ratio, half its
    width, and starts.
    """
    world = World([100_000.0, 100_000.0 * ratio], weather, seed)
    plan = ComparisonPlan(confidence=CONFIDENCE, seed=seed, max_seconds=30.0)
    (found,) = compare_all_pairs(
        interleave(2, world.open, plan, clock=world.clock).compute_medians(2), plan
    )
    assert found.interval is not None
    truth = ratio if found.first == 0 else 1 / ratio
    low, high = found.interval
    return low <= truth <= high, math.log(high / low) / 2, found.starts


def worlds(count: int, until: float) -> list[dict[str, Any]]:
    """Try so many worlds of each kind, or as many as fit."""
    rows = []
    for kind, (name, weather) in enumerate(WORLDS.items()):
        end = time.monotonic() + (until - time.monotonic()) / (len(WORLDS) - kind)
        found = []
        for seed in range(count):
            found.append(world_holds(weather, RATIOS[seed % len(RATIOS)], 1000 * kind + seed))
            if time.monotonic() > end:
                break
        held = sum(holds for holds, _, _ in found)
        rows.append(
            {
                "what": f"worlds with {name}",
                "trials": len(found),
                "share": held / len(found),
                "goal": f"at least {CONFIDENCE:.0%} held",
                "typical": f"±{100 * np.median([reach for _, reach, _ in found]):.2f} %",
                "starts": float(np.median([starts for _, _, starts in found])),
                "_hits": held,
            }
        )
    return rows


def single_runs(count: int, until: float) -> list[dict[str, Any]]:
    """Enclose quantiles of calls that depend on each other, so often or as often as fits."""
    rows, kinds = [], simulations()
    for kind, simulation in enumerate(kinds):
        end = time.monotonic() + (until - time.monotonic()) / (len(kinds) - kind)
        truths = [simulation.truth(share) for share in SHARES]
        held, widths = [], []
        for seed in range(count):
            sample = Sample(simulation.draw(np.random.default_rng([kind, seed]), CALLS))
            for share, truth in zip(SHARES, truths, strict=True):
                interval = sample.interval(share, CONFIDENCE)
                if interval is not None:
                    held.append(interval[0] <= truth <= interval[1])
                    widths.append(math.log(interval[1] / interval[0]) / 2)
            if time.monotonic() > end:
                break
        rows.append(
            {
                "what": f"quantiles of one run, {simulation.name}",
                "trials": len(held),
                "share": sum(held) / len(held),
                "goal": f"at least {CONFIDENCE:.0%} held",
                "typical": f"±{100 * np.median(widths):.2f} %",
                "starts": "",
                "_hits": sum(held),
            }
        )
    return rows


def at_least(hits: int, trials: int, share: float, quick: bool) -> bool:
    """Return whether a share was reached; for few trials, whether they do not speak against it
    at the 1 % level.
    """
    if not quick:
        return hits >= share * trials
    tail = math.fsum(
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(hits + 1)
    )
    return tail > 0.01


def real_rows(trials: Sequence[Trial], quick: bool) -> list[dict[str, Any]]:
    """Sum up what the trials found."""
    number = len(trials)
    off = [abs(trial.same.ratio - 1) for trial in trials]
    alone_off = [abs(trial.one_after_the_other - 1) for trial in trials]
    slower = [trial.planted for trial in trials]
    quiet, found = sum(not trial.alarm for trial in trials), sum(trial.found for trial in trials)
    return [
        {
            "what": "the same twice: no alarm",
            "trials": number,
            "share": quiet / number,
            "goal": f"at least {CONFIDENCE:.0%}",
            "typical": f"{100 * np.median(off):.3f} % off",
            "starts": float(np.median([trial.same.starts for trial in trials])),
            "holds": at_least(quiet, number, CONFIDENCE, quick),
        },
        {
            "what": "off by less than 0.5 %",
            "trials": number,
            "share": float(np.mean(np.array(off) < DEVIATION_GOAL)),
            "goal": "the median is",
            "typical": f"worst {100 * max(off):.2f} %",
            "starts": "",
            "holds": float(np.median(off)) < DEVIATION_GOAL,
        },
        {
            "what": "2 % slower: found",
            "trials": number,
            "share": found / number,
            "goal": f"at least {FOUND_GOAL:.0%}",
            "typical": f"read {100 * (np.median(slower) - 1):+.2f} %",
            "starts": float(np.median([trial.slower[0].starts for trial in trials])),
            "holds": at_least(found, number, FOUND_GOAL, quick),
        },
        {
            "what": "one after the other (reference)",
            "trials": number,
            "share": float(np.mean(np.array(alone_off) < DEVIATION_GOAL)),
            "goal": "shown",
            "typical": f"{100 * np.median(alone_off):.3f} % off, worst {100 * max(alone_off):.1f} %",
            "starts": 1.0,
            "holds": True,
        },
    ]


def main() -> int:
    """Try all, and say what holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="as many trials as fit into a minute")
    parser.add_argument(
        "--trials", type=int, default=200, help="comparisons of real models (default: 200)"
    )
    parser.add_argument(
        "--worlds", type=int, default=1000, help="comparisons in made-up worlds (default: 1000)"
    )
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    quick, begin = given.quick, time.monotonic()
    rows = single_runs(given.worlds, begin + 6 if quick else math.inf)
    rows += worlds(given.worlds // len(WORLDS), begin + 16 if quick else math.inf)
    for row in rows:
        row["holds"] = at_least(row.pop("_hits"), row["trials"], CONFIDENCE, quick)
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "digits.onnx")
        make_model(model)
        planted = slowdown(model, SCALE, SPINS)
        while len(trials) < given.trials:
            since = time.monotonic()
            left = begin + 50 - since if quick else 60.0
            trials.append(real_trial(model, len(trials), max(left, 1.0)))
            took = time.monotonic() - since
            told = (
                f"{len(trials)} trials, {sum(t.alarm for t in trials)} alarms, "
                f"{sum(t.found for t in trials)} found"
            )
            with suppress(OSError):
                print(f"\r{told} ({took:.1f} s)", end="", file=sys.stderr, flush=True)
            if quick and time.monotonic() + took > begin + 55:
                break
    print(file=sys.stderr)
    print(f"planted, as one process tells: {planted:+.2%}")
    rows = real_rows(trials, quick) + rows
    off = float(np.median([abs(trial.same.ratio - 1) for trial in trials]))
    reference = float(np.median([abs(trial.one_after_the_other - 1) for trial in trials]))
    parts = [
        {
            "name": row["what"],
            "value": row["share"],
            "unit": "share of trials",
            "trials": row["trials"],
            "goal": row["goal"],
            "holds": bool(row["holds"]),
            "seen_on": EPYC,
        }
        for row in rows
    ]
    return report(
        rows,
        "measurement truth",
        off,
        "median deviation of the same twice",
        reference,
        off / reference if reference else 0.0,
        f"alarms at most {1 - CONFIDENCE:.0%}, deviation below {DEVIATION_GOAL:.1%}, "
        f"{SLOWDOWN:.0%} found in at least {FOUND_GOAL:.0%}, intervals hold at least "
        f"{CONFIDENCE:.0%}",
        all(row["holds"] for row in rows),
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
