"""The devices of a sweep: what a page says about them, and that files without any are read as
before.
"""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.report.document import Paragraph, Table
from nnpipe.report.inputs.sweep_file import SweepFile
from nnpipe.report.sections.sweep_devices import (
    build_device_table,
    build_devices_section,
    build_model_table,
    describe_cheapest_device,
)


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value, "count": 50}


def point(
    device: str, model: str, time: float, holds: bool | None = True, **changes: Any
) -> dict[str, Any]:
    title = f"{device}: {model} · ONNXRuntime"
    return {
        "title": title,
        "result": f"results/{device}-{model}.json",
        "model": None,
        "figures": {
            "latency_median": figure(time),
            "size": {"value": 900, "low": 900, "high": 900, "count": 1},
        },
        "claims": {"latency_median <= 5 ms": holds},
        "qualifies": holds is True,
        "on_front": True,
        "front_share": 1.0,
        "device": device,
        "of_model": model,
        "combination": f"{model} · ONNXRuntime",
    } | changes


def device(
    name: str, chosen: str | None = None, again: float = 0.0, **changes: Any
) -> dict[str, Any]:
    confirmed = (
        {"result": "c.json", "figures": {"latency_median": figure(again)}, "doubts": []}
        if chosen
        else None
    )
    told = {
        "name": name,
        "here": False,
        "description": "",
        "tags": [],
        "refuted": {},
        "away": "",
        "facts": {},
    }
    return {**told, "chosen": chosen, "confirmed": confirmed, **changes}


def swept(points: list[dict[str, Any]], devices: list[dict[str, Any]], **changes: Any) -> SweepFile:
    return SweepFile.from_json(
        {
            "schema": 1,
            "kind": "nnpipe sweep",
            "title": "Digits",
            "confidence": 0.95,
            "constraints": ["latency_median <= 5 ms"],
            "objectives": ["latency_median", "size"],
            "choose": "latency_median",
            "chosen": None,
            "cannot_be_told_from": [],
            "refuted": {},
            "points": points,
            "failed": [],
            "impossible": {},
            "devices": devices,
            "currency": "EUR",
            "cheapest": None,
            "cost_by": None,
        }
        | changes
    )


FOUND = swept(
    [
        point("pi", "small", 0.004),
        point("pi", "large", 0.02, False),
        point("jetson", "small", 0.001),
        point("jetson", "large", 0.003),
        point("phone", "small", 0.002),
    ],
    [
        device("pi", "pi: small · ONNXRuntime", 0.0041, cost_per_piece=80, description="a board"),
        device("jetson", "jetson: small · ONNXRuntime", 0.0011, cost_per_piece=250),
        device("phone", refuted={"phone: small · ONNXRuntime": "too slow"}),
        device("gone", away="gone went away"),
    ],
    chosen="pi: small · ONNXRuntime",
    cheapest="pi",
    cost_by="cost_per_piece",
)


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.cells()]


def test_devices_by_models_show_what_qualifies_and_why_nothing_does() -> None:
    table = build_model_table(FOUND)
    assert table.header == ("Device", "Cost", "small", "large")
    assert texts(table) == [
        ["pi", "80 EUR a piece", "4.10\u00a0ms", "none qualifies"],
        ["jetson", "250 EUR a piece", "1.10\u00a0ms", "3.00\u00a0ms"],
        ["phone", "", "none qualifies", "not measured"],
        ["gone", "", "not measured", "not measured"],
    ]
    notes = [[cell.note for cell in row] for row in table.cells()]
    assert notes[0][2:] == ["small · ONNXRuntime", "most often Median"]
    assert notes[2][2] == "did not hold when measured again"


def test_the_best_of_each_device_has_its_certified_figures() -> None:
    rows = texts(build_device_table(FOUND))
    assert [row[2:4] for row in rows] == [
        ["small · ONNXRuntime", "4.10\u00a0ms"],
        ["small · ONNXRuntime", "1.10\u00a0ms"],
        ["none qualifies", "–"],
        ["not measured", "–"],
    ]


def test_the_cheapest_device_is_named_with_its_price() -> None:
    assert (
        describe_cheapest_device(FOUND)
        == "pi is the cheapest device that keeps the constraints: 80 EUR a piece."
    )
    blocks = build_devices_section(FOUND).blocks
    told = [block.text for block in blocks if isinstance(block, Paragraph)]
    assert told[0] == describe_cheapest_device(FOUND)
    assert told[-1] == "gone did not give all results: gone went away."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cheapest": None}, "On no device does a candidate qualify."),
        ({"cost_by": None}, "pi is the device to take: what devices cost is not known"),
        (
            {
                "cost_by": "cost_per_hour",
                "devices": [
                    device("pi", "pi: small · ONNXRuntime", 1, cost_per_hour=0.5),
                    device("jetson", "jetson: small · ONNXRuntime", 1, cost_per_piece=250),
                ],
            },
            "0.5 EUR an hour. What jetson costs is not known in this way, and was not compared.",
        ),
    ],
)
def test_without_prices_and_without_a_choice_that_is_said(
    changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"cheapest": "pi", "cost_by": "cost_per_piece"}
    devices = changes.pop(
        "devices", [device("pi", "pi: small · ONNXRuntime", 1), device("b", "b: small", 1)]
    )
    assert said in describe_cheapest_device(
        swept([point("pi", "small", 0.001)], devices, **given | changes)
    )


def test_without_prices_there_is_no_column_for_them() -> None:
    assert (
        "Cost" not in build_model_table(swept([point("pi", "small", 0.001)], [device("pi")])).header
    )


@pytest.mark.parametrize(
    "devices",
    [
        {},
        [3],
        [{**device("pi"), "cost_per_piece": "free"}],
        [{"name": "pi"}],
        [device("pi", refuted=[])],
    ],
)
def test_a_damaged_file_is_refused(devices: Any) -> None:
    with pytest.raises(ArtifactError):
        swept([point("pi", "small", 1)], devices)
