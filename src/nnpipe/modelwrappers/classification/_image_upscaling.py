"""Conversion of any data set's images to the size and channels that a network takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.task import has_class_scores
from nnpipe.core.tensor_metadata import InputProcessing, OutputMetadata
from nnpipe.core.tensors import DatasetSpec, show_shape

if TYPE_CHECKING:
    from typing_extensions import Self


def check_fits(
    wrapper: ModelWrapper, spec: DatasetSpec, shape: tuple[int | None, ...], classes: int
) -> None:
    """Raise :class:`ConfigError` unless a data set is for classification, with this shape and
    number of classes.
    """
    name = type(wrapper).__name__
    if not has_class_scores(spec.task):
        raise ConfigError(f"{name} is made for classification, the data set is for {spec.task}")
    if len(spec.inputs) != 1:
        raise ConfigError(
            f"{name} takes one input, the data set gives "
            f"{', '.join(each.name for each in spec.inputs)}"
        )
    have = spec.inputs[0].shape[1:]
    if have != shape:
        raise ConfigError(
            f"{name} takes samples of {show_shape(shape)}, the data set gives {show_shape(have)}"
        )
    if len(spec.class_names) != classes:
        raise ConfigError(
            f"{name} tells {classes} classes apart, the data set has {len(spec.class_names)}"
        )


_COLOURS = 3


class ResizingClassifier(ModelWrapper):
    """Base of networks for colour images that accept the images of any data set.

    Attributes
    ----------
    layout
        Whether the framework has channels last or first.
    """

    layout: ClassVar[Literal["nhwc", "nchw"]] = "nhwc"

    input_size: tuple[int, int] = argument(
        (96, 96), help="height and width of the images", minimum=32
    )
    brightest_pixel: int = argument(255, help="value of the data set's brightest pixels", minimum=1)
    num_classes: int | None = argument(
        None, help="number of classes; by default that of the data set", minimum=2
    )

    @property
    def classes(self) -> int:
        """Number of classes, as given or of the data set.

        Raises
        ------
        ConfigError
            If there is neither.
        """
        if self.num_classes is None:
            raise ConfigError(
                f"{type(self).__name__} without a data set needs --num-classes to be given"
            )
        return self.num_classes

    @property
    def meaning(self) -> ModelMetadata:
        """Inputs are images of three channels, resized, with pixels from -1 to 1; outputs are
        probabilities.
        """
        pixels = InputProcessing(
            "image",
            "image",
            sample_range=(0, self.brightest_pixel),
            scale=self.brightest_pixel / 2,
            mean=(1,),
            colours="convert",
            layout=self.layout,
            resize="bilinear",
        )
        return ModelMetadata((pixels,), (OutputMetadata("scores", "probabilities"),))

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with the data set's number of classes, after a check that its
        samples are images.
        """
        fitted = replace(self, num_classes=self.num_classes or len(spec.class_names))
        shape = spec.inputs[0].shape[1:]
        if len(shape) != 3 or shape[-1] not in (1, _COLOURS):
            raise ConfigError(
                f"{type(self).__name__} takes images of one channel or three, the data set gives "
                f"{show_shape(shape)}"
            )
        check_fits(fitted, spec, shape, fitted.classes)
        return fitted
