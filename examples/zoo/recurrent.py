"""Sequences with recurrent and with causal convolutional networks."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.data import TOPICS, VOCABULARY, sentences, spectrograms
from zoo.training import Trained, trained


class Text(nn.Module):
    """Words to vectors, through a recurrent layer in both directions, to scores from the mean
    over all words.
    """

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.words, self.layer, self.head = (
            nn.Embedding(VOCABULARY, 32),
            layer,
            nn.Linear(width, TOPICS),
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the scores of classes, ``(n, 4)``."""
        return self.head(self.layer(self.words(input_ids))[0].mean(dim=1))


def lstm() -> Trained:
    """Two layers of LSTM in both directions."""
    return trained(
        lambda: Text(nn.LSTM(32, 32, num_layers=2, batch_first=True, bidirectional=True), 64),
        sentences(),
        rate=5e-3,
    )


def gru() -> Trained:
    """Two layers of GRU in both directions."""
    return trained(
        lambda: Text(nn.GRU(32, 32, num_layers=2, batch_first=True, bidirectional=True), 64),
        sentences(),
        rate=5e-3,
    )


class Causal(nn.Module):
    """Two dilated convolutions that see only what came before, beside a direct path."""

    def __init__(self, given: int, made: int, dilation: int) -> None:
        super().__init__()
        before = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.path = nn.Sequential(
            before,
            nn.Conv1d(given, made, 3, dilation=dilation),
            nn.BatchNorm1d(made),
            nn.ReLU(),
            before,
            nn.Conv1d(made, made, 3, dilation=dilation),
            nn.BatchNorm1d(made),
            nn.ReLU(),
        )
        self.direct = nn.Conv1d(given, made, 1) if given != made else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same length."""
        return nn.functional.relu(self.path(x) + self.direct(x))


def tcn() -> Trained:
    """A temporal convolutional network with dilations of 1, 2, 4 and 8."""

    def build() -> nn.Module:
        blocks = [Causal(16 if not i else 32, 32, 2**i) for i in range(4)]
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, TOPICS))

    return trained(build, spectrograms(), epochs=4, rate=3e-3)
