"""Names in models, databases and files reach the terminal as text alone, from whichever command
shows them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from shared_data import shared_data
from tests.tools.installed import needs

from nnpipe.__main__ import main
from nnpipe.datasets.arrays import write_arrays
from nnpipe.datasets.image_files import ImageFolderDataset
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.workflows.candidates.stages import prepare_dataset

HOSTILE = "\x1b]0;title\x07\x1b[2Jx\u202ey\x9bz\r=1+1"
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
"""What terminals obey, besides line ends and tabs."""


def told(argv: Sequence[str], status: int = 0) -> str:
    """Run a command; return all that it wrote to the terminal."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        assert main(argv) == status, out.getvalue()
    return out.getvalue()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    needs("onnx")
    needs("onnxruntime")
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(shared_data("cases/hostile/escape_in_tensor_name.onnx"), "model.onnx")
    return "model.onnx"


def test_info_shows_no_escape_sequence_and_no_line_of_a_name(model: str) -> None:
    text = told(["info", model])
    assert not OBEYED.search(text)
    assert "gives       y\ufffdz  (1, 4) float32" in text


def test_explain_shows_and_writes_no_escape_sequence(model: str) -> None:
    assert not OBEYED.search(told(["explain", model, "--csv", "costs.csv"]))
    assert not OBEYED.search(Path("costs.csv").read_text("utf-8"))


def test_a_formula_as_the_name_of_an_operation_is_none_in_a_spreadsheet(model: str) -> None:
    import onnx

    changed = onnx.load(model)
    changed.graph.node[0].name = '=HYPERLINK("http://127.0.0.1")'
    onnx.save(changed, "formula.onnx")
    told(["explain", "formula.onnx", "--csv", "costs.csv"])
    (row,) = csv.DictReader(io.StringIO(Path("costs.csv").read_text("utf-8")))
    assert '\'=HYPERLINK("http://127.0.0.1")' in row.values()


@pytest.mark.slow
def test_verify_and_compare_show_and_report_no_escape_sequence(model: str) -> None:
    shutil.copyfile(model, "other.onnx")
    rng = np.random.default_rng(0)
    write_arrays(
        Path("data"), {"x": rng.standard_normal((8, 4)).astype(np.float32)}, rng.integers(0, 4, 8)
    )
    data = ["--dataset", "ArraysDataset", "--dataset-root", "data"]
    assert not OBEYED.search(
        told(["verify", model, "other.onnx", *data, "--output", "verify.json"])
    )
    assert not OBEYED.search(
        told(["compare", model, "other.onnx", *data, "--output", "c.json", "--max-seconds", "1"])
    )
    assert not OBEYED.search(told(["render_report", "c.json", HOSTILE, "c.rst"]))
    written = [
        Path(name).read_text("utf-8") for name in ("c.rst", "c.html", "verify.json", "c.json")
    ]
    assert [OBEYED.findall(text) for text in written] == [[], [], [], []]


def test_runs_show_no_escape_sequence_of_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    with RunDatabase("runs.sqlite") as database:
        run = database.runs.create(HOSTILE, Configuration({HOSTILE: {HOSTILE: HOSTILE}}))
        database.figures.put_statistics(run, {HOSTILE: 1.0})
        database.figures.put_history(run, HOSTILE, [{HOSTILE: 1.0}])
        database.runs.enter(run, "running")
        database.runs.enter(run, "failed", HOSTILE)
    for argv in (
        ["list"],
        ["list", "--columns", f"configuration.{HOSTILE}"],
        ["show", run],
        ["tree"],
    ):
        assert not OBEYED.search(told(["runs", *argv]))
    assert not OBEYED.search(told(["jobs", "list"]))


@pytest.mark.parametrize(
    "command",
    ["info", "explain", "run", "sweep", "search", "experiment", "gate", "devices", "jobs"],
)
def test_errors_show_no_escape_sequence_of_a_name(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a\x1b[2J.yaml").write_text(f'"{chr(92)}u202e": 1\n')
    more = {"gate": ["x"], "devices": [], "jobs": []}.get(command, [])
    words = {"devices": ["list", "--devices"], "jobs": ["submit"]}.get(command, [])
    assert not OBEYED.search(told([command, *words, "a\x1b[2J.yaml", *more], status=2))


def test_the_name_of_a_class_makes_no_line_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pictures = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name in ("bee\nan error of nnpipe", "wasp"):
        (tmp_path / name).mkdir()
        for number in range(4):
            pictures.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    with caplog.at_level("INFO", "nnpipe"):
        prepare_dataset(ImageFolderDataset(dataset_root=tmp_path))
    assert any("an error of nnpipe" in text for text in caplog.messages)
    assert not any("\n" in text for text in caplog.messages)
