"""The events of ONNX Runtime's profiler become the times of steps in each run."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.session import WARMUP_RUNS
from nnpipe.frameworks import onnxruntime_profile


def event(name: str, start: int, microseconds: int, **about: str) -> dict[str, object]:
    return {"name": name, "cat": "Node", "ts": start, "dur": microseconds, "tid": 1, "args": about}


def test_times_are_whole_microseconds_that_were_cut_off_and_warm_up_is_left_out() -> None:
    events = []
    for run in range(WARMUP_RUNS + 2):
        start = 1000 * run
        events.append(event("model_run", start, 900))
        events.append(
            event("conv_kernel_time", start + 5, 10 * run, op_name="Conv", node_index="3")
        )
        events.append(event("relu_kernel_time", start + 500, 0, op_name="Relu", node_index="4"))
    conv, relu = onnxruntime_profile._list_steps(events, 2)
    assert (conv.name, conv.kind, relu.name) == ("conv", "Conv", "relu")
    expected = [1000 * (10 * (WARMUP_RUNS + run) + 0.5) for run in range(2)]
    assert conv.ns.tolist() == pytest.approx(expected)
    assert relu.ns.tolist() == pytest.approx([500, 500])


def test_what_runs_inside_a_loop_counts_once() -> None:
    events = [event("model_run", 1000 * run, 900) for run in range(WARMUP_RUNS + 1)]
    start = 1000 * WARMUP_RUNS
    events.append(event("loop_kernel_time", start + 10, 100, op_name="Loop", node_index="1"))
    events.append(event("inner_kernel_time", start + 20, 50, op_name="Add", node_index="0"))
    (loop,) = onnxruntime_profile._list_steps(events, 1)
    assert loop.name == "loop"


@pytest.mark.parametrize(
    ("kind", "read", "precision"),
    [
        ("DynamicQuantizeMatMul", ["float", "uint8", "float", "uint8"], "uint8"),
        ("MatMulNBits", ["float", "uint8", "float"], "float32"),
        ("QLinearConv", ["float", "int8"], "int8"),
    ],
)
def test_an_operator_that_rounds_its_inputs_computes_in_integers(
    kind: str, read: list[str], precision: str
) -> None:
    about = {"input_type_shape": [{name: [1]} for name in read]}
    step = onnxruntime_profile._Step(kind, kind, about, np.zeros(1))
    assert onnxruntime_profile._find_precision(step) == precision
