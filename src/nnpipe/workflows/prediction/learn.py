"""Measuring kernels in a runtime, so that the times of networks can be predicted that are not
run.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.kernel_table import KernelTable, MeasuredNetwork
from nnpipe.analysis.kernels import FusedKernel, build_kernels, find_fusion_patterns
from nnpipe.analysis.operation_costs import GraphCost, compute_graph_cost
from nnpipe.analysis.stored_values import find_constants
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph, generate_random_inputs
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.model import ModelWrapper
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.measuring.host import get_framework_versions, read_host_facts
from nnpipe.measuring.quantile_intervals import select_middle_half
from nnpipe.workflows.candidates.model_files import read_artifact
from nnpipe.workflows.explanation.layer_times import compute_layer_times
from nnpipe.workflows.prediction.sampled_networks import sample_network

_ROUNDS, _FIRST_RUNS, _LEAST_RUNS, _MOST_RUNS, _FOLDS = 4, 6, 4, 60, 5
_LEAST_KERNELS, _MOST_KERNELS = 40, 5000
_NOISY, _BUSY = 0.15, 0.9
_CLOCK = 50.0


def learn_kernels(
    runtime: str | Runtime = "ONNXRuntime",
    *,
    kernels: int = 300,
    seconds: float = 60.0,
    seed: int = 0,
) -> KernelTable:
    """Measure kernels in a runtime on this machine, from which :func:`nnpipe.predict` estimates
    whole networks.

    Small random networks of common kinds are run, and each step of the runtime is timed.  They take
    turns, in up to four rounds, of which the fastest counts, so that other programs matter little.

    Parameters
    ----------
    runtime
        A runtime that runs ONNX files and gives the times of operations, or its name.
    kernels
        The number of different kernels, at most.
    seconds
        The time for all of them, at most; the first round is always finished.
    seed
        Determines the networks.

    Returns
    -------
    KernelTable
        The kernels with their times, and how far off predictions are.

    Raises
    ------
    ConfigError
        If the runtime does not run ONNX files, or a number is out of its range.
    NotSupported
        If the runtime gives no times of operations.
    MissingDependency
        If the runtime, ``onnx`` or scikit-learn is not installed.

    Examples
    --------
    >>> found = learn_kernels("ONNXRuntime", kernels=40, seconds=1)
    >>> 2 < len(found.kernels) <= 40
    True
    """
    check_call(learn_kernels, locals())
    check_range("learn_kernels: kernels", kernels, _LEAST_KERNELS, _MOST_KERNELS)
    check_range("learn_kernels: seconds", seconds, 0.1, 3600.0)
    made: Runtime = find(runtime, Runtime)() if isinstance(runtime, str) else runtime
    if "onnx" not in made.accepts:
        raise ConfigError(
            f"learn_kernels: the networks are ONNX files, and {type(made).__name__} runs "
            f"{' or '.join(made.accepts)}"
        )
    made.check_installed()
    with create_temporary_folder() as folder:
        start, worked = time.perf_counter(), time.process_time()
        seen = _sample_networks(made, folder, kernels, seed)
        for number in range(1, _ROUNDS):
            left = start + seconds - time.perf_counter()
            if left <= 0:
                break
            _measure_again(made, seen, left / (_ROUNDS - number))
        busy = (time.process_time() - worked) / (time.perf_counter() - start)
    return _build_table(made, seen, busy)


@dataclass
class _MeasuredNetwork:
    """A network with what was measured of it, round by round."""

    artifact: Artifact
    graph: Graph
    cost: GraphCost
    rounds: list[OperationTimes] = field(default_factory=list)
    steps: list[tuple[str, ...]] = field(default_factory=list)
    kernels: tuple[FusedKernel, ...] = ()

    @property
    def ns(self) -> float:
        """Return the time of a run in the quietest round."""
        return min(float(np.median(each.plain_ns)) for each in self.rounds)

    @property
    def spread(self) -> float:
        """Return by how much the slowest round is slower than the fastest."""
        medians = [float(np.median(each.plain_ns)) for each in self.rounds]
        return max(medians) / min(medians) - 1

    def get_step_ns(self) -> np.ndarray:
        """Return the time of each step in the quietest round.

        A profiler may count whole microseconds only, so a mean over the usual runs tells more than
        a median.
        """
        quiet = min(self.rounds, key=lambda each: float(np.median(each.wall_ns)))
        found: dict[str, float] = {}
        for each in (self.rounds[0], quiet):  # some runtimes leave out steps that took no time
            means = each.table_ns[:, select_middle_half(each.wall_ns)].mean(axis=1)
            found |= dict(zip((step.name for step in each.kernels), means.tolist(), strict=True))
        return np.array([found[step.name] for step in self.rounds[0].kernels])


def _sample_networks(
    runtime: Runtime, folder: Path, most: int, seed: int
) -> list[_MeasuredNetwork]:
    """Return networks with at most so many different kernels, each run for the first time."""
    found: list[_MeasuredNetwork] = []
    different: set[Any] = set()
    number = misses = 0
    while misses < 3:
        path = folder / f"{number}.onnx"
        path.write_bytes(sample_network(number, seed))
        each = _run_first(runtime, path)
        more = different | set(map(_make_key, each.kernels))
        if len(more) > most:
            misses += 1
            path.unlink()
        else:
            different = more
            found.append(each)
        number += 1
    return found


def _run_first(runtime: Runtime, path: Path) -> _MeasuredNetwork:
    wrapper: ModelWrapper = find("ONNXModel", ModelWrapper).from_json({"model_path": str(path)})
    with wrapper.open(path) as live:
        graph = live.get_sized_graph({})
    found = _MeasuredNetwork(read_artifact(path, "onnx", runtime), graph, compute_graph_cost(graph))
    found.rounds.append(_profile_network(runtime, found, _FIRST_RUNS))
    layers = compute_layer_times("", graph, found.rounds[0]).layers
    found.steps = [each.operations for each in layers]
    found.kernels = build_kernels(graph, found.cost, [each for each in found.steps if each])
    return found


def _profile_network(runtime: Runtime, each: _MeasuredNetwork, runs: int) -> OperationTimes:
    with runtime.load(each.artifact) as session:
        return session.profile(generate_random_inputs(session.io, {}), runs)


def _measure_again(runtime: Runtime, seen: Sequence[_MeasuredNetwork], seconds: float) -> None:
    # half of the runs are not recorded, and loading takes its part
    share = 1e9 * seconds / len(seen) / 2
    for each in seen:
        runs = int(np.clip(share / (2.5 * each.ns), _LEAST_RUNS, _MOST_RUNS))
        each.rounds.append(_profile_network(runtime, each, runs))


def _make_key(kernel: FusedKernel) -> Any:
    return kernel.kind, kernel.fused, kernel.sizes


def _build_table(runtime: Runtime, seen: Sequence[_MeasuredNetwork], busy: float) -> KernelTable:
    call_ns, recording_ns = _compute_overheads(seen)
    places: dict[Any, int] = {}
    kernels: list[FusedKernel] = []
    times: list[list[float]] = []
    networks = []
    for each in seen:
        own = [ns for ns, names in zip(each.get_step_ns(), each.steps, strict=True) if names]
        for kernel, ns in zip(each.kernels, own, strict=True):
            place = places.setdefault(_make_key(kernel), len(kernels))
            if place == len(kernels):
                kernels.append(replace(kernel, operations=()))
                times.append([])
            times[place].append(max(float(ns) - recording_ns, _CLOCK))
        networks.append(
            MeasuredNetwork(tuple(places[_make_key(kernel)] for kernel in each.kernels), each.ns)
        )
    threads = int(getattr(runtime, "num_threads", 1) or 0)
    table = KernelTable(
        str(read_host_facts()["cpu"]["model"]),
        type(runtime).__name__,
        _find_version(runtime),
        "float32",
        threads,
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        tuple(kernels),
        tuple(float(np.median(each)) for each in times),
        find_fusion_patterns(
            [(each.graph, each.steps, find_constants(each.graph).folded) for each in seen]
        ),
        call_ns,
        tuple(networks),
        {},
        tuple(_list_warnings(seen, busy, threads)),
    )
    return with_errors(table)


def _compute_overheads(seen: Sequence[_MeasuredNetwork]) -> tuple[float, float]:
    """Return what a call adds to the sum of its steps, and what recording adds to each step, in
    nanoseconds.
    """
    steps = np.array([len(each.steps) for each in seen], np.float64)
    added = np.array([each.ns - each.get_step_ns().sum() for each in seen])
    weights = 1 / np.array([each.ns for each in seen])  # errors are shares of the time
    columns = np.stack([np.ones(len(seen)), -steps], axis=1) * weights[:, None]
    call, recording = np.linalg.lstsq(columns, added * weights, rcond=None)[0]
    return max(float(call), 0.0), max(float(recording), 0.0)


def _list_warnings(seen: Sequence[_MeasuredNetwork], busy: float, threads: int) -> list[str]:
    found = []
    spread = float(np.median([each.spread for each in seen]))
    if spread > _NOISY:
        found.append(
            f"the rounds of a usual network differ by {spread:.0%}: other programs ran meanwhile"
        )
    elif busy < _BUSY and threads == 1:
        found.append(
            f"the processor was free for it in {busy:.0%} of the time only: other programs ran "
            f"meanwhile"
        )
    return found


def _find_version(runtime: Runtime) -> str:
    known: Mapping[str, str] = get_framework_versions(
        [name.replace("_", "-") for name in runtime.requires]
    )
    return next(iter(known.values()), "")


def with_errors(table: KernelTable) -> KernelTable:
    """Return a table with the errors of its networks and kernels, predicted by those of other
    networks alone.
    """
    errors = np.zeros(len(table.networks))
    of_kernels: dict[str, list[float]] = {"": []}
    for fold in range(min(_FOLDS, len(table.networks))):
        tested = range(fold, len(table.networks), _FOLDS)
        unknown = {place for number in tested for place in table.networks[number].kernels}
        known = [place for place in range(len(table.kernels)) if place not in unknown]
        if len(known) < 2:
            continue
        part = replace(
            table,
            kernels=tuple(table.kernels[n] for n in known),
            ns=tuple(table.ns[n] for n in known),
            networks=(),
        )
        asked = sorted(unknown)
        predicted = dict(
            zip(asked, part.times([table.kernels[n] for n in asked]).tolist(), strict=True)
        )
        for number in tested:
            network = table.networks[number]
            errors[number] = np.log(
                network.ns / (table.call_ns + sum(predicted[n] for n in network.kernels))
            )
        for n in asked:
            error = float(np.log(table.ns[n] / predicted[n]))
            of_kernels[""].append(error)
            of_kernels.setdefault(table.kernels[n].kind, []).append(error)
    quantiles = {
        kind: (float(np.quantile(found, 0.05)), float(np.quantile(found, 0.95)))
        for kind, found in of_kernels.items()
        if len(found) >= (20 if kind else 1)
    }
    networks = tuple(
        replace(each, error=float(e)) for each, e in zip(table.networks, errors, strict=True)
    )
    return replace(table, networks=networks, kernel_errors=quantiles)
