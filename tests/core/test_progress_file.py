"""Lines of progress are read whatever else is in the file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.progress import (
    LONGEST_LINE,
    MOST_METRICS,
    ProgressFile,
    Reader,
    Renaming,
    Report,
    append,
    parse_report,
    silent,
    tell,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    append(path, 0.25, {"loss": 2, "accuracy": 0.5})
    append(path, None, {"loss": math.inf})
    append(path, 1.5, {})
    assert Reader().feed(path.read_bytes()) == [
        Report(0.25, {"loss": 2.0, "accuracy": 0.5}),
        Report(None, {"loss": math.inf}),
        Report(1.0, {}),
    ]


@given(
    st.lists(
        st.sampled_from(
            [b'{"fraction": 0.5}', b"", b"{", b"\xff", b'{"metrics": {"a": 1}}', b"[[]]", b"9" * 99]
        )
    ),
    st.lists(st.integers(0, 50)),
)
def test_pieces_of_any_size_give_the_same(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    whole, reader, found = Reader(), Reader(), []
    begin = 0
    for size in [*sizes, len(data)]:
        found += reader.feed(data[begin : begin + size])
        begin += size
    assert found == whole.feed(data)
    assert reader.skipped == whole.skipped
    assert len(found) == sum(
        line in (b'{"fraction": 0.5}', b'{"metrics": {"a": 1}}') for line in lines
    )


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    Reader().feed(data + b"\n")


LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
KEYS = st.sampled_from(["fraction", "metrics", "a"])


@given(st.recursive(LEAVES, lambda part: st.lists(part) | st.dictionaries(KEYS, part)))
def test_no_json_raises(value: object) -> None:
    found = parse_report(json.dumps(value).encode())
    if found is not None and found.fraction is not None:
        assert 0.0 <= found.fraction <= 1.0


@pytest.mark.parametrize(("digits", "value"), [("9" * 400, math.inf), ("-" + "9" * 400, -math.inf)])
def test_whole_numbers_beyond_all_doubles_are_infinite(digits: str, value: float) -> None:
    assert parse_report(b'{"metrics": {"a": ' + digits.encode() + b"}}") == Report(
        None, {"a": value}
    )


def test_what_is_too_much_is_left_out() -> None:
    assert parse_report(json.dumps({"fraction": 0.5, "x": "y" * LONGEST_LINE}).encode()) is None
    many = parse_report(
        json.dumps({"metrics": {str(n): n for n in range(MOST_METRICS + 5)}}).encode()
    )
    assert many is not None
    assert len(many.metrics) == MOST_METRICS
    reader = Reader()
    for _ in range(5):
        assert reader.feed(b"x" * LONGEST_LINE) == []
        assert len(reader._rest) <= LONGEST_LINE, "a line without an end fills the memory"
    assert reader.feed(b'x\n{"fraction": 1}\n') == [Report(1.0)]
    assert reader.skipped == 1


def test_a_part_of_the_work_is_a_part_of_the_fraction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    progress = ProgressFile(tmp_path / "told")
    assert list(progress([1, 2], "work")) == [1, 2]
    second = Renaming(
        progress.part(1, 4),
        lambda figures: {f"our {name}": value for name, value in figures.items()},
    )
    tell(second, 1, 2, {"loss": 1.0})
    tell(progress, 1, 2, {})
    tell(silent, 1, 2, {})
    assert Reader().feed((tmp_path / "told").read_bytes()) == [
        Report(0.375, {"our loss": 1.0}),
        Report(0.5),
    ]
    lost = ProgressFile(tmp_path / "nowhere" / "told")
    tell(lost, 1, 2, {})
    tell(lost, 2, 2, {})
    assert len(caplog.records) == 1
    assert "progress cannot be told: No such file" in caplog.text
