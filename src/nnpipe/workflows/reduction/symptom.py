"""What goes wrong with a compiled model, and whether a smaller model goes wrong in the same way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["error", "crash", "hang", "not finite", "difference"]

_ALIKE = 0.5  # share of words that two messages of one cause have in common
_SMALLER = 0.1  # a difference may shrink to this part of the whole model's
_NOISE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*/\S*|0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True)
class Symptom:
    """What went wrong.

    Parameters
    ----------
    kind
        An error, a crash, a hang, outputs that are not finite where those of the reference are, or
        outputs that differ from those of the reference by more than the conversion claims.
    stage
        What was being done: ``"exporting"``, ``"compiling with CLASS"``, ``"loading"``,
        ``"running"``, ``"comparing"``.
    what
        The class of an error, or the signal of a crash.
    message
        What was said.
    error
        The mean relative error of a difference; 0 for anything else.
    """

    kind: Kind
    stage: str
    what: str = ""
    message: str = ""
    error: float = 0.0

    def __str__(self) -> str:
        told = {
            "error": f"{self.what} while {self.stage}: {self.message}",
            "crash": f"the process crashed ({self.what}) while {self.stage}",
            "hang": f"{self.stage} did not end within {self.message}",
            "not finite": f"outputs are not finite: {self.message}",
            "difference": f"outputs differ: {self.message}",
        }
        return told[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Return the symptom as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Symptom:
        """Return the symptom that :meth:`to_json` described."""
        return cls(**data)

    def is_shown_by(
        self, other: Symptom | None, names: Collection[str], operators: Collection[str]
    ) -> bool:
        """Return whether another symptom has the same cause, as far as it tells.

        Parameters
        ----------
        other
            The symptom of a smaller model; ``None`` if nothing goes wrong there.
        names
            Names of the model's nodes and tensors, which say nothing of the cause.
        operators
            Types of the model's operators; a message that names some is alike only if it names no
            others.
        """
        if other is None or (self.kind, self.stage, self.what) != (
            other.kind,
            other.stage,
            other.what,
        ):
            return False
        if self.kind == "difference":
            return other.error >= _SMALLER * self.error
        if self.kind != "error":
            return True
        ours, theirs = _count_words(self.message, names), _count_words(other.message, names)
        mine, yours = (set(words) & set(operators) for words in (ours, theirs))
        if mine and not (yours and yours <= mine):
            return False
        common, every = (ours & theirs).total(), (ours | theirs).total()
        return not every or common / every >= _ALIKE


def _count_words(message: str, names: Collection[str]) -> Counter[str]:
    """Return the words of a message without names, paths and numbers."""
    bare = [word for word in re.split(r"[\s,;:()\[\]{}]+", message) if word not in names]
    return Counter(re.findall(r"[A-Za-z]{3,}", _NOISE.sub(" ", " ".join(bare))))
