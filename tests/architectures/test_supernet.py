"""Supernets: shared weights, the sandwich rule, inherited networks, and how well they are
ranked.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.architectures.conftest import SMALL, stripes

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.supernet import (
    SupernetRanking,
    build_shared_weights,
    kendall_tau,
    train_supernet,
)
from nnpipe.architectures.training import TrainingRecipe
from nnpipe.core.errors import ConfigError
from nnpipe.layers import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RECIPE = TrainingRecipe(epochs=6, batch=16)
TRAIN, VALIDATION = stripes(64, 0), stripes(64, 1)
ELASTIC = ArchitectureSpace.from_json({**SMALL, "channels": [4, 8], "cells": [1, 2]})


def test_a_network_takes_the_leading_part_of_every_shared_tensor() -> None:
    shared = build_shared_weights(ELASTIC, seed=0)
    images = torch.from_numpy(TRAIN["image"][:16])
    configuration = {
        "channels": 4,
        "cells": 1,
        "edge_0_1": "nor_conv_3x3",
        "edge_0_2": "none",
        "edge_1_2": "skip_connect",
    }
    weights = shared.inherited(configuration, images)
    wide = shared.inherited({**configuration, "channels": 8, "cells": 2}, images)
    assert set(weights) < set(wide)
    for name, value in weights.items():
        if "moving" not in name:
            assert np.array_equal(value, wide[name][tuple(map(slice, value.shape))])
    module = to_torch(ELASTIC.network(configuration), weights)
    assert torch.allclose(module.train()(images), shared.run(configuration, images), atol=1e-5)


@pytest.mark.slow
def test_every_network_of_a_supernet_learns_and_inherits(tmp_path: Path) -> None:
    found = train_supernet(ELASTIC, TRAIN, recipe=RECIPE, folder=tmp_path)
    rows = list(found.history.rows())
    for name in ("largest", "smallest", "random_0", "random_1"):
        assert rows[-1][f"data/train/{name}/loss"] < rows[0][f"data/train/{name}/loss"]
    assert found.network(ELASTIC.get_extreme(-1)).accuracy(VALIDATION) > 0.8
    again = train_supernet(ELASTIC, TRAIN, recipe=RECIPE)
    configuration = ELASTIC.sample(np.random.default_rng(3))
    one, other = (each.network(configuration).weights for each in (found, again))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    resumed = train_supernet(ELASTIC, TRAIN, recipe=RECIPE, folder=tmp_path)
    assert resumed.network(configuration).accuracy(VALIDATION) == found.network(
        configuration
    ).accuracy(VALIDATION)


def test_the_quality_of_its_ranking_is_told() -> None:
    found = train_supernet(ELASTIC, TRAIN, recipe=TrainingRecipe(epochs=2, batch=16))
    networks = [
        ELASTIC.get_extreme(0),
        ELASTIC.get_extreme(-1),
        ELASTIC.sample(np.random.default_rng(0)),
    ]
    ranking = found.measure_ranking(networks, TRAIN, VALIDATION, TrainingRecipe(epochs=2, batch=16))
    assert len(ranking.inherited) == len(ranking.alone) == 3
    assert str(ranking).startswith("3 networks: accuracy ")
    with pytest.raises(ConfigError, match="expected at least 3 to rank, found 2"):
        found.measure_ranking(networks[:2], TRAIN, VALIDATION, RECIPE)


def test_the_rank_correlation_is_kendalls() -> None:
    assert SupernetRanking((0.1, 0.2, 0.3), (0.5, 0.6, 0.9)).kendall == pytest.approx(1)
    # Of ten pairs, seven agree and one does not; each side has one tie: (7 - 1) / sqrt(9 * 9).
    assert kendall_tau([1, 2, 2, 4, 5], [3, 1, 4, 4, 5]) == pytest.approx(2 / 3)
    assert math.isnan(kendall_tau([1, 1], [1, 2]))


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        (
            {"cell": {"operations": ["skip_connect"], "output": "concatenate"}, "channels": [4, 8]},
            {},
            "channels: with the output concatenate, networks of different channels cannot share "
            "weights",
        ),
        ({}, {"random_networks": -1}, "random_networks: expected 0 to 64, found -1"),
        ({"input_name": "picture"}, {}, "train: there is no 'picture'; there are: image, label"),
    ],
)
def test_what_does_not_fit_is_refused(changes: Any, arguments: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        train_supernet(ArchitectureSpace.from_json({**SMALL, **changes}), TRAIN, **arguments)
