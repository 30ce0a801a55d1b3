"""The six parameters: their values lie where they say, and bad ones are refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.searching.parameters import (
    BoolParameter,
    DiscreteParameter,
    IntParameter,
    MappingParameter,
    PowerParameter,
    SearchParameter,
    UniformParameter,
    parse_parameter,
)

ALL: list[SearchParameter] = [
    DiscreteParameter(["sgd", 3, 0.5, None]),
    DiscreteParameter([8, 16, 32], ordered=True),
    MappingParameter({"small": {"units": 8}, "large": {"units": 64}}),
    IntParameter(-3, 9, step=4),
    IntParameter(1, 1000, log=True),
    BoolParameter(),
    UniformParameter(-1.0, 2.5),
    UniformParameter(0.0, 1.0, step=0.1),
    UniformParameter(2.0, 2.0),
    PowerParameter(-5, -1),
]


@pytest.mark.parametrize("parameter", ALL, ids=lambda each: each.text)
def test_values_and_positions_go_together_and_survive_json(parameter: SearchParameter) -> None:
    positions = [i / 40 for i in range(41)]
    for position in positions:
        value = parameter.get_value_at(position)
        there = parameter.position(value)
        assert 0 <= there <= 1
        assert parameter.get_value_at(there) == pytest.approx(value)
    if parameter.count is not None and parameter.count < 100:
        choices = parameter.choices()
        assert len(choices) == parameter.count
        assert [
            parameter.get_value_at(parameter.position(each)) for each in choices
        ] == pytest.approx(choices)
        assert {repr(parameter.get_value_at(each)) for each in positions} == {
            repr(each) for each in choices
        }
    assert parse_parameter(parameter.to_json(), "x") == parameter


def test_a_power_is_ten_to_the_power_of_a_uniform_number() -> None:
    assert PowerParameter(-5, -1).get_value_at(0.25) == pytest.approx(1e-4)
    assert PowerParameter(-5, -1).position(1e-2) == pytest.approx(0.75)


def test_a_mapping_stands_for_what_it_names() -> None:
    mapping = MappingParameter({"small": {"units": 8}})
    assert mapping.get_argument("small") == {"units": 8}
    with pytest.raises(ConfigError, match="'large' is not a value"):
        mapping.get_argument("large")


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (IntParameter(0, 8, step=2), 3),
        (IntParameter(0, 8), 2.0),
        (IntParameter(0, 1), True),
        (BoolParameter(), 1),
        (UniformParameter(0, 1), 1.5),
        (UniformParameter(0, 1, step=0.25), 0.3),
        (PowerParameter(0, 1), "1"),
        (DiscreteParameter([1, 2]), True),
    ],
)
def test_other_values_are_refused(parameter: SearchParameter, value: Any) -> None:
    with pytest.raises(ConfigError, match="is not a value of"):
        parameter.position(value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"kind": "integer"}, "space.x: expected an object with a kind .*found 'integer'"),
        ([1, 2], "expected an object with a kind"),
        ({"kind": "int", "low": 1}, "space.x: 'high' is missing"),
        ({"kind": "int", "low": 1, "high": 2, "stop": 1}, "unknown key 'stop'; did you mean step"),
        ({"kind": "int", "low": 3, "high": 2}, "low <= high, found 3 and 2"),
        ({"kind": "int", "low": 0, "high": 2, "log": True}, "low is at least 1"),
        ({"kind": "int", "low": "1", "high": 2}, "space.x: .*low takes a whole number"),
        ({"kind": "uniform", "low": 0, "high": float("inf")}, "finite bounds"),
        ({"kind": "int", "low": 0, "high": 10**400}, "finite bounds"),
        ({"kind": "uniform", "low": 0, "high": 1, "step": 0}, "step above 0"),
        ({"kind": "power", "low": 0, "high": 400}, "exponents of ten"),
        ({"kind": "discrete", "values": []}, "expected 1 to 10,000"),
        ({"kind": "discrete", "values": [1, 1.0]}, "two of them are equal"),
        ({"kind": "discrete", "values": [[1]]}, "values takes"),
    ],
)
def test_a_bad_entry_is_refused_in_one_line(entry: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        parse_parameter(entry, "space.x")
    assert "\n" not in str(error.value)
