"""Models of tables: the encoding travels with their files, and trees in ONNX give what XGBoost
gives.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK

from nnpipe.core.category_code import encode_category
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.preprocessing import preprocess
from nnpipe.core.tensors import TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.synthetic import SyntheticTabularDataset
from nnpipe.datasets.tabular import TabularRegressionDataset
from nnpipe.modelwrappers.tabular.pytorch_tabular import PyTorchTabularNetwork
from nnpipe.modelwrappers.tabular.sklearn import SklearnTabularModel
from nnpipe.modelwrappers.tabular.xgboost import XGBoostTabularModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.modelwrapper import ModelWrapperContract

DATA = SyntheticTabularDataset(num_samples=300, gaps=0.1)


class TestXGBoostTabularModel(ModelWrapperContract):
    repeats = RULES_OF_SESSIONS
    learning_rate = 0.3

    @pytest.fixture
    def dataset(self) -> SyntheticTabularDataset:
        return DATA

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        pytest.importorskip("xgboost", reason="XGBoost is not installed")
        return XGBoostTabularModel(depth=3).for_dataset(DATA.spec)


class TestSklearnTabularModel(ModelWrapperContract):
    repeats = RULES_OF_SESSIONS

    @pytest.fixture
    def dataset(self) -> SyntheticTabularDataset:
        return DATA

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        pytest.importorskip("skops", reason="skops is not installed")
        return SklearnTabularModel().for_dataset(DATA.spec)


class TestPyTorchTabularNetwork(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS

    @pytest.fixture
    def dataset(self) -> SyntheticTabularDataset:
        return DATA

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        pytest.importorskip("torch", reason="PyTorch is not installed")
        return PyTorchTabularNetwork(hidden=(8,)).for_dataset(DATA.spec)


def accuracy(wrapper: ModelWrapper, session: Any) -> float:
    inputs, truth = DATA.read(DATA.split("test"))
    found = DATA.evaluate(wrapper.postprocess(session.infer(wrapper.preprocess(inputs))), truth)
    return DATA.task.primary.compute(found)


def test_trees_learn_the_table_and_run_in_onnx_runtime_with_their_encoding(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="XGBoost is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    wrapper = XGBoostTabularModel().for_dataset(DATA.spec)
    with wrapper.open() as model:
        history = model.train(DATA, TrainingOptions(num_epochs=20))
        assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]
        artifact = model.export(tmp_path / "trees.onnx", "onnx")
        with model.session() as own, ONNXRuntime().load(artifact) as other:
            rows = (
                np.random.default_rng(0)
                .normal(0, 2, (64, *wrapper.io.inputs[0].shape[1:]))
                .astype(np.float32)
            )
            np.testing.assert_allclose(
                other.infer({"features": rows})["scores"],
                own.infer({"features": rows})["scores"],
                atol=2e-6,
            )
            assert accuracy(wrapper, own) >= 0.7
            meaning = artifact.meaning
            assert meaning is not None
            inputs = DATA.read(np.arange(9))[0]
            given = preprocess(
                "a file", inputs, artifact.io.inputs, {each.name: each for each in meaning.inputs}
            )
            np.testing.assert_array_equal(given["features"], wrapper.preprocess(inputs)["features"])


def test_a_number_is_predicted_and_its_trees_run_in_onnx_runtime(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="XGBoost is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    lines = [f"{n},{'ab'[n % 2]},{100 + n * (1 + n % 2)}" for n in range(200)]
    (tmp_path / "a.csv").write_text("size,kind,price\n" + "\n".join(lines))
    data = TabularRegressionDataset(dataset_root=tmp_path / "a.csv")
    wrapper = XGBoostTabularModel(depth=4).for_dataset(data.spec)
    with wrapper.open() as model:
        model.train(data, TrainingOptions(num_epochs=40))
        artifact = model.export(tmp_path / "trees.onnx", "onnx")
        inputs, truth = data.read(data.split("test"))
        with model.session() as own, ONNXRuntime().load(artifact) as other:
            mine, its = (each.infer(wrapper.preprocess(inputs)) for each in (own, other))
        np.testing.assert_allclose(its["value"], mine["value"], rtol=1e-5)
    assert data.task.metric("r2").compute(data.evaluate(mine, truth)) > 0.95


@pytest.mark.parametrize("estimator", ["linear", "forest"])
def test_estimators_predict_numbers_and_classes_as_in_onnx(tmp_path: Path, estimator: Any) -> None:
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    (tmp_path / "a.csv").write_text(
        "size,kind,price\n" + "\n".join(f"{n},{'ab'[n % 2]},{9e5 + 1e4 * n}" for n in range(200))
    )
    prices = TabularRegressionDataset(dataset_root=tmp_path / "a.csv")
    for data, least in ((DATA, 0.55), (prices, None)):
        wrapper = SklearnTabularModel(estimator=estimator).for_dataset(data.spec)
        with wrapper.open() as model:
            model.train(data, TrainingOptions(num_epochs=20))
            artifact = model.export(tmp_path / "model.onnx", "onnx")
            inputs, truth = data.read(data.split("test"))
            with model.session() as own, ONNXRuntime().load(artifact) as other:
                mine, its = (each.infer(wrapper.preprocess(inputs)) for each in (own, other))
        name = wrapper.io.outputs[0].name
        np.testing.assert_allclose(its[name], mine[name], rtol=1e-4, atol=1e-5)
        found = data.evaluate(mine, truth)
        assert data.task.metric("accuracy" if least else "r2").compute(found) > (least or 0.9)


def test_another_data_set_is_refused() -> None:
    wrapper = XGBoostTabularModel().for_dataset(DATA.spec)
    assert json.loads(wrapper.column_encoding or "")["arguments"]["categories"] == [
        "3=blue",
        "3=green",
        "3=grey",
        "3=red",
    ]
    with pytest.raises(ConfigError, match="made for 4 columns, and the data set has 5"):
        XGBoostTabularModel(columns=4, num_classes=2).for_dataset(
            replace(DATA.spec, inputs=(TensorSpec("features", (None, 5), "float64"),))
        )
    with pytest.raises(ConfigError, match="column_encoding should be JSON"):
        XGBoostTabularModel(column_encoding="[1]")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: tree["left_children"].__setitem__(0, 0), "damaged"),
        (lambda tree: tree["left_children"].__setitem__(0, 10**9), "damaged"),
        (lambda tree: tree["split_indices"].__setitem__(0, 10**6), "damaged"),
        (lambda tree: tree["split_conditions"].__setitem__(0, float("nan")), "damaged"),
        (lambda tree: tree["default_left"].append(0), "damaged"),
        (lambda tree: tree["split_type"].__setitem__(0, 1), "damaged"),
        (lambda tree: tree.clear(), "damaged"),
    ],
)
def test_damaged_trees_never_reach_xgboost(tmp_path: Path, change: Any, said: str) -> None:
    pytest.importorskip("xgboost", reason="XGBoost is not installed")
    wrapper = XGBoostTabularModel(depth=2).for_dataset(DATA.spec)
    with wrapper.open() as model:
        model.train(DATA, TrainingOptions(num_epochs=2))
        model.save(tmp_path / "trees.json")
    held = json.loads((tmp_path / "trees.json").read_text())
    change(held["learner"]["gradient_booster"]["model"]["trees"][0])
    (tmp_path / "changed.json").write_text(json.dumps(held))
    with pytest.raises(ArtifactError, match=f"changed.json: {said}") as caught:
        wrapper.open(tmp_path / "changed.json")
    assert "\n" not in str(caught.value)


def test_categories_have_the_same_codes_everywhere() -> None:
    assert encode_category("red") == 205119453184404.0
