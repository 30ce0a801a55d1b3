"""JSON from outside is bounded, and what readers understand differently is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nnpipe.core.bounded_json import parse_json, read_object
from nnpipe.core.errors import ArtifactError


def test_what_json_holds_is_returned() -> None:
    assert parse_json('{"a": [1, 2.5, null, true, "\\u00e9 \\ud83d\\ude00"], "b": {"a": 1}}') == {
        "a": [1, 2.5, None, True, "\u00e9 \U0001f600"],
        "b": {"a": 1},
    }
    assert math.isnan(parse_json("NaN"))


def test_bytes_are_utf_8() -> None:
    assert parse_json('{"é": 1}'.encode()) == {"é": 1}
    with pytest.raises(ValueError, match="decode"):
        parse_json(b'"\xff"')


def test_texts_of_any_kind_are_taken_where_they_are_told_to_be() -> None:
    assert parse_json('["\\u0000", "\\ud800"]', any_text=True) == ["\0", "\ud800"]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 4000, "a whole number has 4,000 digits"),
        ('{"a": "\\ud800"}', "half a character"),
        ('["x\\u0000"]', "a NUL"),
        ("{", "line 1 column 2"),
    ],
)
def test_what_would_fail_later_is_refused_with_its_cause(
    tmp_path: Path, text: str, cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        parse_json(text)
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ArtifactError, match=cause):
        read_object(path)
