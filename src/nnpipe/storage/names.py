"""Check names in a storage: a valid name means the same file on every system, and stays inside the storage."""

from __future__ import annotations

import unicodedata

from nnpipe.core.errors import ConfigError

MAX_NAME = 512
"""The size limit of a name in bytes of UTF-8; S3 accepts 1,024 including the prefix."""

_MAX_PART = 200  # file systems accept 255, and temporary names are a little longer than final ones
_FORBIDDEN = frozenset('\\:*?"<>|#')  # characters of Windows, wildcards, and separators of addresses
_UNSEEN = ("C", "Zl", "Zp")  # control and format characters, lone surrogates, line separators
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10)))
)


def checked_name(name: str, what: str = "name") -> str:
    """Return a name if it is valid: relative parts joined by ``/``.

    Raises
    ------
    ConfigError
        If the name is invalid; the message gives the reason.  A name may not lead
        out of the storage (``..``, absolute paths), be hidden (leading dots), or
        look like another name (control characters, decomposed characters).
    """
    fault = _fault(name)
    if fault:
        raise ConfigError(f"{what} {name!r}: {fault}")
    return name


def _fault(name: str) -> str:
    if not isinstance(name, str) or not name:
        return "it is empty"
    if any(unicodedata.category(character).startswith(_UNSEEN) for character in name):
        return "it holds a control character"
    if len(name.encode()) > MAX_NAME:
        return f"it is longer than {MAX_NAME} bytes"
    if name.startswith("/"):
        return "it must be relative, without a leading /"
    bad = sorted(_FORBIDDEN.intersection(name))
    if bad:
        return f"it must not hold {' '.join(bad)}"
    if not unicodedata.is_normalized("NFC", name):
        return "it is not in Unicode's composed form (NFC)"
    return next(filter(None, map(_fault_of_part, name.split("/"))), "")


def _fault_of_part(part: str) -> str:
    if not part:
        return "a part between two / is empty"
    if part.startswith("."):
        return "no part may begin with a dot"
    if part.endswith((".", " ")) or part.startswith(" "):
        return "no part may end with a dot, or begin or end with a space"
    if len(part.encode()) > _MAX_PART:
        return f"a part is longer than {_MAX_PART} bytes"
    if part.partition(".")[0].lower() in _DEVICES:
        return f"{part!r} is a device on Windows"
    return ""
