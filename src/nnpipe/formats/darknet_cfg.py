"""The reader of Darknet's ``.cfg`` files: sections with their options, without any meaning yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.formats._errors import Damaged
from nnpipe.formats.file_types import check_there

_LARGEST = 1 << 20  # bytes; yolov3.cfg has 8,342
_MOST_SECTIONS = 1024
_MOST_OPTIONS = 256  # of a section


@dataclass(frozen=True)
class DarknetSection:
    """A section, such as ``[convolutional]``.

    Attributes
    ----------
    kind
        The name in brackets.
    line
        The number of its line.
    options
        Its options as text; spaces inside are removed, as Darknet does it.
    """

    kind: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The section in messages."""
        return f"[{self.kind}] in line {self.line}"

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return an option that is a whole number within bounds.

        Raises
        ------
        Damaged
            If it is not.
        """
        found = self._number(name, self.options.get(name, str(default)))
        if not least <= found <= most:
            raise Damaged(f"{self.words}: {name} is {found}, not from {least} to {most}")
        return found

    def integers(self, name: str, most: int = 64) -> tuple[int, ...]:
        """Return an option that is a list of whole numbers, at least one; raise :class:`Damaged` if it is not."""
        parts = self._parts(name, most)
        return tuple(self._number(name, part) for part in parts)

    def numbers(self, name: str, most: int = 64) -> tuple[float, ...]:
        """Return an option that is a list of finite numbers, none negative; raise :class:`Damaged` if it is not."""
        try:
            found = tuple(map(float, self._parts(name, most)))
        except ValueError:
            found = ()
        if not found or not all(0 <= number < 1e6 for number in found):
            raise Damaged(f"{self.words}: {name} should be numbers that are separated by commas")
        return found

    def _parts(self, name: str, most: int) -> list[str]:
        parts = [part for part in self.options.get(name, "").split(",") if part]
        if not 0 < len(parts) <= most:
            raise Damaged(f"{self.words}: {name} should be 1 to {most} numbers that are separated by commas")
        return parts

    def _number(self, name: str, text: str) -> int:
        try:
            if len(text) > 12:
                raise ValueError
            return int(text)
        except ValueError:
            raise Damaged(f"{self.words}: {name} should be a whole number, not {text[:20]!r}") from None


def read_sections(path: Path) -> list[DarknetSection]:
    """Return the sections of a file in order.

    Raises
    ------
    ArtifactError
        If there is no such file.
    Damaged
        If it is too large, no text, or not made of sections.
    """
    check_there(path)
    with open(path, "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise Damaged(f"it is larger than {_LARGEST:,} bytes")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise Damaged("it is no text") from None
    found: list[DarknetSection] = []
    options: dict[str, str] = {}
    for number, raw in enumerate(lines, 1):
        line = "".join(raw.split())
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if not (line.endswith("]") and line[1:-1].isidentifier() and len(line) < 40):
                raise Damaged(f"line {number} is no section: {line[:40]!r}")
            if len(found) == _MOST_SECTIONS:
                raise Damaged(f"line {number} begins more than {_MOST_SECTIONS} sections")
            options = {}
            found.append(DarknetSection(line[1:-1], number, options))
            continue
        name, equals, value = line.partition("=")
        if not found or not equals or not name or len(options) == _MOST_OPTIONS:
            raise Damaged(f"line {number} is no NAME=VALUE in a section: {line[:40]!r}")
        options[name] = value
    return found
