"""The reader of folders that ``save_pretrained`` of Hugging Face transformers writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import entries, read_object
from nnpipe.core.errors import ArtifactError

CONFIGURATION = "config.json"
_MOST_LAYERS, _GREATEST = 1024, 1 << 31
_WHOLE = 384  # pixels; images of this size and above are not cropped
_COUNTS = ("layer", "depth", "block", "stage")


@dataclass(frozen=True)
class TransformersFolder:
    """The configuration, the image preprocessing and the weight files of a folder."""

    path: Path
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any]
    weights: tuple[Path, ...]

    @property
    def size(self) -> int:
        """The size of all weight files together, in bytes."""
        return sum(path.stat().st_size for path in self.weights)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the images, by the configuration or the preprocessing; ``None`` if neither says them."""
        cropped = self.preprocessor.get("crop_size") if self.preprocessor.get("do_center_crop") else None
        said = (_sides(value) for value in (self.config.get("image_size"), cropped, self.preprocessor.get("size")))
        return next((sides for sides in said if sides), None)

    @property
    def shortest_edge(self) -> int | None:
        """The shorter side that images get before their centre is cut out, in pixels; ``None`` if nothing is cut."""
        size, share = self.preprocessor.get("size"), self.preprocessor.get("crop_pct")
        edge = size.get("shortest_edge") if isinstance(size, dict) else None
        if not isinstance(edge, int) or not _is_side(edge):
            return None
        if self.preprocessor.get("do_center_crop"):
            return edge
        if isinstance(share, float) and 0 < share <= 1 and edge < _WHOLE:  # as ConvNextImageProcessor does
            return int(edge / share)
        return None


def _is_side(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 14


def _sides(value: Any) -> tuple[int, int] | None:
    """Return height and width from a number, a pair, or a mapping as image processors of transformers write it."""
    if isinstance(value, dict):
        value = value.get("shortest_edge") or [value.get("height"), value.get("width")]
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    return (pair[0], pair[1]) if all(map(_is_side, pair)) else None


def read_folder(folder: Path) -> TransformersFolder:
    """Return the content of the JSON files in a folder and the paths of its weight files.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged or too large, or if the model needs its own code.
    """
    if not (folder / CONFIGURATION).is_file():
        raise ArtifactError(f"{folder}: not a folder that save_pretrained wrote; it has no {CONFIGURATION}")
    config = read_object(folder / CONFIGURATION)
    for name, value in entries(config):
        if name in ("auto_map", "quantization_config", "trust_remote_code"):
            raise ArtifactError(f"{folder / CONFIGURATION}: {name} asks for additional code or packages; not loaded")
        if isinstance(value, int) and not isinstance(value, bool):
            most = _MOST_LAYERS if any(word in name for word in _COUNTS) else _GREATEST
            if abs(value) > most:
                raise ArtifactError(f"{folder / CONFIGURATION}: {name[:60]} is {value}, more than {most}")
    weights = tuple(sorted(folder.glob("*.safetensors")))
    if not weights:
        raise ArtifactError(
            f"{folder}: has no *.safetensors; pickled weights are not loaded, save them with safe_serialization"
        )
    other = folder / "preprocessor_config.json"
    return TransformersFolder(folder, config, read_object(other) if other.is_file() else {}, weights)
