"""The check whether a data set fits an image classifier."""

from __future__ import annotations

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.task import scores_classes
from nnpipe.core.tensors import show_shape


def check_fits(wrapper: ModelWrapper, spec: DatasetSpec, shape: tuple[int | None, ...], classes: int) -> None:
    """Raise :class:`ConfigError` unless a data set is for classification, with this shape and number of classes."""
    name = type(wrapper).__name__
    if not scores_classes(spec.task):
        raise ConfigError(f"{name} is made for classification, the data set is for {spec.task}")
    if len(spec.inputs) != 1:
        raise ConfigError(f"{name} takes one input, the data set gives {', '.join(each.name for each in spec.inputs)}")
    have = spec.inputs[0].shape[1:]
    if have != shape:
        raise ConfigError(f"{name} takes samples of {show_shape(shape)}, the data set gives {show_shape(have)}")
    if len(spec.class_names) != classes:
        raise ConfigError(f"{name} tells {classes} classes apart, the data set has {len(spec.class_names)}")
