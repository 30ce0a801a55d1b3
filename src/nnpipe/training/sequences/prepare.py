"""What a ``DatasetSequence`` does with inputs as its ``prepare``, named by a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import InputTransform, transform_from


@dataclass(frozen=True, kw_only=True)
class ApplyTransforms:
    """Applies a transform to some inputs, such as :class:`~nnpipe.transforms.mfcc.MFCC` to sounds.

    Parameters
    ----------
    transforms
        The transform of each input by its name; other inputs stay as they are.
    """

    transforms: Mapping[str, InputTransform]

    def __post_init__(self) -> None:
        check_call(ApplyTransforms, vars(self))

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs after their transforms."""
        return _applied(self.transforms, inputs)


@dataclass(frozen=True, kw_only=True)
class ApplyDeclaredTransforms:
    """Applies the transforms that a data set declares, such as the coding of a table's columns.

    Parameters
    ----------
    dataset
        The data set, whose training samples they are fitted to.
    """

    dataset: Dataset

    def __post_init__(self) -> None:
        check_call(ApplyDeclaredTransforms, vars(self))

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs after their transforms."""
        return _applied(self._transforms, inputs)

    @cached_property
    def _transforms(self) -> dict[str, InputTransform]:
        self.dataset.prepare()
        return {name: transform_from(found) for name, found in self.dataset.spec.transforms.items()}


def _applied(transforms: Mapping[str, InputTransform], inputs: Mapping[str, Any]) -> dict[str, Any]:
    for name in transforms:
        if name not in inputs:
            raise ConfigError(f"there is no input {name!r} to transform; there are {', '.join(inputs)}")
    return {name: transforms[name].apply(array) if name in transforms else array for name, array in inputs.items()}
