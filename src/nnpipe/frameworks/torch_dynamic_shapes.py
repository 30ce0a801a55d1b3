"""Free lengths of a module's inputs in the form that ``torch.export`` expects."""

from __future__ import annotations

import inspect
from typing import Any


def dynamic_shapes(module: Any, each: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the free axes of a module's arguments; those that ``forward`` takes as ``*rest`` form one tuple.

    Parameters
    ----------
    module
        An ``nn.Module``.
    each
        For each argument in order, its free axes, as a mapping from the axis to a ``torch.export.Dim``, or ``None``.
    """
    for place, parameter in zip(range(len(each)), inspect.signature(module.forward).parameters.values(), strict=False):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (*each[:place], each[place:])
    return each
