"""Frames of videos are read one by one, and files that are no videos are refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed, needs

from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.workflows.testrun.picture_sources import iter_pictures

needs("cv2")
cv2 = ImportedWhenUsed("cv2")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence FFmpeg from the first video on, for it reads its settings once, and here videos
    are written first.
    """
    monkeypatch.setenv("OPENCV_FFMPEG_LOGLEVEL", "-8")


def written(path: Path, frames: int, kind: str = "mp4v") -> Path:
    """Write a video of red frames that become brighter, again and again."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*kind), 25.0, (64, 48))
    assert writer.isOpened()
    for number in range(frames):
        writer.write(np.full((48, 64, 3), (0, 0, 10 * (number % 25)), np.uint8))
    writer.release()
    return path


@pytest.mark.parametrize(
    ("name", "kind"), [("a.mp4", "mp4v"), ("a.avi", "MJPG"), ("a.mkv", "mp4v")]
)
def test_every_frame_of_a_video_is_read_in_order_and_colour(
    tmp_path: Path, name: str, kind: str
) -> None:
    found = list(iter_pictures(str(written(tmp_path / name, 20, kind)), 1000))
    assert [each for each, _ in found] == [f"frame-{number:06d}" for number in range(1, 21)]
    middles = np.array([picture[24, 32] for _, picture in found]).astype(int)
    np.testing.assert_allclose(middles[:, 0], 10 * np.arange(20), atol=12)
    assert middles[:, 1:].max() < 30


def test_every_nth_frame_is_taken(tmp_path: Path) -> None:
    source = str(written(tmp_path / "a.mp4", 20))
    assert [name for name, _ in iter_pictures(source, 2, every=8)] == [
        "frame-000001",
        "frame-000009",
    ]
    assert len(list(iter_pictures(source, 100, every=8))) == 3


def test_a_damaged_video_gives_the_frames_that_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "a.avi", 100, "MJPG")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert 0 < len(list(iter_pictures(str(path), 1000))) < 60
    assert "announces 100 frames" in caplog.text


def no_frames(path: Path) -> None:
    written(path, 0)


def cut_short(path: Path) -> None:
    path.write_bytes(written(path, 20).read_bytes()[:1000])


def text(path: Path) -> None:
    path.write_text("no video\n" * 1000)


def list_of_other_files(path: Path) -> None:
    written(path.with_name("other.mp4"), 3)
    path.write_text("ffconcat version 1.0\nfile other.mp4\n")


def addresses(path: Path) -> None:
    path.write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"
    )


@pytest.mark.parametrize("make", [no_frames, cut_short, text, list_of_other_files, addresses])
def test_what_is_no_video_is_refused_in_one_line(
    tmp_path: Path, make: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "a.mp4")
    with pytest.raises(ConfigError, match=r"a\.mp4: OpenCV finds no picture in it"):
        list(iter_pictures(str(tmp_path / "a.mp4"), 10))
    assert capfd.readouterr().err == ""


class Endless:
    """Stands for a camera, which the machines that run tests do not have."""

    taken: Iterator[int] = count()
    size = (4, 6)

    def __init__(self, number: int) -> None:
        self.number = number

    def isOpened(self) -> bool:
        return self.number == 1

    def get(self, what: int) -> float:
        return {
            cv2.CAP_PROP_FRAME_HEIGHT: self.size[0],
            cv2.CAP_PROP_FRAME_WIDTH: self.size[1],
        }.get(what, -1.0)

    def grab(self) -> bool:
        next(self.taken)
        return True

    def retrieve(self) -> tuple[bool, np.ndarray]:
        return True, np.full((4, 6), 7, np.uint8)

    def release(self) -> None:
        type(self).taken = count()


def test_a_camera_gives_as_many_frames_as_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    import cv2 as module

    monkeypatch.setattr(module, "VideoCapture", Endless)
    found = [picture for _, picture in iter_pictures("camera:1", 3)]
    assert [each.shape for each in found] == [(4, 6, 3)] * 3
    with pytest.raises(ConfigError, match="camera: OpenCV finds no such camera"):
        list(iter_pictures("camera", 3))
    monkeypatch.setattr(Endless, "size", (1 << 20, 1 << 20))
    with pytest.raises(DatasetError, match="are not read"):
        list(iter_pictures("camera:1", 3))
