"""Components: fields become arguments, wherever they come from."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.arguments import argument, list_arguments
from nnpipe.core.component import Component, is_overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.model import ModelWrapper


class Everything(Component):
    """Has a field of every kind."""

    count: int = argument(3, help="how many", minimum=1, maximum=10)
    rate: float = argument(0.5, help="how fast, in % of the whole", minimum=0.0)
    name: str = argument("x", help="what it is called")
    flag: bool = argument(False, help="whether")
    where: Path = argument(Path("here"), help="a folder")
    mode: Literal["fast", "safe"] = argument("fast", help="how")
    sizes: tuple[int, ...] = argument((), help="some sizes")
    shape: tuple[int, int] | None = argument(None, help="height and width")


class Needy(Component):
    requires = ("surely_not_installed_anywhere",)
    install = "nnpipe[needy]"

    must: int = argument(help="no default")


def from_command_line(cls: type[Component], *argv: str) -> Component:
    parser = argparse.ArgumentParser(parents=[cls.form_argparse()])
    return cls.from_argparse(parser.parse_args(argv))


class Renamed(Component):
    """Calls an option something else than its field."""

    count: int = argument(5, help="how many of another thing", flag="--other-count")


def test_fields_of_one_name_with_options_of_two_names_stay_apart() -> None:
    parser = argparse.ArgumentParser(parents=[Everything.form_argparse(), Renamed.form_argparse()])
    namespace = parser.parse_args(["--count", "7", "--other-count", "8"])
    assert Everything.from_argparse(namespace) == Everything(count=7)
    assert Renamed.from_argparse(namespace) == Renamed(count=8)


def test_defaults_come_from_the_fields() -> None:
    assert from_command_line(Everything) == Everything()


def test_the_command_line_gives_typed_values() -> None:
    made = from_command_line(
        Everything,
        "--count",
        "7",
        "--rate",
        "2",
        "--name",
        "n",
        "--flag",
        "--where",
        "a/b",
        "--mode",
        "safe",
        "--sizes",
        "1",
        "2",
        "3",
        "--shape",
        "4",
        "5",
    )
    assert made == Everything(
        count=7,
        rate=2.0,
        name="n",
        flag=True,
        where=Path("a/b"),
        mode="safe",
        sizes=(1, 2, 3),
        shape=(4, 5),
    )


def test_a_switch_can_be_turned_off() -> None:
    assert from_command_line(Everything, "--no-flag").flag is False  # type: ignore[attr-defined]


WHOLE = st.integers(-(2**63), 2**63 - 1)


@given(
    count=st.integers(1, 10),
    rate=st.floats(0, allow_nan=False, allow_infinity=False),
    name=st.text(),
    flag=st.booleans(),
    mode=st.sampled_from(["fast", "safe"]),
    sizes=st.lists(WHOLE).map(tuple),
    shape=st.none() | st.tuples(WHOLE, WHOLE),
)
def test_json_gives_the_same_component_back(**fields: object) -> None:
    made = Everything(**fields)  # type: ignore[arg-type]
    assert Everything.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, r"Everything\.count: 0 is below the minimum 1"),
        ({"count": 11}, r"Everything\.count: 11 is above the maximum 10"),
        (
            {"sizes": [2**63]},
            r"Everything\.sizes: 9223372036854775808 is not an integer of 64 bits",
        ),
        ({"count": "3"}, r"Everything\.count: '3' is not an integer"),
        ({"count": True}, r"Everything\.count: True is not an integer"),
        ({"count": None}, r"Everything\.count: nothing given"),
        ({"rate": float("nan")}, r"Everything\.rate: nan is not a usable number"),
        ({"rate": 10**400}, r"Everything\.rate: 10{58}… is not a usable number"),
        ({"count": "3" * 1000}, r"Everything\.count: '3{58}… is not an integer"),
        ({"mode": "slow"}, r"Everything\.mode: 'slow' is not one of fast, safe"),
        ({"sizes": 3}, r"Everything\.sizes: 3 is not a list"),
        ({"sizes": "12"}, r"Everything\.sizes: '12' is not a list"),
        ({"shape": [1]}, r"Everything\.shape: 1 values given, expected 2"),
        ({"cuont": 1}, r"Everything has no argument \"cuont\"; did you mean count\?"),
    ],
)
def test_a_bad_value_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Everything.from_json(arguments)


def test_a_missing_argument_is_named_with_its_meaning() -> None:
    with pytest.raises(ConfigError, match="Needy needs the argument 'must': no default"):
        Needy.from_json({})


def test_components_never_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Everything().count = 4  # type: ignore[misc]


def test_lists_become_tuples_and_strings_paths() -> None:
    made = Everything(sizes=[1, 2], where="x", rate=1)  # type: ignore[arg-type]
    assert (made.sizes, made.where, made.rate) == ((1, 2), Path("x"), 1.0)
    assert hash(made) == hash(Everything(sizes=(1, 2), where=Path("x"), rate=1.0))


def test_help_shows_every_argument_with_its_default() -> None:
    text = Everything.form_argparse().format_help()
    assert "Has a field of every kind." in text
    for declared in list_arguments(Everything):
        assert declared.flag in text
    assert "(default: 3)" in text
    assert "in % of the whole" in text


def test_a_missing_package_says_what_to_install() -> None:
    with pytest.raises(
        MissingDependency, match=r"surely_not_installed_anywhere.*pip install 'nnpipe\[needy\]'"
    ):
        Needy.check_installed()


def test_one_of_several_packages_is_enough() -> None:
    class Either(Component):
        requires = ("surely_not_installed_anywhere|json",)

    assert Either.missing() == ()


def test_a_forgotten_decorator_is_no_mistake_and_a_needless_one_is_named() -> None:
    with pytest.raises(TypeError, match="remove @dataclass"):

        class Child(Everything):
            __dataclass_fields__: dict[str, object] = {}


def test_a_type_that_no_command_line_can_give_is_named() -> None:
    class Odd(Component):
        thing: dict[str, int] = argument(None, help="?")

    with pytest.raises(ConfigError, match=r"Odd\.thing: .*cannot be an argument"):
        list_arguments(Odd)


def test_an_offered_method_is_seen_without_a_flag() -> None:
    class Silent(ModelWrapper):
        pass

    class Trainable(ModelWrapper):
        def train(self, dataset, options, progress=None):  # type: ignore[no-untyped-def,override]
            raise AssertionError

    assert not is_overridden(Silent, "train", ModelWrapper)
    assert is_overridden(Trainable, "train", ModelWrapper)


def test_interfaces_cannot_be_used_half_written() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Dataset()  # type: ignore[abstract]


def test_describe_names_class_and_arguments() -> None:
    described = Needy(must=1).describe()
    assert described == {"class": f"{__name__}.Needy", "arguments": {"must": 1}}
