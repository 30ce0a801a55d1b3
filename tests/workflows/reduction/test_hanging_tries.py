"""Tries that hang are ended with all that they started, and sooner once others have told how
long a try takes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any, cast

import psutil
import pytest

from nnpipe.workflows.reduction.onnx_parts import DivisibleGraph, TensorValues
from nnpipe.workflows.reduction.reduce import _Search
from nnpipe.workflows.reduction.subprocess_tasks import _exit_code
from nnpipe.workflows.reduction.symptom import Symptom
from nnpipe.workflows.reduction.trying import Trying, TryOutcome

HANG = Symptom("hang", "compiling with Planted")


def test_a_child_that_hangs_is_killed_with_those_that_it_started() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        grandchild = psutil.Process(int(child.stdout.readline()))
        assert _exit_code(child.pid, 0.05) is None
        assert not psutil.pid_exists(child.pid)
        try:
            assert grandchild.wait(10) is None
        except psutil.TimeoutExpired:  # nobody has asked how it ended
            assert grandchild.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("seconds", "code"), [(30.0, 3), (None, 3)])
def test_one_that_ends_is_told_by_its_code(seconds: float | None, code: int) -> None:
    with subprocess.Popen(["sh", "-c", f"exit {code}"]) as child:
        assert _exit_code(child.pid, seconds) == code


class _Trying:
    """Tries of 0.5, 3 and 1 seconds for one, two and three nodes; more hang."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def attempt(
        self, whole: Any, values: Any, places: Sequence[int], free: bool, limit: float, warm: bool
    ) -> Any:
        self.limits.append(limit)
        seconds = {1: 0.5, 2: 3.0, 3: 1.0}.get(len(places), limit)
        return TryOutcome(HANG if len(places) > 3 else None, seconds)

    def is_valid(self, *given: Any) -> bool:
        return True


def _search(trying: _Trying) -> _Search:
    search = _Search(
        cast(Trying, trying),
        cast(DivisibleGraph, None),
        cast(TensorValues, None),
        "m",
        120.0,
        warm=True,
    )
    search.limit, search.symptom, search.names, search.operators = (
        120.0,
        HANG,
        frozenset(),
        frozenset(),
    )
    return search


def test_a_part_hangs_after_eight_times_the_longest_of_three_that_ended() -> None:
    trying = _Trying()
    search = _search(trying)
    assert not any(search._check_symptom([0] * count) for count in (1, 2, 3))
    assert search._check_symptom([0] * 4)
    assert trying.limits == [120.0, 10.0, 60.0, 24.0]
    search.seconds.append(90.0)
    assert search._check_symptom([0] * 4)
    assert trying.limits[-1] == 120.0  # that of the whole model


def test_the_first_limit_is_that_of_three_single_nodes() -> None:
    trying = _Trying()
    search = _search(trying)
    search.left = list(range(100))
    assert search._measure_first_limit() == 5.0  # 8 times half a second is less than any limit
    assert len(trying.limits) == 3
