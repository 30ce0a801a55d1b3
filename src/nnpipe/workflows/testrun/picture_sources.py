"""Pictures to try a model on: from files, a folder, a video or a camera."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.datasets.image_files import SUFFIXES, decoded_whole
from nnpipe.workflows.testrun.video_frames import frames

CAMERA = "camera"
"""The source that is a camera: ``camera``, or ``camera:1`` for the second one."""

_VIDEOS = frozenset({".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ogv"})


def pictures_in(source: str, most: int, every: int = 1) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
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
        yield from islice(frames(int(number), source, every), most)
    elif path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
        if not files:
            raise ConfigError(f"{path} holds no image files ({', '.join(sorted(SUFFIXES))})")
        for each in files[::every][:most]:
            yield each.stem, decoded_whole(each, 3)
    elif not path.is_file():
        raise ConfigError(f"{path}: no such folder, image or video; a camera is named {CAMERA}")
    elif path.suffix.lower() in _VIDEOS:
        yield from islice(frames(str(path), source, every), most)
    elif path.suffix.lower() in SUFFIXES:
        yield path.stem, decoded_whole(path, 3)
    else:
        raise ConfigError(f"{path}: by its ending neither an image nor a video; --plugin names what loads other data")
