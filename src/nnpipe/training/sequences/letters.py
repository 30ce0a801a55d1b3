"""A text as windows of letters, from which a language model learns the next letter of each place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler

_LARGEST = 100_000_000  # bytes of a text, and letters with all repetitions
_MOST = 250_000_000  # numbers in all windows, of 8 bytes each


@dataclass(frozen=True, kw_only=True)
class Letters:
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
        check_call(Letters, vars(self))
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
            raise ConfigError(f"Letters: more than {_LARGEST:,} letters; make times smaller than {self.times}")
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


class LetterWindows(ArraySequence):
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
        Number of windows in a batch, whether each epoch has a different order, and the seed of the order.
    """

    def __init__(
        self,
        letters: Letters,
        split: Literal["train", "test"] = "train",
        *,
        length: int = 32,
        stride: int = 1,
        test: int = 0,
        batch: int = 32,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        check_call(LetterWindows, locals())
        for name, value, least in (("length", length, 1), ("stride", stride, 1), ("test", test, 0)):
            if value < least:
                raise ConfigError(f"LetterWindows: {name} is {value}; the least is {least}")
        if len(letters.numbers) <= length:
            raise ConfigError(f"LetterWindows: the text has {len(letters.numbers)} letters, a window {length + 1}")
        windows = np.lib.stride_tricks.sliding_window_view(letters.numbers, length + 1)[::stride]
        border = len(windows) - test
        chosen = windows[:border] if split == "train" else windows[border:]
        if border < 0 or not len(chosen):
            raise ConfigError(f"LetterWindows: of {len(windows)} windows, none are left for {split} with test: {test}")
        if chosen.size > _MOST:
            raise ConfigError(f"LetterWindows: the windows hold more than {_MOST:,} letters; make stride larger")
        super().__init__({"text": chosen.copy()}, batch=batch, sampler=RandomSampler() if shuffle else None, seed=seed)
