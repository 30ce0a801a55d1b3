"""Conditions on runs, as users type them.

::

    status = completed and statistics.accuracy > 0.98
    configuration.optimiser.arguments.lr <= 0.01 or not experiment ~ "digits"
    duration > 60 and host = box1 and configuration.model.class ~ Linear

Fields: ``id``, ``experiment``, ``status``, ``reason``, ``host``, ``done``,
``total``, ``created``, ``started``, ``ended`` (seconds since 1970, or dates
such as 2026-11-21, as UTC), ``duration`` in seconds, ``parent``,
``statistics.NAME``, ``configuration.PATH``, and for searches ``best.NAME``, the
best value of an objective, and ``trials.STATE``, how many trials are finished,
pruned, failed, running or waiting; a name with spaces or signs is quoted, with
``"`` or ``'``: ``statistics."top 5"``.  Comparisons: ``=``, ``!=``,
``<``, ``<=``, ``>``, ``>=`` and ``~`` (contains).  Values are numbers, ``true``,
``false``, ``null`` (missing or NaN; only with ``=`` and ``!=``), and texts, which
need quotes only around spaces and signs.  ``not`` binds more tightly than
``and``, which binds more tightly than ``or``.  If a run lacks the field, only
``= null`` holds for it.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.status import NEXT

Value = float | str | bool | None
Sign = Literal["=", "!=", "<", "<=", ">", ">=", "~"]

TEXTS = ("id", "experiment", "status", "reason", "host", "parent")
NUMBERS = ("done", "total", "created", "started", "ended", "duration")
_TIMES = ("created", "started", "ended")
_GROUPS = ("statistics", "configuration", "best", "trials")
TRIAL_STATES = ("finished", "pruned", "failed", "running", "waiting")

_TOKEN = re.compile(
    r"""\s*(?:(?P<open>\() | (?P<close>\)) | (?P<sign><=|>=|!=|=|<|>|~)
    | (?P<word>(?:"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s()<>=!~"'\\])+))""",
    re.VERBOSE,
)
_MOST, _DEEPEST = 10_000, 50


@dataclass(frozen=True)
class QueryField:
    """A field of a run: a column, or a name within ``statistics``, ``configuration``, ``best``
    or ``trials``.
    """

    group: str
    name: str = ""


@dataclass(frozen=True)
class FieldComparison:
    """A field compared with a value."""

    field: QueryField
    sign: Sign
    value: Value


@dataclass(frozen=True)
class Junction:
    """Several conditions, joined by ``and`` or ``or``."""

    word: Literal["and", "or"]
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Negation:
    """The negation of a condition."""

    part: Condition


Condition = FieldComparison | Junction | Negation


def parse_condition(text: str) -> Condition:
    """Return the condition of a text.

    Raises
    ------
    ConfigError
        If the text is not a condition; the message says what was expected, and after which words.
    """
    if len(text) > _MOST:
        raise ConfigError(f"a condition of {len(text):,} characters is too long")
    parser = _Parser(text)
    condition = parser.parse_disjunction(0)
    if parser.kind:
        raise parser.create_error("'and', 'or' or the end")
    return condition


def parse_order(text: str) -> tuple[QueryField, bool]:
    """Return the field to sort by, and whether the greatest value comes first (``-`` before the
    field).
    """
    return parse_field(text.removeprefix("-")), text.startswith("-")


def parse_field(text: str) -> QueryField:
    """Return the field of a name.

    Raises
    ------
    ConfigError
        If there is no such field.
    """
    plain = _remove_quotes(text)
    group, dot, name = plain.partition(".")
    if dot and name and group in _GROUPS and "\0" not in name:
        if group == "trials" and name not in TRIAL_STATES:
            hint = (
                suggest_name(name[:80], TRIAL_STATES) or f"; there are: {', '.join(TRIAL_STATES)}"
            )
            raise ConfigError(f"no trials are {name[:80]!r}{hint}")
        return QueryField(group, name)
    if plain in (*TEXTS, *NUMBERS):
        return QueryField(plain)
    known = (*TEXTS, *NUMBERS, *(f"{name}.NAME" for name in _GROUPS))
    hint = "" if group in _GROUPS else suggest_name(plain, (*TEXTS, *NUMBERS))
    hint = hint or f"; known: {', '.join(known)}"
    raise ConfigError(f"runs have no field {plain[:80]!r}{hint}")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._end = text, 0
        self.kind: str | None = ""
        self.token = ""
        self._next()

    def create_error(self, expected: str) -> ConfigError:
        where = self._text[: self._end - len(self.token)].strip()[-60:]
        after = f" after {where!r}" if where else ""
        found = repr(self.token[:60]) if self.token else "nothing"
        return ConfigError(f"condition: expected {expected}{after}, found {found}")

    def parse_disjunction(self, depth: int) -> Condition:
        return self._parse_junction("or", depth)

    def _parse_junction(self, word: Literal["and", "or"], depth: int) -> Condition:
        parts = []
        while True:
            parts.append(
                self._parse_junction("and", depth) if word == "or" else self._parse_negation(depth)
            )
            if not (self.kind == "word" and self.token.lower() == word):
                return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))
            self._next()

    def _parse_negation(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise ConfigError(f"condition: nested more than {_DEEPEST} deep")
        if self.kind == "word" and self.token.lower() == "not":
            self._next()
            return Negation(self._parse_negation(depth + 1))
        if self.kind == "open":
            self._next()
            inner = self.parse_disjunction(depth + 1)
            if self.kind != "close":
                raise self.create_error("')'")
            self._next()
            return inner
        return self._parse_comparison()

    def _parse_comparison(self) -> FieldComparison:
        if self.kind != "word":
            raise self.create_error("a field")
        field = parse_field(self.token)
        self._next()
        if self.kind != "sign":
            raise self.create_error("one of = != < <= > >= ~")
        sign: Sign = self.token  # type: ignore[assignment]
        self._next()
        if self.kind != "word":
            raise self.create_error("a value")
        value = _parse_value(field, self.token)
        _check(field, sign, value)
        self._next()
        return FieldComparison(field, sign, value)

    def _next(self) -> None:
        if not self._text[self._end :].strip():
            self.kind, self.token = None, ""
            return
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            rest = self._text[self._end :].strip()
            hint = (
                "; quotes come in pairs, and one within a text stands within the other kind"
                if rest[0] in "\"'"
                else ""
            )
            raise ConfigError(f"condition: cannot read {rest[:60]!r}{hint}")
        self.kind, self._end = match.lastgroup, match.end()
        self.token = match.group(match.lastgroup or 0)


def _parse_value(field: QueryField, token: str) -> Value:
    text = _remove_quotes(token)
    if "\0" in text:
        raise ConfigError("condition: no text holds a NUL")
    if token.startswith(('"', "'")) or field.group in TEXTS:
        return None if token == "null" else text
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    try:
        number = float(text)
    except ValueError:
        return _parse_seconds(text) if field.group in _TIMES else text
    if math.isnan(number):
        raise ConfigError("condition: nothing compares with NaN; '= null' asks for it")
    return number


def _parse_seconds(text: str) -> float:
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"condition: {text[:60]!r} is no date such as 2026-11-21 or 2026-11-21T14:30"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _check(field: QueryField, sign: Sign, value: Value) -> None:
    shown = f"{field.group}.{field.name}" if field.name else field.group
    if (value is None or isinstance(value, bool)) and sign not in ("=", "!="):
        raise ConfigError(f"condition: {shown} {sign}: only = and != go with null, true and false")
    if (
        field.group == "status"
        and isinstance(value, str)
        and sign in ("=", "!=")
        and value not in NEXT
    ):
        hint = suggest_name(value[:60], NEXT) or f"; there are: {', '.join(NEXT)}"
        raise ConfigError(f"condition: no run has the status {value[:60]!r}{hint}")
    if isinstance(value, str) and (field.group in (*NUMBERS, "statistics", "best", "trials")):
        raise ConfigError(f"condition: {shown} is a number, and {value[:60]!r} is not")
    if (
        isinstance(value, (bool, float))
        and field.group in (*NUMBERS, "best", "trials")
        and sign == "~"
    ):
        raise ConfigError(f"condition: {shown} ~: a number contains nothing")
    if isinstance(value, float) and sign == "~":
        raise ConfigError(f"condition: {shown} ~: put the text into quotes")


def _remove_quotes(token: str) -> str:
    """Return a word without its quotes; within them a backslash escapes the next character."""
    parts = re.findall(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^"']+))""", token)
    return "".join(
        plain or re.sub(r"\\(.)", r"\1", double or single) for double, single, plain in parts
    )
