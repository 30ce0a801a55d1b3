"""Batches of samples in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._content_digest import compute_digest, describe_callable
from nnpipe.training.sequences.randomness import create_order_generator
from nnpipe.training.sequences.samplers import (
    RandomSampler,
    Sampler,
    SequentialSampler,
    count_repeats,
)
from nnpipe.training.sequences.sequence import Sequence, Stream, require_positive


class ArraySequence(Sequence):
    """Batches from arrays and lists.

    Parameters
    ----------
    features
        Arrays and lists by name, whose first axis counts the samples.  The optional
        ``"sample_id"``, int64 ``(n,)``, gives the ids; without it they count from 0.
        Arrays may be memory-mapped files (``numpy.load(..., mmap_mode="r")``).
    batch
        Number of samples in a batch.
    sampler
        Chooses and orders the samples; by default all, in their order.
    seed
        Seed of the order.
    drop_last
        Whether to leave out a smaller last batch.
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        *,
        batch: int = 32,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        check_call(ArraySequence, locals())
        super().__init__()
        self._features = {name: _check_column(name, value) for name, value in features.items()}
        lengths = {name: len(value) for name, value in self._features.items()}
        if len(set(lengths.values())) != 1:
            found = (
                ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "no features"
            )
            raise ConfigError(f"all features must have the same number of samples; found {found}")
        self._samples = next(iter(lengths.values()))
        self._ids = self._features.pop("sample_id", None)
        if self._ids is not None:
            self._ids = _check_ids(self._ids)
        self._batch = require_positive("batch", batch)
        self._sampler = sampler if sampler is not None else SequentialSampler()
        self._seed = seed
        self._drop_last = drop_last

    def _stop(self, length: int) -> int:
        return length - length % self._batch if self._drop_last else length

    def sizes(self) -> list[int]:
        """Return the number of samples of each batch."""
        stop = self._stop(self._sampler.length(self._samples))
        return [self._batch] * (stop // self._batch) + [stop % self._batch] * (
            stop % self._batch > 0
        )

    def settings(self) -> dict[str, Any]:
        """Return how samples are ordered and cut, and a digest of their content."""
        ids = {} if self._ids is None else {"sample_id": self._ids}
        return {
            "samples": self._samples,
            "batch": self._batch,
            "sampler": describe_callable(self._sampler),
            "seed": self._seed,
            "drop_last": self._drop_last,
            "features": sorted(self._features),
            "content": compute_digest({**self._features, **ids}),
        }

    def stream(self, epoch: int, position: Any = None) -> Stream:
        """Yield the batches; the position is the number of samples before it."""
        order = self._sampler.order(
            self._features, self._samples, create_order_generator(self._seed, epoch)
        )
        repeats = count_repeats(order) if self._sampler.repeats else None
        ids, features, size = self._ids, list(self._features.items()), self._batch
        stop = self._stop(len(order))
        for begin in range(position or 0, stop, size):
            chosen = order[begin : begin + size]
            # The indices are known to be valid; without a check, numpy copies faster.
            batch = {
                name: [value[index] for index in chosen.tolist()]
                if type(value) is list
                else value.take(chosen, axis=0, mode="clip")
                for name, value in features
            }
            batch["sample_id"] = chosen.copy() if ids is None else ids.take(chosen)
            if repeats is not None:
                batch["sample_repeat"] = repeats[begin : begin + size].copy()
            yield batch, min(begin + size, stop)


def _check_column(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return list(value)
    column = np.asarray(value)
    if column.ndim == 0:
        raise ConfigError(f"{name!r} is a single value, not one a sample")
    return column


def _check_ids(value: Any) -> np.ndarray:
    ids = np.asarray(value)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ConfigError(
            f"'sample_id' must be whole numbers, one a sample, not {ids.dtype} of shape {ids.shape}"
        )
    ids = ids.astype(np.int64)
    if len(np.unique(ids)) != len(ids):
        raise ConfigError("'sample_id' holds an id twice; ids must tell samples apart")
    return ids


_LARGEST = 100_000_000  # bytes of a text, and letters with all repetitions
_MOST = 250_000_000  # numbers in all windows, of 8 bytes each


@dataclass(frozen=True, kw_only=True)
class Characters:
    """A text whose letters are numbered.

    Parameters
    ----------
    text
        The text itself.
    file
        The file of a text in UTF-8, instead.
    times
        How often the text is repeated.
    """

    text: str = ""
    file: str | None = None
    times: int = 1

    def __post_init__(self) -> None:
        check_call(Characters, vars(self))
        if bool(self.text) == (self.file is not None):
            raise ConfigError("Letters: give either a text or a file")
        if self.times < 1:
            raise ConfigError(f"Letters: times is {self.times}; the least is 1")

    @cached_property
    def alphabet(self) -> str:
        """The letters of the text, each once and sorted; their places are their numbers."""
        return "".join(sorted(set(self._whole)))

    @property
    def count(self) -> int:
        """The number of different letters."""
        return len(self.alphabet)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each letter of the text, int64 ``(n,)``."""
        if len(self._whole) * self.times > _LARGEST:
            raise ConfigError(
                f"Letters: more than {_LARGEST:,} letters; make times smaller than {self.times}"
            )
        places = {letter: place for place, letter in enumerate(self.alphabet)}
        return np.array([places[letter] for letter in self._whole] * self.times, np.int64)

    @cached_property
    def _whole(self) -> str:
        if self.file is None:
            return self.text
        path = Path(self.file)
        try:
            if path.stat().st_size > _LARGEST:
                raise ConfigError(f"{path}: a text of more than {_LARGEST // 1_000_000} MB")
            found = path.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{path}: cannot be read as a text in UTF-8: {error}") from None
        if not found:
            raise ConfigError(f"{path}: holds no text")
        return found


class CharacterWindows(ArraySequence):
    """Batches of windows of a text: the feature ``text``, int64 ``(n, length + 1)``.

    Parameters
    ----------
    letters
        The text.
    split
        ``"train"``, or ``"test"`` for the windows at the text's end.
    length
        Number of letters from which the next ones are predicted.
    stride
        Letters from the start of a window to that of the next one.
    test
        Number of windows at the end that are kept for the test.
    batch, shuffle, seed
        Number of windows in a batch, whether each epoch has a different order, and the seed of the
        order.
    """

    def __init__(
        self,
        letters: Characters,
        split: Literal["train", "test"] = "train",
        *,
        length: int = 32,
        stride: int = 1,
        test: int = 0,
        batch: int = 32,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        check_call(CharacterWindows, locals())
        for name, value, least in (("length", length, 1), ("stride", stride, 1), ("test", test, 0)):
            if value < least:
                raise ConfigError(f"LetterWindows: {name} is {value}; the least is {least}")
        if len(letters.numbers) <= length:
            raise ConfigError(
                f"LetterWindows: the text has {len(letters.numbers)} letters, a window {length + 1}"
            )
        windows = np.lib.stride_tricks.sliding_window_view(letters.numbers, length + 1)[::stride]
        border = len(windows) - test
        chosen = windows[:border] if split == "train" else windows[border:]
        if border < 0 or not len(chosen):
            raise ConfigError(
                f"LetterWindows: of {len(windows)} windows, none are left for {split} with test: "
                f"{test}"
            )
        if chosen.size > _MOST:
            raise ConfigError(
                f"LetterWindows: the windows hold more than {_MOST:,} letters; make stride larger"
            )
        super().__init__(
            {"text": chosen.copy()},
            batch=batch,
            sampler=RandomSampler() if shuffle else None,
            seed=seed,
        )
