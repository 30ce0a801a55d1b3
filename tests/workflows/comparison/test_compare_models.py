"""Models that are there already, compared in one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnpipe as nn
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import silent
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.comparison.compare_models import _get_model_title, create_titles

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, np.ndarray]:
    inputs, truth = DigitsDataset().read(np.arange(300))
    return inputs["image"].astype(np.float32) / 16, truth["label"]


@pytest.fixture(scope="module")
def models(samples: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One that has seen all samples, and one that has every label wrong."""
    folder, (images, labels) = tmp_path_factory.mktemp("models"), samples
    wrong = (labels + 1) % 10
    return [
        write_onnx_classifier(folder / "right.onnx", images, labels),
        write_onnx_classifier(folder / "wrong.onnx", images, wrong),
    ]


@pytest.mark.slow
def test_each_has_its_own_accuracy(models: list[Path], samples: Any, tmp_path: Path) -> None:
    images, labels = samples
    means = np.stack([images[labels == digit].mean(0).ravel() for digit in range(10)])
    nearest = ((images.reshape(-1, 1, 64) - means) ** 2).sum(-1).argmin(1)
    output, plan = tmp_path / "written.json", ComparisonPlan(max_seconds=0.1, seed=3)
    found = nn.compare_models(
        models,
        data=samples,
        plan=plan,
        options=MeasureOptions(warmup_runs=2),
        output=output,
        title="right or wrong",
        command=("compare", "them"),
        progress=silent,
    )
    assert found.titles == ("right.onnx", "wrong.onnx")
    assert found.accuracy("right.onnx") == pytest.approx((nearest == labels).mean())
    assert found.accuracy("wrong.onnx") == pytest.approx(((nearest + 1) % 10 == labels).mean())
    assert not found.failures
    assert (found.reference, found.files, found.path) == (
        "right.onnx",
        dict(zip(found.titles, models, strict=True)),
        output,
    )
    assert not found.interrupted
    written = nn.Comparison.read(output)
    assert (written.title, written.command) == ("right or wrong", ("compare", "them"))
    assert (written.plan.seed, written.plan.warmup_runs) == (3, 2)
    assert written.created
    assert written.seconds > 0
    assert found.comparison.to_json() == written.to_json()


@pytest.mark.parametrize(
    ("count", "given", "told"),
    [
        (1, {}, "a comparison needs two models or more"),
        (2, {"titles": ["a"]}, "titles should be 2 different ones"),
        (2, {"titles": ["a", "a"]}, "titles should be 2 different ones"),
        (2, {"data": None}, "data is missing"),
    ],
)
def test_what_cannot_be_is_one_line(
    models: list[Path], samples: Any, count: int, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        nn.compare_models(models[:count], **{"data": samples, "progress": silent, **given})
    assert len(str(error.value).splitlines()) == 1


def test_titles_tell_files_apart() -> None:
    assert create_titles(["a/m.onnx", "b/n.onnx"]) == ["m.onnx", "n.onnx"]
    assert create_titles(["a/m.onnx", "b/m.onnx"]) == ["a/m.onnx", "b/m.onnx"]
    assert create_titles(["a/m.onnx"] * 3) == ["m.onnx", "m.onnx (2)", "m.onnx (3)"]


def test_a_model_in_memory_is_called_by_its_class() -> None:
    assert _get_model_title(DigitsDataset(), Path("folder/model.pt2")) == "DigitsDataset"
    for given in ("model.onnx", Path("model.onnx"), (None, "model.onnx")):
        assert _get_model_title(given, Path("folder/model.onnx")) == str(Path("folder/model.onnx"))


def test_results_and_a_single_candidate_are_not_measured(
    models: list[Path], tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    nn.Comparison("before", ComparisonPlan(), ()).write(result)
    with pytest.raises(
        ConfigError, match=r"result\.json is the result of a measurement, and this command measures"
    ):
        nn.compare_pipeline(result, [str(result)])
    settings = {
        "output": str(tmp_path / "build"),
        "dataset": "DigitsDataset",
        "model": {"class": "ONNXModel", "path": str(models[0]), "arguments": {"scale": 16}},
        "candidates": [{"title": "alone"}],
    }
    with pytest.raises(ConfigError, match=r"^a comparison needs two candidates or more"):
        nn.compare_pipeline(settings)
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings), "utf-8")
    with pytest.raises(
        ConfigError, match=r"settings\.json: a comparison needs two candidates or more"
    ):
        nn.compare_pipeline(path)
