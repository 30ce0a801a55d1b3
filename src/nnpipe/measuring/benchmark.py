"""Run a benchmark: load a model, feed it data, time it, watch it and evaluate its outputs."""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.preparation import Preparation
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.measuring._load_phases import Queries, audited, judged, loaded, paced
from nnpipe.measuring._parties import described, handicaps, import_frameworks
from nnpipe.measuring._sample_preparation import sample_preparation
from nnpipe.measuring.counters import counters
from nnpipe.measuring.host import framework_versions, host_facts, host_state, thread_pools
from nnpipe.measuring.load_options import LoadOptions, call_size
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.pace import Pace
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.measuring.run import Run
from nnpipe.measuring.sample_route import Item, SampleRoute, fixed_size, goes
from nnpipe.measuring.series import Series

# One go of the loop; at most three of them are in memory at a time.
_GO_BYTES = 64 << 20
_GO_NS = 1_000_000_000  # so that progress shows
_GO_CALLS = 4096

_MOST_CALLS = 10_000_000  # what a result file holds with ease

T = TypeVar("T")


def benchmark(
    open_session: Callable[[], InferenceSession],
    *,
    dataset: Dataset,
    indices: npt.NDArray[Any],
    wrapper: ModelWrapper,
    model: LiveModel | None = None,
    model_io: IOSpec | None = None,
    title: str = "",
    command: Sequence[str] = (),
    components: Mapping[str, Component | Sequence[Component]] | None = None,
    artifact: Artifact | None = None,
    preparation: Preparation | None = None,
    options: MeasureOptions | None = None,
    load: LoadOptions | None = None,
    progress: Progress = silent,
    clock: Clock = time.perf_counter_ns,
) -> Run:
    """Load a model, run every sample once with its latency recorded, and judge what came out.

    Reading, preprocessing, quantising and judging happen between goes of the
    loop, never while it runs; memory stays bounded however many samples there
    are.  Where that took less than ``options.measure_seconds``, samples are
    repeated, and each still counts once in the evaluation.

    Under a load (``load``) every sample is run and judged once, untimed, and
    then queries go to the model as :mod:`nnpipe.measuring.load` says.

    A model with a fixed batch axis gets its last batch filled up with copies
    of the last sample; what it says about the copies is dropped.

    Parameters
    ----------
    open_session
        Loads the model; this is timed.  The session is closed in the end.
    dataset, indices
        What to run, ``(n,)`` integers; the data set has been prepared.
    wrapper
        Its ``preprocess`` and ``postprocess`` stand between data set and model.
    model
        What the sessions run, if that may be looked into: where nobody says how samples are prepared, it is seen
        whether they arrive as the model expects them.
    model_io
        What ``preprocess`` gives and ``postprocess`` takes; the wrapper's own
        ``io`` by default.  The session may differ from it in quantisation.
    title, command, artifact
        Recorded in the run.
    preparation
        Who says how samples are prepared; what the wrapper says by default.
    components
        What else took part, by role.  The packages that the ``"runtime"``
        needs, or the wrapper where there is none, are imported beforehand and
        timed apart from loading the model.
    options
        How to measure.
    load
        How queries come, in place of one call after another, and whether to audit.
    progress
        Told of each batch.
    clock
        Nanoseconds.

    Returns
    -------
    Run
        ``timing`` holds ``import_ns``, ``load_ns``, ``first_ns``, ``window_ns``
        (how long all goes took), ``warmup``, ``batch_size``, and where there is such a thing under ``load`` what load
        there was, under ``pace`` the rhythm of the series ``paced``, and under ``session`` what its ``stats`` say.

    Raises
    ------
    ConfigError
        If there are no samples, or the model has another fixed batch size.
    SpecMismatch
        If data set, wrapper and session do not fit together.

    Examples
    --------
    Of ``model.onnx`` and arrays in the folder ``data``:

    >>> from nnpipe import ArraysDataset, find
    >>> dataset = ArraysDataset(dataset_root="data")
    >>> dataset.prepare()
    >>> wrapper = find("ONNXModel", ModelWrapper)(model_path="model.onnx", scale=1)
    >>> with wrapper.open() as model:
    ...     run = benchmark(model.session, dataset=dataset, indices=dataset.split("test"), wrapper=wrapper)
    >>> run.summary()["accuracy"]["value"]
    1.0
    """
    check_call(benchmark, locals())
    options, load = options or MeasureOptions(), load or LoadOptions()
    options.check_with(load)
    indices = chosen_samples(indices, options.measure_samples)
    before = host_state()
    parties: dict[str, Component | Sequence[Component]] = {"dataset": dataset, "wrapper": wrapper}
    parties |= {**(components or {}), "measurement": options}
    if load != LoadOptions():
        parties["load"] = load
    # What runs on a target is not imported here.
    needed = parties.get("protocol", parties.get("runtime", wrapper))
    timing: dict[str, Any] = {"import_ns": _timed(lambda: import_frameworks(needed), clock)[0]}
    timing["load_ns"], session = _timed(open_session, clock)
    queries = Queries((), ())
    with session:
        size = call_size(load, fixed_size(session.io), options.inference_batch_size)
        pipeline = SampleRoute(dataset, wrapper, model_io or wrapper.io, session.io, size)
        what = f"{'judging' if load.wanted else 'measuring'} {title}".rstrip()
        items = iter(progress(pipeline.items(indices), what, -(-len(indices) // size)))
        first = next(items)
        session.put(first.inputs)
        timing["first_ns"], _ = _timed(session.run, clock)
        if load.wanted or load.audit:
            queries = Queries.of(pipeline, indices, load)
        if load.wanted:
            parts = judged(session, pipeline, itertools.chain([first], items))
        before["counters"] = counters()  # loading has its own waiting and switching
        if load.wanted:
            with UsageSampler(options.sampling_interval, clock) as sampler, sampler.watching():
                found, timing["load"] = loaded(session, queries, load, options.warmup_runs, progress, clock)
            inference, origin_ns, timing["window_ns"] = found.series, found.origin_ns, found.busy_ns
        else:
            window, sampler, parts, ring = _measured(
                session, pipeline, first, items, options, timing["first_ns"], clock
            )
            inference, origin_ns, timing["window_ns"] = window.series(), window.origin_ns, window.busy_ns
        series = {"inference": _divided(session, inference, origin_ns, timing), "resources": sampler.series(origin_ns)}
        series |= _of_target(session, origin_ns)
        if options.pace is not None:  # after the tight loop, so that what is cold has no part in the other figures
            pace, again = Pace.parse(options.pace), [(item.inputs, item.samples) for item in ring]
            series["paced"], timing["pace"] = paced(session, again, pace, options.pace_seconds, progress, clock)
        stats = dict(session.stats())
        session_io = session.io
        after, pools = host_state(), thread_pools()
    timing |= {"warmup": options.warmup_runs, "batch_size": size}
    slowed = handicaps(parties, artifact)
    if slowed:
        timing["settings"] = slowed
    return Run(
        title=title or type(wrapper).__name__,
        command=tuple(command),
        components={role: described(party) for role, party in parties.items()},
        frameworks=framework_versions(),
        host={**host_facts(), "before": before, "after": after, "thread_pools": pools},
        timing={**timing, "session": stats} if stats else timing,
        series=series,
        evaluation=Evaluation.joined(parts),
        artifact={**artifact.to_json(), "size": artifact.size} if artifact else {},
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        # Afterwards and with sessions of their own: one has to be new, and none is to be in what was measured.
        audits=audited(open_session, queries, load, options.warmup_runs, clock) if load.audit else {},
        preparation=sample_preparation(
            preparation or wrapper.preparation(), dataset, wrapper, model, session_io, indices
        ),
    )


def _measured(
    session: InferenceSession,
    pipeline: SampleRoute,
    first: Item,
    rest: Iterator[Item],
    options: MeasureOptions,
    call_ns: int,
    clock: Clock,
) -> tuple[Window, UsageSampler, list[Evaluation], list[Item]]:
    """Warm up, run all samples, repeat if that was short; the session has run the first one once.

    The items that were repeated come back, too.
    """
    output_bytes = sum(array.nbytes for array in session.get().values())
    parts: list[Evaluation] = []
    ring: list[Item] = []
    with UsageSampler(options.sampling_interval, clock) as sampler, Window(session, clock) as window:
        if options.warmup_runs:
            warmup_ns, _ = _timed(lambda: window.warm_up([first.inputs], options.warmup_runs), clock)
            call_ns = warmup_ns // options.warmup_runs
        most_calls = min(max(_GO_NS // max(call_ns, 1), 1), _GO_CALLS)
        for go in goes(itertools.chain([first], rest), _GO_BYTES, output_bytes, most_calls):
            batches, samples = [item.inputs for item in go], [item.samples for item in go]
            window.check(batches)
            with sampler.watching():
                outputs = window.go(batches, samples)
            parts += pipeline.judge(go, outputs)
            ring = max(ring, go, key=len)
        batches, samples = [item.inputs for item in ring], [item.samples for item in ring]
        with sampler.watching():
            window.repeat(batches, samples, min_seconds=options.measure_seconds, max_calls=_MOST_CALLS)
    return window, sampler, parts, ring


def _divided(session: InferenceSession, inference: Series, origin_ns: int, timing: Mapping[str, Any]) -> Series:
    """Divide up the time of each call where a target answered it, one at a time."""
    load = timing.get("load", {})
    if load.get("scenario") == "offline" or load.get("calls_per_query", 1) > 1:
        return inference
    start_ns = inference["start_ns"] + origin_ns
    since = inference["scheduled_ns"] + origin_ns if "scheduled_ns" in inference else start_ns
    return Series({**inference.columns, **session.split(start_ns, since + inference["latency_ns"])})


def _of_target(session: InferenceSession, origin_ns: int) -> dict[str, Series]:
    target = dict(session.resources())
    if not target:
        return {}
    target["time_ns"] = target["time_ns"] - origin_ns
    return {"target": Series(target)}


def chosen_samples(indices: npt.NDArray[Any], count: int | None) -> npt.NDArray[Any]:
    """Return the test samples that are measured, of the ``(n,)`` numbers of a split: ``count`` of them, or all."""
    if not len(indices):
        raise ConfigError("nothing to measure: the split that was asked for is empty")
    if count is None or count >= len(indices):
        return indices
    # At random, because a split may be sorted by class; in order, because files are read faster that way.
    return np.sort(np.random.default_rng(0).choice(indices, count, replace=False))


def _timed(action: Callable[[], T], clock: Clock) -> tuple[int, T]:
    start = clock()
    result = action()
    return clock() - start, result
