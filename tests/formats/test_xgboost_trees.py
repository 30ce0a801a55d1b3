"""Boosted trees in JSON that no XGBoost ever sees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.xgboost_trees import SQUARED_ERROR, read_trees


def model() -> dict:
    tree = {
        "left_children": [1, -1, -1],
        "right_children": [2, -1, -1],
        "split_indices": [1, 0, 0],
        "split_conditions": [0.5, 10.0, 20.0],
        "default_left": [1, 0, 0],
        "split_type": [0, 0, 0],
        "base_weights": [0.0, 10.0, 20.0],
        "loss_changes": [1.0, 0.0, 0.0],
        "sum_hessian": [2.0, 1.0, 1.0],
    }
    return {
        "version": [3, 2, 0],
        "learner": {
            "objective": {"name": SQUARED_ERROR},
            "learner_model_param": {
                "base_score": "[5E-1]",
                "num_class": "0",
                "num_feature": "2",
                "num_target": "1",
            },
            "gradient_booster": {
                "name": "gbtree",
                "model": {"tree_info": [0], "trees": [tree], "cats": "hostile"},
            },
        },
    }


def test_trees_are_read_and_nothing_else_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(model()))
    found = read_trees(tmp_path / "a.json")
    assert (found.features, found.classes, found.start, found.outputs) == (2, 0, (0.5,), (0,))
    np.testing.assert_array_equal(found.trees[0].left, [1, -1, -1])
    assert "hostile" not in json.dumps(found.document)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held["learner"]["gradient_booster"].update(name="dart"), "a model of dart"),
        (
            lambda held: held["learner"]["objective"].update(name="rank:ndcg"),
            "rank:ndcg; trees with",
        ),
        (
            lambda held: held["learner"]["learner_model_param"].update(num_feature="99999999999"),
            "damaged",
        ),
        (
            lambda held: held["learner"]["learner_model_param"].update(num_class="7"),
            "7 classes do not go with",
        ),
        (lambda held: held["learner"]["learner_model_param"].update(base_score="[nan]"), "damaged"),
        (
            lambda held: held["learner"]["gradient_booster"]["model"].update(tree_info=[1]),
            "damaged",
        ),
        (lambda held: held.clear(), "damaged"),
    ],
)
def test_other_models_and_damaged_ones_are_told_in_one_line(
    tmp_path: Path, change, said: str
) -> None:
    held = model()
    change(held)
    (tmp_path / "a.json").write_text(json.dumps(held))
    with pytest.raises(ArtifactError, match=said) as caught:
        read_trees(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"[" * 100_000, b"\x00" * 100, b"null", b'{"learner": 1}']
)
def test_what_is_no_model_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.json: damaged"):
        read_trees(tmp_path / "a.json")
