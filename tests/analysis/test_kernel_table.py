"""Measured kernels: estimates of others, ranges, intervals, and files from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from installed import needs
from kernel_tables import kernel, table

from nnpipe.analysis.kernel_table import KernelTable
from nnpipe.core.errors import ArtifactError


def test_times_of_other_kernels_follow_from_those_measured() -> None:
    needs("sklearn")
    found = table()
    asked = [kernel(channels) for channels in (24, 48, 100)]
    truth = np.array([0.05 * each.macs + 1000 for each in asked])
    assert np.abs(found.times(asked) / truth - 1).max() < 0.2
    assert len(found.times([])) == 0


def test_what_is_outside_of_what_was_measured_is_told() -> None:
    found = table()
    assert found.outside(kernel(64)) == ""
    assert found.outside(kernel(4096)) == "more multiply-accumulates than any that was measured"
    assert found.outside(replace(kernel(64), kind="gelu")) == "none of its kind was measured"
    assert found.outside(replace(kernel(64), kind="")) == "not known here"
    assert "only 1 of its kind was measured" in found.outside(replace(kernel(64), kind="relu"))


def test_intervals_are_as_wide_as_the_errors_and_narrower_for_many_kernels() -> None:
    found = table(errors=(0.3, -0.3, 0.1, 0.0, -0.1, 0.2, -0.2, 0.05, -0.05, 0.0))
    low, high = found.compute_network_interval([1.0])
    assert low < np.exp(-0.25)
    assert high > np.exp(0.25)
    assert low * high == pytest.approx(1)
    assert found.compute_network_interval([1.0] * 50)[1] < high
    assert table(errors=(0.0,) * 10).compute_network_interval([1.0]) == (1.0, 1.0)
    assert found.predict_from_macs(0) >= 0


def test_a_table_is_the_same_after_a_file() -> None:
    found = table()
    assert KernelTable.from_json(found.to_json()) == found
    assert "Runtime 1.0 on a board, 1 thread, float32" in found.title


DAMAGED: list[tuple[str, Any]] = [
    ("kind", "other"),
    ("schema", 9),
    ("kernels", []),
    ("kernels", [[1, 2]]),
    ("kernels", {}),
    ("sizes", ["macs"]),
    ("networks", [[[10**9], 1.0, 0.0]]),
    ("networks", [[[0], float("nan"), 0.0]]),
    ("patterns", [[["relu", ["x"]]]]),
    ("call_ns", -1),
    ("threads", "many"),
    ("kernel_errors", [1]),
    ("kernels", [["", [], [1e400] * 17, 1.0]] * 2),
    ("kernels", [0] * 30_000),
    ("doubts", 3),
]


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_damaged_content_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ArtifactError):
        KernelTable.from_json({**table().to_json(), name: value})
    with pytest.raises(ArtifactError):
        KernelTable.from_json({key: each for key, each in table().to_json().items() if key != name})
