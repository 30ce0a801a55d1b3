"""YOLOv3 as it was trained elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.errors import ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats.darknet import (
    Convolution,
    DarknetNetwork,
    MaxPool,
    Route,
    Shortcut,
    Upsample,
    YOLOHead,
    read_network,
    read_weights,
)
from nnpipe.frameworks.torch_session import check_device
from nnpipe.modelwrappers.files._input_options import ModelFacts, read_model_facts
from nnpipe.modelwrappers.files._preprocessing import Preprocessing
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

_SLOPE = 0.1  # of "leaky" below zero


def build_darknet(network: DarknetNetwork) -> Any:
    """Return the module of a network with random weights; it returns the numbers of all heads,
    channels first.
    """
    return _get_darknet_class()(network)


def load_darknet(network: DarknetNetwork, path: Path) -> Any:
    """Return the module of a network with the weights of a file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or belongs to another network.
    """
    import torch

    found: Mapping[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = read_weights(
        path, network
    )
    module = build_darknet(network)
    with torch.no_grad():
        for number, (kernel, bias) in found.items():
            convolution = module.convolutions[str(number)]
            convolution.weight.copy_(torch.from_numpy(kernel))
            convolution.bias.copy_(torch.from_numpy(bias))
    return module


@cache
def _get_darknet_class() -> Any:
    import torch
    import torch.nn.functional as F
    from torch import nn

    functions = {
        "linear": lambda x: x,
        "leaky": lambda x: F.leaky_relu(x, _SLOPE),
        "relu": F.relu,
        "logistic": torch.sigmoid,
        "mish": F.mish,
        "swish": F.silu,
    }

    class Darknet(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """A network of Darknet."""

        def __init__(self, network: DarknetNetwork) -> None:
            super().__init__()
            self.network = network
            self.convolutions = nn.ModuleDict()
            self.last_use = {
                taken: number
                for number, layer in enumerate(network.layers)
                for taken in layer.inputs
            }
            shapes = {
                -1: network.picture,
                **{n: layer.shape for n, layer in enumerate(network.layers)},
            }
            for number, layer in enumerate(network.layers):
                if isinstance(kind := layer.kind, Convolution):
                    self.convolutions[str(number)] = nn.Conv2d(
                        shapes[layer.inputs[0]][0],
                        kind.filters,
                        kind.size,
                        kind.stride,
                        kind.padding,
                        kind.dilation,
                        kind.groups,
                    )

        def forward(self, picture: Any) -> tuple[Any, ...]:
            """Return the numbers of each head, ``(n, channels, rows, columns)``."""
            values, heads = {-1: picture}, []
            for number, layer in enumerate(self.network.layers):
                given = [values[taken] for taken in layer.inputs]
                if isinstance(layer.kind, YOLOHead):
                    heads.append(given[0])
                else:
                    values[number] = self.computed(number, layer.kind, given)
                for taken in layer.inputs:
                    if self.last_use[taken] == number:
                        values.pop(taken, None)
            return tuple(heads)

        def computed(self, number: int, kind: Any, given: list[Any]) -> Any:
            """Return the output of a layer."""
            match kind:
                case Convolution():
                    return functions[kind.activation](self.convolutions[str(number)](given[0]))
                case MaxPool():
                    return apply_max_pool(kind, given[0])
                case Shortcut():
                    return functions[kind.activation](sum(given[1:], given[0]))
                case Route():
                    parts = [
                        x if kind.parts == 1 else x.chunk(kind.parts, 1)[kind.part] for x in given
                    ]
                    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
                case Upsample():
                    return F.interpolate(given[0], scale_factor=float(kind.stride), mode="nearest")

    def apply_max_pool(kind: MaxPool, x: Any) -> Any:
        if (kind.before, kind.before) == kind.after and kind.before <= kind.size // 2:
            return F.max_pool2d(x, kind.size, kind.stride, kind.before)
        # Repeating the edge does not change a maximum of which it is part; numbers without end,
        # with which PyTorch pads, would spoil the ranges that quantisers observe.
        for axis, after in zip((2, 3), kind.after, strict=True):
            first, last = x.narrow(axis, 0, 1), x.narrow(axis, x.shape[axis] - 1, 1)
            x = torch.cat([*[first] * kind.before, x, *[last] * after], axis)
        return F.max_pool2d(x, kind.size, kind.stride)

    return Darknet


log = logging.getLogger("nnpipe")

_DECODER = "nnpipe.decoders.yolo.YOLOHeadsDecoder"
_GREY = 127.5  # Darknet fills with 0.5 of 1


class YOLOv3(Preprocessing, PyTorchWrapper):
    """YOLOv3, tiny YOLOv3 and their relatives, trained elsewhere: from Darknet, ONNX or Keras.

    With ``--network yolov3.cfg``, Darknet's weights are given as ``--model-path yolov3.weights``.
    An ONNX or Keras file as ``--network`` has its own weights; its outputs are the raw heads, whose
    anchors ``--decoder-options`` states if they are not those of yolov3.cfg.  Pictures are
    letterboxed, as Darknet does it.
    """

    makes_weights: ClassVar[bool] = True

    network: Path = argument(
        help="Darknet's .cfg; or an .onnx, .keras or .h5 file with weights", metavar="PATH"
    )

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.network})"

    @cached_property
    def _darknet(self) -> DarknetNetwork | None:
        return read_network(self.network) if self.network.suffix.lower() == ".cfg" else None

    @cached_property
    def _layers(self) -> DeclaredModel:
        """The network of a file that is not Darknet's, rebuilt from its layers."""
        return DeclaredModel(network=self.network, device=self.device)

    @cached_property
    def io(self) -> IOSpec:
        """The picture, and the numbers of each head; those of Darknet have the numbers of their
        layers as names.
        """
        if self._darknet is None:
            return self._layers.io
        heads = {number: self._darknet.layers[number].shape for number in self._darknet.heads}
        return IOSpec(
            (TensorSpec("image", (None, *self._darknet.picture), "float32"),),
            tuple(
                TensorSpec(f"yolo_{number}", (None, *shape), "float32")
                for number, shape in heads.items()
            ),
        )

    def read_facts(self) -> ModelFacts:
        """Return how Darknet prepares pictures, and the decoder of the heads with the anchors of
        the file.
        """
        if self._darknet is None and get_sidecar_path(self.network).is_file():
            return read_model_facts(Artifact.read(self.network, check=False))
        picture = InputProcessing(
            self.io.inputs[0].name,
            "image",
            (0, 255),
            scale=255,
            resize="bilinear",
            fit="letterbox-centre",
            fill=_GREY,
        )
        decoder: dict[str, Any] = {"version": "v3"}
        if self._darknet is not None:
            picture = replace(picture, layout="nchw")
            decoder["anchors"] = self._list_anchors(self._darknet)
        return ModelFacts(
            ModelMetadata((picture,), decoder={"class": _DECODER, "arguments": decoder}),
            by=str(self.network),
        )

    def _list_anchors(self, network: DarknetNetwork) -> list[float]:
        """Return width and height of all anchors, finest grid first, as the decoder takes them."""
        heads = [(network.layers[number].shape[1:], head) for number, head in network.heads.items()]
        kinds = {(len(head.anchors), head.classes) for _, head in heads}
        if len(kinds) > 1 or len({grid for grid, _ in heads}) < len(heads):
            raise ConfigError(
                f"{self.network}: its heads should have grids of different sizes, and as many "
                f"anchors and classes each"
            )
        ordered = sorted(heads, key=lambda each: -each[0][0])
        return [number for _, head in ordered for anchor in head.anchors for number in anchor]

    def build(self) -> Any:
        """Return the network: of Darknet with random weights, which a warning says, else with
        those of its file.
        """
        if self._darknet is None:
            return self._layers.build()
        log.warning(
            "%s: random weights, untrained; --model-path names Darknet's .weights", self.network
        )
        return build_darknet(self._darknet)

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights: Darknet's, those of the same network in an ONNX or Keras file, or what
        :meth:`save` wrote.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged or belongs to another network; the model stays
            unchanged.
        """
        path = Path(path)
        if self._darknet is not None and path.suffix.lower() == ".weights":
            self.check_installed()
            check_device(self.device)
            live.native = load_darknet(self._darknet, path).to(self.device).eval()
        elif self._darknet is None and path.suffix.lower() in (".onnx", ".keras", ".h5", ".hdf5"):
            self._layers.load(live, path)
        else:
            super().load(live, path)

    # It is trained elsewhere.
    train = ModelWrapper.train
    run_training = ModelWrapper.run_training
    profile_training = ModelWrapper.profile_training
    get_training_graph = ModelWrapper.get_training_graph

    def classifies(self) -> bool:
        """Return ``False``."""
        return False

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the heads as they are, or what the layers of the file return."""
        return outputs if self._darknet is not None else self._layers.finish(outputs)
