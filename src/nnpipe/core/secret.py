"""Secrets: values that are passed on and shown nowhere, and texts from which those of addresses
are taken out.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

HIDDEN = "***"
"""What stands wherever a secret would."""

OPTIONS = ("--env",)
"""The options of commands whose values are secrets, of NAME=VALUE the value."""

_NAMES = r"password|passwd|pwd|token|secret|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|signature"
# A password may hold all characters but white space and quotes: what is hidden ends at the last @.
# A path that was made of an address has one slash.
_PASSWORD = re.compile(r"(:/{1,2}[^\s:/@'\"]*:)[^\s'\"]*(?=@)")
_ONLY_TOKEN = re.compile(r"(https?:/{1,2})[^\s:/@'\"]+(?=@)", re.IGNORECASE)
_QUERY = re.compile(rf"([?&;](?:[\w.-]*(?:{_NAMES})|sig)=)[^\s&;#'\"]+", re.IGNORECASE)
# as libpq takes it
_WORD = re.compile(r"(?<![^\s'\"])((?:ssl)?passw(?:or)?d=)(?:'[^']+'|[^\s'\"]+)", re.IGNORECASE)
# In settings, a name may end so; what tokenizers call tokens is none, and the path of a file may be
# told.
_SETTING = re.compile(rf"(?:.*[-_])?(?:{_NAMES})", re.IGNORECASE)
_NO_SECRET = re.compile(
    r"(?:pad|unk|unknown|bos|eos|cls|sep|mask|start|end|stop)[-_]token", re.IGNORECASE
)
_TELLING = re.compile(rf"--?(?:[\w-]*[-_])?(?:{_NAMES})", re.IGNORECASE)


class Secret:
    """A text that is shown as ``***`` and cannot be written to JSON; only :meth:`reveal` gives it
    away.

    Examples
    --------
    >>> token = Secret("wxyz")
    >>> print(token, [token], token.reveal())
    *** [***] wxyz
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        self._text: str = text._text if isinstance(text, Secret) else text

    def reveal(self) -> str:
        """Return the text, for the one place that needs it."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


Variables = Mapping[str, "str | Secret"]
"""Environment variables by name."""


def reveal_variables(variables: Variables) -> dict[str, str]:
    """Return environment variables for the process that needs them."""
    return {name: Secret(value).reveal() for name, value in variables.items()}


def hide_secrets(text: str) -> str:
    """Return a text with the passwords and tokens of the addresses in it hidden.

    Examples
    --------
    >>> hide_secrets("cannot reach postgresql://ann:pw@host/runs?sslpassword=pw2")
    'cannot reach postgresql://ann:***@host/runs?sslpassword=***'
    >>> hide_secrets("https://ghp_16C7e42F292c@github.com/a/b")
    'https://***@github.com/a/b'
    >>> hide_secrets("host=db password=pw dbname=runs")
    'host=db password=*** dbname=runs'
    """
    if "@" in text and ":/" in text:
        text = _ONLY_TOKEN.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1{HIDDEN}", text))
    return _WORD.sub(rf"\1{HIDDEN}", _QUERY.sub(rf"\1{HIDDEN}", text)) if "=" in text else text


def hide_command_secrets(words: Sequence[str], secret: Collection[str] = ()) -> tuple[str, ...]:
    """Return a command line as it may be shown and stored.

    Hidden are the values of the options in ``secret`` (of ``NAME=VALUE`` the value), those of
    options whose name says that they take a password or a token, and passwords in addresses.

    Examples
    --------
    >>> hide_command_secrets(["submit", "--env", "KEY=wxyz", "--api-key=wxyz", "a.py"], ["--env"])
    ('submit', '--env', 'KEY=***', '--api-key=***', 'a.py')
    """
    found, hide = [], False
    for word in words:
        flag, sign, value = word.partition("=")
        if hide:
            found.append(f"{flag}={HIDDEN}" if sign and flag.isidentifier() else HIDDEN)
        elif sign and (flag in secret or _TELLING.fullmatch(flag)):
            name, inner, _ = value.partition("=")
            found.append(
                f"{flag}={name}={HIDDEN}" if inner and flag in secret else f"{flag}={HIDDEN}"
            )
        else:
            found.append(hide_secrets(word))
        hide = not hide and not sign and (word in secret or bool(_TELLING.fullmatch(word)))
    return tuple(found)


def hide_settings_secrets(settings: Any, name: str = "") -> Any:
    """Return settings as they may be shown and stored.

    Hidden are texts whose name says that they are a password or a token, and passwords in
    addresses.

    Parameters
    ----------
    settings
        Values as JSON can hold them: a component's description, the content of a file of settings,
        or a part of it.
    name
        The name of this part.

    Examples
    --------
    >>> hide_settings_secrets({"address": "ftp://ann:pw@host", "password": "pw", "eos_token": "</s>"})
    {'address': 'ftp://ann:***@host', 'password': '***', 'eos_token': '</s>'}
    """
    if isinstance(settings, Mapping):
        return {key: hide_settings_secrets(value, str(key)) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [hide_settings_secrets(value, name) for value in settings]
    if not isinstance(settings, str) or not settings:
        return settings
    if _SETTING.fullmatch(name) and not _NO_SECRET.fullmatch(name):
        return HIDDEN
    return hide_secrets(settings)


def hide_in_process_list(words: Sequence[str], shown: Sequence[str]) -> None:
    """Overwrite arguments of this process that hold secrets, so that ``ps`` shows them as
    ``shown``.

    Linux reads the list of arguments from the process's own memory.  Elsewhere nothing is done.
    """
    differing = [(word, other) for word, other in zip(words, shown, strict=True) if word != other]
    if not differing:
        return
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        # arg_start and arg_end of proc(5), counted from the state on
        begin, end = int(fields[45]), int(fields[46])
    except (OSError, IndexError, ValueError):
        return
    if not 0 < begin < end:
        return
    memory = b"\0" + ctypes.string_at(begin, end - begin)
    for word, other in differing:
        given = word.encode("utf-8", "surrogateescape")
        place = memory.find(b"\0" + given + b"\0")
        if place >= 0:
            ctypes.memmove(begin + place, other.encode().ljust(len(given), b"*"), len(given))
