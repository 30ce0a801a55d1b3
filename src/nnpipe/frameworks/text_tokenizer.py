"""Tokenizers of Hugging Face, from files that are not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import iter_entries, parse_json
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.messages import format_one_line

LARGEST = 64 << 20  # bytes; the largest of open models take 34 MB
_RULES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MOST_OF_RULES = 4 << 20  # characters; the table of characters of SentencePiece takes 0.5 MB
_MOST_GROWTH = 256  # times as many characters, after all replacements
LONGEST_TEXT = 1 << 22
"""Greatest number of characters of one text."""


class TextTokenizer:
    """Turns texts into the ids of tokens, and back.

    Parameters
    ----------
    content
        The content of ``tokenizer.json``.
    where
        What messages call it.

    Raises
    ------
    ArtifactError
        If it is damaged, or made to use up memory.
    """

    def __init__(self, content: str, where: str) -> None:
        import tokenizers

        self._where = where
        _check(content, where)
        self._native = _call_guarded(where, tokenizers.Tokenizer.from_str, content)
        self._native.no_padding()  # a file can ask for any number of tokens

    @classmethod
    def read(cls, path: Path) -> TextTokenizer:
        """Read ``tokenizer.json``; raise :class:`ArtifactError` if it is missing, too large or
        damaged.
        """
        return cls(read_tokenizer_file(path), str(path))

    @property
    def size(self) -> int:
        """The number of different tokens, those that were added included."""
        return int(self._native.get_vocab_size(with_added_tokens=True))

    def encode(
        self, text: str, special: bool = True, most: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the ids of a text's tokens, ``(n,)``.

        Parameters
        ----------
        text
            The text.
        special
            Whether the special tokens at its ends are added.
        most
            The greatest number of tokens; special ones stay when a text is cut.

        Raises
        ------
        ConfigError
            If the text is too long.
        """
        if len(text) > LONGEST_TEXT:
            raise ConfigError(
                f"a text of {len(text):,} characters is longer than {LONGEST_TEXT:,}, and not "
                f"tokenised"
            )
        if most is None:
            self._native.no_truncation()
        else:
            _call_guarded(self._where, self._native.enable_truncation, most)
        found = _call_guarded(self._where, self._native.encode, text, add_special_tokens=special)
        return np.array(found.ids, np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        return str(
            _call_guarded(
                self._where,
                self._native.decode,
                [int(each) for each in ids],
                skip_special_tokens=True,
            )
        )


def read_tokenizer_file(path: Path) -> str:
    """Return the content of ``tokenizer.json``; raise :class:`ArtifactError` if it is missing or
    too large.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ArtifactError(
                f"{path}: {size:,} bytes are too large for a tokenizer, {LARGEST:,} may be"
            )
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(
            f"{path}: cannot be read as a tokenizer: {format_one_line(error)}"
        ) from None


def _check(content: str, where: str) -> None:
    if len(content) > LARGEST:
        raise ArtifactError(
            f"{where}: {len(content):,} characters are too many for a tokenizer, {LARGEST:,} may be"
        )
    try:
        found = parse_json(content, any_text=True)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: no tokenizer: {type(error).__name__}") from None
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise ArtifactError(f"{where}: no tokenizer of the library tokenizers")
    rules = {name: found.get(name) for name in _RULES}
    if sum(len(json.dumps(each)) for each in rules.values()) > _MOST_OF_RULES:
        raise ArtifactError(
            f"{where}: its rules for text are longer than {_MOST_OF_RULES:,} characters"
        )
    # Replacements one after the other multiply: thirty that double every letter would fill any
    # memory.
    growth = 1
    for name in ("normalizer", "decoder"):
        steps = [rules[name], *(value for _, value in iter_entries(rules[name]))]
        for step in steps:
            if isinstance(step, Mapping) and step.get("type") in ("Replace", "Prepend", "Append"):
                growth *= max(1, _count_added_characters(step))
        if growth > _MOST_GROWTH:
            raise ArtifactError(
                f"{where}: its {name} makes texts more than {_MOST_GROWTH} times as long"
            )


def _count_added_characters(step: Mapping[str, Any]) -> int:
    """Return by how much a step may lengthen a text of one character."""
    texts = [
        text for text in map(step.get, ("content", "prepend", "append")) if isinstance(text, str)
    ]
    added = max(map(len, texts), default=0)
    return added if step["type"] == "Replace" else 1 + added


def _call_guarded(where: str, call: Any, *given: Any, **options: Any) -> Any:
    try:
        return call(*given, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise ArtifactError(
            f"{where}: the tokenizer does not work: {format_one_line(error)}"
        ) from None
