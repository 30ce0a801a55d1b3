"""The reader of Darknet's networks: a ``.cfg`` file with the layers, and a ``.weights`` file with their numbers.

Files are not trusted: every size is bounded, and the length of the weights is compared with the layers, before memory
is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._errors import Damaged
from nnpipe.formats.darknet_cfg import DarknetSection, read_sections
from nnpipe.formats.darknet_layers import SIDE, Convolution, DarknetLayer, Shape, YOLOHead, layer_of
from nnpipe.formats.file_types import check_there

Floats = npt.NDArray[np.float32]

_VALUES = 1 << 27  # that a layer gives for one picture
_VALUES_IN_ALL = 1 << 30
_WEIGHTS = 1 << 28  # 1 GiB; yolov3.weights has 62 million
_STABILISER = 1e-6  # that Darknet adds to standard deviations


@dataclass(frozen=True)
class DarknetNetwork:
    """The layers of a network in order, and the shape of the picture that it takes."""

    path: Path
    picture: Shape
    layers: tuple[DarknetLayer, ...]

    @property
    def weights(self) -> int:
        """The numbers in a file of weights, without its header."""
        return sum(layer.weights for layer in self.layers)

    @property
    def heads(self) -> dict[int, YOLOHead]:
        """The heads by the number of their layer."""
        return {n: layer.kind for n, layer in enumerate(self.layers) if isinstance(layer.kind, YOLOHead)}


def read_network(path: str | Path) -> DarknetNetwork:
    """Return the network of a ``.cfg`` file.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged, or has sections or sizes with which nothing can be done here.
    """
    path = Path(path)
    try:
        picture, *rest = read_sections(path) or [DarknetSection("", 0)]
        if picture.kind not in ("net", "network"):
            raise Damaged("it should begin with the section [net]")
        given = (
            picture.integer("channels", 3, 1, 4), picture.integer("height", 0, 1, SIDE),
            picture.integer("width", 0, 1, SIDE),
        )  # fmt: skip
        layers: list[DarknetLayer] = []
        values = weights = 0
        for section in rest:
            layer = layer_of(section, layers, given)
            values += math.prod(layer.shape)
            weights += layer.weights
            if math.prod(layer.shape) > _VALUES or values > _VALUES_IN_ALL or weights > _WEIGHTS:
                raise Damaged(f"{section.words} makes the network larger than any YOLO: check its sizes")
            layers.append(layer)
        found = DarknetNetwork(path, given, tuple(layers))
        if not found.heads:
            raise Damaged("it has no section [yolo]")
        return found
    except Damaged as error:
        raise ArtifactError(f"{path}: not a network of Darknet that can be read: {error}") from None


def read_weights(path: str | Path, network: DarknetNetwork) -> dict[int, tuple[Floats, Floats]]:
    """Return kernel ``(filters, channels, size, size)`` and bias ``(filters,)`` of each convolution, by its layer.

    Normalisation is part of them: the kernel is multiplied by ``scale / (deviation + 1e-6)``, as Darknet computes it.

    Raises
    ------
    ArtifactError
        If the file is missing, has another length than the network's weights, or holds numbers that are not finite.
    """
    path = Path(path)
    check_there(path)
    with open(path, "rb") as file:
        head = file.read(20)
        if len(head) < 16:
            raise ArtifactError(f"{path}: cut short; it has not even the header of Darknet's weights")
        major, minor, _ = np.frombuffer(head[:12], "<i4").tolist()
        if not (0 <= major < 1000 and 0 <= minor < 1000):
            raise ArtifactError(f"{path}: not weights of Darknet; they begin with its version, not {major}.{minor}")
        start = 20 if major * 10 + minor >= 2 else 16  # from version 0.2 on, pictures seen are counted in 64 bits
        there, wanted = path.stat().st_size - start, 4 * network.weights
        if there != wanted:
            what = "cut short or of another network" if there < wanted else "of another network"
            raise ArtifactError(
                f"{path}: {what}; {network.path.name} has {network.weights:,} weights, the file {max(there, 0) / 4:,g}"
            )
        file.seek(start)
        numbers = np.fromfile(file, "<f4", network.weights)
    if len(numbers) != network.weights or not np.isfinite(numbers).all():
        raise ArtifactError(f"{path}: not all weights are finite numbers; get the file again")
    return dict(_convolutions(path, network, numbers))


def _convolutions(path: Path, network: DarknetNetwork, numbers: Floats) -> Iterator[tuple[int, tuple[Floats, Floats]]]:
    place = 0
    for number, layer in enumerate(network.layers):
        kind = layer.kind
        if not isinstance(kind, Convolution):
            continue
        own = numbers[place : place + layer.weights]
        place += layer.weights
        vectors = own[: kind.filters * (4 if kind.normalised else 1)].reshape(-1, kind.filters)
        kernel = own[vectors.size :].reshape(kind.filters, -1, kind.size, kind.size)
        bias = vectors[0]
        if kind.normalised:
            scale, mean, variance = vectors[1:].astype(np.float64)
            if (variance < 0).any():
                raise ArtifactError(f"{path}: layer {number} has a negative variance; get the file again")
            factor = scale / (np.sqrt(variance) + _STABILISER)
            kernel = (kernel * factor[:, None, None, None]).astype(np.float32)
            bias = (bias - mean * factor).astype(np.float32)
        yield number, (np.ascontiguousarray(kernel), np.ascontiguousarray(bias))
