"""Texts as windows of letters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences.array import Characters, CharacterWindows


def test_windows_hold_the_numbers_of_letters_and_the_last_ones_are_for_the_test(
    tmp_path: Path,
) -> None:
    letters = Characters(text="abacus ", times=3)
    assert (letters.alphabet, letters.count) == (" abcsu", 6)
    parts = {
        split: list(CharacterWindows(letters, split, length=4, stride=2, test=3))
        for split in ("train", "test")
    }
    words = {
        split: [
            "".join(letters.alphabet[n] for n in row) for batch in batches for row in batch["text"]
        ]
        for split, batches in parts.items()
    }
    text = "abacus " * 3
    windows = [text[start : start + 5] for start in range(0, len(text) - 4, 2)]
    assert words == {"train": windows[:-3], "test": windows[-3:]}
    (tmp_path / "own.txt").write_text(text, "utf-8")
    np.testing.assert_array_equal(
        Characters(file=str(tmp_path / "own.txt")).numbers, letters.numbers
    )


def test_what_gives_no_window_is_told(tmp_path: Path) -> None:
    letters = Characters(text="abacus")
    for wrong in (
        {"length": 6},
        {"length": 3, "test": 3},
        {"length": 0},
        {"length": 2, "stride": 0},
    ):
        with pytest.raises(ConfigError, match="LetterWindows"):
            CharacterWindows(letters, "train", **wrong)  # type: ignore[arg-type]
    for given in ({}, {"text": "a", "file": "b"}, {"text": "a", "times": 0}):
        with pytest.raises(ConfigError, match="Letters"):
            Characters(**given)  # type: ignore[arg-type]
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError, match=r"odd\.txt: cannot be read as a text"):
        _ = Characters(file=str(tmp_path / "odd.txt")).numbers


def test_what_would_not_fit_into_memory_is_told_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match="more than 100,000,000 letters; make times smaller"):
        _ = Characters(text="ab", times=10**12).numbers
    with pytest.raises(ConfigError, match="make stride larger"):
        CharacterWindows(Characters(text="ab", times=10**5), length=5000)
