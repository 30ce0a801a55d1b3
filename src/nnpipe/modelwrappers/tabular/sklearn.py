"""Estimators of scikit-learn for tables."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import show_shape
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.sklearn_estimators import (
    EstimatorSession,
    convert_estimator_to_onnx,
    find_estimator_io,
    read_estimator,
)
from nnpipe.frameworks.training_curves import write_training_curves
from nnpipe.modelwrappers.tabular._tabular_model import TabularModel, encode_split, make_noise

_LEAST = 1e-15  # a probability whose logarithm is taken


class SklearnTabularModel(TabularModel):
    """A linear model or a random forest over the columns of a table with scikit-learn.

    Each epoch of a training adds a tree to a forest, and is one pass of stochastic gradient descent
    for a linear model. Models are saved by skops.  A forest is loaded only with ``trusted_types``
    ``sklearn.tree._tree.Tree``, because a damaged tree can crash the process.
    """

    framework: ClassVar[str] = "scikit-learn"
    weights_format: ClassVar[str] = "skops"
    exports: ClassVar[tuple[str, ...]] = ("onnx", "skops")
    requires: ClassVar[tuple[str, ...]] = ("sklearn", "skops")
    install: ClassVar[str] = "nnpipe[sklearn]"

    estimator: Literal["linear", "forest"] = argument("linear", help="kind of estimator")
    depth: int = argument(12, help="greatest depth of a tree of a forest", minimum=1, maximum=64)
    trusted_types: tuple[str, ...] = argument(
        (),
        help=(
            "types that a file may hold beside those that skops trusts by default, such as "
            "sklearn.tree._tree.Tree"
        ),
    )

    def import_framework(self) -> None:
        """Import the modules that read estimators."""
        import skops.io  # noqa: F401

    def _create_estimator(self, seed: int) -> Any:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
        from sklearn.linear_model import SGDClassifier, SGDRegressor

        seed &= 0x7FFFFFFF
        if self.estimator == "forest":
            kind = RandomForestClassifier if self.classifies_rows else RandomForestRegressor
            return kind(1, max_depth=self.depth, random_state=seed, warm_start=True)
        if self.classifies_rows:
            return SGDClassifier(loss="log_loss", random_state=seed)
        return SGDRegressor(random_state=seed)

    def build(self) -> Any:
        """Return an estimator that was fitted to noise, so that it has all of its parts."""
        rows, label = make_noise(self.width, self.num_classes or 0)
        return self._fit_further(self._create_estimator(0), rows, label, 1)

    def _fit_further(
        self, estimator: Any, rows: npt.NDArray[Any], truth: npt.NDArray[Any], epoch: int
    ) -> Any:
        if self.estimator == "forest":
            return estimator.set_params(n_estimators=epoch).fit(rows, truth)
        if self.classifies_rows:
            return estimator.partial_fit(rows, truth, classes=np.arange(self.num_classes or 0))
        return estimator.partial_fit(rows, truth)

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read an estimator from a skops file.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, holds other types than trusted ones, or belongs to
            another model.
        """
        self.check_installed()
        path = Path(path)
        found = read_estimator(path, self.trusted_types)
        io = find_estimator_io(found, path)
        if (io.inputs[0].shape, io.outputs[0].shape) != (
            self.io.inputs[0].shape,
            self.io.outputs[0].shape,
        ):
            raise ArtifactError(
                f"{path}: an estimator from {show_shape(io.inputs[0].shape)} to "
                f"{show_shape(io.outputs[0].shape)}, and this model goes from "
                f"{show_shape(self.io.inputs[0].shape)} to {show_shape(self.io.outputs[0].shape)}"
            )
        live.native = found

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the estimator by skops."""
        from skops.io import dumps

        write_bytes(path, bytes(dumps(live.native)))
        return self.artifact_of(path, self.weights_format, self.versions())

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the estimator as ``"skops"`` or ``"onnx"``; for the latter, skl2onnx is needed."""
        if format == self.weights_format:
            return self.save(live, path)
        if format != "onnx":
            raise NotSupported(
                f"{type(self).__name__} cannot be exported as {format}; it can as onnx or skops"
            )
        write_bytes(path, convert_estimator_to_onnx(live.native, self.io, type(self).__name__))
        return self.artifact_of(path, format, (*self.versions(), ("skl2onnx", version("skl2onnx"))))

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions of scikit-learn and skops."""
        return (("scikit-learn", version("scikit-learn")), ("skops", version("skops")))

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the estimator."""
        from copy import deepcopy

        return EstimatorSession(deepcopy(live.native), self.io, Path(type(self).__name__))

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Fit the estimator; the history holds the loss of each epoch."""
        self.check_installed()
        given, truth = encode_split(self, dataset, "train")
        parts = {"loss": (given, truth)}
        if len(dataset.split("validation")):
            parts["validation_loss"] = encode_split(self, dataset, "validation")
        # Gradient descent needs targets of a common size.
        centre, size = (
            (0.0, 1.0) if self.classifies_rows else (float(truth.mean()), float(truth.std()) or 1.0)
        )
        scaled = (
            truth if self.classifies_rows or self.estimator == "forest" else (truth - centre) / size
        )
        found = self._create_estimator(options.seed)
        epochs: list[dict[str, float]] = []
        with write_training_curves(options.logdir) as add:
            for number in progress(range(options.num_epochs), "training", options.num_epochs):
                found = self._fit_further(found, given, scaled, number + 1)
                factor = (centre, size) if scaled is not truth else (0.0, 1.0)
                epochs.append(
                    {
                        name: self._compute_loss(found, *part, *factor)
                        for name, part in parts.items()
                    }
                )
                add(number + 1, epochs[-1])
        if scaled is not truth:
            found.coef_, found.intercept_ = found.coef_ * size, found.intercept_ * size + centre
        live.native = found
        return TrainingHistory(tuple(epochs))

    def _compute_loss(
        self,
        estimator: Any,
        rows: npt.NDArray[Any],
        truth: npt.NDArray[Any],
        centre: float,
        size: float,
    ) -> float:
        """Return the cross entropy, or the root of the mean squared error."""
        if self.classifies_rows:
            scores = np.asarray(estimator.predict_proba(rows), np.float64)
            return float(-np.log(np.maximum(scores[np.arange(len(rows)), truth], _LEAST)).mean())
        return float(np.sqrt(((estimator.predict(rows) * size + centre - truth) ** 2).mean()))
