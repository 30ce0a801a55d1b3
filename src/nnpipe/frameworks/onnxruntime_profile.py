"""Times of the steps of ONNX Runtime's optimised graph, from its profiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, measure_runs
from nnpipe.core.tensors import Batch
from nnpipe.formats.onnx_network import ONNXNode, read_nodes

OPTIMISED = "optimised.onnx"
"""The file, in the folder of a recording, with the graph that ONNX Runtime made of the model."""

_KERNEL, _RUN = "_kernel_time", "model_run"
# suffix of names of convolutions in blocks of channels; the rest is the name of their result
_LAYOUT = "_nchwc"
_CUT_OFF = 0.5  # microseconds that a time lacks on average, since only whole ones are written
_OUTER = {"If", "Loop", "Scan"}  # their times include those of the nodes inside
_TYPES = {"float": "float32", "double": "float64"}
_INTEGERS = ("uint8", "int8", "uint16", "int16")
# beginnings of kinds; the latter take floats and round them
_IN_INTEGERS = ("QLinear", "DynamicQuantize")


def record(
    recorded: Callable[[Path], Any],
    session_of: Callable[[Any], InferenceSession],
    batches: Sequence[Batch],
) -> OperationTimes:
    """Return the times of the steps of one run of each batch, in a session that is opened and
    closed here.

    Parameters
    ----------
    recorded
        Returns an ``onnxruntime.InferenceSession`` that writes its times and its optimised graph to
        a folder.
    session_of
        Returns the session that runs it.
    batches
        The inputs of each run.
    """
    with create_temporary_folder() as folder:
        native = recorded(folder)
        session = session_of(native)
        with session:
            session.put(batches[0])
            measure_runs(session, WARMUP_RUNS)
            walls = []
            for batch in batches:
                session.put(batch)
                walls.append(measure_runs(session, 1))
            events = json.loads(Path(native.end_profiling()).read_text("utf-8"))
        try:
            nodes = read_nodes(Path(folder, OPTIMISED))
        except ArtifactError:  # too large for one file: the times then lack the names of tensors
            nodes = []
    steps = _list_steps(events, len(batches))
    return OperationTimes(tuple(_make_kernel_times(steps, nodes)), np.concatenate(walls))


@dataclass
class _Step:
    name: str
    kind: str
    about: Mapping[str, Any]
    ns: np.ndarray


def _list_steps(events: Sequence[Mapping[str, Any]], runs: int) -> list[_Step]:
    """Return the nodes that ran, with their times in the last runs, in the order in which they
    ended.
    """
    starts = sorted(event["ts"] for event in events if event["name"] == _RUN)[WARMUP_RUNS:][:runs]
    limits = np.array(starts, np.int64)
    nodes = [
        event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)
    ]
    outer = [
        (e["tid"], e["ts"], e["ts"] + e["dur"]) for e in nodes if e["args"].get("op_name") in _OUTER
    ]
    found: dict[tuple[str, str], _Step] = {}
    for event in nodes:
        run = int(np.searchsorted(limits, event["ts"], "right")) - 1
        about = event["args"]
        kind = str(about.get("op_name", ""))
        if run < 0 or (outer and _is_inside(event, outer)):
            continue
        key = str(about.get("node_index", "")), event["name"]
        step = found.setdefault(
            key, _Step(event["name"].removesuffix(_KERNEL), kind, about, np.zeros(len(limits)))
        )
        step.ns[run] += 1000.0 * (event["dur"] + _CUT_OFF)
    return list(found.values())


def _is_inside(event: Mapping[str, Any], outer: Sequence[tuple[int, int, int]]) -> bool:
    """Return whether an event is that of a node inside another node that was recorded as well."""
    first, last = event["ts"], event["ts"] + event["dur"]
    return any(
        thread == event["tid"] and start <= first and last <= end and (start, end) != (first, last)
        for thread, start, end in outer
    )


def _make_kernel_times(steps: Sequence[_Step], nodes: Sequence[ONNXNode]) -> list[KernelTime]:
    """Return the steps with what the optimised graph says about their nodes."""
    found = _match_nodes(steps, nodes)
    names = _number_repeated([step.name for step in steps])
    maker = {
        tensor: name
        for name, node in zip(names, found, strict=True)
        if node is not None
        for tensor in node.outputs
    }
    kernels = []
    for step, name, node in zip(steps, names, found, strict=True):
        outputs = () if node is None else tuple(filter(None, node.outputs))
        after = (
            ()
            if node is None
            else tuple(dict.fromkeys(maker[i] for i in node.inputs if i in maker))
        )
        fused = step.name.rstrip("/").removesuffix("Fusion")
        # "conv1/MatMulAddFusion"
        origin = fused.rpartition("/")[0] if fused != step.name.rstrip("/") else ""
        plain = step.name.removesuffix(_LAYOUT)
        sources = (step.name, plain, plain.removesuffix("_bn"), *filter(None, (origin,)), *outputs)
        kernels.append(
            KernelTime(
                name,
                step.kind,
                step.ns,
                _describe_kernel(step),
                _find_precision(step),
                tuple(dict.fromkeys(sources)),
                after,
            )
        )
    return kernels


def _match_nodes(steps: Sequence[_Step], nodes: Sequence[ONNXNode]) -> list[ONNXNode | None]:
    """Return the node of each step: by its name, or else the next one of its kind, as both are
    in the same order.
    """
    by_name: dict[str, list[ONNXNode]] = {}
    unnamed: dict[str, list[ONNXNode]] = {}
    for node in nodes:
        (
            by_name.setdefault(node.name, [])
            if node.name
            else unnamed.setdefault(_shorten_kind(node.kind), [])
        ).append(node)
    found: list[ONNXNode | None] = []
    waiting = {kind: chain(members, repeat(None)) for kind, members in unnamed.items()}
    for step in steps:
        named = by_name.get(step.name, [])
        found.append(named[0] if len(named) == 1 else next(waiting.get(step.kind, iter([None]))))
    return found


def _shorten_kind(kind: str) -> str:
    return kind.rpartition("::")[2]


def _number_repeated(names: Sequence[str]) -> list[str]:
    """Return the names with a number behind those that occur again."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _describe_kernel(step: _Step) -> str:
    """Return the layout, if it is not the usual one, and the device."""
    device = str(step.about.get("provider", "")).removesuffix("ExecutionProvider")
    return " ".join(
        filter(
            None,
            (step.kind, "in blocks of channels" if step.name.endswith(_LAYOUT) else "", device),
        )
    )


def _find_precision(step: _Step) -> str:
    """Return the type of the values that a node reads; of 8-bit operators that of the integers."""
    types = [name for value in step.about.get("input_type_shape", ()) for name in value]
    whole = next((name for name in types if name in _INTEGERS), None)
    told = whole if whole and step.kind.startswith(_IN_INTEGERS) else next(iter(types), "")
    return _TYPES.get(told, told)
