"""From a model and data to a table, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs

import nnpipe as nn
from nnpipe.core.progress import silent
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.comparison.compare import _get_model_name, _select_recipes
from nnpipe.workflows.recipes import AS_IS
from nnpipe.workflows.user_inputs.data import convert_to_arrays
from nnpipe.workflows.user_inputs.inputs import import_model


def digits() -> tuple[np.ndarray, np.ndarray]:
    inputs, truth = DigitsDataset().read(np.arange(1797))
    return inputs["image"].astype(np.float32).transpose(0, 3, 1, 2) / 16, truth["label"]


@pytest.fixture(scope="module")
def network() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, y = (torch.from_numpy(array[:1200]) for array in digits())
    torch.manual_seed(0)
    found = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )
    optimiser = torch.optim.Adam(found.parameters(), 3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(found(x), y).backward()
        optimiser.step()
    return found.eval()


def share_right(network: Any, x: np.ndarray, y: np.ndarray) -> float:
    import torch

    with torch.no_grad():
        return float((network(torch.from_numpy(x)).argmax(1).numpy() == y).mean())


@pytest.mark.slow
def test_a_file_and_arrays(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    x, y = digits()
    source = write_onnx_classifier(tmp_path / "nearest.onnx", x[:1200], y[:1200])
    means = np.stack([x[:1200][y[:1200] == digit].mean(0).ravel() for digit in range(10)])
    x, y = x[1200:1300], y[1200:1300]
    nearest = ((x.reshape(-1, 1, 64) - means) ** 2).sum(-1).argmin(1)
    result = nn.compare(
        source,
        data=(x, y),
        calibration=(x[:50], y[:50]),
        ways=["onnx-int8"],
        max_seconds=0.1,
        folder=tmp_path / "out",
        progress=silent,
    )
    assert (result.titles, result.reference) == (("as it is", "onnx-int8"), "as it is")
    assert result.comparison.title == "Ways to ship nearest.onnx"
    assert result.files["as it is"].name == "nearest.onnx"
    assert result.files["onnx-int8"].parent == tmp_path / "out"
    assert result.files["onnx-int8"].name.startswith("01-")
    assert result.accuracy("as it is") == pytest.approx((nearest == y).mean())
    assert not result.failures
    assert "onnx-int8" in str(result) == repr(result)
    assert result._repr_html_().count("<tr>") == 3
    best = result.best(accuracy_loss=0.5, by="size")
    assert best.title in result.titles
    assert "accuracy_loss <= 50 %" in str(best)
    model = best.save(tmp_path / "ship")
    assert {"choice.json", "model.onnx", "result.json"} <= {
        path.name for path in model.parent.iterdir()
    }
    with pytest.raises(
        nn.ConfigError, match="no candidate surely satisfies all constraints"
    ) as caught:
        result.best("size <= 1 B")
    assert "onnx-int8: size <= 1 B: fails" in str(caught.value)


@pytest.mark.slow  # a dozen processes that start PyTorch
@pytest.mark.timeout(600)
def test_a_module_and_arrays(network: Any, tmp_path: Path) -> None:
    x, y = digits()
    x, y = x[1200:], y[1200:]
    result = nn.compare(
        network,
        data=(x, y),
        calibration=(x[:50], y[:50]),
        ways=["onnx", "onnx-int8"],
        max_seconds=1,
        folder=tmp_path,
        progress=silent,
    )
    assert result.titles == ("as it is", "onnx", "onnx-int8")
    assert result.accuracy("as it is") == share_right(network, x, y)
    assert result.accuracy("onnx") == share_right(network, x, y)
    assert not result.failures
    assert "onnx-int8" in str(result) == repr(result)
    assert result._repr_html_().count("<tr>") == 4
    best = result.best(accuracy_loss=0.05, by="size")
    assert best.title == "onnx-int8"
    assert "accuracy_loss <= 5 %" in str(best)
    model = best.save(tmp_path / "ship")
    assert sorted(path.name for path in model.parent.iterdir()) == [
        "choice.json",
        "model.onnx",
        "model.onnx.json",
        "result.json",
    ]
    again = nn.compare(model, data=(x, y), ways=["onnx"], max_seconds=1, progress=silent)
    assert again.reference == "as it is"
    with pytest.raises(
        nn.ConfigError, match="no candidate surely satisfies all constraints"
    ) as caught:
        result.best("size <= 1 kB")
    assert "onnx-int8: size <= 1 kB: fails" in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_gives_the_same_accuracies(network: Any, tmp_path: Path) -> None:
    from nnpipe.scenarios.compare import main

    x, y = digits()
    result = nn.compare(
        network,
        data=(x[1200:], y[1200:]),
        ways=["onnx", "onnx-int8", "openvino-int8", "tflite-int8"],
        max_seconds=5,
        folder=tmp_path,
        progress=silent,
    )
    assert not result.failures
    files = [
        str(path)
        for title, path in result.files.items()
        if title != "as it is" and path.suffix != ".openvino"
    ]
    written = tmp_path / "again.json"
    assert (
        main(
            [
                *files,
                "--dataset",
                "ArraysDataset",
                "--dataset-root",
                str(tmp_path / "data"),
                "--output",
                str(written),
                "--max-seconds",
                "2",
            ]
        )
        == 0
    )
    again = {run.title: run for run in nn.Comparison.read(written).runs}
    for title, path in result.files.items():
        if path.name in again:
            evaluation = again[path.name].evaluation
            assert evaluation is not None
            right = float(np.mean(evaluation.arrays["truth"] == evaluation.arrays["predicted"]))
            assert right == result.accuracy(title)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_of_keras_and_batches_of_tensorflow() -> None:
    keras, tf = (
        pytest.importorskip("keras", reason="Keras is not installed"),
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed"),
    )
    x, y = digits()
    x = x.transpose(0, 2, 3, 1)
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x[:1200], y[:1200], epochs=3, verbose=0)
    data = tf.data.Dataset.from_tensor_slices((x[1200:], y[1200:])).batch(64)
    result = nn.compare(
        model, data=data, ways=["tflite", "tflite-int8"], max_seconds=1, progress=silent
    )
    assert result.titles == ("as it is", "tflite", "tflite-int8")
    assert result.accuracy("as it is") == result.accuracy("tflite")


def test_the_usual_ways_that_fit_are_taken_by_default_and_none_twice(tmp_path: Path) -> None:
    for package in ("onnxruntime", "openvino", "torch", "tensorflow", "ai_edge_litert"):
        needs(package)
    x, y = digits()
    models = [
        import_model(
            write_onnx_classifier(tmp_path / "nearest.onnx", x, y),
            tmp_path,
            convert_to_arrays((x, y), silent),
        )[0]
    ]
    found = _select_recipes(models, None, 1)
    titles = ["onnx", "onnx-int8", "openvino", "openvino-int8", "tflite", "tflite-int8"]
    assert [each.title for each in found] == [AS_IS, *titles]
    assert [each.runtime is None for each in found] == [True, *[False] * len(titles)]
    assert [each.title for each in _select_recipes(models, [AS_IS, "onnx"], 1)] == [AS_IS, "onnx"]
    with pytest.raises(
        nn.ConfigError, match="two ways are called 'onnx'; give each a title of its own"
    ):
        _select_recipes(models, ["onnx", nn.Recipe("onnx", (), ONNXRuntime())], 1)
    with pytest.raises(nn.NNPipeError, match=r"^keras: "):
        _select_recipes(models, ["onnx", "keras"], 1)
    with pytest.raises(nn.ConfigError, match="ways should be a list of at least one"):
        nn.compare("nearest.onnx", data=(x, y), ways=[], progress=silent)


def test_a_comparison_is_called_like_its_model() -> None:
    assert [_get_model_name(each) for each in ("a/b.onnx", Path("a/b.onnx"), DigitsDataset())] == [
        "b.onnx"
    ] * 2 + ["DigitsDataset"]


def test_a_data_set_of_ours_and_wrong_arguments(network: Any) -> None:
    x, y = digits()
    for wrong, said in (
        ({"model": 5}, "a model is a file"),
        ({"ways": "onnx"}, "ways takes a sequence of a text or Recipe"),
        ({"ways": ["onnx-int9"]}, "there is no way 'onnx-int9'"),
        ({"ways": ["onnx", "onnx"]}, "two ways are called 'onnx'"),
        ({"data": 5}, "data should be"),
        ({"calibration": (x[:, :, :4], y)}, "should have the shape of those of data"),
        ({"confidence": 2}, "confidence"),
    ):
        given: dict[str, Any] = {"model": network, "data": (x, y), "ways": ["onnx"], **wrong}
        with pytest.raises(nn.ConfigError, match=said):
            nn.compare(given.pop("model"), **given, progress=silent)
