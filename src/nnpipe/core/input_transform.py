"""The interface of input transforms, such as spectrograms, which make a model's inputs from raw
samples.
"""

from __future__ import annotations

import functools
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import encode_argument, list_arguments, show
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.component import Component, parse_arguments
from nnpipe.core.errors import ConfigError
from nnpipe.core.layout import Shape
from nnpipe.core.tensors import show_shape

if TYPE_CHECKING:
    from typing_extensions import Self


class InputTransform(Component):
    """Computes a model's inputs from raw samples, before they are scaled and quantised.

    The description of a model holds the transform with its arguments (``transform`` of a
    :class:`~nnpipe.core.tensor_metadata.InputProcessing`), so that it travels with every file of
    the model.

    Attributes
    ----------
    takes_text
        Whether raw samples are texts instead of numbers.

    Examples
    --------
    >>> class Differences(InputTransform):
    ...     'The differences of neighbouring numbers.'
    ...     def shape(self, sample):
    ...         return (sample[0] - 1, *sample[1:])
    ...     def _apply(self, samples):
    ...         return np.diff(samples, axis=1)
    >>> Differences().apply(np.array([[1.0, 4.0, 9.0]]))
    array([[3., 5.]])
    """

    takes_text: ClassVar[bool] = False

    def pack_files(self) -> Self:
        """Return the transform with the content of files in place of their paths, so that it can
        travel.
        """
        return self

    @abstractmethod
    def shape(self, sample: Shape) -> Shape:
        """Return the shape of a transformed sample, given that of a raw one; neither has the axis
        of samples.

        Raises
        ------
        ConfigError
            If samples of this shape cannot be transformed; the message says which can.
        """

    def apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Transform samples.

        Parameters
        ----------
        samples
            ``(n, ...)`` numbers, or ``(n,)`` texts.

        Returns
        -------
        ndarray
            ``(n, ...)``, with the shape that :meth:`shape` gives.

        Raises
        ------
        ConfigError
            If samples of this shape cannot be transformed.
        """
        wanted = (len(samples), *(int(length or 0) for length in self.shape(samples.shape[1:])))
        found = self._apply(samples) if len(samples) else np.zeros(wanted, np.float32)
        if found.shape != wanted:
            raise ConfigError(
                f"{type(self).__name__} was to give {show_shape(wanted)}, and gave "
                f"{show_shape(found.shape)}: "
                "its method shape is wrong"
            )
        return found

    @abstractmethod
    def _apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Transform at least one sample, whose shape is known to be usable."""

    def raw_sample_rate(self) -> int | None:
        """Return the number of samples per second that raw sounds must have; ``None`` if any
        will do.
        """
        return None

    def format_description(self) -> str:
        """Return a short description; by default, the name and the arguments that differ from
        their defaults.
        """
        said = [
            f"{each.name}={show(encode_argument(getattr(self, each.name)))}"
            for each in list_arguments(type(self))
            if getattr(self, each.name) != each.default
        ]
        return f"{type(self).__name__}({', '.join(said)})" if said else type(self).__name__


def transform_from(description: Mapping[str, Any]) -> InputTransform:
    """Return the transform that a model's description names; only those that are installed are
    searched.

    Raises
    ------
    ComponentNotFound
        If there is no such transform here.
    ConfigError
        If it does not accept these arguments.
    """
    return _create_transform(json.dumps(description, sort_keys=True))


@functools.lru_cache(maxsize=64)
def _create_transform(text: str) -> InputTransform:
    from nnpipe.core.registry import find_installed

    description = parse_json(text)
    return find_installed(description["class"], InputTransform).from_json(description["arguments"])


def transform_of_words(name: str, options: Sequence[str]) -> InputTransform:
    """Return the transform with this name and options such as ``num_mels=40``; lists are separated
    by commas.

    Raises
    ------
    ComponentNotFound
        If there is no such transform.
    ConfigError
        If an option is unknown or unusable.
    """
    from nnpipe.core.registry import find

    cls = find(name, InputTransform)
    return cls.from_json(parse_arguments(cls, options))
