"""The forms in which the weights of a layer can be stored, as text: ``int4``, ``cluster16``, ``prune50+int6``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest

AS_IT_IS = "as-it-is"
FORMS = "as-it-is, float16, int2 to int8, cluster2 to cluster256, prune1 to prune99, or for example prune50+cluster16"
_PART = re.compile(r"(int|cluster|prune)(\d{1,3})")


@dataclass(frozen=True)
class LayerForm:
    """How the weights of a layer are stored.

    Parameters
    ----------
    levels
        ``grid`` for evenly spaced values, ``cluster`` for values that k-means finds, ``half`` for 16-bit floats,
        and an empty text if values are kept.
    count
        The greatest number of different values, without the zeros of a pruned layer.
    sparsity
        The share of weights that are 0.
    """

    levels: Literal["", "grid", "cluster", "half"] = ""
    count: int = 0
    sparsity: float = 0.0

    @classmethod
    def parse(cls, text: str) -> LayerForm:
        """Return the form of a text.

        Raises
        ------
        ConfigError
            If it is no form.

        Examples
        --------
        >>> LayerForm.parse("prune50+int4")
        LayerForm(levels='grid', count=15, sparsity=0.5)
        """
        if text == AS_IT_IS:
            return cls()
        levels, count, sparsity = "", 0, 0.0
        for part in text.split("+"):
            found = _PART.fullmatch(part)
            kind, number = (found[1], int(found[2])) if found else (part, 0)
            again = bool(sparsity) if kind == "prune" else bool(levels)
            if again:
                raise ConfigError(f"{text!r} is no form of a layer: its parts exclude each other")
            if kind == "float16":
                levels = "half"
            elif kind == "int" and 2 <= number <= 8:
                levels, count = "grid", 2**number - 1
            elif kind == "cluster" and 2 <= number <= 256:
                levels, count = "cluster", number
            elif kind == "prune" and 1 <= number <= 99:
                sparsity = number / 100
            else:
                raise ConfigError(f"{text!r} is no form of a layer; there are {FORMS}")
        return cls(levels, count, sparsity)  # type: ignore[arg-type]


def assigned(entries: Sequence[str], layers: Sequence[str]) -> dict[str, LayerForm]:
    """Return the form of each layer that entries such as ``block*=int4`` name; the last that fits counts.

    Parameters
    ----------
    entries
        Names or patterns of layers, each with ``=`` and a form.
    layers
        The names of all layers.

    Raises
    ------
    ConfigError
        If an entry has another form, or fits no layer.
    """
    found: dict[str, LayerForm] = {}
    for entry in entries:
        pattern, equals, form = entry.rpartition("=")
        if not equals or not pattern:
            raise ConfigError(f"--layers {entry!r}: expected a layer and its form, such as conv1=int4")
        chosen = [layer for layer in layers if layer == pattern]
        chosen = chosen or [layer for layer in layers if fnmatchcase(layer, pattern)]
        if not chosen:
            hint = nearest(pattern, layers) or f"; there are: {', '.join(layers)}"
            raise ConfigError(f"--layers: the model has no layer {pattern!r}{hint}")
        found |= dict.fromkeys(chosen, LayerForm.parse(form))
    return found
