"""A value of a wrong kind, for every argument of every command, is answered with one line that
names the argument.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nnpipe.__main__ import main
from nnpipe.core.arguments import Kind
from nnpipe.scenarios._cli.index import list_scenarios
from nnpipe.scenarios._cli.option_types import Percentage, output_file, output_folder

# What names the classes whose options join those of the command.
CLASSES = {
    "compare": ["a.onnx", "b.onnx"],
    "inference_performance": ["PyTorchDigitsCNN", "DigitsDataset"],
    "inference_server": ["TLSProtocol", "ONNXRuntime"],
    "inference_tester": ["PyTorchDigitsCNN", "ONNXStaticQuantizer", "ONNXRuntime", "DigitsDataset"],
    "judge": ["AnomalyScoresDataset"],
    "mix": ["PyTorchDigitsCNN"],
    "model_training": ["PyTorchImageFolderCNN", "ImageFolderDataset"],
    "reduce": ["PyTorchDigitsCNN", "onnx"],
    "testrun": ["PyTorchDigitsCNN"],
    "verify": ["PyTorchDigitsCNN"],
}
# Options that are required: they are told to be missing before a positional is read.
REQUIRED = {
    "inference_performance": ["--model-path", "m"],
    "inference_tester": ["--model-path", "m"],
    "testrun": ["--model-path", "m", "--plugin", "p"],
}


@dataclass(frozen=True)
class Option:
    """An option or a positional argument of a command, and what reads it."""

    command: str
    action: argparse.Action

    def __str__(self) -> str:
        return f"{self.command} {self.name}"

    @property
    def name(self) -> str:
        return (
            self.action.option_strings[-1]
            if self.action.option_strings
            else str(self.action.metavar)
        )

    def wrong(self, text: str) -> list[str]:
        """Make a command line in which this one is wrong; required ones that are missing are
        told later than that.
        """
        given = [self.command, *CLASSES.get(self.command, ())]
        return [*given, f"{self.name}={text}"] if self.action.option_strings else [*given, text]


class Found(Exception):
    """Carries a parser out of a command."""


@cache
def options() -> tuple[Option, ...]:
    """Return every option of every command, as its parser has it once all classes have been
    named.
    """
    found = []
    for command in list_scenarios():
        made: list[argparse.ArgumentParser] = []

        def parsed(
            parser: argparse.ArgumentParser, *_: object, made: list[argparse.ArgumentParser] = made
        ) -> None:
            made.append(parser)
            raise Found

        with mock.patch.object(argparse.ArgumentParser, "parse_intermixed_args", parsed):
            with pytest.raises(Found):
                main([command, *(CLASSES.get(command) or ["x", "y", "z"])])
        found += [Option(command, action) for action in made[0]._actions if action.dest != "help"]
    return tuple(found)


def told(argv: list[str]) -> tuple[int, str]:
    """Run a command line that cannot work; return its status and the one line that it says."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(argv)
    lines = err.getvalue().strip().splitlines()
    assert len(lines) == 1, lines
    assert out.getvalue() == ""
    return status, lines[0]


def kinds() -> list[Option]:
    return [
        o
        for o in options()
        if isinstance(o.action.type, Kind) and o.action.type.item in (int, float)
    ]


def with_each(
    texts: Sequence[str], found: Sequence[Option], alike: Callable[[Option], object]
) -> list[Any]:
    """Pair options with texts; the quick run takes the first text for all, and each text for one
    option of those alike.

    Options that are read alike differ in their name alone, which the first text asks for.
    """
    first: dict[object, Option] = {}
    for option in found:
        first.setdefault(alike(option), option)
    quick = {id(option) for option in first.values()}
    return [
        pytest.param(
            option,
            text,
            id=f"{text}-{option}",
            marks=() if text == texts[0] or id(option) in quick else pytest.mark.slow,
        )
        for text in texts
        for option in found
    ]


def read_as(option: Option) -> object:
    kind = option.action.type
    return (kind.item, kind.optional, kind.many) if isinstance(kind, Kind) else type(kind)


def test_every_number_has_a_kind_and_bounds() -> None:
    """A bare ``int`` takes minus five seconds, and a bare ``float`` no number at all."""
    bare = [str(option) for option in options() if option.action.type in (int, float, bool)]
    assert bare == []


def test_every_output_is_known_to_be_writable_before_anything_begins() -> None:
    outputs = [
        o for o in options() if re.match(r"(OUT|SCRIPT)(DIR|\.\w+)?$", str(o.action.metavar))
    ]
    assert len(outputs) > 12
    assert [str(o) for o in outputs if o.action.type not in (output_file, output_folder)] == []


@pytest.mark.parametrize(
    ("option", "text"),
    with_each(
        ["many", "", "nan", "inf", "1e400", "0x10", "1,5", "-1e18", "[]", "5 6"], kinds(), read_as
    ),
)
def test_what_is_no_number_is_refused_by_name(
    option: Option, text: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = option.action.type
    assert isinstance(kind, Kind)
    if text == "-1e18" and kind.item is float and kind.minimum is None:
        pytest.skip("any finite number will do")
    status, line = told(option.wrong(text))
    assert status == 2
    assert option.name in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option", [o for o in options() if isinstance(o.action.type, Percentage)], ids=str
)
@pytest.mark.parametrize("text", ["2", "many", "%", "nan%", "inf%", "-300%", "2%%", "1e9%"])
def test_what_is_no_percentage_is_refused_by_name(option: Option, text: str) -> None:
    status, line = told(option.wrong(text))
    assert (status, option.name in line) == (2, True)


@pytest.mark.parametrize("option", [o for o in options() if o.action.choices], ids=str)
def test_what_is_no_choice_is_refused_with_the_choices(option: Option) -> None:
    status, line = told(option.wrong("none-of-these"))
    assert status == 2
    assert option.name.lower() in line.lower()
    assert str(next(iter(option.action.choices or ()))) in line


@pytest.mark.parametrize(
    ("option", "wrong"),
    with_each(
        ["file/x", "file/deep/er", "n" * 300, "taken", "/proc/nothing/x", "/dev/full/x"],
        [o for o in options() if o.action.type in (output_file, output_folder)],
        lambda option: option.action.type,
    ),
)
def test_what_cannot_be_written_is_known_at_once(
    option: Option, wrong: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "taken").touch() if option.action.type is output_folder else (
        tmp_path / "taken"
    ).mkdir()
    line = option.wrong(wrong)
    if not option.action.option_strings:  # positionals come in order
        before = [
            o for o in options() if o.command == option.command and not o.action.option_strings
        ]
        earlier = before[len(CLASSES.get(option.command, ())) : before.index(option)]
        classes, required = CLASSES.get(option.command, []), REQUIRED.get(option.command, [])
        line = [option.command, *classes, *("x" for _ in earlier), wrong, *required]
    status, said = told(line)
    assert status == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
    assert wrong[:20] in said


@pytest.mark.parametrize(
    "option", [o for o in options() if "CLASS" in str(o.action.metavar)], ids=str
)
@pytest.mark.parametrize(
    "text", ["", ".", "No.Such", "nnpipe", "nnpipe.core", "os.path", "1", "ü", "a" * 5000]
)
def test_what_is_no_class_is_refused(
    option: Option, text: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, line = told(option.wrong(text))
    assert status == 2
    assert len(line) < 700
