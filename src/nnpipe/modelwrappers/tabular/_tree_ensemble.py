"""Boosted trees as an ONNX model with a ``TreeEnsembleRegressor``."""

from __future__ import annotations

import numpy as np

from nnpipe.core.tensors import IOSpec
from nnpipe.formats.xgboost_trees import Trees

_OPSET, _ML_OPSET, _IR = 18, 3, 9


def onnx_of_trees(trees: Trees, io: IOSpec) -> bytes:
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
        "TreeEnsembleRegressor", [taken.name], ["margins"], domain="ai.onnx.ml",
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
    )  # fmt: skip
    initializers = []
    if trees.classes:
        last = helper.make_node("Softmax", ["margins"], [given.name], axis=1)
    else:
        initializers.append(onnx.numpy_helper.from_array(np.array([-1], np.int64), "flat_shape"))
        last = helper.make_node("Reshape", ["margins", "flat_shape"], [given.name])
    graph = helper.make_graph(
        [ensemble, last], "trees",
        [helper.make_tensor_value_info(taken.name, TensorProto.FLOAT, ["batch", *taken.shape[1:]])],
        [helper.make_tensor_value_info(given.name, TensorProto.FLOAT, ["batch", *given.shape[1:]])],
        initializers,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
