"""Running averages are undone to the time of each run, as far as rounded numbers tell it."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.frameworks.openvino import build_kernel_times, undo_averaging


def averages(times: np.ndarray) -> np.ndarray:
    """Return what OpenVINO gives after each run: the sum of whole microseconds divided by the
    runs, rounded down.
    """
    return np.cumsum(times, axis=1) // np.arange(1, times.shape[1] + 1)


def test_equal_times_come_back_exactly() -> None:
    times = np.repeat(np.array([[40], [7], [1200]]), 30, axis=1)
    np.testing.assert_array_equal(undo_averaging(averages(times)), times)


def test_a_slow_run_is_found_and_nothing_is_lost() -> None:
    rng = np.random.default_rng(0)
    times = rng.integers(90, 110, (20, 30))
    times[:, 0] = 900  # the first run allocates memory
    times[:, 17] = 5000
    found = undo_averaging(averages(times))
    assert (found >= 0).all()
    np.testing.assert_allclose(found[:, 17], 5000, atol=60)
    assert np.abs(found.sum(axis=1) - times.sum(axis=1)).max() < 30  # less than a microsecond a run


@pytest.mark.parametrize("microseconds", [0.0, 3.0])
def test_steps_of_less_than_a_microsecond_are_told(microseconds: float) -> None:
    """Nothing may be left of a small model, but then its steps are known all the same."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    ops = pytest.importorskip("openvino.opset13", reason="OpenVINO is not installed")
    image = ops.parameter([1, 4], np.float32, name="image")
    model = openvino.Model([ops.relu(image, name="positive")], [image])
    compiled = openvino.compile_model(model, "CPU")
    steps = [node.get_friendly_name() for node in compiled.get_runtime_model().get_ordered_ops()]
    times = np.zeros((len(steps), 2))
    times[steps.index("positive")] = microseconds
    (kernel,) = build_kernel_times(compiled, model, steps, ["jit_f32"] * len(steps), times)
    assert kernel.name == "positive"
    np.testing.assert_array_equal(kernel.ns, 1000 * microseconds)
