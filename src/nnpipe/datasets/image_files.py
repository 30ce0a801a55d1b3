"""The base of data sets of image files."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.image_conversion import to_eight_bits
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import Listing, list_class_files
from nnpipe.datasets.in_memory import check_indices, make_image_classification_spec
from nnpipe.datasets.listed_files import ClassifiedFilesDataset, L, ListedFilesDataset

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)
"""Suffixes of image files, compared in lower case."""

_PIXELS = 64 << 20  # the resolution of today's cameras; decoded, they need 192 MiB
_ORIENTATION = 0x0112  # the tag of EXIF data; from 5 on, width and height change places
_PIXELS_TO_ONE = 256  # or this number for each pixel of the result


class ImageFilesDataset(ClassifiedFilesDataset):
    """Base of classification data sets of image files, which are decoded when they are read.

    A subclass writes :meth:`list_files`.  Images are rotated according to their EXIF
    data and resized (bilinear with antialiasing; the aspect ratio is not kept).
    """

    requires: ClassVar[tuple[str, ...]] = ("PIL",)
    install: ClassVar[str] = "nnpipe[data]"

    image_size: tuple[int, int] = argument(
        (224, 224), help="height and width to which images are resized", minimum=1
    )
    color: Literal["rgb", "grayscale"] = argument(
        "rgb", help="whether images have three channels or one"
    )

    @property
    def spec(self) -> DatasetSpec:
        """Images of ``image_size`` with three channels or one, and the classes."""
        return make_image_classification_spec(
            *self.image_size, 3 if self.color == "rgb" else 1, self.files.class_names
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded images and their labels."""
        indices = check_indices(indices, len(self))
        channels = 3 if self.color == "rgb" else 1
        pixels = np.empty((len(indices), *self.image_size, channels), np.uint8)
        for place, index in zip(pixels, indices, strict=True):
            place[:] = decode_image(self.files.paths[index], self.image_size, channels)
        return {"image": pixels}, {"label": self.files.labels[indices]}


def decode_image(
    path: Path, size: Sequence[int], channels: int, declared: tuple[int, int] | None = None
) -> npt.NDArray[np.uint8]:
    """Return a decoded and resized image file.

    Parameters
    ----------
    path
        The file.
    size
        Height and width of the result.
    channels
        3 for RGB, 1 for grey.
    declared
        Height and width that annotations state.  If only the image as it is stored has them, it is
        not rotated according to its EXIF data.

    Returns
    -------
    ndarray
        uint8 ``(height, width, channels)``.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, not an image, or of another size than declared; the message
        names it.
    """
    from PIL import Image

    height, width = size
    with _open_image(
        path, max(_PIXELS, _PIXELS_TO_ONE * height * width), f"for {width:,} x {height:,} pixels "
    ) as image:
        upright = _apply_orientation(image, path, declared)
        resized = _convert_image(upright, channels, image.format).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        return np.asarray(resized, np.uint8).reshape(height, width, channels)


def decode_whole_image(
    path: Path, channels: int, declared: tuple[int, int] | None = None
) -> npt.NDArray[np.uint8]:
    """Return a decoded image file in its own size, as :func:`decode_image` does for a given one.

    Parameters
    ----------
    path, channels, declared
        As in :func:`decode_image`.

    Returns
    -------
    ndarray
        uint8 ``(height, width, channels)``.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, not an image, or of another size; the message names it.
    """
    with _open_image(path, _PIXELS) as image:
        found = _convert_image(_apply_orientation(image, path, declared), channels, image.format)
        return np.asarray(found, np.uint8).reshape(found.height, found.width, channels)


def read_image_size(path: Path) -> tuple[int, int]:
    """Return height and width of an image file, turned upright by its EXIF data, without decoding
    it.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, or not an image; the message names it.
    """
    with _open_image(path, _PIXELS, decode=False) as image:
        turned = image.getexif().get(_ORIENTATION) in (5, 6, 7, 8)
        return (image.width, image.height) if turned else (image.height, image.width)


def stack_padded_images(
    images: Sequence[npt.NDArray[np.uint8]],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return images of different sizes as one batch, padded with black below and on the right, and
    their sizes.

    Parameters
    ----------
    images
        Images ``(height, width, 3)``.

    Returns
    -------
    batch, sizes
        ``(n, height, width, 3)``, and height and width of each, ``(n, 2)``.
    """
    sizes = np.array([image.shape[:2] for image in images], np.int32).reshape(-1, 2)
    canvas = np.zeros((len(images), *sizes.max(axis=0, initial=0), 3), np.uint8)
    for place, image in zip(canvas, images, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return canvas, sizes


def decode_mask_values(path: Path, *, coloured: bool = False) -> npt.NDArray[np.integer]:
    """Return the numbers of a mask's pixels as the file stores them: levels of grey, or indices of
    a palette.

    Colours of which all are grey count as levels of grey.

    Parameters
    ----------
    path
        The file.
    coloured
        Whether to return colours instead, as ``red << 16 | green << 8 | blue``.

    Returns
    -------
    ndarray
        ``(height, width)``.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, not an image, or has colours that are not asked for; the
        message names it.
    """
    with _open_image(path, _PIXELS) as image:
        if coloured:
            red, green, blue = (np.asarray(part, np.int32) for part in image.convert("RGB").split())
            found: npt.NDArray[np.integer] = red << 16 | green << 8 | blue
            return found
        if image.mode in ("RGB", "RGBA", "LA"):
            pixels = np.asarray(image.convert("RGB"))
            if (pixels == pixels[..., :1]).all():  # grey, stored as colours
                return pixels[..., 0]
        if image.mode in ("RGB", "RGBA", "LA", "CMYK", "YCbCr", "F"):
            raise DatasetError(
                f"{path} holds colours, and not a number for each pixel: say which colour is which "
                f"class with "
                '--pixel-classes "#ff8000=CLASS"'
            )
        return np.asarray(image, np.uint8) if image.mode == "1" else np.asarray(image)


@contextmanager
def _open_image(
    path: Path, most: int, purpose: str = "", *, decode: bool = True
) -> Iterator[Image]:
    """Open an image file of at most ``most`` pixels; what fails in decoding it becomes a
    :class:`DatasetError`.
    """
    from PIL import Image as images

    try:
        with warnings.catch_warnings():
            # Pillow has one limit for all images; this one depends on the size of the result.
            warnings.simplefilter("ignore", images.DecompressionBombWarning)
            image = images.open(path)
        with image:
            if image.width * image.height > most:
                claimed = f"{image.width:,} x {image.height:,} pixels"
                raise DatasetError(
                    f"{path} claims {claimed}; {purpose}at most {most:,} are read; scale it down"
                )
            if decode:
                image.load()
            yield image
    # Pillow checks the size in the header before it allocates memory.
    except images.DecompressionBombError:
        raise DatasetError(f"{path} claims too many pixels; remove it") from None
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there any more; put it back") from None
    # Pillow's exceptions for damaged files depend on the format and the place of the damage.
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        struct.error,
    ) as error:
        raise DatasetError(
            f"{path} is no image that can be read ({_get_first_line(error)}); remove or replace it"
        ) from None


def _apply_orientation(image: Image, path: Path, declared: tuple[int, int] | None) -> Image:
    """Return an image rotated according to its EXIF data, or as it is stored if only so it has
    the declared size.
    """
    from PIL import ImageOps

    if declared is None:
        ImageOps.exif_transpose(image, in_place=True)
        return image
    turned: Image = ImageOps.exif_transpose(image)
    fitting = [each for each in (turned, image) if declared == (each.height, each.width)]
    if not fitting:
        raise DatasetError(
            f"{path} has {turned.width} x {turned.height} pixels, and its annotations are for "
            f"{declared[1]} x {declared[0]}; get both again"
        )
    return fitting[0]


def _convert_image(image: Image, channels: int, stored_as: str | None) -> Image:
    from PIL import Image as images

    if (pixels := to_eight_bits(image, stored_as)) is not None:
        image = images.fromarray(pixels)
    # a palette with transparent colours cannot become RGB directly
    elif "transparency" in image.info:
        image = image.convert("RGBA")
    mode = "RGB" if channels == 3 else "L"
    return image if image.mode == mode else image.convert(mode)  # convert() copies in any case


def _get_first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class ImageFolderDataset(ImageFilesDataset):
    """Your own images: one folder per class, optionally below train, validation and test.

    With ``ROOT/CLASS/*.jpg``, the split follows the fractions.  With
    ``ROOT/train/CLASS/*.jpg``, ``ROOT/test/CLASS/*.jpg`` and
    ``ROOT/validation/CLASS/*.jpg``, some of which may be missing or empty, the
    folders define the split; they may also be called ``val``, ``Training``,
    ``test_set`` and the like.  Class names are sorted.

    If a model has more classes than there are folders, ``class_list`` names the
    file with the model's classes and their order.
    """

    answers: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "ImageNetDataset": "use ImageFolderDataset with --dataset-root FOLDER of one folder "
            "of pictures for each class, --class-list FILE with the 1,000 classes in the model's "
            "order, and --test-fraction 1",
            "VisualWakeWordsDataset": "use ImageFolderDataset with --dataset-root FOLDER that "
            "holds pictures in 'non_person' and 'person', --image-size 96 96, and --test-fraction "
            "1 to measure them all; pictures with COCO's annotations are read by COCODataset",
        }
    )

    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders "
        "then have these names or numbers",
    )

    def list_files(self) -> Listing:
        """Return the image files in the folders."""
        return list_class_files(self.dataset_root, SUFFIXES, "images", self.class_list)


Sizes = npt.NDArray[np.int32]


class ListedPicturesDataset(ListedFilesDataset[L]):
    """Base of data sets of pictures that keep their own sizes, and are decoded when they are read.

    Those of a batch are padded with black, below and on the right, and ``image_size`` tells where
    each ends.  How they are brought to a model's size is said for the model (``--fit``,
    ``--resize``), and predictions are compared with the truth in pixels of the picture.
    """

    abstract: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("PIL",)
    install: ClassVar[str] = "nnpipe[data]"

    pictures: ClassVar[tuple[TensorSpec, ...]] = (
        TensorSpec("image", (None, None, None, 3), "uint8"),
        TensorSpec(IMAGE_SIZE, (None, 2), "int32"),
    )
    """The inputs."""

    def prepare(self) -> None:
        """Download the files if asked for, then list them."""
        super().prepare()
        if not self.files.paths:
            raise DatasetError(f"{self.dataset_root} holds no pictures for {type(self).__name__}")

    def decode_pictures(
        self, indices: npt.NDArray[np.integer], sizes: npt.NDArray[np.integer] | None = None
    ) -> tuple[Batch, Sizes]:
        """Return some pictures as a batch of inputs, and their heights and widths, ``(n, 2)``.

        Parameters
        ----------
        indices
            The numbers of the samples.
        sizes
            Height and width of each picture of the data set, where annotations state them; others
            are refused.
        """
        stated: Sequence[tuple[int, int] | None] = [
            None if sizes is None else (int(sizes[index, 0]), int(sizes[index, 1]))
            for index in indices
        ]
        paths = self.files.paths
        canvas, found = stack_padded_images(
            [
                decode_whole_image(paths[index], 3, size)
                for index, size in zip(indices, stated, strict=True)
            ]
        )
        return {"image": canvas, IMAGE_SIZE: found}, found
