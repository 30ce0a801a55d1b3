"""Progress where there is no terminal: a line now and then, whatever the number of bars."""

from __future__ import annotations

from typing import Any

import pytest

from nnpipe.workflows import progress


class Clock:
    """Goes on by a second with each look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    monkeypatch.setattr(progress, "_LOG", progress._LogLines())
    return clock


def test_short_bars_write_no_line_each_but_one_every_ten_seconds(clock: Clock, capsys: Any) -> None:
    for epoch in range(1, 21):
        assert [*progress.show_progress(range(5), f"epoch {epoch}/20")] == [*range(5)]
    lines = capsys.readouterr().err.splitlines()
    assert 7 <= len(lines) <= 10
    assert lines[0] == "epoch 2/20: 5 of 5 (100%)"


def test_the_number_of_items_may_be_unknown_and_what_is_over_soon_says_nothing(
    clock: Clock, capsys: Any
) -> None:
    assert [*progress.show_progress(iter("abc"), "soon over")] == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    assert len([*progress.show_progress(iter(range(30)), "reading")]) == 30
    assert capsys.readouterr().err.splitlines()[0] == "reading: 7"
