"""ONNX conversion with scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.onnx_conversion import ConversionCase, ONNXConversion
from nnpipe.core.tensors import Batch
from nnpipe.onnxconverters._samples import make_random_inputs

_FEATURES = 6
_SAMPLES = 120
_INPUT = "x"
# of ai.onnx.ml, the domain of trees and support vectors; runtimes do not support newer trees
_ML_OPSET = 3


class SklearnONNXConversion(ONNXConversion):
    """Exports fitted scikit-learn estimators with skl2onnx; there is no importer of ONNX for
    scikit-learn.
    """

    framework: ClassVar[str] = "scikit-learn"
    requires: ClassVar[tuple[str, ...]] = ("sklearn", "skl2onnx", "onnx")
    install: ClassVar[str] = "nnpipe[sklearn]"

    def models(self) -> Iterator[ConversionCase]:
        """Yield linear models, trees, support vector machines, neighbours, networks, and
        pipelines with a scaler.
        """
        from sklearn.base import is_regressor
        from sklearn.datasets import make_classification, make_regression
        from sklearn.ensemble import (
            GradientBoostingClassifier,
            RandomForestClassifier,
            RandomForestRegressor,
        )
        from sklearn.linear_model import LinearRegression, LogisticRegression
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MinMaxScaler, StandardScaler
        from sklearn.svm import SVC, SVR
        from sklearn.tree import DecisionTreeClassifier

        classes = make_classification(
            _SAMPLES,
            _FEATURES,
            n_informative=4,
            n_redundant=0,
            n_classes=3,
            n_clusters_per_class=1,
            random_state=0,
        )
        values = make_regression(_SAMPLES, _FEATURES, noise=1.0, random_state=0)
        estimators = {
            "logistic-regression": LogisticRegression(),
            "decision-tree": DecisionTreeClassifier(max_depth=5, random_state=0),
            "random-forest": RandomForestClassifier(20, max_depth=5, random_state=0),
            "gradient-boosting": GradientBoostingClassifier(n_estimators=10, random_state=0),
            "svm": SVC(random_state=0),
            "nearest-neighbours": KNeighborsClassifier(3),
            "mlp": MLPClassifier((8,), max_iter=20, random_state=0, tol=1.0),
            "scaled-logistic-regression": make_pipeline(StandardScaler(), LogisticRegression()),
            "scaled-svm": make_pipeline(MinMaxScaler(), SVC(random_state=0)),
            "linear-regression": LinearRegression(),
            "forest-regression": RandomForestRegressor(20, max_depth=5, random_state=0),
            "scaled-svr": make_pipeline(StandardScaler(), SVR()),
        }
        for name, estimator in estimators.items():
            data, truth = values if is_regressor(estimator) else classes
            # In float32, as it will run: a tree's threshold from float64 values might separate them
            # differently.
            estimator.fit(data.astype(np.float32), truth)
            yield ConversionCase(name, estimator, make_random_inputs({_INPUT: (_FEATURES,)}, 20))

    def run_model(self, model: Any, inputs: Batch) -> list[np.ndarray]:
        """Return predictions: values, or labels with probabilities or decision values."""
        data = inputs[_INPUT]
        labels = np.asarray(model.predict(data))
        for method in ("predict_proba", "decision_function"):
            if hasattr(model, method):
                return [labels, np.asarray(getattr(model, method)(data))]
        return [labels.reshape(len(labels), -1)]

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Export a model with a free batch size and scores as one tensor."""
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
        from sklearn.base import is_classifier

        options: dict[str, Any] = {}
        if is_classifier(case.model):
            options["zipmap"] = False
            if not hasattr(case.model, "predict_proba"):
                options["raw_scores"] = True
        found = convert_sklearn(
            case.model,
            initial_types=[(_INPUT, FloatTensorType([None, _FEATURES]))],
            target_opset={"": opset, "ai.onnx.ml": _ML_OPSET},
            options={id(case.model): options} if options else None,
        )
        write_bytes(path, found.SerializeToString())

    def import_model(self, path: Path) -> Any:
        """Raise ``NotSupported``: there is no importer."""
        raise NotSupported("nothing reads ONNX into scikit-learn")
