"""Command lines are read with the options of the classes that they name."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from nnpipe.__main__ import main as nnpipe
from nnpipe.core.arguments import argument
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import ComponentNotFound, ConfigError, NNPipeError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.scenarios._cli.command import Role, execute, join_options, parse

ROLES = (
    Role("COMPILER", ModelCompiler, "compiler", chain=True),
    Role("RUNTIME", Runtime, "runtime"),
)


def own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", type=Path)
    parser.add_argument("--model-path", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")


def read(*argv: str):  # type: ignore[no-untyped-def]
    return parse(argv, "test", "Test.", ROLES, own)


def test_classes_and_their_options_are_read() -> None:
    parsed = read(
        "toys.Halver",
        "toys.Runner",
        "out.json",
        "--threads",
        "3",
        "--strength",
        "2",
        "--model-path",
        "m",
    )
    assert parsed.make("RUNTIME").threads == 3
    assert [compiler.strength for compiler in parsed.make_all("COMPILER")] == [2]
    assert (parsed.options.output, parsed.options.model_path) == (Path("out.json"), Path("m"))


def test_own_options_may_come_first_and_positionals_later() -> None:
    parsed = read(
        "--model-path", "m", "--quick", "toys.Halver", "toys.Runner", "--threads", "2", "out.json"
    )
    assert parsed.options.quick
    assert parsed.make("RUNTIME").threads == 2


def test_a_chain_is_joined_by_commas_and_may_be_empty() -> None:
    chain = read("toys.Halver,toys.Halver", "toys.Runner", "o", "--model-path", "m")
    assert len(chain.make_all("COMPILER")) == 2
    assert read("none", "toys.Runner", "o", "--model-path", "m").make_all("COMPILER") == []


def test_one_flag_with_two_meanings_names_both_owners() -> None:
    with pytest.raises(
        ConfigError, match=r"--mode .* to Halver .*default fast.* another to Doubler .*safe"
    ):
        read("toys.Halver,toys.Doubler", "toys.Runner", "o", "--model-path", "m")


def test_a_flag_that_the_scenario_has_is_named_too() -> None:
    def clashing(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--threads", type=float)

    with pytest.raises(
        ConfigError, match=r"--threads means one thing to test .* another to Runner"
    ):
        parse(["none", "toys.Runner"], "test", "Test.", ROLES, clashing)


def test_a_positional_that_a_class_would_overwrite_is_named_too() -> None:
    with pytest.raises(
        ConfigError, match=r"--output means one thing to test .* another to Overwriter"
    ):
        read("none", "toys.Overwriter", "o", "--model-path", "m")


def test_a_parser_made_by_hand_takes_part() -> None:
    parsed = read("none", "toys.OwnWay", "o", "--model-path", "m", "--very-special", "x")
    assert parsed.make("RUNTIME").special == "x"


def test_help_shows_the_options_of_classes_whose_packages_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        read("toys.Halver", "toys.Runner", "-h")
    assert left.value.code == 0
    text = capsys.readouterr().out
    for part in ("--strength", "--threads", "threads to use (default: 1)", "--model-path", "Runs."):
        assert part in text


def test_help_without_classes_says_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("-h")
    assert "Name the classes before -h" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["none", "toys.Runner", "o"], "--model-path"),
        (["none", "toys.Runner", "--model-path", "m"], "output"),
        (["none", "toys.Runner", "o", "--model-path", "m", "--threads", "x"], "'x'"),
        (
            ["none", "toys.Runner", "o", "--model-path", "m", "--threads", "0"],
            "below the minimum 1",
        ),
        (["none", "toys.Runner", "o", "--model-path", "m", "--unknown", "1"], "--unknown"),
        ([], "COMPILER is missing"),
        (["none", "--model-path", "m"], "RUNTIME is missing"),
    ],
)
def test_a_bad_command_line_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(*argv)
    assert "\n" not in str(caught.value)


def test_an_unknown_class_is_answered_before_anything_else() -> None:
    with pytest.raises(ComponentNotFound, match=r"did you mean toys\.|no Runtime is called"):
        read("none", "toys.Runer", "o", "--model-path", "m")


def test_an_error_that_the_user_can_mend_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def body(argv: object) -> None:
        raise ConfigError("first\nsecond")

    assert execute(body, [], "test") == 2
    assert capsys.readouterr().err == "nnpipe test: first second\n"


def test_ctrl_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def body(argv: object) -> None:
        raise KeyboardInterrupt

    assert execute(body, [], "test") == 130
    assert capsys.readouterr().err == "nnpipe test: stopped\n"


def test_a_defect_keeps_its_traceback() -> None:
    def body(argv: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        execute(body, [], "test")
    assert not issubclass(ZeroDivisionError, NNPipeError)


@pytest.mark.parametrize("fails", [False, True])
def test_how_much_a_command_tells_holds_for_it_alone(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "nnpipe")
    levels = []

    def body(argv: object) -> None:
        read("none", "toys.Runner", "o", "--model-path", "m", "--verbosity", "error")
        levels.append(logging.getLogger("nnpipe").level)
        if fails:
            raise ConfigError("in vain")

    assert execute(body, [], "test") == (2 if fails else 0)
    assert [*levels, logging.getLogger("nnpipe").level] == [logging.ERROR, logging.WARNING]


class Plain(Component):
    """Calls it so."""

    precision: Literal["fp32", "int8"] = argument("fp32", help="numbers of one kind")


class Older(Component):
    """Calls it otherwise, and knows the usual name."""

    target: Literal["default", "int8"] = argument(
        "default", help="numbers of another kind", aliases=("precision",)
    )


@pytest.mark.parametrize("flag", ["--precision", "--target"])
def test_an_option_is_known_by_both_of_its_names(flag):
    parser = argparse.ArgumentParser()
    join_options(parser, "the command", [Older])
    assert Older.from_argparse(parser.parse_args([flag, "int8"])).target == "int8"
    assert "--precision {default,int8}, --target" in parser.format_help()


@pytest.mark.parametrize("classes", [(Plain, Older), (Older, Plain)])
def test_a_second_name_gives_way_to_the_option_that_has_it_for_its_own(classes):
    parser = argparse.ArgumentParser()
    join_options(parser, "the command", classes)
    given = parser.parse_args(["--precision", "int8"])
    assert (Plain.from_argparse(given).precision, Older.from_argparse(given).target) == (
        "int8",
        "default",
    )
    given = parser.parse_args(["--target", "int8"])
    assert (Plain.from_argparse(given).precision, Older.from_argparse(given).target) == (
        "fp32",
        "int8",
    )
    join_options(parser, "the command", classes)  # the same again is the same option


def test_files_may_use_either_name_but_not_both():
    assert (
        Older.from_json({"precision": "int8"})
        == Older.from_json({"target": "int8"})
        == Older(target="int8")
    )
    assert Older(target="int8").to_json() == {"target": "int8"}
    with pytest.raises(
        ConfigError, match="precision and target are the same; leave one of them out"
    ):
        Older.from_json({"precision": "int8", "target": "int8"})


@pytest.mark.parametrize(
    "name", ["TFLiteCompiler", "TorchToTFLite", "OpenVINOCompiler", "ExecuTorchCompiler"]
)
def test_int8_is_asked_for_by_one_name(name):
    compiler = find(name, ModelCompiler)
    parser = argparse.ArgumentParser()
    join_options(parser, "the command", [compiler])
    assert compiler.from_argparse(parser.parse_args(["--precision", "int8"])).needs_calibration()
    assert compiler.from_json({"precision": "int8"}).needs_calibration()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--num-epoch", "3"], r"there is no option --num-epoch; did you mean --num-epochs\?"),
        (["--num-epoch=3"], r"there is no option --num-epoch; did you mean --num-epochs\?"),
        (["--nothing-like-it"], r"there is no option --nothing-like-it \("),
    ],
)
def test_an_option_that_there_is_not_is_told_before_what_is_missing(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from nnpipe.scenarios import model_training

    assert model_training.main(["PyTorchDigitsCNN", "DigitsDataset", *given]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_options_and_commands_of_before_are_answered_with_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from nnpipe.__main__ import main
    from nnpipe.scenarios import inference_tester

    assert (
        inference_tester.main(
            ["ONNXModel", "TVMCompiler", "TVMRuntime", "DigitsDataset", "--opt-level", "3"]
        )
        == 2
    )
    assert (
        "--opt-level; TVMCompiler: TVM no longer has optimisation levels" in capsys.readouterr().err
    )
    assert main(["json_inference_tester"]) == 2
    assert (
        "there is no command 'json_inference_tester'; nnpipe run PIPELINE"
        in capsys.readouterr().err
    )


def test_a_class_in_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    text = "from nnpipe.core.runtime import Runtime\n\n\nclass Near(Runtime):\n    'Lies here.'\n"
    Path("lies_right_here.py").write_text(
        text + "    def _load(self, artifact): return None\n", "utf-8"
    )
    path = list(sys.path)
    assert nnpipe(["info", "lies_right_here.Near"]) == 0
    assert "Lies here." in capsys.readouterr().out
    assert sys.path == path
    assert nnpipe(["info", "lies_nowhere_else.Near"]) == 2
    assert "start nnpipe in the folder that holds lies_nowhere_else.py" in capsys.readouterr().err
