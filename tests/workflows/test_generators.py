"""Models that generate text go through pipelines and comparisons."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from installed import needs
from tiny_generators import write_prompts, write_tiny_generator

from nnpipe.core.progress import silent
from nnpipe.datasets.texts import PromptsDataset
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.modelwrappers.files.text_generator import TransformersGenerator
from nnpipe.scenarios.testrun import main as try_models
from nnpipe.workflows.candidates.model_files import find_generator_wrapper
from nnpipe.workflows.comparison.compare_models import compare_models, compare_pipeline
from nnpipe.workflows.pipeline.run import run_pipeline

needs("onnxruntime_genai", "torch", "transformers", "tokenizers", "safetensors")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_generator(tmp_path_factory.mktemp("tiny"))


def test_a_pipeline_builds_measures_and_compares_them(tiny: Path, tmp_path: Path) -> None:
    def built(precision: str) -> dict[str, object]:
        compiler = {"class": "ONNXRuntimeGenAIBuilder", "arguments": {"precision": precision}}
        return {"title": precision, "compilers": [compiler], "runtime": "ONNXRuntimeGenAI"}

    settings = {
        "output": str(tmp_path / "out"),
        "dataset": {
            "class": "PromptsDataset",
            "arguments": {"dataset_root": str(write_prompts(tmp_path / "p.jsonl"))},
        },
        "model": {
            "class": "TransformersGenerator",
            "arguments": {"model_folder": str(tiny), "max_new_tokens": 4},
        },
        "measure": {"measure_seconds": 0.0, "warmup_runs": 1},
        "candidates": [{"title": "PyTorch"}, built("fp32"), built("int4")],
    }
    found = run_pipeline(settings, progress=silent)
    assert not found.failures
    verdicts = [found.run_of(title).verification["verdict"] for title in ("fp32", "int4")]
    assert verdicts == ["same", "close"]
    page = found.report.with_suffix(".html").read_text("utf-8")
    assert "Time to first token" in page or "TTFT" in page
    result = compare_pipeline(settings, plan=ComparisonPlan(max_seconds=1.0), progress=silent)
    assert result.comparison.parts == ("tpot", "ttft")
    assert "Perplexity" in result.table.header
    first = [run.series["inference"] for run in result.comparison.whole]
    assert len({len(series) for series in first}) == 1  # the same prompts for all


def test_folders_are_compared_by_their_wrappers(tiny: Path, tmp_path: Path) -> None:
    cls = find_generator_wrapper(tiny)
    assert cls is TransformersGenerator
    assert find_generator_wrapper(tmp_path) is None
    wrapper = TransformersGenerator(model_folder=tiny, max_new_tokens=2)
    found = compare_models(
        [wrapper, wrapper],
        titles=["one", "other"],
        data=PromptsDataset(dataset_root=write_prompts(tmp_path / "p.jsonl")),
        plan=ComparisonPlan(max_seconds=1.0),
        options=MeasureOptions(warmup_runs=1),
        progress=silent,
    )
    assert found.titles == ("one", "other")
    assert found.figure("one", "perplexity").value == pytest.approx(
        found.figure("other", "perplexity").value
    )


def test_a_testrun_shows_answers_side_by_side(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = write_prompts(tmp_path / "p.jsonl"), tmp_path / "out"
    options = ["--max-new-tokens", "3"]
    assert (
        try_models(
            [str(tiny), str(prompts), str(out), *options, "--most", "2", "--beside", str(tiny)]
        )
        == 0
    )
    with open(out / "output" / "answers.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["prompt"] for row in rows] == ["The quick brown", "How many"]
    assert rows[1]["reference"].strip() == "letters are in"
    assert all(
        row["answer (1)"] == row["answer (2)"] and int(row["tokens (1)"]) <= 3 for row in rows
    )
    assert "2 prompts, 0 of which the models answer differently come first" in (
        out / "index.html"
    ).read_text("utf-8")
    assert try_models(["TransformersGenerator", str(prompts), str(out), *options]) == 2
    assert "--model-folder is missing" in capsys.readouterr().err
