"""Boosted trees of XGBoost for tables."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, MissingDependency, NotSupported
from nnpipe.core.files import write_bytes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.formats.xgboost_trees import SOFTMAX, SQUARED_ERROR, Trees, parse_trees, read_trees
from nnpipe.frameworks.training_curves import write_training_curves
from nnpipe.modelwrappers.tabular._tabular_model import (
    INPUT,
    TabularModel,
    encode_split,
    make_noise,
)

_OPSET, _ML_OPSET, _IR = 18, 3, 9


def convert_trees_to_onnx(trees: Trees, io: IOSpec) -> bytes:
    """Return an ONNX model of the trees with these inputs and outputs.

    Raises
    ------
    ImportError
        If ONNX is not installed.
    """
    import onnx
    from onnx import TensorProto, helper

    taken, given = io.inputs[0], io.outputs[0]
    sizes = [len(tree.left) for tree in trees.trees]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    nodes = np.concatenate([np.arange(size) for size in sizes] or [np.zeros(0, np.int64)])
    left, right, feature, threshold, missing = (
        np.concatenate([np.asarray(getattr(tree, name)) for tree in trees.trees] or [np.zeros(0)])
        for name in ("left", "right", "feature", "threshold", "missing_left")
    )
    leaves = left < 0
    outputs = np.repeat(np.array(trees.outputs, np.int64), sizes)
    ensemble = helper.make_node(
        "TreeEnsembleRegressor",
        [taken.name],
        ["margins"],
        domain="ai.onnx.ml",
        n_targets=len(trees.start),
        base_values=[float(number) for number in trees.start],
        nodes_treeids=owners.tolist(),
        nodes_nodeids=nodes.tolist(),
        nodes_featureids=feature.astype(np.int64).tolist(),
        nodes_values=np.where(leaves, 0, threshold).astype(np.float64).tolist(),
        nodes_modes=np.where(leaves, "LEAF", "BRANCH_LT").tolist(),
        nodes_truenodeids=np.where(leaves, 0, left).astype(np.int64).tolist(),
        nodes_falsenodeids=np.where(leaves, 0, right).astype(np.int64).tolist(),
        nodes_missing_value_tracks_true=missing.astype(np.int64).tolist(),
        target_treeids=owners[leaves].tolist(),
        target_nodeids=nodes[leaves].tolist(),
        target_ids=outputs[leaves].tolist(),
        target_weights=threshold[leaves].astype(np.float64).tolist(),
    )
    initializers = []
    if trees.classes:
        last = helper.make_node("Softmax", ["margins"], [given.name], axis=1)
    else:
        initializers.append(onnx.numpy_helper.from_array(np.array([-1], np.int64), "flat_shape"))
        last = helper.make_node("Reshape", ["margins", "flat_shape"], [given.name])
    graph = helper.make_graph(
        [ensemble, last],
        "trees",
        [helper.make_tensor_value_info(taken.name, TensorProto.FLOAT, ["batch", *taken.shape[1:]])],
        [helper.make_tensor_value_info(given.name, TensorProto.FLOAT, ["batch", *given.shape[1:]])],
        initializers,
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


_PACKAGES = ("xgboost-cpu", "xgboost")


class XGBoostTabularModel(TabularModel):
    """Gradient boosting over the columns of a table with XGBoost.

    Each epoch of a training adds a tree, for each class one.  Models are saved as XGBoost's JSON,
    which is read and checked here before XGBoost sees it; pickles are not read.  Exported to ONNX,
    the trees run in ONNX Runtime.
    """

    framework: ClassVar[str] = "XGBoost"
    weights_format: ClassVar[str] = "xgboost"
    exports: ClassVar[tuple[str, ...]] = ("onnx", "xgboost")
    requires: ClassVar[tuple[str, ...]] = ("xgboost",)
    install: ClassVar[str] = "nnpipe[boosting]"

    depth: int = argument(6, help="greatest depth of a tree", minimum=1, maximum=32)
    shrinkage: float = argument(
        0.3, help="factor of each tree (XGBoost's eta)", minimum=0.0, maximum=1.0
    )
    subsample: float = argument(
        0.9, help="part of the training rows for each tree", minimum=0.01, maximum=1
    )
    num_threads: int = argument(
        1, help="threads that may be used; 0 leaves it to XGBoost", minimum=0
    )

    def _make_parameters(self, seed: int) -> dict[str, Any]:
        found = {
            "objective": SOFTMAX if self.classifies_rows else SQUARED_ERROR,
            "max_depth": self.depth,
            "eta": self.shrinkage,
            "subsample": self.subsample,
            "nthread": self.num_threads or None,
            "seed": seed & 0x7FFFFFFF,
            "tree_method": "hist",
        }
        return found | ({"num_class": self.num_classes} if self.classifies_rows else {})

    def build(self) -> Any:
        """Return a model of one round that was fitted to noise, so that it has all of its parts."""
        import xgboost

        rows, label = make_noise(self.width, self.num_classes or 0)
        return xgboost.train(self._make_parameters(0), xgboost.DMatrix(rows, label=label), 1)

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read a model from XGBoost's JSON.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model.
        """
        self.check_installed()
        path = Path(path)
        trees = read_trees(path)
        if (trees.features, trees.classes) != (self.width, self.num_classes or 0):
            raise ArtifactError(
                f"{path}: a model of {trees.features} values and {trees.classes} classes, and this "
                f"one has {self.width} and {self.num_classes or 0}"
            )
        live.native = _create_booster(trees, self.num_threads)

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the model as XGBoost's JSON."""
        write_bytes(path, bytes(live.native.save_raw("json")))
        return self.artifact_of(path, self.weights_format, self.versions())

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model as ``"xgboost"`` (JSON) or ``"onnx"``."""
        if format == self.weights_format:
            return self.save(live, path)
        if format != "onnx":
            raise NotSupported(
                f"{type(self).__name__} cannot be exported as {format}; it can as onnx or xgboost"
            )
        trees = parse_trees(bytes(live.native.save_raw("json")), type(self).__name__)
        try:
            content = convert_trees_to_onnx(trees, self.io)
        except ImportError as error:
            raise MissingDependency(
                f"exporting {type(self).__name__} as onnx needs {error.name}, which is not "
                f"installed: "
                "pip install 'nnpipe[onnx]'"
            ) from None
        write_bytes(path, content)
        return self.artifact_of(path, format, self.versions())

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the version of XGBoost."""
        for package in _PACKAGES:
            try:
                return (("xgboost", version(package)),)
            except PackageNotFoundError:
                continue
        return ()

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the trees with XGBoost."""
        return _XGBoostSession(live.native, self.io)

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Fit the trees; the history holds the loss of each round."""
        import xgboost

        self.check_installed()
        given, truth = encode_split(self, dataset, "train")
        parts = [(xgboost.DMatrix(given, label=truth), "train")]
        if len(dataset.split("validation")):
            held, wanted = encode_split(self, dataset, "validation")
            parts.append((xgboost.DMatrix(held, label=wanted), "validation"))
        epochs: list[dict[str, float]] = []
        booster = xgboost.Booster(self._make_parameters(options.seed), [part for part, _ in parts])
        with write_training_curves(options.logdir) as add:
            for number in progress(range(options.num_epochs), "training", options.num_epochs):
                booster.update(parts[0][0], number)
                epochs.append(_parse_losses(booster.eval_set(parts, number)))
                add(number + 1, epochs[-1])
        live.native = booster
        return TrainingHistory(tuple(epochs))


def _parse_losses(told: str) -> dict[str, float]:
    """Return the losses in a line of XGBoost's,
    ``[0]\\ttrain-mlogloss:0.6\\tvalidation-mlogloss:0.7``.
    """
    found = [part.rpartition(":") for part in told.split("\t")[1:]]
    return {
        "validation_loss" if name.startswith("validation") else "loss": float(value)
        for name, _, value in found
    }


class _XGBoostSession(InferenceSession):
    def __init__(self, booster: Any, io: IOSpec) -> None:
        self.io = io
        self._booster = booster.copy()
        self._rows: npt.NDArray[Any] = np.empty(0)
        self._found: npt.NDArray[Any] = np.empty(0)

    def _put(self, batch: Batch) -> None:
        self._rows = np.array(batch[INPUT])

    def _run(self) -> None:
        self._found = self._booster.inplace_predict(self._rows)

    def _get(self) -> dict[str, npt.NDArray[Any]]:
        shape = (len(self._rows), *self.io.outputs[0].shape[1:])
        return {self.io.outputs[0].name: np.array(self._found, np.float32).reshape(shape)}


def _create_booster(trees: Trees, num_threads: int) -> Any:
    import xgboost

    found = xgboost.Booster({"nthread": num_threads or None})
    try:
        found.load_model(bytearray(json.dumps(trees.document).encode()))
    except xgboost.core.XGBoostError:
        raise ArtifactError(
            "XGBoost does not read the model, although its trees are sound"
        ) from None
    return found
