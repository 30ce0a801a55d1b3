"""The search finds the tensors that have to stay in floats, with few evaluations, and takes the
fastest.
"""

from __future__ import annotations

import math

import pytest

from nnpipe.workflows.mixing.float_search import MixStep, find_fastest, search_floats

TENSORS = [f"t{n}" for n in range(40)]


class Network:
    """Loses 0.2 for each needed tensor that is rounded; a fault hides the others."""

    def __init__(self, needed: set[str]) -> None:
        self.needed, self.tried = needed, 0

    def __call__(self, kept: tuple[str, ...]) -> MixStep:
        self.tried += 1
        loss = 0.6 if self.needed.difference(kept) else 0.0
        time = 0.5 + 0.01 * len(kept)
        return MixStep(kept, loss, loss - 0.01, loss + 0.01, time, (time, time))


@pytest.mark.parametrize("needed", [{"t0"}, {"t0", "t1", "t2"}, {"t1", "t6"}, {"t11"}, set()])
def test_it_keeps_what_is_needed_and_nothing_else(needed: set[str]) -> None:
    network = Network(needed)
    steps = search_floats(TENSORS, network, 0.005, 26)
    best = find_fastest(steps, 0.005)
    assert best is not None
    assert set(best.kept) == needed
    assert network.tried == len(steps) <= 2 * math.ceil(math.log2(40)) + 13


def test_the_number_of_evaluations_is_limited() -> None:
    network = Network({"t30"})
    assert len(search_floats(TENSORS, network, 0.005, 5)) == network.tried == 5
    assert find_fastest(search_floats(TENSORS, network, 0.005, 5), 0.005) is None


def test_without_a_model_that_is_good_enough_none_is_chosen() -> None:
    steps = search_floats(TENSORS, Network({"elsewhere"}), 0.005, 26)
    assert find_fastest(steps, 0.005) is None
    assert steps[-1].kept == tuple(TENSORS)


def test_of_models_that_are_good_enough_the_fastest_is_chosen() -> None:
    def step(kept: tuple[str, ...], loss: float, low: float, high: float) -> MixStep:
        return MixStep(kept, loss, loss, loss, (low + high) / 2, (low, high))

    integers, one, two = (
        step((), 0.3, 0.1, 0.2),
        step(("a",), 0.0, 0.65, 0.75),
        step(("a", "b"), 0.0, 0.5, 0.6),
    )
    assert find_fastest([integers, one, two], 0.01) is two
    unsure = step(("a", "b"), 0.0, 0.4, 0.7)
    assert find_fastest([integers, unsure, one], 0.01) is one
