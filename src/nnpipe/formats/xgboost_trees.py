"""Boosted trees in XGBoost's JSON form, read without XGBoost.

Only what is checked here is handed on: :func:`read_trees` makes a new document of the values that
it knows, so nothing else of an untrusted file reaches XGBoost.  The form is described at
https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError

SOFTMAX, SQUARED_ERROR = "multi:softprob", "reg:squarederror"
"""The objectives that are read: probabilities of classes, and one number."""

_LARGEST = 64 << 20  # bytes; lists of Python take ten times as much
_MOST_TREES, _MOST_FEATURES, _MOST_CLASSES = 1 << 17, 1 << 20, 1 << 16
_ROOT = 2147483647  # the parent of a root
_OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    SOFTMAX: {"name": SOFTMAX, "softmax_multiclass_param": {}},
    SQUARED_ERROR: {"name": SQUARED_ERROR, "reg_loss_param": {"scale_pos_weight": "1"}},
}
_FLOATS, _NODES = (
    ("base_weights", "loss_changes", "sum_hessian", "split_conditions"),
    ("left_children", "right_children"),
)


@dataclass(frozen=True, eq=False)
class Tree:
    """A decision tree; a row goes left at a node if its feature is less than the threshold.

    Attributes
    ----------
    left, right
        The children of each node, ``(nodes,)`` int64; -1 for a leaf.
    feature
        The feature of each node, ``(nodes,)`` int64.
    threshold
        The threshold of each node, and the value of a leaf, ``(nodes,)`` float32.
    missing_left
        Whether a row without the feature goes left, ``(nodes,)``.
    """

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float32]
    missing_left: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trees:
    """A boosted model.

    Attributes
    ----------
    features, classes
        The number of features, and that of classes; 0 for one number.
    start
        The value of each output without trees.
    trees
        The trees.
    outputs
        The output that each tree adds to.
    document
        The checked content, as XGBoost reads it.
    """

    features: int
    classes: int
    start: tuple[float, ...]
    trees: tuple[Tree, ...]
    outputs: tuple[int, ...]
    document: Mapping[str, Any]


def read_trees(path: Path) -> Trees:
    """Return the model in a JSON file that XGBoost wrote.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, too large, or holds another kind of model.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ArtifactError(
                f"{path} has more than {_LARGEST >> 20} MiB, too many for boosted trees"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: no such model file: {error.strerror or error}") from None
    return parse_trees(content, str(path))


def parse_trees(content: bytes, name: str) -> Trees:
    """Return the model in the bytes of such a file; ``name`` is used in messages."""
    try:
        return _parse_model(parse_json(content))
    except _UnsupportedModel as error:
        raise ArtifactError(f"{name}: {error}") from None
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        OverflowError,
        RecursionError,
        AttributeError,
    ):
        raise ArtifactError(f"{name}: damaged, or no model of XGBoost in JSON") from None


class _UnsupportedModel(Exception):
    """A model of a kind that is not read."""


def _parse_model(held: Any) -> Trees:
    learner = held["learner"]
    booster, parameters = learner["gradient_booster"], learner["learner_model_param"]
    objective = learner["objective"]["name"]
    if booster["name"] != "gbtree" or objective not in _OBJECTIVES:
        raise _UnsupportedModel(
            f"a model of {str(booster['name'])[:40]} with {str(objective)[:40]}; trees with "
            f"{' or '.join(_OBJECTIVES)} are read"
        )
    features = _parse_integer(parameters["num_feature"], 1, _MOST_FEATURES)
    classes = _parse_integer(parameters["num_class"], 0, _MOST_CLASSES)
    outputs = max(classes, 1)
    if (objective == SOFTMAX) != (classes >= 2) or _parse_integer(
        parameters.get("num_target", "1"), 1, 1
    ) != 1:
        raise _UnsupportedModel(f"{classes} classes do not go with {objective}")
    start = tuple(map(float, str(parameters["base_score"]).strip("[]").split(",")))
    start = start * outputs if len(start) == 1 else start
    if len(start) != outputs or not all(map(math.isfinite, start)):
        raise ValueError
    model = booster["model"]
    info = [_parse_integer(number, 0, outputs - 1) for number in model["tree_info"]]
    if len(model["trees"]) != len(info) or len(info) > _MOST_TREES or len(info) % outputs:
        raise ValueError
    trees = tuple(_parse_tree(each, features) for each in model["trees"])
    per_round = outputs
    document = {
        "version": [_parse_integer(number, 0, 1000) for number in held["version"][:3]],
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "objective": _build_objective(objective, classes),
            "learner_model_param": {
                "base_score": f"[{','.join(f'{number:.9E}' for number in start)}]",
                "boost_from_average": "1",
                "num_class": str(classes),
                "num_feature": str(features),
                "num_target": "1",
            },
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(0, len(trees) + 1, per_round)),
                    "tree_info": info,
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                    "trees": [
                        _build_tree_document(number, each, tree, features)
                        for number, (each, tree) in enumerate(
                            zip(model["trees"], trees, strict=True)
                        )
                    ],
                },
            },
        },
    }
    return Trees(features, classes, start, trees, tuple(info), document)


def _build_objective(name: str, classes: int) -> dict[str, Any]:
    found = dict(_OBJECTIVES[name])
    return (
        found | {"softmax_multiclass_param": {"num_class": str(classes)}}
        if name == SOFTMAX
        else found
    )


def _parse_tree(held: Any, features: int) -> Tree:
    left, right, feature = (np.array(held[name], np.int64) for name in (*_NODES, "split_indices"))
    threshold = np.array(held["split_conditions"], np.float32)
    nodes = len(left)
    missing_left = np.array(held["default_left"], np.int64) != 0
    arrays = (left, right, feature, threshold, missing_left)
    if (
        not nodes
        or any(each.shape != (nodes,) for each in arrays)
        or any(held.get("split_type", ()))
    ):
        raise ValueError
    inner = left >= 0
    # Children have greater numbers than their parents, and one parent each: so there are no cycles.
    children = np.concatenate([left[inner], right[inner]])
    parents = np.concatenate([np.flatnonzero(inner)] * 2)
    fits = (
        bool(((right >= 0) == inner).all())
        and bool((children > parents).all())
        and bool((children < nodes).all())
        and len(np.unique(children)) == len(children) == nodes - 1
    )
    if (
        not fits
        or feature.min() < 0
        or feature.max() >= features
        or not np.isfinite(threshold).all()
    ):
        raise ValueError
    return Tree(left, right, feature, threshold, missing_left)


def _build_tree_document(number: int, held: Any, tree: Tree, features: int) -> dict[str, Any]:
    nodes = len(tree.left)
    parents = np.full(nodes, _ROOT, np.int64)
    inner = np.flatnonzero(tree.left >= 0)
    parents[tree.left[inner]] = parents[tree.right[inner]] = inner
    floats = {name: np.nan_to_num(np.array(held[name], np.float32)) for name in _FLOATS}
    if any(each.shape != (nodes,) for each in floats.values()):
        raise ValueError
    empty = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    return {
        **{name: each.tolist() for name, each in floats.items()},
        **{name: [] for name in empty},
        "id": number,
        "left_children": tree.left.tolist(),
        "right_children": tree.right.tolist(),
        "parents": parents.tolist(),
        "split_indices": tree.feature.tolist(),
        "split_type": [0] * nodes,
        "default_left": tree.missing_left.astype(int).tolist(),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(features),
            "num_nodes": str(nodes),
            "size_leaf_vector": "1",
        },
    }


def _parse_integer(value: Any, least: int, most: int) -> int:
    found = int(str(value))
    if not least <= found <= most:
        raise ValueError
    return found
