"""Folders of images."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.image_conversion import to_eight_bits
from nnpipe.experiment.readers.reader import Column, DataReader, stack_values

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
"""Endings of image files, in lower case."""


class ImageReader(DataReader):
    """Reads the images of a folder and its subfolders.

    The columns are ``image``, uint8 ``(n, height, width, channels)`` or a list if
    sizes differ, and ``name``, the path in the folder.  If all images are in
    subfolders, there is also ``label``, the number of the subfolder in the order of
    their names.
    """

    requires = ("PIL",)
    install = "nnpipe[data]"
    needs_file: ClassVar[bool] = False

    channels: int = argument(3, help="3 for red, green and blue, 1 for grey", choices=(1, 3))
    height: int = argument(
        0, help="scale to this many rows; 0 leaves images as they are", minimum=0
    )
    width: int = argument(
        0, help="scale to this many columns; 0 leaves images as they are", minimum=0
    )

    def _read(self) -> dict[str, Column]:
        paths = [
            p for p in sorted(self.path.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file()
        ]
        if not paths:
            raise DatasetError("holds no images")
        images, total = [], 0
        for path in paths:
            image = self._read_image(path, total)
            total += image.nbytes
            images.append(image)
        columns: dict[str, Column] = {
            "image": stack_values(images),
            "name": [path.relative_to(self.path).as_posix() for path in paths],
        }
        folders = [
            path.relative_to(self.path).parts[0] for path in paths if path.parent != self.path
        ]
        if len(folders) == len(paths):
            numbers = {name: number for number, name in enumerate(sorted(set(folders)))}
            columns["label"] = np.array([numbers[name] for name in folders], np.int64)
        return columns

    def _read_image(
        self, path: Path, before: int
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        from PIL import Image

        try:
            with Image.open(path) as image:
                # Four times as much while it is decoded, scaled and rotated.
                self._check_size(before + 4 * image.width * image.height * self.channels, path.name)
                deep = to_eight_bits(image, image.format)
                plain = (image if deep is None else Image.fromarray(deep)).convert(
                    "RGB" if self.channels == 3 else "L"
                )
                if self.height and self.width:
                    plain = plain.resize((self.width, self.height), Image.Resampling.BILINEAR)
                pixels = np.asarray(plain, np.uint8)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise DatasetError(f"{path.name}: {error}") from error
        except (OSError, ValueError, SyntaxError) as error:
            raise DatasetError(f"{path.name}: no image that can be read: {error}") from error
        return pixels.reshape(*pixels.shape[:2], self.channels)
