"""Describe how a conversion changed the weights of a model, as values and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnpipe.core.claims import INTEGERS, Claim, changes_of, numbers_of


@dataclass(frozen=True)
class WeightChange:
    """How a conversion changed one tensor of weights.

    Parameters
    ----------
    name, other
        The names of the tensor in the source and in the other model.
    by
        How the two were matched.
    folded
        The normalisation of the source that was folded into it.
    largest
        The largest difference, relative to the largest number.
    steps
        The same in steps of the integers with which it is stored.
    changed
        The power of the difference, relative to that of the source's numbers.
    zeros
        The share of its numbers that have become 0.
    values
        The number of different values, if it is clustered.
    axis, channels
        The channels that violate the claims, and their axis in the source's tensor.
    dead
        The channels in which all numbers have become 0.
    wrong
        A description of the violation; empty if there is none.
    remark
        A description of what cannot be checked, or of a difference without effect.
    rescaled
        Whether it is a kernel with the source's numbers but for a factor and a constant of each channel.
    """

    name: str
    other: str
    by: str
    folded: str
    largest: float
    steps: float | None
    changed: float
    zeros: float
    values: int | None
    axis: int
    channels: tuple[int, ...]
    dead: tuple[int, ...]
    wrong: str = ""
    remark: str = ""
    rescaled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {**asdict(self), "channels": list(self.channels), "dead": list(self.dead)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WeightChange:
        """Make the object from the output of :meth:`to_json`."""
        return cls(**{**data, "channels": tuple(data["channels"]), "dead": tuple(data["dead"])})


@dataclass(frozen=True)
class Weighing:
    """The comparison of the weights of two models.

    Parameters
    ----------
    claims
        The claims of the conversion.
    tensors
        The compared tensors, in the order of the source.
    left
        The tensors of the source without a counterpart.
    taken
        The share of all weights that was removed with whole channels.
    """

    claims: tuple[Claim, ...]
    tensors: tuple[WeightChange, ...]
    left: tuple[str, ...] = ()
    taken: float = 0.0

    @property
    def wrong(self) -> tuple[WeightChange, ...]:
        """The tensors that violate the claims, those with most wrong channels first."""
        return tuple(sorted((t for t in self.tensors if t.wrong), key=lambda t: -t.changed))

    def to_json(self) -> dict[str, Any]:
        """Return the object in its JSON form."""
        return {
            "claims": list(self.claims),
            "told": self.told(),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "left": list(self.left),
            "taken": self.taken,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Weighing:
        """Make the object from the output of :meth:`to_json`."""
        tensors = tuple(map(WeightChange.from_json, data["tensors"]))
        return cls(tuple(data["claims"]), tensors, tuple(data["left"]), float(data["taken"]))

    def told(self) -> str:
        """Describe the changes of the weights in words."""
        if not self.tensors:
            return "none has a counterpart" if self.left else "there are none"
        parts = []
        changes, numbers = changes_of(self.claims), numbers_of(self.claims)
        stepped = [t.steps for t in self.tensors if t.steps is not None and not t.wrong]
        if "pruned" in changes:
            zeros = f"up to {100 * max((t.zeros for t in self.tensors), default=0.0):.3g} % of a tensor set to 0"
            parts.append(f"{100 * self.taken:.3g} % taken away with whole channels" if self.taken else zeros)
        if "clustered" in changes:
            counts = [t.values for t in self.tensors if t.values]
            parts.append(
                f"up to {max(counts)} different numbers in a tensor" if counts else "each near one of few numbers"
            )
        if "fine-tuned" in changes:
            amount = max(float(np.sqrt(t.changed)) for t in self.tensors)
            parts.append(f"tensors changed by up to {100 * amount:.2g} %")
        elif stepped and numbers in INTEGERS:
            parts.append(f"rounded to integers, by up to {max(stepped):.2g} of a step")
        elif numbers != "float":
            parts.append(f"rounded to {numbers}")
        elif not self.wrong and not any(tensor.remark for tensor in self.tensors):
            parts.append("the others unchanged" if "pruned" in changes else "" if changes else "unchanged")
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        count = len(self.tensors) + len(self.left)
        told = f"weights: {len(self.tensors)} of {count} tensors compared"
        if words := self.told():
            told += f"; {words}"
        lines = [told]
        if self.wrong:
            lines[0] += f"; {len(self.wrong)} not as {' and '.join(self.claims)} allows:"
            lines += [f"{n}. {tensor.name!r}: {tensor.wrong}" for n, tensor in enumerate(self.wrong[:3], 1)]
        lines += [f"   {tensor.name!r}: {tensor.remark}" for tensor in self.tensors if tensor.remark][:3]
        return "\n".join(lines)
