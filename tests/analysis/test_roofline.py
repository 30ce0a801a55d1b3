"""The roofline model: shares of the roof, borders between levels of memory, and what is not
known.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from nnpipe.analysis.roofline import (
    Ceiling,
    Ceilings,
    MemoryLevel,
    compute_roof_share,
    find_bandwidth_drops,
)
from nnpipe.core.errors import ArtifactError

MACHINE = Ceilings(
    "a board",
    1,
    {
        "float32": Ceiling((9e9, 10e9, 9.5e9), "product"),
        "int8": Ceiling((10e9, 40e9, 40e9), "product"),
    },
    (
        MemoryLevel(1000, Ceiling((100e9,), "reading")),
        MemoryLevel(None, Ceiling((10e9,), "reading")),
    ),
    {"bfloat16": "no instructions"},
    "2026-11-24",
)


def test_a_ceiling_whose_repeats_differ_by_more_than_a_tenth_is_not_known() -> None:
    assert Ceiling((90.0, 100.0, 95.0), "").value == 100.0
    assert Ceiling((89.0, 100.0, 95.0), "").value is None
    assert Ceiling((89.0, 100.0, 95.0), "").spread == pytest.approx(0.11)


@pytest.mark.parametrize(
    ("work", "share", "limit"),
    [
        ((5e9, 100, 1.0), 0.5, "arithmetic"),
        ((1, 5e9, 1.0), 0.5, "memory"),
        ((1, 800, 1e-8), 0.8, "memory"),  # from the cache
        ((1, 1001, 1.001e-7), 1.0, "memory"),  # which holds no more
        ((10.4e9, 0, 1.0), 1.04, "arithmetic"),
    ],
)
def test_the_least_time_follows_from_arithmetic_or_memory(
    work: Any, share: float, limit: str
) -> None:
    found = compute_roof_share(*work, MACHINE)
    assert found is not None
    assert found.share == pytest.approx(share)
    assert found.limit == limit
    assert found.doubt == ""


def test_nothing_is_above_the_roof_without_a_doubt() -> None:
    for work in ((20e9, 1, 1.0), (1, 20e9, 1.0)):
        found = compute_roof_share(*work, MACHINE)
        assert found is not None
        assert found.share == pytest.approx(2.0)
        assert "above the roof" in found.doubt


@pytest.mark.parametrize(
    ("operations", "traffic", "seconds", "precision"),
    [
        (None, 1, 1, "float32"),
        (1, None, 1, "float32"),
        (1, 1, 0, "float32"),
        (0, 0, 1, "float32"),
        (1e9, 1, 1, "int8"),
        (1e9, 1, 1, "bfloat16"),
    ],
)
def test_what_has_no_ceiling_has_no_share(
    operations: Any, traffic: Any, seconds: float, precision: str
) -> None:
    assert compute_roof_share(operations, traffic, seconds, MACHINE, precision) is None


def test_levels_of_memory_begin_where_the_bandwidth_falls() -> None:
    sizes = [1 << number for number in range(12)]
    assert find_bandwidth_drops(sizes, [100, 99, 101, 98, 100, 50, 51, 49, 50, 10, 11, 10]) == [
        5,
        9,
    ]
    # A fall over several sizes is one border, at its beginning.
    assert find_bandwidth_drops(sizes, [100, 99, 101, 98, 70, 40, 20, 10, 10, 10, 10, 10]) == [4]
    # A single slow size is noise.
    assert find_bandwidth_drops(sizes, [100, 99, 30, 98, 100, 97, 99, 98, 100, 99, 98, 97]) == []
    assert find_bandwidth_drops(sizes[:1], [100]) == []


def test_ceilings_survive_json_and_others_are_refused() -> None:
    told = json.loads(json.dumps(MACHINE.to_json()))
    assert Ceilings.from_json(told) == MACHINE
    for wrong in (
        [],
        {},
        {**told, "kind": "x"},
        {**told, "memory": [{}]},
        {**told, "compute": {"float32": 3}},
    ):
        with pytest.raises(ArtifactError, match="not a"):
            Ceilings.from_json(wrong)
    for rates in ((), (0.0,), (float("nan"),)):
        with pytest.raises(ArtifactError, match="greater than 0"):
            Ceiling(rates, "")
