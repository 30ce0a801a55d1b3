"""A pipeline file with several models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.workflows.pipeline.file import Pipeline

pytest.importorskip("torch", reason="PyTorch is not installed")
ONNX: dict[str, Any] = {"title": "ONNX", "export": "onnx", "runtime": "ONNXRuntime"}


def pipeline(models: Any, *candidates: dict[str, Any], **rest: Any) -> Pipeline:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    settings = {
        "dataset": "DigitsDataset",
        "output": "out",
        "models": models,
        "candidates": list(candidates),
    }
    return Pipeline.from_settings(
        {name: value for name, value in {**settings, **rest}.items() if value is not None}
    )


SMALL = {"title": "Small one", "class": "PyTorchDigitsCNN", "training": {"num_epochs": 1}}
LARGE = {"title": "Large", "class": "PyTorchMobileNetV2", "path": "large.safetensors"}


def test_each_model_has_the_candidates_that_are_for_it() -> None:
    found = pipeline([SMALL, LARGE], {"title": "as trained", "models": ["Large"]}, ONNX)
    assert found.count == 3
    small, large = found.models
    assert [candidate.title for candidate in small.candidates] == ["Small one: ONNX"]
    assert [candidate.title for candidate in large.candidates] == [
        "Large: as trained",
        "Large: ONNX",
    ]
    assert (small.path, large.path) == (Path("out/small-one"), Path("large.safetensors"))
    assert small.training is not None
    assert large.training is None


@pytest.mark.parametrize(
    ("more", "makes"),
    [({}, True), ({"path": "weights"}, False), ({"training": {"num_epochs": 1}}, False)],
)
def test_a_path_is_needed_only_where_nothing_else_says_where_weights_come_from(
    more: dict[str, Any], makes: bool
) -> None:
    model = {
        "title": "m",
        "class": "TransformersGenerator",
        "arguments": {"model_folder": "tiny"},
        **more,
    }
    assert pipeline([model], {"title": "as it is"}).models[0].makes_weights is makes
    assert not pipeline([LARGE], {"title": "as it is"}).models[0].makes_weights


def test_titles_may_be_alike_where_models_are_not() -> None:
    found = pipeline(
        [SMALL, LARGE], {**ONNX, "models": ["Large"]}, {**ONNX, "models": ["Small one"]}
    )
    assert found.count == 2


@pytest.mark.parametrize(
    ("models", "candidates", "rest", "told"),
    [
        ([SMALL], [ONNX], {"model": SMALL}, "give either model, or models"),
        (None, [ONNX], {}, "give either model, or models"),
        ([], [ONNX], {}, "models: expected a list"),
        ([SMALL, SMALL], [ONNX], {}, "models: two are called 'Small one'"),
        (
            [SMALL, {**LARGE, "title": "small-one"}],
            [ONNX],
            {},
            "models: two are called 'small-one'",
        ),
        ([{"class": "PyTorchDigitsCNN"}], [ONNX], {}, "models.0: 'title' is missing"),
        (
            [SMALL],
            [{**ONNX, "models": ["Smal"]}],
            {},
            "candidates.0.models: no model is called 'Smal'; there are Small",
        ),
        ([SMALL], [{**ONNX, "models": []}], {}, "candidates.0.models: expected a list"),
        ([SMALL, LARGE], [ONNX, ONNX], {}, "two are called 'Small one: ONNX'"),
        (
            None,
            [{**ONNX, "models": ["x"]}],
            {"model": SMALL},
            "candidates.0.models: there is only one model",
        ),
        ([SMALL, {**LARGE, "path": 3}], [ONNX], {}, "models.1.path"),
        ([{**SMALL, "training": {"epochs": 3}}], [ONNX], {}, "models.0.training"),
        ([LARGE], [{**ONNX, "export": "keras"}], {}, "candidates.0 (Large: ONNX)"),
    ],
)
def test_a_slip_is_named_with_its_place(models: Any, candidates: Any, rest: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        pipeline(models, *candidates, **rest)
