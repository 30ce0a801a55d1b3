"""A network that learns while its numbers are rounded."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow  # torchao is imported, and a network is exported

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torchao", reason="torchao rounds the numbers")

from nnpipe.training.network import (  # noqa: E402
    Head,
    Network,
    RoundedNetwork,
)


def layers() -> list[Any]:
    return [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)]


@pytest.fixture(scope="module")
def rounded() -> RoundedNetwork:
    torch.manual_seed(0)
    head = Head(target="label")
    return RoundedNetwork(
        Network(layers=layers(), outputs={"digit": head}, input="image", channels_last=True),
        [1, 8, 8],
    )


def test_to_change_between_training_and_evaluation_draws_no_random_numbers(
    rounded: RoundedNetwork,
) -> None:
    module = rounded.module
    before = torch.get_rng_state()
    for mode in (True, False, True):
        module.train(mode)
        assert module.training is mode
    module.eval()
    assert torch.equal(torch.get_rng_state(), before)


def test_it_computes_nearly_what_the_network_computes_and_so_it_does_in_integers(
    rounded: RoundedNetwork,
) -> None:
    pictures = torch.rand(64, 1, 8, 8)
    module = rounded.module.train()
    with torch.no_grad():
        for _ in range(20):
            module.layers(pictures)  # the ranges of the numbers are observed
        module.eval()
        wanted = rounded.network.module.eval().layers(pictures)
        found = module.layers(pictures)
        integers = rounded.to_integers().layers(pictures)
    spread = float(wanted.max() - wanted.min())
    assert 0 < float((found - wanted).abs().max()) < 0.05 * spread
    assert float((integers - found).abs().max()) < 0.02 * spread
