"""Expressions over parameters compute what they say, and accept nothing else."""

from __future__ import annotations

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.searching.space import SpaceExpression

GIVEN = {"units": 64, "layers": 3, "optimiser": "sgd", "model.width": 0.5, "flag": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("units * layers <= 192", True),
        ("units * layers < 192", False),
        ("1 < layers <= 3", True),
        ('optimiser == "sgd" and not flag', False),
        ("optimiser in ['adam', 'sgd'] or nothing", True),
        ("optimiser not in ['adam']", True),
        ("model.width ** 2 + abs(-1) - min(units, 3) // 2", 0.25),
        ("flag == true and flag != false", True),
        ("max(units, layers) % 10", 4),
    ],
)
def test_an_expression_is_computed_as_in_python(text: str, value: object) -> None:
    assert SpaceExpression(text).value(GIVEN) == value


def test_its_names_are_those_of_parameters() -> None:
    assert SpaceExpression("model.width < 1 and flag == true").names == {"model.width", "flag"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("units <", "no expression"),
        ("__import__('os')", "no function '__import__'"),
        ("units.bit_length()", "not accepted"),
        ("[x for x in units]", "not accepted"),
        ("(lambda: 1)()", "not accepted"),
        ("''.join", "not accepted"),
        ("units[0]", "not accepted"),
        ("b'x' == units", "not accepted"),
        ("units if flag else 2", "not accepted"),
        ("1 +" * 2000 + "1", "too long"),
        ("-" * 100 + "1", "deep"),
    ],
)
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SpaceExpression(text)


@pytest.mark.parametrize(
    "text", ["optimiser / 2", "1 / (units - 64)", "9 ** 9 ** 9", "'a' * 9", "(-8) ** 0.5", "min()"]
)
def test_what_cannot_be_computed_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be computed"):
        SpaceExpression(text).value(GIVEN)
