"""Show messages of other programs, and values, in one line."""

from __future__ import annotations

from nnpipe.core.foreign_text import harmless
from nnpipe.core.secret import without_secrets


def one_line(error: object, limit: int = 300) -> str:
    """Return an error's message, or a text, as one harmless line of at most ``limit`` characters.

    Examples
    --------
    >>> one_line("a report\\n  of several lines")
    'a report of several lines'
    >>> one_line(KeyError())
    'KeyError'
    >>> one_line(KeyError("weight"))
    "KeyError: 'weight'"
    >>> one_line("a report of several lines", 10)
    'a report …'
    """
    text = " ".join(harmless(str(error)).split()) or type(error).__name__
    if isinstance(error, KeyError) and error.args:  # its message is the key alone
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: object) -> str:
    """Return a value as a message shows it: as Python writes it, and not for long."""
    text = without_secrets(repr(value))
    return text if len(text) <= 60 else text[:59] + "…"
