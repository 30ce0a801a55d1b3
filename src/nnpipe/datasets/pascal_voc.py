"""Pictures with boxes in Pascal VOC's form: an XML file for each picture."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_folders import ClassList
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable
from nnpipe.datasets.segmented_images import MaskListing, PixelClasses, SegmentedImagesDataset

_LISTS = {"train": TRAIN, "trainval": TRAIN, "val": TEST, "test": TEST}


def read_split_lists(root: Path, purpose: str) -> dict[str, int]:
    """Return the names in ``ImageSets/PURPOSE/*.txt`` with the codes of their splits; of two, the
    first counts.

    Raises
    ------
    DatasetError
        If a line names no picture.
    """
    found: dict[str, int] = {}
    for name, code in _LISTS.items():
        path = root / "ImageSets" / purpose / f"{name}.txt"
        if not path.is_file():
            continue
        for line in ClassList.read(path).names:
            stem = line.split()[0] if line else ""
            if not stem or "/" in stem or "\\" in stem or "\0" in stem or stem == "..":
                raise DatasetError(f"{path} should name a picture in each line, not {line[:60]!r}")
            found.setdefault(stem, code)
    return found


VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_XML = 16 << 20  # bytes of a file
_DEPTH = 32


class PascalVOCDataset(BoxedImagesDataset):
    """Pictures with boxes in Pascal VOC's form: VOC 2007 and 2012, or your own.

    ``ROOT`` holds ``Annotations/NAME.xml`` and ``JPEGImages/NAME.jpg``, and perhaps
    ``ImageSets/Main/train.txt`` and so on with names: ``train`` (or ``trainval``) is the training
    split, ``test`` (or ``val``) the test split.  Without lists, the split follows the fractions.
    Things marked as difficult need not be found.  Classes are those of VOC, or else the names in
    the files, sorted.
    """

    protocol: Literal["coco", "pascal", "open_images"] = argument(
        "pascal",
        help=(
            "whose rules of matching and mAP judge the boxes: those of COCO, Pascal VOC or Open "
            "Images"
        ),
    )
    class_list: Path | None = argument(
        None, help="text file with all classes of the model, one per line in order of number"
    )

    def list_files(self) -> BoxListing:
        """Return the pictures and boxes of all XML files, or of those that lists name."""
        root = self.dataset_root
        if not (root / "Annotations").is_dir():
            raise DatasetError(
                f"{root / 'Annotations'} is no folder; it must hold an XML file for each picture"
            )
        published = read_split_lists(root, "Main")
        stems = (
            list(published)
            if published
            else sorted(path.stem for path in (root / "Annotations").glob("*.xml"))
        )
        table = BoxTable()
        known: dict[str, int] = {}
        paths: list[Path] = []
        sizes: list[tuple[int, int]] = []
        for stem in stems:
            file = root / "Annotations" / f"{stem}.xml"
            tree = _parse_xml(file)
            name = tree.findtext("filename") or ""
            plain = (
                name and "/" not in name and "\\" not in name and "\0" not in name and name != ".."
            )
            picture = root / "JPEGImages" / (name if plain and Path(name).suffix else f"{stem}.jpg")
            paths.append(picture)
            sizes.append(
                (
                    round(_parse_number(file, tree, "size/height")),
                    round(_parse_number(file, tree, "size/width")),
                )
            )
            for thing in tree.iter("object"):
                self._add(file, thing, len(paths) - 1, known, table)
        names = self._find_class_names(known)
        numbers = {name: number for number, name in enumerate(names)}
        if strange := [name for name in known if name not in numbers]:
            raise DatasetError(
                f"{root / 'Annotations'} has boxes of the class {strange[0]!r}, which is not listed"
            )
        renumbered = np.array([numbers[name] for name in known] or [0], np.int64)
        table.label = type(table.label)("q", renumbered[np.array(table.label, np.int64)].tolist())
        boxes, labels, crowds, areas = table.rows(len(paths))
        official = np.array([published[stem] for stem in stems], np.int8) if published else None
        stated = np.array(sizes, np.int64).reshape(-1, 2)
        return BoxListing(tuple(paths), boxes, labels, names, crowds, areas, stated, official)

    def _find_class_names(self, known: dict[str, int]) -> tuple[str, ...]:
        if self.class_list is not None:
            return ClassList.read(self.class_list).names
        return VOC_CLASSES if set(known) <= set(VOC_CLASSES) else tuple(sorted(known))

    def _add(
        self, file: Path, thing: Element, picture: int, known: dict[str, int], table: BoxTable
    ) -> None:
        name = (thing.findtext("name") or "").strip()
        if not name:
            raise DatasetError(f"{file}: an object has no name")
        left, top, right, bottom = (
            _parse_number(file, thing, f"bndbox/{side}")
            for side in ("xmin", "ymin", "xmax", "ymax")
        )
        # Pixels are counted from 1, and the last one belongs to the box.
        box = left - 1, top - 1, right - left + 1, bottom - top + 1
        hard = (thing.findtext("difficult") or "0").strip() == "1"
        table.add(picture, known.setdefault(name, len(known)), box, str(file), crowd=hard)


def _parse_number(file: Path, tree: Element, path: str) -> float:
    text = (tree.findtext(path) or "").strip()
    try:
        value = float(text)
        if not abs(value) <= 1 << 20:
            raise ValueError
    except ValueError:
        raise DatasetError(
            f"{file}: {path} should be a number of pixels, not {text[:40]!r}"
        ) from None
    return value


def _parse_xml(path: Path) -> Element:
    """Return the content of an XML file; one that declares a document type, and so perhaps
    entities, is refused.
    """
    try:
        if path.stat().st_size > _XML:
            raise DatasetError(f"{path} is too large for the boxes of a picture")
        data = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there, but a list names it") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH:
            raise DatasetError(f"{path} is nested too deeply for boxes")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    def refuse_doctype(*_: object) -> None:
        raise DatasetError(
            f"{path} declares a document type, which files of boxes do not need; remove the "
            f"declaration"
        )

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = builder.data, refuse_doctype
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, ValueError, AssertionError) as error:
        raise DatasetError(f"{path} is no XML that can be read: {error}; get it again") from None


_BORDER = 255


class PascalVOCMasksDataset(SegmentedImagesDataset):
    """Pictures with masks in Pascal VOC's form: VOC 2007 and 2012, or your own.

    ``ROOT`` holds ``SegmentationClass/NAME.png``, whose palette's indices are the classes, and
    ``JPEGImages/NAME.jpg``, and perhaps ``ImageSets/Segmentation/train.txt`` and so on with names:
    ``train`` (or ``trainval``) is the training split, ``val`` (or ``test``) the test split.
    Without lists, the split follows the fractions.  Borders of things, 255, do not count.
    """

    class_list: Path | None = argument(
        None,
        help="text file with all classes, background first, one per line; by default those of VOC",
    )

    def classes(self) -> PixelClasses:
        """Return that pixels are class numbers, those of VOC or of the list."""
        names = (
            ("background", *VOC_CLASSES)
            if self.class_list is None
            else ClassList.read(self.class_list).names
        )
        return PixelClasses.from_names(names, (_BORDER,))

    def list_files(self) -> MaskListing:
        """Return the pictures of all masks, or of those that lists name."""
        folder = self.dataset_root / "SegmentationClass"
        if not folder.is_dir():
            raise DatasetError(
                f"{folder} is no folder; it must hold a mask NAME.png for each picture"
            )
        published = read_split_lists(self.dataset_root, "Segmentation")
        stems = list(published) or sorted(path.stem for path in folder.glob("*.png"))
        return MaskListing(
            tuple(self.dataset_root / "JPEGImages" / f"{stem}.jpg" for stem in stems),
            tuple(folder / f"{stem}.png" for stem in stems),
            np.array([published[stem] for stem in stems], np.int8) if published else None,
        )
