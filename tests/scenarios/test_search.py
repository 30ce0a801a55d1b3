"""``nnpipe search``: a file is checked, searched, gone on with, and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from tests.tools.installed import needs

from nnpipe.datasets.arrays import write_arrays
from nnpipe.scenarios.render_report import main as render
from nnpipe.scenarios.runs import main as runs
from nnpipe.scenarios.search import main
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.search.file import build_search_schema

needs("optuna")
needs("sqlalchemy")

MODULE = """
def trained(rate, units=16, epochs=1, report=None):
    for epoch in range(1, epochs + 1):
        report(epoch, units - rate)
    if units == 13:
        raise ValueError("unlucky")
    return {"accuracy": units - rate, "size": units}
"""
SEARCH: dict[str, Any] = {
    "title": "widths",
    "function": "own_search_module.trained",
    "arguments": {"epochs": 3},
    "space": {
        "rate": {"kind": "power", "low": -3, "high": -1},
        "units": {"kind": "int", "low": 1, "high": 64, "when": "rate < 0.05"},
    },
    "objectives": {"accuracy": "maximize"},
    "trials": 8,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NNPIPE_RUNS", raising=False)
    (tmp_path / "own_search_module.py").write_text(MODULE, "utf-8")
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(SEARCH), "utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_search_goes_on_with_its_trials_and_is_exported(folder: Path, capsys: Any) -> None:
    assert main(["search.yaml"]) == 0
    first = capsys.readouterr().out
    assert "8 finished" in first
    assert "going on" not in first
    assert (
        main(["search.yaml", "trials=11", "space.rate.high=0", "--optuna", "sqlite:///study.db"])
        == 0
    )
    second = capsys.readouterr().out
    assert "going on after 8 trials" in second
    assert "11 finished" in second
    assert (folder / "study.db").is_file()
    jsonschema.validate(SEARCH, build_search_schema())


def test_a_report_is_written_and_rendered_again(folder: Path, capsys: Any) -> None:
    needs("jinja2")
    assert main(["search.yaml", "--report", "page.html"]) == 0
    assert "report: page.html" in capsys.readouterr().out
    page = (folder / "page.html").read_text("utf-8")
    assert "What matters" in page
    assert "own_search_module.trained" in page
    assert render(["page.search.json", "Widths again", "again.md"]) == 0
    assert "# Widths again" in (folder / "again.md").read_text("utf-8")
    assert (
        runs(["export", "widths", "--report", "later.html", "--optuna", "sqlite:///study.db"]) == 0
    )
    assert (folder / "later.html").read_text("utf-8").count("<svg") == page.count("<svg")
    assert main(["search.yaml", "--report", "page.pdf"]) == 2
    assert "must end in .rst, .md, .html" in capsys.readouterr().err
    assert render(["page.search.json", "search.yaml", "Title", "x.html"]) == 2
    assert "makes a report by itself" in capsys.readouterr().err


def test_a_dry_run_shows_the_space(folder: Path, capsys: Any) -> None:
    assert main(["search.yaml", "--dry-run"]) == 0
    assert "infinitely many configurations, 8 trials" in capsys.readouterr().out
    assert not (folder / "runs.sqlite").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("space.units.kind=integer", "search.yaml: space.units: expected an object with a kind"),
        ("space.unit={kind: bool}", "space: trained takes no argument 'unit'; did you mean units?"),
        (
            "function=own_search_module.tuned",
            "function: own_search_module.tuned cannot be imported",
        ),
        ("arguments.units=3", "arguments: 'units' is a parameter of the space, too"),
        (
            "objectives.accuracy=most",
            "objectives.accuracy: expected minimize or maximize, found 'most'",
        ),
        ("sampler=best", "sampler: expected an object with a kind (random, grid, tpe"),
        (
            "objectives.size=minimize sampler=evolution",
            "sampler evolution has one objective, and there are 2",
        ),
        ("objectives.size=minimize pruner=asha", "prune_by: name one of the objectives"),
        ("pipeline=p.yaml", "give one of function: an import path, pipeline"),
        ("choose=accuracy", "choose: this key does not belong to a search with function"),
        ("sampling=tpe", "unknown key 'sampling'; did you mean sampler?"),
        (f"trials={10**38}", "trials: 10000000000"),
        (f"seed={10**38}", "seed: expected a whole number from 0 to below 2 to the power of 63"),
        ("constraints=[units < rates]", "no parameter 'rates'; did you mean rate?"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, change: str, said: str, capsys: Any) -> None:
    assert main(["search.yaml", *change.split(" ", change.count("=") - 1)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (folder / "runs.sqlite").exists()


def test_another_function_needs_another_title(folder: Path, capsys: Any) -> None:
    assert main(["search.yaml", "trials=1"]) == 0
    assert main(["search.yaml", "arguments.epochs=5"]) == 2
    assert (
        "has a search 'widths' of another function, pipeline or arguments"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_settings_of_a_pipeline_are_searched_by_its_metrics(folder: Path, capsys: Any) -> None:
    needs("onnxruntime", "onnx")
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(folder / "model.onnx", samples, labels)
    data = write_arrays(folder / "data", {"image": samples}, labels)
    pipeline = {
        "dataset": data.describe(),
        "model": {"class": "ONNXModel", "arguments": {"model_path": str(model), "scale": 1}},
        "measure": {"measure_seconds": 0.1},
        "candidates": [{"title": "compiled", "runtime": {"class": "ONNXRuntime", "arguments": {}}}],
    }
    search = {
        "pipeline": json.loads(json.dumps(pipeline)),
        "space": {
            "candidates.0.runtime.arguments.num_threads": {"kind": "int", "low": 1, "high": 2}
        },
        "objectives": ["latency_median", "accuracy"],
        "constraints": ["latency_median <= 1 s", "loss(accuracy) <= 0.5"],
        "sampler": "grid",
    }
    (folder / "pipeline_search.yaml").write_text(yaml.safe_dump(search), "utf-8")
    assert main(["pipeline_search.yaml"]) == 0
    told = capsys.readouterr().out
    assert "2 finished" in told
    assert "chosen by latency_median: trial " in told
    certificate = json.loads((folder / "build" / "search" / "certificate.json").read_text("utf-8"))
    assert [claim["holds"] for claim in certificate["claims"]] == [True, True]
    # The same trials, of which none can qualify: the command says so, and measures nothing again.
    assert (
        main(
            ["pipeline_search.yaml", "constraints=[latency_median <= 1 ns, loss(accuracy) <= 0.5]"]
        )
        == 1
    )
    assert "no candidate qualifies" in capsys.readouterr().out
    assert main(["pipeline_search.yaml", "title=x", "objectives=[latency]"]) == 2
    search["space"] = {"candidates.0.runtime.arguments.num_thread": {"kind": "bool"}}
    (folder / "wrong.yaml").write_text(yaml.safe_dump(search), "utf-8")
    assert main(["wrong.yaml"]) == 2
    assert "did you mean num_threads?" in capsys.readouterr().err
