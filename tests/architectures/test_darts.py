"""Differentiable search: shares that follow the validation loss, both orders, resuming, and
collapse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.architectures.conftest import SMALL, stripes

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.cell_space import CellSpace
from nnpipe.architectures.darts import (
    CollapseSigns,
    compute_dominant_eigenvalue,
    compute_unrolled_gradient,
    darts,
    select_strongest_operations,
)
from nnpipe.architectures.training import TrainingRecipe, train_network
from nnpipe.core.errors import ConfigError, TrainingError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RECIPE = TrainingRecipe(epochs=3, batch=16)
TRAIN, VALIDATION = stripes(64, 0), stripes(64, 1)


@pytest.mark.parametrize("order", [1, 2])
def test_a_search_finds_the_operation_that_sees_the_classes(
    space: ArchitectureSpace, order: Literal[1, 2]
) -> None:
    found = darts(space, TRAIN, VALIDATION, order=order, recipe=RECIPE, architecture_rate=0.05)
    assert found.shares.shape == (3, 3, 3)
    assert np.allclose(found.shares.sum(2), 1)
    conv = found.shares[:, :, 2].mean(1)
    assert conv[-1] > conv[0]
    assert "nor_conv_3x3" in found.configuration.values()
    assert np.isfinite(found.eigenvalues).all()
    assert str(found).splitlines()[-1].startswith("no collapse: ")
    again = darts(space, TRAIN, VALIDATION, order=order, recipe=RECIPE, architecture_rate=0.05)
    assert np.array_equal(again.shares, found.shares)
    trained = train_network(found.network, TRAIN, TrainingRecipe(epochs=6, batch=16))
    assert trained.accuracy(VALIDATION) > 0.8


def test_an_interrupted_search_goes_on_and_ends_the_same(
    space: ArchitectureSpace, tmp_path: Path
) -> None:
    whole = darts(space, TRAIN, VALIDATION, recipe=RECIPE)
    seen: list[int] = []

    def ends_in_the_second(items: Any, label: str = "", total: int | None = None, **_: Any) -> Any:
        seen.append(1)
        for number, item in enumerate(items):
            if len(seen) == 2 and number == 2:
                raise RuntimeError("pulled the plug")
            yield item

    with pytest.raises(RuntimeError, match="plug"):
        darts(space, TRAIN, VALIDATION, recipe=RECIPE, folder=tmp_path, progress=ends_in_the_second)
    resumed = darts(space, TRAIN, VALIDATION, recipe=RECIPE, folder=tmp_path)
    assert np.array_equal(resumed.shares, whole.shares)
    assert resumed.configuration == whole.configuration
    with pytest.raises(ConfigError, match="order"):
        darts(space, TRAIN, VALIDATION, recipe=RECIPE, order=2, folder=tmp_path)


class Curve(torch.nn.Module):
    """A model with known losses: training (w - a)^2 / 2, validation w^2 + a w."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
        self.w = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))

    def weights(self) -> list[Any]:
        return [self.w]

    def forward(self, batch: dict[str, bool]) -> dict[str, Any]:
        loss = (
            (self.w - self.alpha).square() / 2
            if batch["train"]
            else self.w.square() + self.alpha * self.w
        )
        return {"loss": type("Loss", (), {"loss": staticmethod(loss.sum)})()}


def test_the_second_order_is_the_gradient_after_one_step_of_the_weights() -> None:
    model = Curve()
    optimiser = torch.optim.SGD([model.w], lr=0.1)
    found = compute_unrolled_gradient(model, {"train": True}, {"train": False}, optimiser)
    # w' = w - r (w - a); d/da [w'^2 + a w'] = w' + (2 w' + a) r
    after = 2.0 - 0.1 * 1.5
    assert float(found) == pytest.approx(after + (2 * after + 0.5) * 0.1, rel=1e-6)
    assert model.w.item() == 2.0


def test_the_dominant_eigenvalue_is_that_of_the_hessian() -> None:
    alpha = torch.nn.Parameter(torch.zeros(2, 2))
    matrix = torch.diag(torch.tensor([1.0, -5.0, 2.0, 0.5]))
    value, vector = compute_dominant_eigenvalue(
        alpha.flatten() @ matrix @ alpha.flatten() / 2, alpha, []
    )
    assert value == pytest.approx(-5, rel=0.02)
    assert abs(vector[1]) == pytest.approx(1, abs=0.1)


def test_the_strongest_edges_are_kept_with_their_strongest_operations() -> None:
    cell = CellSpace.from_json(
        {"operations": ["skip_connect", "nor_conv_3x3"], "nodes": 3, "keep": 1}
    )
    shares = np.array([[0.6, 0.4], [0.3, 0.7], [0.55, 0.45], [0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])
    assert select_strongest_operations(cell, shares) == {
        (0, 1): "skip_connect",
        (0, 2): "nor_conv_3x3",
        (0, 3): "skip_connect",
    }


def test_a_cell_of_skip_connections_is_called_collapsed() -> None:
    cell = CellSpace.from_json({"operations": ["skip_connect", "nor_conv_3x3", "avg_pool_3x3"]})
    collapsed = CollapseSigns.from_search(
        cell, ["skip_connect"] * 4 + ["nor_conv_3x3"] * 2, [0.1, 0.4]
    )
    assert collapsed.collapsed
    assert str(collapsed) == (
        "collapsed: 4 of 6 edges are skip connections, and 2 have weights; "
        "the dominant eigenvalue went from 0.1 to 0.4 (4.0 times)"
    )
    assert not CollapseSigns.from_search(
        cell, ["skip_connect"] * 3 + ["nor_conv_3x3"] * 3, [0.1, 0.4]
    ).collapsed
    assert CollapseSigns.from_search(cell, ["avg_pool_3x3"] * 6, [0.1, 0.4]).collapsed


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        (
            {"channels": [4, 8]},
            {},
            "channels: a differentiable search chooses operations only; give one number",
        ),
        ({"target": "kind"}, {}, "train: there is no 'kind'; there are: image, label"),
        ({}, {"architecture_rate": 0.0}, "architecture_rate must be positive"),
        (
            {},
            {"recipe": TrainingRecipe(batch=65)},
            "batches of 65 samples need at least as many samples",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: Any, arguments: Any, said: str) -> None:
    with pytest.raises((ConfigError, TrainingError), match=said):
        darts(ArchitectureSpace.from_json({**SMALL, **changes}), TRAIN, VALIDATION, **arguments)
