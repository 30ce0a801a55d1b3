"""Figures are rendered for a share of the time, and the last of each file in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnpipe.training.fit import PictureQueue


class Clock:
    """A clock that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Drawing:
    """A figure that takes a second to render; its file tells which it is."""

    def __init__(self, clock: Clock, text: str) -> None:
        self._clock = clock
        self._text = text

    def savefig(self, path: Path, **options: Any) -> None:
        self._clock.now += 1
        path.write_text(self._text)


def test_rendering_takes_a_tenth_of_the_time(tmp_path: Path) -> None:
    clock, renderings = Clock(), []
    pictures = PictureQueue(clock=clock)
    for epoch in range(1000):
        clock.now += 0.5
        before = clock.now
        pictures.add(tmp_path / "a.png", Drawing(clock, str(epoch)))
        renderings.append(clock.now - before)
    assert 0.08 < sum(renderings) / clock.now < 0.11
    assert renderings[0] == 1  # there is a picture from the beginning


def test_long_epochs_have_their_pictures_each(tmp_path: Path) -> None:
    clock = Clock()
    pictures = PictureQueue(clock=clock)
    for epoch in range(5):
        pictures.add(tmp_path / "a.png", Drawing(clock, str(epoch)))
        assert (tmp_path / "a.png").read_text() == str(epoch)
        clock.now += 60


def test_the_newest_figure_of_each_file_is_rendered_in_the_end(tmp_path: Path) -> None:
    clock = Clock()
    pictures = PictureQueue(clock=clock)
    for epoch in range(3):
        for name in ("a", "b"):
            pictures.add(tmp_path / f"{name}.png", Drawing(clock, f"{name} {epoch}"))
    assert (tmp_path / "a.png").read_text() == "a 0"
    pictures.finish()
    assert [(tmp_path / f"{name}.png").read_text() for name in ("a", "b")] == ["a 2", "b 2"]
    assert clock.now == 4


def test_a_figure_that_is_wanted_at_once_is_rendered_at_once_and_no_older_one_afterwards(
    tmp_path: Path,
) -> None:
    clock = Clock()
    pictures = PictureQueue(clock=clock)
    for text in ("first", "waits"):
        pictures.add(tmp_path / "a.png", Drawing(clock, text))
    pictures.add(tmp_path / "a.png", Drawing(clock, "last"), at_once=True)
    pictures.finish()
    assert (tmp_path / "a.png").read_text() == "last"
    assert clock.now == 2


def test_pictures_take_turns(tmp_path: Path) -> None:
    clock = Clock()
    pictures = PictureQueue(clock=clock)
    found = {name: set() for name in ("a", "b", "c")}
    for epoch in range(300):
        clock.now += 2
        for name in found:
            pictures.add(tmp_path / f"{name}.png", Drawing(clock, str(epoch)))
            found[name].add((tmp_path / f"{name}.png").read_text())
    counts = [len(each) for each in found.values()]
    assert min(counts) >= 15
    assert max(counts) <= 2 * min(counts)


def test_a_figure_that_cannot_be_written_keeps_no_other_one_from_its_file(tmp_path: Path) -> None:
    clock = Clock()
    pictures = PictureQueue(clock=clock)
    (tmp_path / "b.png").mkdir()
    for name in ("a", "c"):
        pictures.add(tmp_path / f"{name}.png", Drawing(clock, "first"))
    pictures._rendered.add(tmp_path / "b.png")
    for name in ("a", "b", "c"):
        pictures.add(tmp_path / f"{name}.png", Drawing(clock, "last"))
    with pytest.raises(OSError, match=r"b\.png"):
        pictures.finish()
    assert [(tmp_path / f"{name}.png").read_text() for name in ("a", "c")] == ["last", "last"]
