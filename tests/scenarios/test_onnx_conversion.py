"""Whatever a framework does on its way to ONNX and back becomes one row, and wrong values never
look right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nnpipe.scenarios.onnx_conversion import main

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


@pytest.fixture(scope="module")
def survey(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[int, dict[tuple[str, int], dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("survey")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        argv = [
            str(folder / "onnx"),
            str(folder / "table.rst"),
            "--converters-list",
            "converters.ToyConversion",
        ]
        status = main(
            [
                *argv,
                "--opsets",
                "17",
                "18",
                "21",
                "--time-limit",
                "8",
                "--results",
                str(folder / "rows.json"),
            ]
        )
    rows = json.loads((folder / "rows.json").read_text("utf-8"))["rows"]
    return status, {(row["model"], row["opset"]): row for row in rows}, folder


@pytest.mark.slow
def test_a_good_export_is_the_same_and_its_file_is_kept(survey: Any) -> None:
    _, rows, folder = survey
    assert rows["after", 17]["verdict"] == "same"
    assert rows["after", 17]["failed"] == ""
    assert (folder / "onnx" / "ToyConversion-after-opset17.onnx").is_file()


def test_every_model_has_a_row_in_every_opset(survey: Any) -> None:
    assert len(survey[1]) == 9 * 3


def test_the_operator_set_that_the_file_needs_is_told(survey: Any) -> None:
    _, rows, folder = survey
    assert (rows["after", 18]["written"], rows["after", 21]["written"]) == (18, 18)
    assert "needs 18" in (folder / "table.rst").read_text("utf-8")


def test_wrong_values_are_different_and_decide_the_exit_status(survey: Any) -> None:
    status, rows, _ = survey
    assert rows["wrong", 17]["verdict"] == "different"
    assert rows["slightly-wrong", 17]["verdict"] == "close"
    assert status == 1


@pytest.mark.parametrize(
    ("model", "failed", "cause"),
    [
        ("crash", "crashed", "SIGSEGV"),
        ("hang", "crashed", "did not end within 8 s"),
        ("refused", "exported", "ZeroDivisionError: cannot divide by zero"),
        ("invalid", "valid", "NoSuchOperator"),
        ("renamed", "run", "the file takes y, the model x"),
    ],
)
def test_each_failure_is_one_row_that_says_what_happened(
    model: str, failed: str, cause: str, survey: Any
) -> None:
    row = survey[1][model, 17]
    assert row["failed"] == failed
    assert cause in row["cause"]
    assert cause in (survey[2] / "table.rst").read_text("utf-8")


def test_what_comes_back_is_compared_too(survey: Any) -> None:
    _, rows, _ = survey
    assert rows["good", 17]["imported"] == "different"
    assert rows["after", 17]["imported"] == "same"
    assert (rows["after", 18]["imported"], rows["after", 18]["import_cause"]) == (
        "none",
        "not that one",
    )


def test_the_table_is_written_as_rst_and_html(survey: Any) -> None:
    text = (survey[2] / "table.rst").read_text("utf-8")
    assert "Toys" in text
    page = (survey[2] / "table.html").read_text("utf-8")
    assert "slightly-wrong" in page.replace("<wbr>", "")


def test_a_conversion_that_cannot_name_its_models_is_one_row(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    argv = [
        str(tmp_path / "onnx"),
        str(tmp_path / "t.rst"),
        "--converters-list",
        "converters.BrokenConversion",
    ]
    assert main([*argv, "--results", str(out)]) == 0
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert [(row["model"], row["failed"], row["cause"]) for row in rows] == [
        ("(all)", "made", "RuntimeError: no models today")
    ]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["{t}/o", "{t}/t.html"], "must end in .rst"),
        (
            ["{t}/o", "{t}/t.rst", "--converters-list", "NoSuch"],
            "no ONNXConversion is called 'NoSuch'",
        ),
        (
            ["{t}/o", "{t}/t.rst", "--converters-list", "converters.AbsentConversion"],
            "surely_not_installed_anywhere",
        ),
        (
            [
                "{t}/o",
                "{t}/t.rst",
                "--opsets",
                "0",
                "--converters-list",
                "converters.ToyConversion",
            ],
            "below the minimum 1",
        ),
        (
            ["{t}/file/o", "{t}/t.rst", "--converters-list", "converters.ToyConversion"],
            "cannot be written",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(
    argv: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    assert main([word.format(t=tmp_path) for word in argv]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
