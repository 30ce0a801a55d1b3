"""Image classifiers of torchvision and timm by their names."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, MissingDependency, NotSupported
from nnpipe.core.live_model import LiveModel
from nnpipe.core.meaning import Meaning
from nnpipe.core.tensor_meaning import InputMeaning, OutputMeaning
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.modelwrappers.files._model_description import Known
from nnpipe.modelwrappers.files._preprocessing import Preprocessing
from nnpipe.modelwrappers.files._torch_hub_packages import HubModel, index_url, look_up, network, output_length, split
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.frameworks.pytorch_training import seeded
from nnpipe.modelwrappers.frameworks.pytorch_weights import load_state, read_state

log = logging.getLogger("nnpipe")


class TorchHubModel(Preprocessing, PyTorchWrapper):
    """An image classifier of torchvision or timm, by its name.

    Size, mean, deviation, interpolation and crop of images are those that the
    package states for its published weights.  Weights come from a file of
    safetensors or ``torch.save``, which is read without running code; from the
    package's server with ``pretrained``; or are random and untrained.
    """

    requires: ClassVar[tuple[str, ...]] = ("torchvision", "torch", "safetensors")
    install: ClassVar[str] = "torchvision"
    makes_weights: ClassVar[bool] = True

    architecture: str = argument(
        help="the model, such as timm:resnet50 or torchvision:resnet50", metavar="PACKAGE:NAME"
    )
    pretrained_weights: Path | None = argument(
        None, help="file of weights, .safetensors or .pth (default: random weights)"
    )
    pretrained: bool = argument(False, help="download the weights that the package publishes")
    input_size: tuple[int, int] | None = argument(
        None, help="height and width of the images (default: those of the published weights)", minimum=1
    )
    num_classes: int | None = argument(
        None, help="number of classes (default: that of the published weights)", minimum=1
    )

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingDependency` if a package is not installed; the message says what to install."""
        if "torchvision" in cls.missing():
            raise MissingDependency(
                f"{cls.__name__} needs torchvision, which is not installed, from the same index as PyTorch: "
                f"pip install torchvision{index_url()}"
            )
        super().check_installed()

    def validate(self) -> None:
        """Check the form of the name, and that the arguments do not contradict each other."""
        super().validate()
        split(self.architecture)
        if self.pretrained and self.pretrained_weights is not None:
            raise ConfigError("--pretrained-weights and --pretrained contradict each other; give one of them")

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.architecture})"

    @cached_property
    def _found(self) -> HubModel:
        self.check_installed()
        return look_up(self.architecture)

    @property
    def _size(self) -> tuple[int, int]:
        return self.input_size or self._found.image[1:]

    @property
    def _classes(self) -> int:
        return self._found.classes if self.num_classes is None else self.num_classes

    @cached_property
    def io(self) -> IOSpec:
        """The input, an image, and the output: logits, or features of a network without classes."""
        usual = self._classes > 0 and self._size == self._found.image[1:]
        length = self._classes if usual else output_length(self._found, self._classes, self._size)
        return IOSpec(
            (TensorSpec("image", (None, self._found.image[0], *self._size), "float32"),),
            (TensorSpec("logits" if self._classes else "features", (None, length), "float32"),),
        )

    def known(self) -> Known:
        """Return the preprocessing and the names of classes that the package states for its published weights."""
        found, output = self._found, self.io.outputs[0]
        edge = found.shortest_edge
        if edge is not None and self.input_size is not None:  # the same share of the image
            edge = round(edge * self.input_size[0] / found.image[1]) if len(set(self.input_size)) == 1 else None
        pixels = InputMeaning(
            "image", "image", (0, 255), scale=255, mean=found.mean, deviation=found.deviation, layout="nchw",
            resize=found.interpolation, shortest_edge=edge,
        )  # fmt: skip
        names = found.class_names if len(found.class_names) == output.shape[-1] else ()
        judged = (OutputMeaning("logits", "logits", names),) if output.name == "logits" else ()
        return Known(Meaning((pixels,), judged), by=f"{found.package} {found.name} {found.tag}".strip())

    def build(self) -> Any:
        """Return the network with the weights that the arguments name, or random ones, which a warning says."""
        module = self._module(self.pretrained)
        if self.pretrained_weights is not None:
            load_state(module, read_state(self.pretrained_weights), self.pretrained_weights)
        elif not self.pretrained:
            log.warning(
                "%s: random weights, untrained; its speed means something, its accuracy does not "
                "(--pretrained-weights FILE or --pretrained gives trained ones)", self.architecture,
            )  # fmt: skip
        return module

    def _module(self, pretrained: bool) -> Any:
        _ = self.io  # refuses networks that do not classify images
        return network(self._found, self._classes, self._size, pretrained)

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights from a file of safetensors, or of ``torch.save`` that holds weights only.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, belongs to another model, or would
            run code; the message names it, and the model stays unchanged.
        """
        if not live.is_built:  # without the weights of the arguments, which would be replaced
            self.check_installed()
            state = read_state(Path(path))
            module = self._module(pretrained=False).to(self.device)
            load_state(module, state, Path(path))
            live.native = module
        else:
            super().load(live, path)

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Start a training from the weights of the arguments, or from random ones that ``options.seed`` determines."""
        if not live.is_built and self.pretrained_weights is None and not self.pretrained:
            with seeded(options.seed, self.device):
                live.native = self._module(pretrained=False).to(self.device).eval()
        else:
            super().start(live, options)

    def classifies(self) -> bool:
        """Return whether the output is one score for each class."""
        return self.io.outputs[0].name == "logits"

    def loss(self, outputs: tuple[Any, ...], truth: Any) -> Any:
        """Return the mean cross entropy of a classifier; raise :class:`NotSupported` for networks of features."""
        if not self.classifies():
            raise NotSupported(f"{self._name} gives features, and only classifiers are trained")
        return super().loss(outputs, truth)

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the logits as they are."""
        return outputs
