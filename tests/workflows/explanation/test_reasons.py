"""The reason for a run's time is found, sound runs have none, and predictions come true."""

from __future__ import annotations

import time

import numpy as np
import pytest

from nnpipe.analysis.layer_times import CONVERSION, LayerTime, LayerTimes
from nnpipe.core.errors import ConfigError
from nnpipe.core.operation_times import KernelTime, OperationTimes
from nnpipe.core.tensors import Batch
from nnpipe.measuring.quantile_intervals import compute_usual_times
from nnpipe.testing.fakes import FakeSession
from nnpipe.workflows.explanation.reasons import Speedup, find_reasons, predict_speedups


def layer(
    name: str,
    kind: str,
    ns: float,
    precision: str = "float32",
    macs: int | None = None,
    **others: object,
) -> LayerTime:
    return LayerTime(
        name, kind, (name,), kind, kind, precision, ns, 0.9 * ns, 1.1 * ns, 0.0, macs, 0, **others
    )


def run_of(*layers: LayerTime) -> LayerTimes:
    whole = sum(each.time_ns for each in layers)
    shared = tuple(LayerTime(**{**vars(each), "share": each.time_ns / whole}) for each in layers)
    rest = LayerTime("not attributed", "", (), "", "", "", 0.0, 0.0, 0.0, 0.0)
    return LayerTimes("R", shared, rest, whole, None, 1.0, 0.0, (), 3)


def test_it_names_floats_among_integers_with_their_conversions() -> None:
    products = [layer(f"p{n}", "pointwise convolution", 100, "int8", 1000) for n in range(17)]
    depthwise = [layer(f"d{n}", "depthwise convolution", 140, "float32", 100) for n in range(17)]
    around = [
        LayerTime(
            f"r{n}", CONVERSION, (), "Reorder", "", "", 16.0, 16.0, 16.0, 0.0, converts=(f"d{n}",)
        )
        for n in range(17)
    ]
    first, *_ = find_reasons(run_of(*products, *depthwise, *around))
    assert first.text.startswith(
        "17 depthwise convolutions ran in float32, with 17 conversions around them"
    )
    assert first.text.replace("\N{NO-BREAK SPACE}", " ").endswith("61 % of the time")
    assert len(first.layers) == 34
    assert find_reasons(run_of(*depthwise)) == (), "a network in floats"


def test_one_slow_operation_is_among_the_first_reasons_and_sound_runs_accuse_nobody() -> None:
    rng = np.random.default_rng(0)
    found = accused = 0
    for _ in range(100):
        macs = 10 ** rng.uniform(5, 7, 24)
        times = macs / 30 * np.exp(rng.normal(0, 0.25, 24))
        layers = [
            layer(f"c{n}", "convolution", t, macs=int(m), bytes_read=int(m / 10), bytes_written=0)
            for n, (t, m) in enumerate(zip(times, macs, strict=True))
        ]
        accused += bool(find_reasons(run_of(*layers)))
        slow = int(rng.integers(24))
        layers[slow] = layer(
            f"c{slow}", "convolution", 10 * max(times.mean(), times[slow]), macs=int(macs[slow])
        )
        told = [name for each in find_reasons(run_of(*layers))[:3] for name in each.layers]
        found += f"c{slow}" in told
    assert found >= 95
    assert accused <= 5


class Waiting(FakeSession):
    """Waits as long as each of its steps is said to take."""

    def __init__(self, *waits: float) -> None:
        super().__init__(spend=lambda: [pause(each) for each in waits])
        self.waits = waits

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        steps, walls = np.zeros((len(self.waits), runs)), np.zeros(runs)
        for run in range(runs):
            start = time.process_time_ns()
            for place, wait in enumerate(self.waits):
                before = time.process_time_ns()
                pause(wait)
                steps[place, run] = time.process_time_ns() - before
            walls[run] = time.process_time_ns() - start
        kernels = tuple(KernelTime(f"step{n}", "Wait", row) for n, row in enumerate(steps))
        return OperationTimes(kernels, walls)


def pause(seconds: float) -> None:
    """Compute for a time; the processor's time does not depend on what else runs on the machine."""
    end = time.process_time_ns() + seconds * 1e9
    while time.process_time_ns() < end:
        pass


def usual(times: OperationTimes) -> LayerTimes:
    values = compute_usual_times(times)[0]
    layers = [
        layer(kernel.name, kernel.kind, value)
        for kernel, value in zip(times.kernels, values, strict=False)
    ]
    return run_of(*layers, layer("rest", "rest", values[-1]))


def test_the_predicted_gain_is_the_real_one_within_two_per_cent_of_the_run() -> None:
    x = {"x": np.ones((1, 4), np.float32)}
    with Waiting(0.004, 0.003, 0.002) as slow, Waiting(0.002, 0.003, 0.002) as fast:
        before, after = usual(slow._profile(x, 12)), usual(fast._profile(x, 12))
    (predicted,) = predict_speedups(before, [Speedup.parse("step0=2x")])
    assert predicted.steps == 1
    assert predicted.after_ns == pytest.approx(after.run_ns, rel=0.02)
    assert "2.00 times as fast" in str(predicted)


@pytest.mark.parametrize("text", ["Conv", "=2x", "Conv=x", "Conv=0x", "Conv=-1x", "Conv=nan"])
def test_an_assumption_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected PATTERN=FACTOR"):
        Speedup.parse(text)


def test_an_assumption_without_a_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="no operation, step or kind"):
        predict_speedups(run_of(layer("a", "convolution", 1.0)), [Speedup("nothing*", 2.0)])
