"""The values of a figure by step, kept in bounded memory."""

from __future__ import annotations

from typing import Any

from nnpipe.experiment.state import State


class Trace(State):
    """Values by step; in a long training, of every 2nd, 4th, 8th, ... step only.

    Which steps are kept depends only on their numbers, so a resumed training keeps the same ones.

    Parameters
    ----------
    most
        The greatest number of values to keep.
    """

    stride: int
    steps: list[int]
    values: list[Any]

    def __init__(self, most: int = 2000) -> None:
        super().__init__(stride=1, steps=[], values=[])
        object.__setattr__(self, "_most", most)

    def add(self, step: int, value: Any) -> None:
        """Add the value of a step, from 1; a tensor is kept as it is until :meth:`fetch`."""
        if (step - 1) % self.stride or (self.steps and step <= self.steps[-1]):
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > self._most:
            self.stride *= 2
            kept = [n for n, at in enumerate(self.steps) if (at - 1) % self.stride == 0]
            self.steps, self.values = [self.steps[n] for n in kept], [self.values[n] for n in kept]

    def fetch(self) -> None:
        """Turn all tensors into numbers, with one transfer for all."""
        waiting = [n for n, value in enumerate(self.values) if not isinstance(value, float)]
        if waiting:
            import torch

            found = torch.stack([torch.as_tensor(self.values[n]).double() for n in waiting]).tolist()
            for n, value in zip(waiting, found, strict=True):
                self.values[n] = value
