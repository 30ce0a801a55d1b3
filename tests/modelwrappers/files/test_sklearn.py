"""Estimators of scikit-learn as models."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ArtifactError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.modelwrappers.files.sklearn import SklearnModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios.inference_performance import main as inference_performance
from nnpipe.scenarios.inference_tester import main as inference_tester
from nnpipe.testing.modelwrapper import ModelWrapperContract

skops = ImportedWhenUsed("skops.io")
sklearn = ImportedWhenUsed("sklearn")


TRUSTED = ("sklearn.tree._tree.Tree", "sklearn.neural_network._stochastic_optimizers.AdamOptimizer")


def fitted(kind: str, classes: int = 3) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    generator = np.random.default_rng(0)
    features = generator.standard_normal((60, 4)).astype(np.float32)
    labels = (np.abs(features[:, 0] * 2).astype(int)) % classes
    made = {
        "forest": RandomForestClassifier(5, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "network": MLPClassifier((8,), max_iter=20, random_state=0, tol=1e9),
        "margins": LinearSVC(),
        "line": LinearRegression(),
        "regressing forest": RandomForestRegressor(5, random_state=0),
    }[kind]
    return made.fit(features, labels)


class TestSklearnModel(ModelWrapperContract):
    @pytest.fixture
    def wrapper(self, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
        path = tmp_path_factory.mktemp("source") / "model.skops"
        skops.dump(fitted("pipeline"), path)
        return SklearnModel(model_path=path, scale=2.0, class_count=3)


@pytest.mark.parametrize(
    "kind", ["forest", "pipeline", "network", "margins", "line", "regressing forest"]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_estimators_give_in_onnx_what_they_give_themselves(
    tmp_path: Path, kind: str, classes: int
) -> None:
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = tmp_path / "model.skops"
    skops.dump(fitted(kind, classes), path)
    model = SklearnModel(model_path=path, trusted_types=TRUSTED).open()
    batch: Batch = {"features": np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)}
    artifact = model.export(tmp_path / "model.onnx", "onnx")
    with model.session() as one, ONNXRuntime().load(artifact) as other:
        mine, its = one.infer(batch), other.infer(batch)
    name = model.io.outputs[0].name
    assert name == ("value" if kind in ("line", "regressing forest") else "scores")
    np.testing.assert_allclose(its[name], mine[name], rtol=1e-4, atol=1e-5, strict=True)


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(fitted("line")))
    with pytest.raises(
        ArtifactError, match=r"model\.pkl: a pickle, which could run code .* skops\.io\.dump"
    ) as caught:
        SklearnModel(model_path=path).open().load(path)
    assert "\n" not in str(caught.value)


class Stranger:
    """A type that nobody has vouched for."""

    n_features_in_ = 4

    def predict(self, features: Any) -> Any:
        return features


def test_types_that_skops_does_not_trust_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    skops.dump(Stranger(), path)
    with pytest.raises(
        ArtifactError, match=r"model\.skops: holds .*Stranger, which .* add --trusted-types"
    ):
        SklearnModel(model_path=path).open().load(path)


def test_what_is_no_fitted_estimator_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    skops.dump({"a": 1}, path)
    with pytest.raises(ArtifactError, match="holds a dict, not an estimator that has been fitted"):
        SklearnModel(model_path=path).open().load(path)


@pytest.mark.slow
def test_a_forest_of_digits_is_measured_by_command_line_alone(tmp_path: Path) -> None:
    from nnpipe.datasets.digits import DigitsDataset
    from nnpipe.measuring.run import Run

    dataset = DigitsDataset()
    dataset.prepare()
    inputs, truth = dataset.read(dataset.split("train"))
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(30, random_state=0).fit(
        inputs["image"].reshape(-1, 64), truth["label"]
    )
    path = tmp_path / "forest.skops"
    skops.dump(forest, path)
    out = tmp_path / "out.json"
    common = [str(out), f"--model-path={path}", "--measure-seconds=0", "--trusted-types", *TRUSTED]
    assert inference_performance(["SklearnModel", "DigitsDataset", *common]) == 0
    first = Run.read(out).evaluation.arrays
    assert (first["truth"] == first["predicted"]).mean() > 0.9
    assert inference_tester(["SklearnModel", "none", "ONNXRuntime", "DigitsDataset", *common]) == 0
    second = Run.read(out).evaluation.arrays
    assert (second["predicted"] == first["predicted"]).mean() > 0.99


@pytest.mark.parametrize("labels", [range(3), ["ash", "oak", "yew"]])
def test_an_onnx_file_that_gives_dictionaries_of_scores_is_taken_with_tensors(
    tmp_path: Path, labels: Any
) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    pytest.importorskip("onnx_ir", reason="onnx_ir is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from sklearn.linear_model import LogisticRegression

    from nnpipe.core.errors import ArtifactError
    from nnpipe.modelwrappers.files.onnx import ONNXModel
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    rows = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    estimator = LogisticRegression().fit(rows, np.array(list(labels))[rows[:, :3].argmax(axis=1)])
    path = tmp_path / "zipped.onnx"
    path.write_bytes(skl2onnx.to_onnx(estimator, rows[:1], target_opset=18).SerializeToString())
    model = ONNXModel(model_path=path).open()
    exported = model.export(tmp_path / "plain.onnx", "onnx")
    for session in (model.session(), ONNXRuntime().load(exported)):
        with session:
            found = session.infer({"X": rows})
        assert found.keys() == {"output_label", "probabilities"}
        np.testing.assert_allclose(
            found["probabilities"], estimator.predict_proba(rows), rtol=1e-4, atol=1e-6
        )
    with pytest.raises(
        ArtifactError, match=r"'output_probability' is a dictionary.*'zipmap': False"
    ):
        read_onnx(path).io()
