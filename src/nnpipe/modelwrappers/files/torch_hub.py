"""Image classifiers of torchvision and timm by their names."""

from __future__ import annotations

import importlib
import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.errors import (
    ArtifactError,
    ConfigError,
    MissingDependency,
    NNPipeError,
    NotSupported,
)
from nnpipe.core.image_conversion import Interpolation
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line, suggest_name
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.modelwrappers.files._input_options import ModelFacts
from nnpipe.modelwrappers.files._preprocessing import Preprocessing
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.frameworks.pytorch_training import apply_seed
from nnpipe.modelwrappers.frameworks.pytorch_weights import load_state, read_state

Package = Literal["torchvision", "timm"]

_NAME = re.compile(r"(torchvision|timm):([A-Za-z0-9_.\-]{1,200})")
# Modules of torchvision with networks that take or give something else than images and scores.
_OTHER_TASKS = ("detection", "segmentation", "video", "optical_flow", "quantization")
_SIDE = 224  # of images in torchvision, where weights say nothing
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class HubModel:
    """An architecture with what its published weights expect.

    Attributes
    ----------
    package, name
        The package, and the name there.
    tag
        The published weights whose preprocessing this is; empty if there are none.
    image
        Channels, height and width.
    classes
        The number of classes; 0 if it gives features.
    mean, deviation
        One number for each channel, for pixels from 0 to 1.
    interpolation
        How images are resized.
    shortest_edge
        The length of the shorter side before the centre is cut out, in pixels; ``None`` if nothing
        is cut off.
    class_names
        Their names in order; empty if they are unknown.
    """

    package: Package
    name: str
    tag: str
    image: tuple[int, int, int]
    classes: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    interpolation: Interpolation
    shortest_edge: int | None
    class_names: tuple[str, ...] = ()


def split(architecture: str) -> tuple[Package, str]:
    """Return the package and the name in ``"timm:resnet50"``; raise :class:`ConfigError` if it
    has another form.
    """
    found = _NAME.fullmatch(architecture)
    if found is None:
        raise ConfigError(
            f"--architecture takes torchvision:NAME or timm:NAME, not {architecture[:80]!r}"
        )
    return ("timm" if found[1] == "timm" else "torchvision"), found[2]


def index_url() -> str:
    """Return the options of pip for packages that fit the installed PyTorch."""
    try:
        local = version("torch").partition("+")[2]
    except PackageNotFoundError:
        local = ""
    return (
        f" --index-url https://download.pytorch.org/whl/{local}"
        if re.fullmatch(r"[a-z0-9.]+", local)
        else ""
    )


def find_hub_model(architecture: str) -> HubModel:
    """Return what an architecture expects, without building it.

    Raises
    ------
    ConfigError
        If the package has no such image classifier, or does not fit the installed PyTorch.
    MissingDependency
        If the package is not installed.
    """
    package, name = split(architecture)
    return _find_in_timm(name) if package == "timm" else _find_in_torchvision(name)


def build_hub_network(
    model: HubModel, classes: int, size: tuple[int, int], pretrained: bool = False
) -> Any:
    """Return the network with random weights, or with the published ones, which are downloaded.

    Raises
    ------
    ConfigError
        If the package cannot make it with these numbers, or has no published weights.
    NNPipeError
        If the weights cannot be downloaded.
    """
    named = f"{model.package}:{model.name}"
    if pretrained and not model.tag:
        raise ConfigError(f"{named}: there are no published weights; leave out --pretrained")
    if pretrained and classes != model.classes:
        raise ConfigError(
            f"{named}: published weights classify {model.classes}, not {classes}; leave out "
            f"--pretrained"
        )
    changed: dict[str, Any] = {} if classes == model.classes else {"num_classes": classes}
    other_size = size != model.image[1:]
    try:
        with suppress_output():
            if model.package == "timm":
                timm = _import_timm()
                # Only some networks depend on the size of images, and only these take it.
                if other_size and timm.get_pretrained_cfg(model.name).fixed_input_size:
                    changed["img_size"] = size
                made = timm.create_model(model.name, pretrained=pretrained, **changed)
            else:
                models = _import_torchvision().models
                if other_size and model.name.startswith("vit_"):
                    changed["image_size"] = size[0]
                made = models.get_model(model.name, weights=None, **changed)
                if pretrained:
                    weights = models.get_model_weights(model.name)[model.tag]
                    made.load_state_dict(weights.get_state_dict(check_hash=True, weights_only=True))
    except Exception as error:  # networks and downloads fail in every way there is
        kind = NNPipeError if pretrained else ConfigError
        what = "cannot fetch its published weights" if pretrained else "cannot build it so"
        raise kind(f"{named}: {what}: {format_one_line(error)}") from None
    return made.eval()


def measure_output_length(model: HubModel, classes: int, size: tuple[int, int]) -> int:
    """Return the length of the only output of one image, found without memory for weights.

    Raises
    ------
    ArtifactError
        If the network does not take such images, or gives something else than one vector.
    """
    import torch

    with torch.device("meta"):
        made = build_hub_network(model, classes, size)
    for device in ("meta", "cpu"):
        try:
            if device == "cpu":  # some networks read values on the way
                made = build_hub_network(model, classes, size)
            with suppress_output(), torch.no_grad():
                found = made(torch.zeros(2, model.image[0], *size, device=device))
            break
        except NNPipeError:
            raise
        except Exception as error:  # networks fail in every way there is
            failure = format_one_line(error)
    else:
        raise ArtifactError(
            f"{model.package}:{model.name} cannot take images of {size[0]} x {size[1]}: {failure}"
        )
    if not isinstance(found, torch.Tensor) or found.ndim != 2:
        raise ArtifactError(
            f"{model.package}:{model.name} does not give one vector for an image, but "
            f"{_describe_kind(found)}"
        )
    return int(found.shape[1])


def _describe_kind(found: Any) -> str:
    return (
        f"a tensor of {found.ndim} axes" if hasattr(found, "ndim") else f"a {type(found).__name__}"
    )


def _find_in_torchvision(name: str) -> HubModel:
    models = _import_torchvision().models
    fitting = [
        known
        for known in models.list_models()
        if not _is_other_task(models.get_model_builder(known).__module__)
    ]
    if name not in fitting:
        raise _make_unknown_error("torchvision", name, fitting)
    published = models.get_model_weights(name)
    weights = getattr(published, "DEFAULT", None)
    if weights is None:
        return HubModel(
            "torchvision", name, "", (3, _SIDE, _SIDE), 1000, *_IMAGENET, "bilinear", None
        )
    said, names = weights.transforms(), tuple(map(str, weights.meta.get("categories", ())))
    (side,), (edge,) = said.crop_size, said.resize_size
    how: Interpolation = "bicubic" if said.interpolation.value == "bicubic" else "bilinear"
    return HubModel(
        "torchvision",
        name,
        weights.name,
        (3, side, side),
        len(names) or 1000,
        tuple(said.mean),
        tuple(said.std),
        how,
        edge if edge > side else None,
        names,
    )


def _is_other_task(module: str) -> bool:
    return any(part in module.split(".") for part in _OTHER_TASKS)


def _find_in_timm(name: str) -> HubModel:
    timm = _import_timm()
    try:
        known = timm.is_model(name)
        config = timm.get_pretrained_cfg(name) if known else None
    except Exception:  # an unknown tag; its kind of error depends on the version
        known, config = False, None
    if not known:
        raise _make_unknown_error(
            "timm", name, [*timm.list_models(), *timm.list_models(pretrained=True)]
        )
    if config is None:
        return HubModel("timm", name, "", (3, _SIDE, _SIDE), 1000, *_IMAGENET, "bicubic", None)
    channels, height, width = config.input_size
    # timm.data.create_transform: the shorter side becomes floor(side / share), for square images.
    edge = math.floor(height / config.crop_pct)
    cuts = config.crop_mode in (None, "center") and height == width and edge > height
    published = bool(config.url or config.hf_hub_id or config.file)
    return HubModel(
        "timm",
        name,
        (config.tag or "default") if published else "",
        (channels, height, width),
        config.num_classes,
        tuple(config.mean),
        tuple(config.std),
        "bilinear" if config.interpolation == "bilinear" else "bicubic",
        edge if cuts else None,
    )


def _make_unknown_error(package: Package, name: str, known: Iterable[str]) -> ConfigError:
    names = sorted(set(known))
    there = f"{package} {_format_version(package)}"
    return ConfigError(
        f"{there} has no image classifier {name!r}{suggest_name(name, names)} ({len(names):,} are "
        f"known)"
    )


def _format_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"


def _import_torchvision() -> Any:
    return _import_package("torchvision")


def _import_timm() -> Any:
    return _import_package("timm")


def _import_package(package: Package) -> Any:
    try:
        with suppress_output():
            return importlib.import_module(package)
    except ModuleNotFoundError as error:
        needed = str(error.name).partition(".")[0]
        where = index_url() if needed == "torchvision" else ""
        raise MissingDependency(
            f"{package} models need {needed}, which is not installed: pip install {needed}{where}"
        ) from None
    except Exception as error:  # what fails depends on the versions that do not fit
        raise MissingDependency(
            f"torchvision {_format_version('torchvision')} does not fit PyTorch "
            f"{_format_version('torch')} ({format_one_line(error, 100)}): pip install "
            f"--force-reinstall --no-deps torchvision{index_url()}"
        ) from None


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
        None,
        help="height and width of the images (default: those of the published weights)",
        minimum=1,
    )
    num_classes: int | None = argument(
        None, help="number of classes (default: that of the published weights)", minimum=1
    )

    @classmethod
    def check_installed(cls) -> None:
        """Raise :class:`MissingDependency` if a package is not installed; the message says what
        to install.
        """
        if "torchvision" in cls.missing():
            raise MissingDependency(
                f"{cls.__name__} needs torchvision, which is not installed, from the same index as "
                f"PyTorch: pip install torchvision{index_url()}"
            )
        super().check_installed()

    def validate(self) -> None:
        """Check the form of the name, and that the arguments do not contradict each other."""
        super().validate()
        split(self.architecture)
        if self.pretrained and self.pretrained_weights is not None:
            raise ConfigError(
                "--pretrained-weights and --pretrained contradict each other; give one of them"
            )

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.architecture})"

    @cached_property
    def _found(self) -> HubModel:
        self.check_installed()
        return find_hub_model(self.architecture)

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
        length = (
            self._classes
            if usual
            else measure_output_length(self._found, self._classes, self._size)
        )
        return IOSpec(
            (TensorSpec("image", (None, self._found.image[0], *self._size), "float32"),),
            (TensorSpec("logits" if self._classes else "features", (None, length), "float32"),),
        )

    def read_facts(self) -> ModelFacts:
        """Return the preprocessing and the names of classes that the package states for its
        published weights.
        """
        found, output = self._found, self.io.outputs[0]
        edge = found.shortest_edge
        if edge is not None and self.input_size is not None:  # the same share of the image
            edge = (
                round(edge * self.input_size[0] / found.image[1])
                if len(set(self.input_size)) == 1
                else None
            )
        pixels = InputProcessing(
            "image",
            "image",
            (0, 255),
            scale=255,
            mean=found.mean,
            deviation=found.deviation,
            layout="nchw",
            resize=found.interpolation,
            shortest_edge=edge,
        )
        names = found.class_names if len(found.class_names) == output.shape[-1] else ()
        judged = (OutputMetadata("logits", "logits", names),) if output.name == "logits" else ()
        return ModelFacts(
            ModelMetadata((pixels,), judged), by=f"{found.package} {found.name} {found.tag}".strip()
        )

    def build(self) -> Any:
        """Return the network with the weights that the arguments name, or random ones, which a
        warning says.
        """
        module = self._build_module(self.pretrained)
        if self.pretrained_weights is not None:
            load_state(module, read_state(self.pretrained_weights), self.pretrained_weights)
        elif not self.pretrained:
            log.warning(
                "%s: random weights, untrained; its speed means something, its accuracy does not "
                "(--pretrained-weights FILE or --pretrained gives trained ones)",
                self.architecture,
            )
        return module

    def _build_module(self, pretrained: bool) -> Any:
        _ = self.io  # refuses networks that do not classify images
        return build_hub_network(self._found, self._classes, self._size, pretrained)

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
            module = self._build_module(pretrained=False).to(self.device)
            load_state(module, state, Path(path))
            live.native = module
        else:
            super().load(live, path)

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Start a training from the weights of the arguments, or from random ones that
        ``options.seed`` determines.
        """
        if not live.is_built and self.pretrained_weights is None and not self.pretrained:
            with apply_seed(options.seed, self.device):
                live.native = self._build_module(pretrained=False).to(self.device).eval()
        else:
            super().start(live, options)

    def classifies(self) -> bool:
        """Return whether the output is one score for each class."""
        return self.io.outputs[0].name == "logits"

    def loss(self, outputs: tuple[Any, ...], truth: Any) -> Any:
        """Return the mean cross entropy of a classifier; raise :class:`NotSupported` for
        networks of features.
        """
        if not self.classifies():
            raise NotSupported(f"{self._name} gives features, and only classifiers are trained")
        return super().loss(outputs, truth)

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the logits as they are."""
        return outputs
