"""Texts as Python writes them."""

from __future__ import annotations

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def text(value: str) -> str:
    """Return a string as a literal, in double quotes unless single ones need fewer escapes."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return quote + escaped(value, quote) + quote


def escaped(value: str, quote: str) -> str:
    """Return the inside of a literal in some quotes: what cannot be seen is written as its number."""
    found = []
    for character in value:
        if character == quote:
            found.append("\\" + quote)
        elif character in _ESCAPES:
            found.append(_ESCAPES[character])
        elif character.isprintable():
            found.append(character)
        else:
            found.append(repr(character)[1:-1])
    return "".join(found)
