"""Initialisers, regularisers and constraints: their numbers against Keras's, and reading what
Keras wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

from nnpipe import layers as nn
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary import initialisers, regularisers
from nnpipe.layers.vocabulary.field_table import Raw, map_subclasses, read_object, write_object
from nnpipe.layers.vocabulary.initialisers import Initialiser

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("tensorflow")
keras = ImportedWhenUsed("keras")

INITIALISERS = [
    initialisers.Zeros(),
    initialisers.Ones(),
    initialisers.Constant(1.5),
    initialisers.Identity(1.2),
    initialisers.Orthogonal(0.7),
    initialisers.RandomNormal(0.3, 0.2),
    initialisers.TruncatedNormal(-0.1, 0.5),
    initialisers.RandomUniform(-0.2, 0.4),
    initialisers.VarianceScaling(2.0, "fan_out", "uniform"),
    initialisers.VarianceScaling(1.0, "fan_avg", "untruncated_normal"),
    initialisers.VarianceScaling(),
    initialisers.GlorotNormal(),
    initialisers.GlorotUniform(),
    initialisers.HeNormal(),
    initialisers.HeUniform(),
    initialisers.LecunNormal(),
    initialisers.LecunUniform(),
]
REGULARISERS = [
    regularisers.L1(0.1),
    regularisers.L2(0.2),
    regularisers.L1L2(0.1, 0.3),
    regularisers.OrthogonalRegularizer(0.2),
    regularisers.OrthogonalRegularizer(0.2, "columns"),
]
CONSTRAINTS = [
    regularisers.MaxNorm(0.5),
    regularisers.MaxNorm(0.5, (0, 1)),
    regularisers.MinMaxNorm(0.5, 1.5, 0.7, 1),
    regularisers.UnitNorm(),
    regularisers.NonNeg(),
]


def in_keras(module: str, value: Any) -> Any:
    return keras.saving.deserialize_keras_object(write_object(f"keras.{module}", value))


@pytest.mark.parametrize("initialiser", INITIALISERS, ids=str)
@pytest.mark.parametrize("shape", [(60, 40), (3, 3, 20, 30)])
def test_initialisers_are_distributed_as_keras_s(
    initialiser: Initialiser, shape: tuple[int, ...]
) -> None:
    if isinstance(initialiser, initialisers.Identity) and len(shape) > 2:
        pytest.skip("the identity is a matrix")
    mine = initialiser.draw(shape, np.random.default_rng(1))
    its = np.asarray(in_keras("initializers", initialiser)(shape))
    assert mine.shape == its.shape
    assert mine.dtype == its.dtype == np.float32
    scale = max(float(its.std()), 1e-6)
    # 2,400 values or more: the mean varies by 2 % of the deviation, the deviation by 1.5 %,
    # quantiles by 5 %.
    np.testing.assert_allclose(mine.mean(), its.mean(), atol=0.12 * scale)
    np.testing.assert_allclose(mine.std(), its.std(), atol=0.08 * scale)
    for share in (0.02, 0.25, 0.75, 0.98):
        np.testing.assert_allclose(
            np.quantile(mine, share), np.quantile(its, share), atol=0.25 * scale
        )
    np.testing.assert_allclose(np.abs(mine).max(), np.abs(its).max(), atol=1.2 * scale)


def test_an_orthogonal_weight_is_orthogonal() -> None:
    drawn = initialisers.Orthogonal(2.0).draw((40, 30), np.random.default_rng(0))
    np.testing.assert_allclose(drawn.T @ drawn, 4 * np.eye(30), atol=1e-4)
    wide = initialisers.Orthogonal().draw((3, 40), np.random.default_rng(0))
    np.testing.assert_allclose(wide @ wide.T, np.eye(3), atol=1e-5)


def test_a_seed_of_its_own_repeats() -> None:
    seeded = initialisers.HeNormal(seed=5)
    one, two = (seeded.draw((4, 4), np.random.default_rng(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_an_lstm_begins_by_remembering() -> None:
    x = nn.Input((5, 3))
    from nnpipe.layers.graph.weights import initial_weights

    bias = initial_weights(nn.network(x, nn.LSTM(x, 2, name="m")))["m/bias"]
    np.testing.assert_array_equal(bias, [0, 0, 1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
def test_regularisers_add_what_keras_s_add(regulariser: regularisers.Regulariser) -> None:
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("float32")
    its = float(in_keras("regularizers", regulariser)(keras.ops.convert_to_tensor(x)))
    assert float(regulariser.penalty(torch.from_numpy(x))) == pytest.approx(its, rel=1e-5)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_constraints_allow_what_keras_s_allow(constraint: regularisers.Constraint) -> None:
    x = np.random.default_rng(2).normal(size=(5, 4)).astype("float32")
    its = np.asarray(in_keras("constraints", constraint)(keras.ops.convert_to_tensor(x)))
    np.testing.assert_allclose(
        constraint.project(torch.from_numpy(x)).numpy(), its, rtol=1e-5, atol=1e-6
    )


def test_none_is_forgotten() -> None:
    for base, tried in (
        (Initialiser, INITIALISERS),
        (regularisers.Regulariser, REGULARISERS),
        (regularisers.Constraint, CONSTRAINTS),
    ):
        assert {type(value) for value in tried} == set(map_subclasses(base).values())


@pytest.mark.parametrize("value", [*INITIALISERS, *REGULARISERS, *CONSTRAINTS], ids=str)
def test_what_is_written_is_read_again(value: Any) -> None:
    base = next(
        cls
        for cls in type(value).__mro__
        if cls.__name__ in ("Initialiser", "Regulariser", "Constraint")
    )
    found: list[NetworkProblem] = []
    assert read_object(base, write_object("keras.x", value), "", found) == value
    assert found == []


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("glorot_uniform", initialisers.GlorotUniform()),
        ("zero", initialisers.Zeros()),
        ("OrthogonalInitializer", initialisers.Orthogonal()),
        (
            {
                "class_name": "RandomNormal",
                "config": {"mean": 1.0, "stddev": 0.5, "seed": None, "dtype": "float32"},
            },
            initialisers.RandomNormal(1.0, 0.5),
        ),
        (
            {"class_name": "VarianceScaling", "config": {"distribution": "normal"}},
            initialisers.VarianceScaling(distribution="truncated_normal"),
        ),
        (
            {"class_name": "Constant", "config": {"value": [1, 2.1]}},
            initialisers.Constant((1, 2.1)),
        ),
    ],
)
def test_dialects_are_read(raw: Any, expected: Initialiser) -> None:
    found: list[NetworkProblem] = []
    assert read_object(Initialiser, raw, "here", found) == expected
    assert found == []


@pytest.mark.parametrize(
    ("raw", "code", "path"),
    [
        ("mine", "unknown-object", "here"),
        ({"class_name": "Zeros", "module": "my.own", "config": {}}, "unknown-object", "here"),
        ({"class_name": "Zeros", "config": {"depth": 3}}, "unknown-argument", "here.depth"),
        (7, "argument", "here"),
        ({"class_name": ["Zeros"]}, "unknown-object", "here"),
    ],
)
def test_what_is_not_known_is_kept_and_told(raw: Any, code: str, path: str) -> None:
    found: list[NetworkProblem] = []
    read = read_object(Initialiser, raw, "here", found)
    assert isinstance(read, Raw)
    assert read.value == raw
    assert write_object("keras.initializers", read) == raw
    assert [(problem.code, problem.path) for problem in found] == [(code, path)]
