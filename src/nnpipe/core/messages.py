"""Show messages of other programs, and values, in one line."""

from __future__ import annotations


def one_line(error: object, limit: int = 300) -> str:
    """Return an error's message, or a text, as one line of at most ``limit`` characters.

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
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, KeyError) and error.args:  # its message is the key alone
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: object) -> str:
    """Return a value as a message shows it: as Python writes it, and not for long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
