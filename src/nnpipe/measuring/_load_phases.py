"""The phases of a load on a model: evaluate every sample, then send queries from memory, then
run audits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import NNPipeError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.progress import Progress
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.audit import Audit, audit_caching, audit_outputs
from nnpipe.measuring.load import LoadResult, Query, Until
from nnpipe.measuring.load_generator import run_load
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.loop import Clock
from nnpipe.measuring.max_rate import find_max_rate
from nnpipe.measuring.pace import Pace, run_paced
from nnpipe.measuring.sample_route import Item, SampleRoute, get_fixed_size, iter_chunks
from nnpipe.measuring.series import Series

_CHUNK_BYTES, _CHUNK_CALLS = 64 << 20, 4096
_MOST_BYTES, _MOST_QUERIES = 64 << 20, 1024  # of queries in memory
_AUDIT_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Queries:
    """Queries in memory, with the number of samples to count for each."""

    calls: tuple[Query, ...]
    samples: tuple[int, ...]

    @classmethod
    def read_samples(
        cls, pipeline: SampleRoute, indices: npt.NDArray[Any], options: LoadOptions
    ) -> Queries:
        """Read random samples as queries, up to a limit of memory; in the offline scenario, each
        query is one call.
        """
        samples = (
            options.samples(get_fixed_size(pipeline.session_io))
            if options.wanted
            else pipeline.size
        )
        if options.scenario == "offline":
            samples = pipeline.size
        order = np.random.default_rng([options.load_seed, 0]).permutation(indices)
        each = np.resize(order, (max(len(order) // samples, 1), samples))[:_MOST_QUERIES]
        calls: list[Query] = []
        held = 0
        for chosen in each:
            items = list(pipeline.items(chosen))
            calls.append([item.inputs for item in items])
            held += sum(item.nbytes for item in items)
            if held >= _MOST_BYTES:
                break
        return cls(tuple(calls), (samples,) * len(calls))


def evaluate_samples(
    session: InferenceSession, pipeline: SampleRoute, items: Iterable[Item]
) -> list[Evaluation]:
    """Run and evaluate every sample once, without timing."""
    output_bytes = sum(array.nbytes for array in session.get().values())
    parts: list[Evaluation] = []
    for chunk in iter_chunks(items, _CHUNK_BYTES, output_bytes, _CHUNK_CALLS):
        parts += pipeline.evaluate(chunk, [session.infer(item.inputs) for item in chunk])
    return parts


def run_audits(
    open_session: Callable[[], InferenceSession],
    queries: Queries,
    options: LoadOptions,
    warmup: int,
    clock: Clock,
) -> dict[str, Any]:
    """Run both audits, each in its own session, and return their results in the form of result
    files.
    """
    load = options.load()

    def run_output_audit(session: InferenceSession) -> Audit:
        return audit_outputs(
            session, queries.calls, load, Until(seconds=_AUDIT_SECONDS), clock=clock
        )

    def run_caching_audit(session: InferenceSession) -> Audit:
        batches: list[Batch] = [call for query in queries.calls for call in query]
        return audit_caching(session, batches, seed=load.seed, warmup=warmup, clock=clock)

    found = {}
    for name, audit in (("outputs", run_output_audit), ("caching", run_caching_audit)):
        try:
            with open_session() as session:
                found[name] = audit(session).to_json()
        except NNPipeError as error:  # a failed audit does not invalidate the measurement
            found[name] = Audit("unknown", " ".join(str(error).split())).to_json()
    return found


def run_load_phase(
    session: InferenceSession,
    queries: Queries,
    options: LoadOptions,
    warmup: int,
    progress: Progress,
    clock: Clock,
) -> tuple[LoadResult, dict[str, Any]]:
    """Run the load, or search for the highest rate; return the result, and its entry for result
    files.
    """
    load, bound = options.load(), options.get_latency_bound()
    given: dict[str, Any] = {
        "samples": queries.samples,
        "warmup": warmup,
        "progress": progress,
        "clock": clock,
    }
    about: dict[str, Any] = {"scenario": load.scenario, "seed": load.seed}
    if options.find_max_rate and bound is not None:
        found = find_max_rate(session, queries.calls, bound, seed=load.seed, **given)
        result = found.confirmed
        asked = found.trials[-1].rate
        about |= {
            "scenario": "server" if asked else "single-stream",
            "rate": asked or None,
            "search": {
                "rate": found.rate,
                "refused": found.refused,
                "reason": found.reason,
                "trials": [dataclasses.asdict(trial) for trial in found.trials],
            },
        }
    else:
        result = run_load(session, queries.calls, load, options.build_until(), **given)
        about |= {"rate": load.rate}
    about |= {
        "samples_per_query": max(queries.samples),
        "calls_per_query": max(map(len, queries.calls)),
        "queries_in_memory": len(queries.calls),
        "max_latency": options.max_latency,
        "ended": result.ended,
        "busy_ns": result.busy_ns,
        "unanswered": result.unanswered,
    }
    return result, about


def run_at_pace(
    session: InferenceSession,
    items: Sequence[tuple[Batch, int]],
    pace: Pace,
    seconds: float | None,
    progress: Progress,
    clock: Clock,
) -> tuple[Series, dict[str, int]]:
    """Run inputs, each with its number of samples, at a pace; return the calls and the entry for
    result files.
    """
    batches, samples = zip(*items, strict=True)
    calls = pace.calls(seconds)
    found = run_paced(
        session, batches, pace, samples=samples, calls=calls, progress=progress, clock=clock
    )
    start_ns = found.series["start_ns"] + found.origin_ns
    parts = session.split(start_ns, start_ns + found.series["latency_ns"])
    return Series({**found.series.columns, **parts}), {
        "period_ns": pace.period_ns,
        "missed": found.missed,
    }
