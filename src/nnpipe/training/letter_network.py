"""A small language model for letters, so that a configuration needs no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module
from nnpipe.training.outputs.output import Output
from nnpipe.training.outputs.segmentation import SegmentationOutput


class LetterNetwork(Module):
    """A transformer that predicts the next letter at each place of a window (Vaswani et al., 2017).

    Attributes
    ----------
    module
        The ``torch.nn.Module``, whose output ``next`` is a
        :class:`~nnpipe.training.outputs.segmentation.SegmentationOutput`: its loss is the mean over places.

    Parameters
    ----------
    letters
        Number of different letters.
    length
        Number of letters from which the next ones are predicted.
    width, heads, hidden, layers
        Numbers for each place, attention heads, numbers within a layer, and layers.
    dropout
        Share of numbers that are zero in training.
    input
        The feature with ``length + 1`` letters for each sample.

    Raises
    ------
    ConfigError
        If a size is below 1, the dropout is no share, or the width is no multiple of the heads.
    """

    def __init__(
        self,
        letters: int,
        length: int = 32,
        *,
        width: int = 32,
        heads: int = 4,
        hidden: int = 64,
        layers: int = 1,
        dropout: float = 0.1,
        input: str = "text",
    ) -> None:
        check_call(LetterNetwork, locals())
        sizes = {
            "letters": letters,
            "length": length,
            "width": width,
            "heads": heads,
            "hidden": hidden,
            "layers": layers,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"LetterNetwork: {name} is {size}; the least is 1")
        if not 0 <= dropout < 1:
            raise ConfigError(f"LetterNetwork: dropout is {dropout}; it must be at least 0 and below 1")
        if width % heads:
            raise ConfigError(f"LetterNetwork: the width {width} is no multiple of the {heads} heads")
        self.module = _module(letters, length, width, heads, hidden, layers, dropout, input)


def _module(
    letters: int, length: int, width: int, heads: int, hidden: int, layers: int, dropout: float, input: str
) -> Any:
    import torch

    class Predicting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.letters = torch.nn.Embedding(letters, width)
            self.places = torch.nn.Embedding(length, width)
            self.layers = torch.nn.ModuleList(
                torch.nn.TransformerEncoderLayer(width, heads, hidden, dropout=dropout, batch_first=True)
                for _ in range(layers)
            )
            self.head = torch.nn.Linear(width, letters)

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Output]:
            if input not in batch:
                raise ConfigError(f"LetterNetwork: a batch has no {input!r}; it has {', '.join(batch)}")
            text = batch[input]
            if text.shape[1:] != (length + 1,):
                raise ConfigError(f"LetterNetwork: {input!r} is {tuple(text.shape)}, not (n, {length + 1})")
            mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
            values = self.letters(text[:, :-1]) + self.places(torch.arange(length, device=text.device))
            for layer in self.layers:
                values = layer(values, src_mask=mask, is_causal=True)
            return {"next": SegmentationOutput(self.head(values).transpose(1, 2), text[:, 1:])}

    return Predicting()
