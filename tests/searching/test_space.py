"""Spaces: conditions, constraints, JSON, and what is refused."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.searching.space import SearchSpace, build_space_schema

ENTRIES: dict[str, Any] = {
    "momentum": {"kind": "discrete", "values": [0.5, 0.9], "when": "optimiser == 'sgd'"},
    "nesterov": {"kind": "bool", "when": "momentum > 0.6"},
    "optimiser": {"kind": "discrete", "values": ["sgd", "adam"]},
    "model.units": {"kind": "int", "low": 1, "high": 3},
}


def test_parameters_exist_only_where_their_conditions_hold() -> None:
    space = SearchSpace.from_json(ENTRIES)
    found = list(space.iter_configurations())
    assert len(found) == 3 * (1 + 1 + 2)
    assert {"optimiser": "adam", "model.units": 2} in found
    assert {"optimiser": "sgd", "momentum": 0.5, "model.units": 2} in found
    assert {"optimiser": "sgd", "momentum": 0.9, "nesterov": True, "model.units": 2} in found
    for configuration in found:
        space.check(configuration)
    assert space.count == 3 * 2 * 2 * 2  # an upper bound


def test_constraints_leave_configurations_out_unless_a_parameter_is_missing() -> None:
    space = SearchSpace.from_json(ENTRIES, ["momentum * model.units <= 1"])
    found = list(space.iter_configurations())
    assert {"optimiser": "adam", "model.units": 3} in found
    assert all(
        each["model.units"] == 1 or "momentum" not in each or each["momentum"] == 0.5
        for each in found
    )
    assert not space.allows({"optimiser": "sgd", "momentum": 0.5, "model.units": 3})


def test_a_space_survives_json_and_the_schema_accepts_it() -> None:
    space = SearchSpace.from_json(ENTRIES, ["model.units >= 2"])
    written = space.to_json()
    assert SearchSpace.from_json(written["parameters"], written["constraints"]) == space
    jsonschema.validate(written["parameters"], build_space_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"a": {"kind": "int", "low": 1}}, build_space_schema())


def test_mappings_become_arguments() -> None:
    space = SearchSpace.from_json({"net": {"kind": "mapping", "values": {"small": {"units": 8}}}})
    assert space.arguments({"net": "small"}) == {"net": {"units": 8}}


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"optimiser": "adam"}, "model.units: this configuration has no value"),
        ({"optimiser": "adam", "model.units": 1, "momentum": 0.5}, "momentum: does not exist"),
        ({"optimiser": "lbfgs", "model.units": 1}, "optimiser: 'lbfgs' is not a value"),
        (
            {"optimizer": "adam", "model.units": 1},
            "no parameter 'optimizer'; did you mean optimiser",
        ),
    ],
)
def test_a_configuration_of_another_space_is_refused(
    configuration: dict[str, Any], said: str
) -> None:
    space = SearchSpace.from_json(ENTRIES)
    assert not space.fits(configuration)
    with pytest.raises(ConfigError, match=said):
        space.check(configuration)


@pytest.mark.parametrize(
    ("parameters", "constraints", "said"),
    [
        ({}, [], "1 to 1,000 parameters"),
        ([], [], "expected parameters by name"),
        ({"a b": {"kind": "bool"}}, [], "'a b' is no name"),
        ({"a": {"kind": "bool", "when": "b"}}, [], "no parameter 'b'"),
        (
            {"a": {"kind": "bool", "when": "b"}, "b": {"kind": "bool", "when": "a"}},
            [],
            "a, b depend on each other",
        ),
        ({"a": {"kind": "bool", "when": 3}}, [], "space.a.when: expected an expression"),
        ({"a": {"kind": "bool"}}, ["b < 1"], "'b < 1': there is no parameter 'b'"),
        ({"a": {"kind": "bool"}}, ["1 < 2"], "names no parameter"),
        ({"a": {"kind": "bool"}}, ["a <"], "constraints.0: 'a <' is no expression"),
        ({"a": {"kind": "bool"}}, "a", "expected a list of expressions"),
    ],
)
def test_a_bad_space_is_refused_in_one_line(parameters: Any, constraints: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        SearchSpace.from_json(parameters, constraints)
    assert "\n" not in str(error.value)
