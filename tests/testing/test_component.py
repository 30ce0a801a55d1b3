from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.testing.component import ComponentContract, build_command_line


class Kettle(Component):
    """Boils water."""

    requires: ClassVar[tuple[str, ...]] = ("no_such_framework|another.one",)

    litres: float = argument(1.5, help="how much water, at 100 % purity", minimum=0)
    lid: bool = argument(True, help="whether it is closed")
    colour: Literal["red", "green"] = argument("red", help="what it looks like")
    places: tuple[str, ...] = argument((), help="where it may stand")
    box: tuple[int, int] = argument((-1, 2), help="its corners")
    manual: Path | None = argument(None, help="what to read first")
    note: str = argument("", help="anything else")
    cups: int = argument(help="how many it serves")


class TestKettle(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return Kettle(
            litres=0.1 + 0.2,
            lid=False,
            colour="green",
            places=("kitchen", "office 2"),
            manual=Path("a/b.txt"),
            note="--lid",
            cups=4,
        )


class TestKettleWithDefaults(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return Kettle(cups=1)


def test_the_command_line_is_what_one_would_type() -> None:
    kettle = Kettle(cups=2, lid=False, places=("kitchen", "hall"))
    assert build_command_line(kettle) == [
        "--litres=1.5",
        "--no-lid",
        "--colour=red",
        "--places",
        "kitchen",
        "hall",
        "--box",
        "-1",
        "2",
        "--note=",
        "--cups=2",
    ]


class _Mute(Component):
    size: int = argument(1, help=" ")


class _Forgetful(Component):
    """Loses an argument."""

    size: int = argument(1, help="a size")

    def to_json(self) -> dict[str, Any]:
        return {}


class _Chatty(Component):
    """Shows more than one line."""

    def __repr__(self) -> str:
        return "_Chatty(\n)"


@pytest.mark.parametrize(
    ("component", "test"),
    [
        (_Mute(), "test_it_has_a_summary_and_help_for_every_argument"),
        (_Forgetful(size=2), "test_it_survives_json"),
        (_Forgetful(size=2), "test_its_description_leads_back_to_it"),
        (_Chatty(), "test_its_repr_is_one_line_that_names_class_and_arguments"),
    ],
)
def test_a_component_that_breaks_the_contract_is_caught(component: Component, test: str) -> None:
    with pytest.raises((AssertionError, LookupError)):
        getattr(ComponentContract(), test)(component)


def test_a_module_that_imports_a_framework_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_such_framework_kit.py").write_text("")
    (tmp_path / "eager_component.py").write_text(
        "import no_such_framework_kit\n"
        "from nnpipe.core.component import Component\n"
        "class Eager(Component):\n"
        "    '''Imports at once.'''\n"
        "    requires = ('no_such_framework_kit',)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    eager = importlib.import_module("eager_component")
    try:
        with pytest.raises(AssertionError, match="no_such_framework_kit is not installed here"):
            ComponentContract().test_module_and_help_need_no_framework(eager.Eager())
    finally:
        del sys.modules["eager_component"], sys.modules["no_such_framework_kit"]
