"""Measuring a model in one call, and by the commands that make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.progress import silent
from nnpipe.core.registry import find
from nnpipe.datasets.arrays import write_arrays
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.quantities import find_quantity
from nnpipe.measuring.run import Run
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios import inference_performance, inference_tester
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.measurement.measure import measure
from nnpipe.workflows.recipes import Recipe

pytest.importorskip("onnxruntime")

QUICK = MeasureOptions(measure_seconds=0.0)


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, np.ndarray]:
    inputs, truth = DigitsDataset().read(np.arange(240))
    return inputs["image"].astype(np.float32) / 16, truth["label"]


@pytest.fixture(scope="module")
def model(samples: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx_classifier(tmp_path_factory.mktemp("model") / "m.onnx", *samples)


def right(run: Run) -> np.ndarray:
    assert run.evaluation is not None
    return run.evaluation.arrays["truth"] == run.evaluation.arrays["predicted"]


def test_a_file_and_arrays(model: Path, samples: Any) -> None:
    images, labels = samples
    means = np.stack([images[labels == digit].mean(0).ravel() for digit in range(10)])
    nearest = ((images.reshape(-1, 1, 64) - means) ** 2).sum(-1).argmin(1) == labels
    found = measure(model, data=samples, calibration=samples, options=QUICK, progress=silent)
    assert found.run.title == "m.onnx"
    assert found.artifact is None
    assert found.figure("accuracy").value == pytest.approx(nearest.mean())
    assert find_quantity("latency_median").title in str(found)
    assert found._repr_html_().startswith("<table><caption>m.onnx")
    with pytest.raises(ConfigError, match="there is no figure 'accurracy'; did you mean accuracy"):
        found.figure("accurracy")


@pytest.mark.slow
def test_a_compiled_model_lies_where_it_was_wanted(
    model: Path, samples: Any, tmp_path: Path
) -> None:
    found = measure(
        model,
        data=samples,
        way="onnx-int8",
        options=QUICK,
        output=tmp_path / "r.json",
        progress=silent,
    )
    assert found.artifact is not None
    assert found.artifact.path == tmp_path / "r.onnx"
    assert Run.read(tmp_path / "r.json").artifact["sha256"] == found.artifact.sha256
    assert found.run.verification["verdict"] in ("same", "close")
    found.save(tmp_path / "again.json")
    assert Run.read(tmp_path / "again.json").title == "onnx-int8"


@pytest.mark.slow
def test_the_size_of_a_model_counts_the_files_of_its_weights(
    model: Path, samples: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    split = tmp_path / "m.onnx"
    onnx.save_model(
        onnx.load(model), split, save_as_external_data=True, location="m.data", size_threshold=256
    )
    Artifact.create(split, "onnx", ONNXModel(model_path=split).io)
    weights = (tmp_path / "m.data").stat().st_size
    assert weights > 2000
    found = measure(split, data=samples, options=QUICK, progress=silent)
    assert found.figure("size").value == split.stat().st_size + weights


def test_a_compiled_model_that_its_runtime_refuses_is_removed(
    model: Path, samples: Any, tmp_path: Path
) -> None:
    way = Recipe("broken", (find("toys.Breaker", ModelCompiler)(),), ONNXRuntime())
    place = tmp_path / "broken.onnx"
    with pytest.raises(
        CompileError, match=r"Breaker made a model from .* that ONNXRuntime refuses: .*Surprise"
    ):
        measure(model, data=samples, way=way, compiled_path=place, options=QUICK)
    assert not list(tmp_path.glob("broken.onnx*"))


def test_a_compiled_model_never_replaces_the_one_that_it_is_made_from(
    model: Path, samples: Any
) -> None:
    before = model.read_bytes()
    with pytest.raises(ConfigError, match="would replace"):
        measure(
            model, data=samples, way="onnx-int8", options=QUICK, output=model.with_suffix(".json")
        )
    assert model.read_bytes() == before


@pytest.mark.parametrize("compiled", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_command_gives_the_same(
    compiled: bool, model: Path, samples: Any, tmp_path: Path
) -> None:
    from nnpipe.compilers.onnx_quantizer import ONNXStaticQuantizer
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    images, labels = samples
    split = np.where(np.arange(len(labels)) < 80, 0, 2).astype(np.int8)
    dataset = write_arrays(
        tmp_path / "data", {"image": images}, labels, split=split, class_names=tuple("0123456789")
    )
    words = [
        "ArraysDataset",
        str(tmp_path / "c.json"),
        "--dataset-root",
        str(dataset.dataset_root),
        "--scale",
        "1",
        "--measure-seconds",
        "0",
    ]
    wrapper = ONNXModel(model_path=model, scale=1.0)
    if compiled:
        assert (
            inference_tester.main([str(model), "ONNXStaticQuantizer", "ONNXRuntime", *words]) == 0
        )
        way: str | Recipe = Recipe("", (ONNXStaticQuantizer(),), ONNXRuntime())
    else:
        assert inference_performance.main([str(model), *words]) == 0
        way = "as it is"
    found = measure((wrapper, model), data=dataset, way=way, options=QUICK, progress=silent).run
    by_command = Run.read(tmp_path / "c.json")
    assert found.title == by_command.title
    assert found.components == by_command.components
    assert found.artifact.get("sha256") == by_command.artifact.get("sha256")
    np.testing.assert_array_equal(right(found), right(by_command))
    assert found.verification == by_command.verification
    assert (found.command, by_command.command[:1]) == ((), ("nnpipe",))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": 5}, "a model is a file"),
        ({"data": None}, "data is missing"),
        ({"data": 5}, "data should be"),
        ({"way": "onnx-int9"}, "there is no way 'onnx-int9'"),
        ({"way": 3}, "measure: way takes a text or Recipe, not 3"),
        ({"way": Recipe("x", export="onnx")}, "x: a compiled model needs a runtime"),
        ({"options": {"pace": "30/s"}}, "measure: options takes MeasureOptions or None"),
        (
            {"options": MeasureOptions(pace="30/s"), "load": LoadOptions(scenario="single-stream")},
            "leave out --pace",
        ),
        (
            {"deployment": Deployment(NetworkProtocol(port=1))},
            "on a target a model runs in a runtime",
        ),
        ({"time_limit": "long"}, "time_limit takes a number, not 'long'"),
        (
            {"calibration": (np.zeros((2, 3)), np.zeros(2, int))},
            "should have the shape of those of data",
        ),
        ({"data": DigitsDataset(), "calibration": DigitsDataset()}, "leave calibration out"),
    ],
)
def test_what_cannot_be_is_one_line(
    wrong: dict[str, Any], said: str, model: Path, samples: Any
) -> None:
    given: dict[str, Any] = {"model": model, "data": samples, **wrong}
    with pytest.raises(ConfigError, match=said) as error:
        measure(given.pop("model"), **given, progress=silent)
    assert len(str(error.value).splitlines()) == 1
