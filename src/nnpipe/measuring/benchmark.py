"""Run a benchmark: load a model, feed it data, time it, watch it and evaluate its outputs."""

from __future__ import annotations

import contextlib
import datetime
import importlib
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
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import Preparation
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.progress import Progress, silent
from nnpipe.core.registry import find
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.measuring._load_phases import (
    Queries,
    evaluate_samples,
    run_at_pace,
    run_audits,
    run_load_phase,
)
from nnpipe.measuring._sample_preparation import sample_preparation
from nnpipe.measuring.counters import read_counters
from nnpipe.measuring.energy import run_energy_phase
from nnpipe.measuring.host import (
    get_framework_versions,
    list_thread_pools,
    read_host_facts,
    read_host_state,
)
from nnpipe.measuring.load_options import LoadOptions, call_size
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.pace import Pace
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.measuring.run import Run
from nnpipe.measuring.sample_pictures import with_worst_samples
from nnpipe.measuring.sample_route import Item, SampleRoute, get_fixed_size, iter_chunks
from nnpipe.measuring.series import Series


def performance_caveats(
    parties: Mapping[str, Component | Sequence[Component]], artifact: Artifact | None
) -> list[str]:
    """Return the handicaps of the components of a run and of the components that made its model."""
    found: dict[str, None] = {}
    for party in parties.values():
        for component in [party] if isinstance(party, Component) else party:
            found |= dict.fromkeys(component.performance_caveats())
    while artifact is not None:
        found |= dict.fromkeys(artifact.performance_caveats())
        # the component that made the file may not be installed here
        with contextlib.suppress(NNPipeError, KeyError):
            maker = find(artifact.producer["class"], Component)
            found |= dict.fromkeys(
                maker.from_json(artifact.producer["arguments"]).performance_caveats()
            )
        artifact = artifact.parent
    return list(found)


def describe_components(party: Component | Sequence[Component]) -> Any:
    """Return the description of a component, or a list of descriptions of several, without their
    secrets.
    """
    found = (
        party.describe() if isinstance(party, Component) else [each.describe() for each in party]
    )
    return hide_settings_secrets(found)


def import_frameworks(party: Component | Sequence[Component]) -> None:
    """Import the packages and the framework of a component; a missing package is ignored here."""
    for need in party.requires if isinstance(party, Component) else ():
        for name in need.split("|"):
            try:
                with capture_native_output():  # frameworks print notices from C++ when imported
                    importlib.import_module(name)
            # open_session gives a better message about a missing package
            except ModuleNotFoundError:
                continue
            break
    if isinstance(party, Component):
        with contextlib.suppress(ImportError), capture_native_output():
            party.import_framework()


# The size of a chunk; at most three of them are in memory at a time.
_CHUNK_BYTES = 64 << 20
_CHUNK_NS = 1_000_000_000  # so that progress shows
_CHUNK_CALLS = 4096

_MOST_CALLS = 10_000_000  # in a result file

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
    """Load a model, run every sample once, record the latencies, and evaluate the outputs.

    Samples are processed in chunks.  Reading, preprocessing, quantising and
    evaluating happen between chunks, never during the timed loop, and the use of
    memory is bounded.  If the timed loop took less than
    ``options.measure_seconds``, samples are repeated; each still counts once in
    the evaluation.

    With a ``load``, every sample is first run and evaluated once without timing.
    Then queries are sent as described in :mod:`nnpipe.measuring.load`.

    If the model has a fixed batch size, the last batch is padded with copies of
    the last sample, and the outputs of the copies are dropped.

    Parameters
    ----------
    open_session
        Loads the model and returns its session.  This is timed, and the session is closed at the
        end.
    dataset, indices
        The data set, already prepared, and the samples to run, ``(n,)`` integers.
    wrapper
        Converts samples to inputs (``preprocess``) and outputs to predictions (``postprocess``).
    model
        The live model that the sessions run, if it can show intermediate values.  If the
        preprocessing is unknown, these show whether the samples are prepared as in training.
    model_io
        The outputs of ``preprocess`` and the inputs of ``postprocess``; the wrapper's
        ``io`` by default.  The session may differ from it in quantisation.
    title, command, artifact
        Recorded in the run.
    preparation
        How samples are prepared; the wrapper's own preparation by default.
    components
        The other components of the run, by role.  The packages of the
        ``"runtime"``, or of the wrapper if there is no runtime, are imported
        first and timed separately from loading the model.
    options
        How to measure.
    load
        A load scenario to use instead of one call after another, and audits.
    progress
        Receives each batch.
    clock
        The clock, in nanoseconds.

    Returns
    -------
    Run
        ``timing`` holds ``import_ns``, ``load_ns``, ``first_ns``, ``window_ns`` (the time of all
        chunks), ``warmup`` and ``batch_size``.  If they exist, it also holds the load under
        ``load``, the pace of the series ``paced`` under ``pace``, the source of the series
        ``energy``, or why there is none, under ``energy``, and the session's ``stats`` under
        ``session``.

    Raises
    ------
    ConfigError
        If there are no samples, or the model has another fixed batch size.
    SpecMismatch
        If data set, wrapper and session do not fit together.

    Examples
    --------
    Measure ``model.onnx`` on arrays in the folder ``data``:

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
    indices = choose_samples(indices, options.measure_samples, dataset.is_stream)
    before = read_host_state()
    parties: dict[str, Component | Sequence[Component]] = {"dataset": dataset, "wrapper": wrapper}
    parties |= {**(components or {}), "measurement": options}
    if load != LoadOptions():
        parties["load"] = load
    # Packages of a model that runs on a target are not imported here.
    needed = parties.get("protocol", parties.get("runtime", wrapper))
    timing: dict[str, Any] = {
        "import_ns": _measure_time(lambda: import_frameworks(needed), clock)[0]
    }
    timing["load_ns"], session = _measure_time(open_session, clock)
    queries = Queries((), ())
    with session:
        size = call_size(load, get_fixed_size(session.io), options.inference_batch_size)
        if dataset.is_stream:
            _check_stream(indices, size)
        pipeline = SampleRoute(dataset, wrapper, model_io or wrapper.io, session.io, size)
        what = f"{'judging' if load.wanted else 'measuring'} {title}".rstrip()
        items = iter(progress(pipeline.items(indices), what, -(-len(indices) // size)))
        first = next(items)
        session.put(first.inputs)
        timing["first_ns"], _ = _measure_time(session.run, clock)
        if load.wanted or load.audit:
            queries = Queries.read_samples(pipeline, indices, load)
        if load.wanted:
            if dataset.is_stream:
                session.start_stream()
            parts = evaluate_samples(session, pipeline, itertools.chain([first], items))
        before["counters"] = (
            read_counters()
        )  # not before loading, which also waits and is preempted
        if load.wanted:
            with UsageSampler(options.sampling_interval, clock) as sampler, sampler.record():
                found, timing["load"] = run_load_phase(
                    session, queries, load, options.warmup_runs, progress, clock
                )
            inference, origin_ns, timing["window_ns"] = found.series, found.origin_ns, found.busy_ns
        else:
            window, sampler, parts, ring = _run_measurement(
                session,
                pipeline,
                first,
                items,
                options,
                timing["first_ns"],
                clock,
                dataset.is_stream,
            )
            inference, origin_ns, timing["window_ns"] = (
                window.series(),
                window.origin_ns,
                window.busy_ns,
            )
        series = {
            "inference": _split_call_times(session, inference, origin_ns, timing),
            "resources": sampler.series(origin_ns),
        }
        series |= _get_target_series(session, origin_ns)
        # after the tight loop, so that cold caches do not affect its times
        if options.pace is not None:
            pace, again = Pace.parse(options.pace), [(item.inputs, item.samples) for item in ring]
            series["paced"], timing["pace"] = run_at_pace(
                session, again, pace, options.pace_seconds, progress, clock
            )
        if (
            meter := options.create_meter()
        ) is not None:  # in runs of its own, after all that is timed
            given = [(item.inputs, item.samples) for item in ring]
            series |= run_energy_phase(
                session, given, meter, options, "protocol" in parties, timing, progress, clock
            )
        stats = dict(session.stats())
        session_io = session.io
        after, pools = read_host_state(), list_thread_pools()
    timing |= {"warmup": options.warmup_runs, "batch_size": size}
    slowed = performance_caveats(parties, artifact)
    if slowed:
        timing["settings"] = slowed
    return Run(
        title=title or type(wrapper).__name__,
        command=tuple(command),
        components={role: describe_components(party) for role, party in parties.items()},
        frameworks=get_framework_versions(),
        host={**read_host_facts(), "before": before, "after": after, "thread_pools": pools},
        timing={**timing, "session": stats} if stats else timing,
        series=series,
        evaluation=with_worst_samples(
            dataset.task.finalize(Evaluation.concat(parts)),
            dataset,
            indices,
            options.worst_samples,
        ),
        artifact={**artifact.to_json(), "size": artifact.size} if artifact else {},
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        # Audits run afterwards in separate sessions: one must be new, and none may affect the
        # measurement.
        audits=run_audits(open_session, queries, load, options.warmup_runs, clock)
        if load.audit
        else {},
        preparation=sample_preparation(
            preparation or wrapper.preparation(), dataset, wrapper, model, session_io, indices
        ),
    )


def _run_measurement(
    session: InferenceSession,
    pipeline: SampleRoute,
    first: Item,
    rest: Iterator[Item],
    options: MeasureOptions,
    call_ns: int,
    clock: Clock,
    stream: bool,
) -> tuple[Window, UsageSampler, list[Evaluation], list[Item]]:
    """Warm up, run all samples, and repeat them if that was too short; the first sample has already
    been run once.

    The repeated items are also returned.  Of a ``stream``, no call comes between the samples that
    are evaluated.
    """
    output_bytes = sum(array.nbytes for array in session.get().values())
    parts: list[Evaluation] = []
    ring: list[Item] = []
    with (
        UsageSampler(options.sampling_interval, clock) as sampler,
        Window(session, clock, settling=not stream) as window,
    ):
        if options.warmup_runs:
            warmup_ns, _ = _measure_time(
                lambda: window.warm_up([first.inputs], options.warmup_runs), clock
            )
            call_ns = warmup_ns // options.warmup_runs
        if stream:
            session.start_stream()
        most_calls = min(max(_CHUNK_NS // max(call_ns, 1), 1), _CHUNK_CALLS)
        for chunk in iter_chunks(
            itertools.chain([first], rest), _CHUNK_BYTES, output_bytes, most_calls
        ):
            batches, samples = [item.inputs for item in chunk], [item.samples for item in chunk]
            window.check(batches)
            with sampler.record():
                outputs = window.run_chunk(batches, samples)
            parts += pipeline.evaluate(chunk, outputs)
            ring = max(ring, chunk, key=len)
        batches, samples = [item.inputs for item in ring], [item.samples for item in ring]
        with sampler.record():
            window.repeat(
                batches, samples, min_seconds=options.measure_seconds, max_calls=_MOST_CALLS
            )
    return window, sampler, parts, ring


def _split_call_times(
    session: InferenceSession, inference: Series, origin_ns: int, timing: Mapping[str, Any]
) -> Series:
    """Divide the time of each call into parts, if a target answered the calls one at a time."""
    load = timing.get("load", {})
    if load.get("scenario") == "offline" or load.get("calls_per_query", 1) > 1:
        return inference
    start_ns = inference["start_ns"] + origin_ns
    since = inference["scheduled_ns"] + origin_ns if "scheduled_ns" in inference else start_ns
    return Series({**inference.columns, **session.split(start_ns, since + inference["latency_ns"])})


def _get_target_series(session: InferenceSession, origin_ns: int) -> dict[str, Series]:
    target = dict(session.resources())
    if not target:
        return {}
    target["time_ns"] = target["time_ns"] - origin_ns
    return {"target": Series(target)}


def _check_stream(indices: npt.NDArray[Any], size: int) -> None:
    if size != 1:
        raise ConfigError(
            "samples of a stream come one at a time, so take batches of one "
            "(--inference-batch-size 1)"
        )
    if (np.diff(indices) != 1).any():
        raise ConfigError(
            "samples of a stream follow from one another, and those of the test split do not: give "
            "an array 'split' that keeps them together, or --test-fraction 1"
        )


def choose_samples(
    indices: npt.NDArray[Any], count: int | None, stream: bool = False
) -> npt.NDArray[Any]:
    """Return the samples to measure from the ``(n,)`` indices of a split: ``count`` of them, or
    all.

    Of a ``stream``, they are the first ones.
    """
    if not len(indices):
        raise ConfigError("nothing to measure: the split that was asked for is empty")
    if count is None or count >= len(indices):
        return indices
    if stream:
        return indices[:count]
    # Chosen at random, since a split may be sorted by class; sorted, since files are then read
    # faster.
    return np.sort(np.random.default_rng(0).choice(indices, count, replace=False))


def _measure_time(action: Callable[[], T], clock: Clock) -> tuple[int, T]:
    start = clock()
    result = action()
    return clock() - start, result
