"""Values in the content of a result file, which may come from an untrusted source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.report.formatting import clean

_MOST = 100_000  # greatest number of entries in a list

T = TypeVar("T")


def read_content(
    data: Any, kind: str, schema: int, what: str, read: Callable[[dict[str, Any]], T]
) -> T:
    """Return what ``read`` makes of the content of a result file of a kind.

    Parameters
    ----------
    data
        The content.
    kind, schema
        What the file says that it is, and the version that can be read.
    what
        What the file is of, in messages, such as ``a sweep``.
    read
        Reads it, and may raise :class:`KeyError`, :class:`TypeError`, :class:`ValueError` and
        :class:`ConfigError`.

    Raises
    ------
    ArtifactError
        If the content is something else, incomplete or not usable.
    """
    if not isinstance(data, dict) or data.get("kind") != kind:
        raise ArtifactError(f"not the result of {what}")
    if data.get("schema") != schema:
        raise ArtifactError(
            f"schema {clean(data.get('schema'), 40)} is unknown, this version reads {schema}"
        )
    try:
        return read(data)
    except KeyError as error:
        raise ArtifactError(f"not a complete result of {what}: {error} is missing") from None
    except (ValueError, TypeError, ConfigError) as error:
        raise ArtifactError(f"not a usable result of {what}: {error}") from None


def read_list(data: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of a name.

    Raises
    ------
    KeyError
        If there is none.
    TypeError, ValueError
        If it is no list, or too long.
    """
    found = require_type(list, data[name], repr(name))
    if len(found) > _MOST:
        raise ValueError(f"{name!r} has too many entries")
    return found


def read_share(value: Any) -> float:
    """Return a share from 0 to 1, or raise :class:`TypeError` or :class:`ValueError`."""
    number = read_number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{number:g} is not a share from 0 to 1")
    return number


def read_number(value: Any) -> float:
    """Return a number of moderate size, or raise :class:`TypeError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        raise TypeError(f"{clean(repr(value), 40)} is not a number")
    return float(value)


def require_type(kind: type[T], value: Any, what: str) -> T:
    """Return a value of a type, or raise :class:`TypeError`, which names what it should be."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} should be a {kind.__name__}, not {clean(repr(value), 40)}")
    return value
