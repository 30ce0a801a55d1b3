"""What ``nnpipe mix`` does in a process of its own: ranking tensors, and judging models beside
the one in floats.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import RoundingNoise
from nnpipe.analysis.quality_intervals import compute_quality_difference
from nnpipe.core.artifact import Artifact
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.graph import Selector
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.session import InferenceSession
from nnpipe.formats.onnx_network import read_nodes
from nnpipe.formats.tflite_graph import read_graph
from nnpipe.frameworks.openvino_models import read_model
from nnpipe.measuring.sample_route import Item, SampleRoute, get_fixed_size
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.user_inputs.inputs import create_wrappers

_AT_ONCE = 16  # samples in a call, where any number is possible
# turns of each of two models, and the ratios beyond either end of the interval
_PAIRS, _BOUND = 15, 3
_BLOCK_NS = 4_000_000
_FEWEST_CALLS = 3


class Trials:
    """Carries out the requests of a search, one after the other, and keeps the model in floats
    open.
    """

    def __init__(self) -> None:
        self._floats: InferenceSession | None = None
        self._evaluation: Evaluation | None = None
        self._stack = contextlib.ExitStack()

    def __call__(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request: ``open``, ``try`` or ``rank``."""
        if request["do"] == "rank":
            return rank_tensors(request)
        spec = CandidateSpec.from_json(request["candidate"]).fit_wrapper()
        assert spec.dataset is not None
        indices = np.asarray(request["indices"], np.int64)
        metric = spec.dataset.task.metric(request["metric"])
        if request["do"] == "open":
            self._floats = self._stack.enter_context(spec.open())
            self._evaluation = _evaluate_session(self._floats, spec, indices)
            call = next(_build_route(spec, self._floats, 1).items(indices[:1]))
            return {
                "value": metric.compute(self._evaluation),
                "seconds": _measure_seconds(self._floats, call),
            }
        with spec.open() as session:
            return self._compare_with_floats(session, spec, indices, metric)

    def _compare_with_floats(
        self,
        session: InferenceSession,
        spec: CandidateSpec,
        indices: np.ndarray[Any, Any],
        metric: QualityMetric,
    ) -> dict[str, Any]:
        assert self._floats is not None
        assert self._evaluation is not None
        found = _evaluate_session(session, spec, indices)
        gap = compute_quality_difference(metric, self._evaluation, found)
        sign = 1.0 if metric.less_is_better else -1.0
        low, high = sorted((sign * gap.low, sign * gap.high))
        calls = [
            next(_build_route(spec, each, 1).items(indices[:1])) for each in (self._floats, session)
        ]
        times = _measure_paired_ratio(self._floats, calls[0], session, calls[1])
        return {"loss": sign * gap.value, "low": low, "high": high, "times": times}


def _build_route(spec: CandidateSpec, session: InferenceSession, size: int) -> SampleRoute:
    assert spec.dataset is not None
    return SampleRoute(
        spec.dataset, spec.wrapper, spec.wrapper.io, session.io, get_fixed_size(session.io) or size
    )


def _evaluate_session(
    session: InferenceSession, spec: CandidateSpec, indices: np.ndarray[Any, Any]
) -> Evaluation:
    assert spec.dataset is not None
    route = _build_route(spec, session, _AT_ONCE)
    parts: list[Evaluation] = []
    for item in route.items(indices):
        parts += route.evaluate([item], [session.infer(item.inputs)])
    return spec.dataset.task.finalize(Evaluation.concat(parts))


def _measure_paired_ratio(
    one: InferenceSession, its: Item, other: InferenceSession, own: Item
) -> list[float]:
    """Return the time of a call of ``other`` as a multiple of that of ``one``, and the ends of its
    95 % interval.

    Both take turns in short blocks.  The interval of the median of 15 ratios lies between the 4th
    and the 12th: its confidence is 96.5 %, whatever their distribution.
    """
    pairs = ((one, its), (other, own))
    calls = []
    for session, item in pairs:
        session.put(item.inputs)
        for _ in range(_FEWEST_CALLS):
            session.run()
        calls.append(max(_FEWEST_CALLS, int(_BLOCK_NS // max(_measure_block(session, 1), 1))))
    ratios = []
    for turn in range(_PAIRS):
        times = [0.0, 0.0]
        for place in (0, 1) if turn % 2 else (1, 0):
            times[place] = _measure_block(pairs[place][0], calls[place]) / calls[place]
        ratios.append(times[1] / times[0])
    ratios.sort()
    return [ratios[_PAIRS // 2], ratios[_BOUND], ratios[-1 - _BOUND]]


def _measure_seconds(session: InferenceSession, call: Item) -> float:
    """Return the median time of a call, in seconds."""
    session.put(call.inputs)
    calls = max(
        _FEWEST_CALLS,
        int(_BLOCK_NS // max(_measure_block(session, _FEWEST_CALLS), 1) * _FEWEST_CALLS),
    )
    return statistics.median(_measure_block(session, calls) / calls for _ in range(_PAIRS)) / 1e9


def _measure_block(session: InferenceSession, calls: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(calls):
        session.run()
    return time.perf_counter_ns() - begin


# -- the ranking -----------------------------------------------------------------------------------


def rank_tensors(request: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the tensors that a quantised model rounds, with the noise that this adds, the worst
    first.
    """
    source, spec = (
        Artifact.read(request["source"]),
        CandidateSpec.from_json(request["candidate"]).fit_wrapper(),
    )
    indices = np.asarray(request["indices"], np.int64)
    wrapper, path = create_wrappers(source.path, source.path.parent, None, {}, as_given=True)[0]
    with wrapper.open(path) as live, live.session() as session:
        noise = RoundingNoise(wrapper.channel_axis)
        route = _build_route(spec, session, 1)
        # sample by sample, as all values of large models do not fit
        for take in (noise.observe, noise.add):
            for item in route.items(indices):
                take(live.get_intermediates(Selector(tensor="*"), item.inputs))
        found = noise.rank_tensors()
    rounded = find_rounded_tensors(Artifact.read(request["quantised"]))
    return [(name, level) for name, level in found if rounded is None or name in rounded]


def find_rounded_tensors(artifact: Artifact) -> set[str] | None:
    """Return the tensors that a quantised model rounds, by their names in the source; None if it
    cannot tell.
    """
    if artifact.format == "onnx":
        return {
            node.get_input(0)
            for node in read_nodes(Path(artifact.path))
            if node.kind == "QuantizeLinear"
        }
    if artifact.format == "openvino":
        operations = read_model(artifact.path, artifact.format).native.get_ordered_ops()
        ports = [
            each.input_value(0) for each in operations if each.get_type_name() == "FakeQuantize"
        ]
        return {name for port in ports for name in port.get_names()}
    if artifact.format == "tflite":
        graph = read_graph(artifact.path)
        return {
            graph.names[number]
            for number, tensor in graph.tensors.items()
            if tensor.dtype in ("int8", "uint8") and number not in graph.constants
        }
    return None
