"""Audits of a session, after MLPerf: whether its measured speed can be trusted.

``outputs`` (TEST01)
    The outputs under load must equal the outputs without load.  This finds a
    session that saves work when it is timed.
``caching`` (TEST04)
    Repeating one sample must not be faster than using new ones.  This finds a
    session that caches outputs: a load draws its queries with replacement, so
    that caching would look like speed.

Source: https://github.com/mlcommons/inference/tree/master/compliance
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.load import Load, Query, Until
from nnpipe.measuring.load_generator import Wait, run_load
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.statistics import count_samples_needed, find_interval_ranks

Verdict = Literal["passed", "failed", "unknown"]

FASTER = 0.1
"""How much faster repeated samples may be than new ones; MLPerf's limit."""

TOLERANCE = 1e-3
"""The largest difference of outputs, relative to the largest output; threads may add numbers in
any order.
"""

_MOST_COMPARED = 256  # queries
_BLOCK = 8  # calls per median
_FEWEST_ROUNDS = count_samples_needed(0.5)


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Parameters
    ----------
    verdict
        ``passed``, ``failed``, or ``unknown`` if the audit could not decide.
    reason
        The reason, in one line.
    figures
        The measured values, in JSON form.
    """

    verdict: Verdict
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result in the JSON form of result files."""
        return {"verdict": self.verdict, "reason": self.reason, **self.figures}


def audit_outputs(
    session: InferenceSession,
    queries: Sequence[Query],
    load: Load,
    until: Until,
    *,
    tolerance: float = TOLERANCE,
    clock: Clock = time.perf_counter_ns,
    wait: Wait | None = None,
) -> Audit:
    """Compare outputs sampled under load with those of the same queries sent one by one, before and
    after.

    Parameters
    ----------
    session
        The loaded model; not closed here.
    queries, load, until, clock, wait
        The load, as for :func:`~nnpipe.measuring.load_generator.run_load`; at most the first 256
        queries are used.
    tolerance
        The largest difference of real numbers, relative to the largest number of the output without
        load.  All other outputs must be equal.
    """
    queries = queries[:_MOST_COMPARED]
    before = [_infer_query(session, query) for query in queries]
    found = run_load(session, queries, load, until, sample_outputs=True, clock=clock, wait=wait)
    after = [_infer_query(session, query) for query in queries]
    unsteady = _find_worst_difference(zip(before, after, strict=True))
    figures: dict[str, Any] = {
        "compared": len(found.sampled),
        "queries": len(queries),
        "tolerance": tolerance,
    }
    if unsteady > tolerance:
        text = "the session gives other outputs for the same inputs even when it is asked calmly"
        return Audit("unknown", text, figures)
    apart = [
        _compute_largest_difference(
            before[number], _remove_unsteady_outputs(session, _to_list(outputs))
        )
        for number, outputs in found.sampled
    ]
    different = sum(each > tolerance for each in apart)
    worst = max(apart, default=0.0)
    # Infinity marks outputs that cannot be compared; JSON has no infinity.
    figures |= {"different": different, "largest_difference": worst if np.isfinite(worst) else None}
    if different:
        reason = (
            f"{different} of {len(apart)} outputs sampled under load are not those given when "
            f"asked calmly"
        )
        return Audit("failed", reason, figures)
    return Audit(
        "passed",
        f"all {len(apart)} outputs sampled under load are those given when asked calmly",
        figures,
    )


def audit_caching(
    session: InferenceSession,
    batches: Sequence[Batch],
    *,
    seed: int = 0,
    most_seconds: float = 10.0,
    warmup: int = 0,
    faster: float = FASTER,
    clock: Clock = time.perf_counter_ns,
) -> Audit:
    """Compare blocks of calls that repeat one batch with blocks of new batches.

    Blocks of both kinds alternate in random order.  Each pair gives a ratio of
    medians, and the 95 % interval of the median ratio decides.  No batch is used
    twice, and the session must not have seen any of them: give a newly loaded
    one.  Inputs are read just before each call, so that the processor's caches
    make no difference.

    Parameters
    ----------
    session
        A newly loaded model; not closed here.
    batches
        The inputs; of equal batches, only the first is used.
    seed
        The seed of the random order.
    most_seconds
        The time limit in seconds.
    warmup
        The number of warm-up calls, with a batch that is not used afterwards.
    faster
        How much faster repeated samples may be.
    clock
        The clock, in nanoseconds.
    """
    unique = list({_build_key(batch): batch for batch in reversed(batches)}.values())[::-1]
    warming, unique = unique[:1], unique[1:]
    block = max(min(_BLOCK, len(unique) // _FEWEST_ROUNDS - 1), 1)
    rounds = len(unique) // (block + 1)
    if rounds < _FEWEST_ROUNDS:
        needed = 2 * _FEWEST_ROUNDS + 1
        return Audit(
            "unknown", f"needs {needed} different samples, there are {len(unique) + len(warming)}"
        )
    random = np.random.default_rng([seed, 3])
    with Window(session, clock, _run_after_reading, settling=False) as window:
        window.check(batches)
        window.warm_up(warming, warmup)
        ratios = _measure_ratios(window, unique, block, rounds, random, most_seconds)
    if len(ratios) < _FEWEST_ROUNDS:
        return Audit(
            "unknown", f"{most_seconds:g} s were too short for {_FEWEST_ROUNDS} comparisons"
        )
    ordered = np.sort(ratios)
    low, high = (float(ordered[place]) for place in find_interval_ranks(len(ordered), 0.5))
    middle = float(np.median(ordered))
    figures = {
        "ratio": middle,
        "interval": [low, high],
        "rounds": len(ordered),
        "calls": 2 * block * len(ordered),
    }
    told = (
        f"repeating one sample takes {middle:.3g} times as long as varying it [{low:.3g}, "
        f"{high:.3g}]"
    )
    if high < 1 - faster:
        return Audit("failed", f"{told}: answers are remembered", figures)
    if low < 1 - faster:
        return Audit("unknown", f"{told}: not enough samples to tell", figures)
    return Audit("passed", told, figures)


def _measure_ratios(
    window: Window,
    unique: Sequence[Batch],
    block: int,
    rounds: int,
    random: np.random.Generator,
    most_seconds: float,
) -> list[float]:
    ratios: list[float] = []
    for number in range(rounds):
        *varied, repeated = unique[number * (block + 1) : (number + 1) * (block + 1)]
        # The first call of a batch is no repetition yet.
        kinds = {"varied": varied, "repeated": [repeated] * (block + 1)}
        medians = {}
        for kind in random.permutation(list(kinds)):
            batches = kinds[str(kind)]
            window.run_chunk(batches, [1] * len(batches), keep=False)
            starts, ends, _ = window.chunks[-1]
            medians[kind] = float(np.median((ends - starts)[-block:]))
        if medians["varied"] > 0:
            ratios.append(medians["repeated"] / medians["varied"])
        if window.busy_ns > most_seconds * 1e9:
            break
    return ratios


def _run_after_reading(
    session: InferenceSession,
    batches: Sequence[Any],
    clock: Clock,
    starts: memoryview,
    ends: memoryview,
    outputs: list[Any] | None,
) -> None:
    ask = session._get_infer_function()
    for i, batch in enumerate(batches):
        for array in batch.values():
            array.tobytes()
        start = clock()
        found = ask(batch)
        end = clock()
        starts[i] = start
        ends[i] = end
        del found


def _infer_query(session: InferenceSession, query: Query) -> list[Mapping[str, npt.NDArray[Any]]]:
    return _remove_unsteady_outputs(session, [session.infer(batch) for batch in query])


def _remove_unsteady_outputs(
    session: InferenceSession, outputs: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> list[Mapping[str, npt.NDArray[Any]]]:
    """Leave out what differs from run to run, such as times."""
    return [
        {name: array for name, array in each.items() if name not in session.varying}
        for each in outputs
    ]


def _to_list(outputs: Any) -> list[Mapping[str, npt.NDArray[Any]]]:
    return outputs if isinstance(outputs, list) else [outputs]


def _find_worst_difference(pairs: Iterator[tuple[Any, Any]]) -> float:
    return max((_compute_largest_difference(one, two) for one, two in pairs), default=0.0)


def _compute_largest_difference(
    calm: Sequence[Mapping[str, npt.NDArray[Any]]], loaded: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> float:
    """Return the largest difference of two outputs relative to the largest number of the first;
    infinite if unlike.
    """
    if len(calm) != len(loaded) or any(
        one.keys() != two.keys() for one, two in zip(calm, loaded, strict=True)
    ):
        return float("inf")
    return max(
        (
            _compute_difference(one[name], two[name])
            for one, two in zip(calm, loaded, strict=True)
            for name in one
        ),
        default=0.0,
    )


def _compute_difference(one: npt.NDArray[Any], two: npt.NDArray[Any]) -> float:
    if one.shape != two.shape or one.dtype != two.dtype:
        return float("inf")
    if one.dtype.kind not in "fc":
        return 0.0 if np.array_equal(one, two) else float("inf")
    first, second = (
        array.astype(np.complex128 if one.dtype.kind == "c" else np.float64) for array in (one, two)
    )
    known = np.isfinite(first)
    if (
        not np.array_equal(first[~known], second[~known], equal_nan=True)
        or not np.isfinite(second[known]).all()
    ):
        return float("inf")
    first, second = first[known], second[known]
    largest = float(np.max(np.abs(first), initial=0.0))
    difference = float(np.max(np.abs(first - second), initial=0.0))
    return difference / largest if largest else (float("inf") if difference else 0.0)


def _build_key(batch: Batch) -> tuple[Any, ...]:
    return tuple((name, array.shape, array.tobytes()) for name, array in sorted(batch.items()))
