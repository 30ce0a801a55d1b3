"""Pictures to try a model on: from files, a folder, a video or a camera."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError, DatasetError, MissingDependency
from nnpipe.datasets.image_files import SUFFIXES, decode_whole_image

_LOG = logging.getLogger(__name__)
_PIXELS = 64 << 20
# of the frames that a file announces, a number that is only estimated in some formats
_MOSTLY = 0.9

# FFmpeg recognises a file by its content.  A playlist with the ending of a video would make it open
# other files and addresses, so that formats which only name others are left out, as are all
# protocols but files.
_FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo,ogg"
_SETTINGS = {
    "OPENCV_FFMPEG_CAPTURE_OPTIONS": f"protocol_whitelist;file|format_whitelist;{_FORMATS}",
    "OPENCV_FFMPEG_LOGLEVEL": "-8",  # what is wrong is said in one line, by an exception
}


def iter_frames(
    opened: str | int, source: str, every: int = 1
) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """Yield names and pixels ``(height, width, 3)`` of the frames of a video or a camera.

    Frames are read one by one, so that a long video takes no more memory than a short one.

    Parameters
    ----------
    opened
        The path of a video file, or the number of a camera.
    source
        Its name in messages.
    every
        1 for all frames, 2 for every second one, and so on.

    Raises
    ------
    ConfigError
        If there is no such camera, or no video in the file.
    DatasetError
        If frames are larger than any that should be read.
    MissingDependency
        If OpenCV is not installed.
    """
    with _suppress_opencv_log():
        try:
            import cv2
        except ImportError:
            raise MissingDependency(
                f"{source}: videos and cameras need OpenCV, which is not installed: pip install "
                f"'nnpipe[video]'"
            ) from None
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        capture = _open_capture(cv2, opened)
        try:
            if not capture.isOpened():
                raise ConfigError(f"{source}: {_explain_no_picture(opened)}")
            if (
                capture.get(cv2.CAP_PROP_FRAME_WIDTH) * capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
                > _PIXELS
            ):
                raise DatasetError(f"{source}: frames of more than {_PIXELS:,} pixels are not read")
            announced, number = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0
            while capture.grab():
                number += 1
                if (number - 1) % every:
                    continue
                there, frame = capture.retrieve()
                if there:
                    yield f"frame-{number:06d}", np.ascontiguousarray(_convert_to_rgb(frame))
            if not number:
                raise ConfigError(f"{source}: {_explain_no_picture(opened)}")
            if number < _MOSTLY * announced:
                _LOG.warning(
                    "%s announces %d frames, and %d can be read: it is damaged",
                    source,
                    announced,
                    number,
                )
        finally:
            capture.release()


def _convert_to_rgb(frame: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return a frame with red, green and blue, in this order; OpenCV has blue first, and may
    have grey frames.
    """
    return np.repeat(frame[..., None], 3, axis=2) if frame.ndim == 2 else frame[..., 2::-1]


def _explain_no_picture(opened: str | int) -> str:
    if isinstance(opened, int):
        return "OpenCV finds no such camera, or may not use it"
    return (
        "OpenCV finds no picture in it: it is no video, cut short, or of a kind that OpenCV does "
        "not know"
    )


def _open_capture(cv2: Any, opened: str | int) -> Any:
    """Return a capture; files are opened by FFmpeg where OpenCV has it, for only its formats are
    restricted here.
    """
    if isinstance(opened, str) and cv2.CAP_FFMPEG in cv2.videoio_registry.getStreamBackends():
        return cv2.VideoCapture(opened, cv2.CAP_FFMPEG)
    return cv2.VideoCapture(opened)


@contextmanager
def _suppress_opencv_log() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


CAMERA = "camera"
"""The source that is a camera: ``camera``, or ``camera:1`` for the second one."""

_VIDEOS = frozenset({".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ogv"})


def iter_pictures(
    source: str, most: int, every: int = 1
) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """Yield names and pixels ``(height, width, 3)`` of the first pictures of a source.

    Parameters
    ----------
    source
        An image file, a folder with image files, a video file, or a camera.
    most
        The greatest number of pictures.
    every
        1 for all pictures, 2 for every second one, and so on.

    Raises
    ------
    ConfigError
        If there is no such source, or it has no pictures.
    DatasetError
        If a file is no image.
    MissingDependency
        If a video or a camera is named, and OpenCV is not installed.
    """
    path = Path(source)
    if source.partition(":")[0] == CAMERA and not path.exists():
        number = source.partition(":")[2] or "0"
        if not number.isdecimal() or len(number) > 3:
            raise ConfigError(f"{source}: a camera is camera, or camera:N with its number")
        yield from islice(iter_frames(int(number), source, every), most)
    elif path.is_dir():
        files = sorted(
            each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file()
        )
        if not files:
            raise ConfigError(f"{path} holds no image files ({', '.join(sorted(SUFFIXES))})")
        for each in files[::every][:most]:
            yield each.stem, decode_whole_image(each, 3)
    elif not path.is_file():
        raise ConfigError(f"{path}: no such folder, image or video; a camera is named {CAMERA}")
    elif path.suffix.lower() in _VIDEOS:
        yield from islice(iter_frames(str(path), source, every), most)
    elif path.suffix.lower() in SUFFIXES:
        yield path.stem, decode_whole_image(path, 3)
    else:
        raise ConfigError(
            f"{path}: by its ending neither an image nor a video; --plugin names what loads other "
            f"data"
        )
