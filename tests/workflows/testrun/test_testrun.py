"""A plugin's test from Python: the same folder as the command's, and a result that says what
became of each step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.scenarios.testrun import main
from nnpipe.testing.model_files import write_onnx_classifier

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

PLUGIN = """
import numpy as np

def load_test_data(path):
    return np.load(path), 3

def process_model_output(model_input, model_output):
    if model_input[0, 2] == 1:
        raise ValueError("not this one")
    np.savetxt("output/found.csv", model_output.argmax(axis=1), fmt="%d", header="class", comments="")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, its data in three steps, and a plugin that fails in the second."""
    monkeypatch.chdir(tmp_path)
    inputs = np.eye(6, dtype=np.float32)
    write_onnx_classifier(Path("nearest.onnx"), inputs, np.arange(6))
    np.save("inputs.npy", inputs)
    Path("looking.py").write_text(PLUGIN, "utf-8")
    return tmp_path


def test_the_command_leaves_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = nn.testrun(
        "nearest.onnx", "inputs.npy", "mine", plugin="looking.py", as_is=True, keep_going=True
    )
    assert [step.title for step in found.failed_steps] == [found.steps[1].title]
    assert "not this one" in found.failed_steps[0].failure
    assert found.files == 2
    assert [
        (here / "mine" / "output" / f"step-{step}" / "found.csv").read_text().split()[1:]
        for step in (1, 3)
    ] == [["0", "1"], ["4", "5"]]
    argv = [
        "nearest.onnx",
        "inputs.npy",
        "theirs",
        "--plugin",
        "looking.py",
        "--as-is",
        "--keep-going",
    ]
    assert main(argv) == 1
    assert capsys.readouterr().out == str(found).replace("mine", "theirs") + "\n"
    records = [
        json.loads((here / name / "testrun.json").read_text("utf-8")) for name in ("mine", "theirs")
    ]
    assert records[0]["steps"] == records[1]["steps"] == [step.to_json() for step in found.steps]
    assert records[0]["facts"].keys() == records[1]["facts"].keys() == found.facts.keys()
    assert found.page.is_file()


def test_a_failing_step_is_an_error_and_leaves_nothing(here: Path) -> None:
    with pytest.raises(nn.NNPipeError, match="not this one"):
        nn.testrun(
            "nearest.onnx", "inputs.npy", "mine", plugin=here / "looking.py", runtime="ONNXRuntime"
        )
    assert not Path("mine").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "gone.onnx"}, "gone.onnx: no such"),
        ({"model": 5}, "a model is a file"),
        ({"data": 5}, "testrun: data takes a text or a path, not 5"),
        ({"output": "."}, ". holds something else than an earlier testrun"),
        ({"plugin": "gone.py"}, "gone.py"),
        ({"runtime": "NoSuchRuntime"}, "no Runtime is called 'NoSuchRuntime'"),
        ({"batch_size": 0}, "testrun: batch_size takes 1 or more, not 0"),
        ({"time_limit": -1.0}, "testrun: time_limit takes 0 or more"),
        ({"keep_going": "yes"}, "testrun: keep_going takes True or False, not 'yes'"),
    ],
)
def test_bad_values_are_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    usual: dict[str, Any] = {
        "model": "nearest.onnx",
        "data": "inputs.npy",
        "output": "mine",
        "plugin": "looking.py",
    }
    with pytest.raises(nn.NNPipeError) as error:
        nn.testrun(**{**usual, **given})
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not Path("mine").exists()
