"""Batches of texts and of sounds: samples of different lengths become one array.

They are functions for ``sequence.collate(TextCollation())``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.sequence import Batch


@dataclass(frozen=True, kw_only=True)
class TextCollation:
    """Fills up sequences of tokens to one length, and adds a mask and the lengths.

    Of each feature, ``NAME`` becomes int64 ``(n, length)``, ``NAME_mask`` bool ``(n, length)``,
    true for tokens, and ``NAME_length`` int64 ``(n,)``.

    Parameters
    ----------
    features
        Names of features with tokens, whole numbers ``(tokens,)``.
    pad
        The token that fills up.
    length
        The greatest length: longer sequences lose their end; None for the longest of each batch.
    multiple
        The length is a multiple of this, so that fewer shapes occur.
    left
        Whether to fill up at the beginning, as models do that continue a text.
    """

    features: tuple[str, ...] = ("tokens",)
    pad: int = 0
    length: int | None = None
    multiple: int = 1
    left: bool = False

    def __post_init__(self) -> None:
        check_call(TextCollation, vars(self))
        _check(self.length, self.multiple)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with arrays."""
        found = dict(batch)
        for name in self.features:
            rows = [np.asarray(row) for row in _get_feature(batch, name)]
            for row in rows:
                if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
                    raise ConfigError(
                        f"{name!r} holds {row.dtype} {row.shape}; tokens are whole numbers "
                        f"(tokens,)"
                    )
            rows = [row[: self.length] for row in rows]
            longest = _round_up(max((len(row) for row in rows), default=0), self.multiple)
            tokens = np.full((len(rows), longest), self.pad, np.int64)
            mask = np.zeros((len(rows), longest), bool)
            for place, row in enumerate(rows):
                part = slice(longest - len(row), longest) if self.left else slice(len(row))
                tokens[place, part], mask[place, part] = row, True
            lengths = np.array([len(row) for row in rows], np.int64)
            found |= {name: tokens, f"{name}_mask": mask, f"{name}_length": lengths}
        return found


@dataclass(frozen=True, kw_only=True)
class AudioCollation:
    """Fills up sounds to one length at their end, and adds the lengths.

    Of each feature, ``NAME`` becomes ``(n, ..., length)`` and ``NAME_length`` int64 ``(n,)``.

    Parameters
    ----------
    features
        Names of features with sounds ``(..., time)``, such as samples ``(channels, time)`` or
        spectra ``(bands, time)``; all axes but the last are equal.
    pad
        The value that fills up.
    length
        The greatest length: longer sounds lose their end; None for the longest of each batch.
    multiple
        The length is a multiple of this.
    """

    features: tuple[str, ...] = ("audio",)
    pad: float = 0.0
    length: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        check_call(AudioCollation, vars(self))
        _check(self.length, self.multiple)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with arrays."""
        found = dict(batch)
        for name in self.features:
            sounds = [np.asarray(sound) for sound in _get_feature(batch, name)]
            if len({sound.shape[:-1] for sound in sounds}) > 1 or not all(
                sound.ndim for sound in sounds
            ):
                shapes = sorted({sound.shape for sound in sounds})
                raise ConfigError(
                    f"{name!r} has the shapes {shapes[0]} and {shapes[-1]}; only the last axis may "
                    f"differ"
                )
            sounds = [sound[..., : self.length] for sound in sounds]
            longest = _round_up(
                max((sound.shape[-1] for sound in sounds), default=0), self.multiple
            )
            whole = np.full(
                (len(sounds), *sounds[0].shape[:-1], longest), self.pad, np.result_type(*sounds)
            )
            for place, sound in enumerate(sounds):
                whole[place, ..., : sound.shape[-1]] = sound
            lengths = np.array([sound.shape[-1] for sound in sounds], np.int64)
            found |= {name: whole, f"{name}_length": lengths}
        return found


def _get_feature(batch: Batch, name: str) -> Sequence[Any]:
    if name not in batch:
        raise ConfigError(f"a batch has no {name!r}; it has {', '.join(batch)}")
    found: Sequence[Any] = batch[name]
    return found


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def _check(length: int | None, multiple: int) -> None:
    if (length is not None and length < 1) or multiple < 1:
        raise ConfigError(f"length and multiple take 1 or more, not {length} and {multiple}")
    if length is not None and length % multiple:
        raise ConfigError(f"the length {length} is no multiple of {multiple}")
