"""Reading large JSON files element by element, so that memory does not grow with the file."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nnpipe.core.errors import DatasetError

_BLOCK = 1 << 20  # characters
# characters of one element, such as an outline in full; as objects, 25 times as many bytes
_ELEMENT = 8 << 20
_SPACE = re.compile(r"[ \t\r\n]*")


def iter_keyed_elements(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the elements of some arrays of a file that holds one object, each with the array's key.

    Parameters
    ----------
    path
        The file.
    wanted
        Keys of arrays; other values are read and dropped.

    Raises
    ------
    DatasetError
        If the file is missing or no such JSON, or an element is unreasonably large.
    """
    with _open_text(path) as file:
        yield from _Reader(path, file, "object with arrays").iter_keyed_elements(wanted)


def iter_array_elements(path: Path) -> Iterator[Any]:
    """Yield the elements of a file that holds one array.

    Raises
    ------
    DatasetError
        If the file is missing or no such JSON, or an element is unreasonably large.
    """
    with _open_text(path) as file:
        yield from _Reader(path, file, "array").iter_array_elements()


@contextmanager
def _open_text(path: Path) -> Iterator[IO[str]]:
    """Open a text file, which may be compressed by gzip."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there") from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None


class _Reader:
    def __init__(self, path: Path, file: IO[str], form: str) -> None:
        self._path = path
        self._form = form
        self._file = file
        self._text, self._at = "", 0
        self._decoder = json.JSONDecoder(parse_constant=self._constant)

    def iter_keyed_elements(self, wanted: Collection[str]) -> Iterator[tuple[str, Any]]:
        self._require_mark("{")
        if self._peek() == "}":
            return
        while True:
            key = self._read_value()
            if not isinstance(key, str):
                raise self._make_error()
            self._require_mark(":")
            # Arrays that are not wanted may be as long as those that are.
            if self._peek() == "[":
                for element in self.iter_array_elements():
                    if key in wanted:
                        yield key, element
            else:
                self._read_value()
            if self._next() == "}":
                return

    def iter_array_elements(self) -> Iterator[Any]:
        self._require_mark("[")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._read_value()
            if self._next() == "]":
                return

    def _next(self) -> str:
        found = self._peek()
        if found not in (",", "]", "}"):
            raise self._make_error()
        self._at += 1
        return found

    def _require_mark(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._make_error()
        self._at += 1

    def _peek(self) -> str:
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                raise self._make_error("it ends too early")

    def _read_value(self) -> Any:
        self._peek()
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            # numbers of very many digits are no JSONDecodeError
            except (ValueError, RecursionError) as error:
                # Most values that cannot be read are cut off where the text that was read so far
                # ends.
                if not isinstance(error, json.JSONDecodeError) or not self._read_more():
                    raise self._make_error(str(error) or "it is nested too deeply") from None
                continue
            if end == len(self._text) and self._read_more():  # a number may go on
                continue
            self._at = end
            return found

    def _read_more(self) -> bool:
        """Read on, at least as much as there is of the present element; return whether there was
        more.
        """
        self._text, self._at = self._text[self._at :], 0
        if len(self._text) > _ELEMENT:
            raise DatasetError(f"{self._path}: a part of it is unreasonably large, or damaged")
        more = self._file.read(max(_BLOCK, len(self._text)))
        self._text += more
        return bool(more)

    def _constant(self, name: str) -> Any:
        raise DatasetError(f"{self._path}: {name} is no number that JSON knows")

    def _make_error(self, why: str = "") -> DatasetError:
        return DatasetError(
            f"{self._path} is no JSON {self._form}{': ' * bool(why)}{why[:120]}; get it again"
        )
