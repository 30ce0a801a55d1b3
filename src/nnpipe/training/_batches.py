"""Batches on their way from a sequence to the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError

_NUMBERS = "biuf"


def to_tensors(
    batch: Mapping[str, Any], device: str, channels_last: bool = False
) -> dict[str, Any]:
    """Return a batch with tensors on the device for its arrays; lists and texts stay, and ids stay
    on the host.

    Memory is shared where it can be: the model may read, but a sequence must not write into a batch
    that it has handed out.  With ``channels_last``, images ``(n, channels, height, width)`` of real
    numbers have their channels as the last axis in memory.
    """
    import torch

    found = {}
    for name, value in batch.items():
        if type(value) is np.ndarray and value.dtype.kind in _NUMBERS:
            flags = value.flags
            if not flags.writeable or not (flags.c_contiguous or min(value.strides) >= 0):
                value = value.copy()
            value = torch.from_numpy(value)
        found[name] = value
    if device != "cpu":
        for name, value in found.items():
            if name != "sample_id" and isinstance(value, torch.Tensor):
                found[name] = value.to(device, non_blocking=True)
    if channels_last:
        for name, value in found.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point():
                found[name] = value.contiguous(memory_format=torch.channels_last)
    return found


def size_of(batch: Mapping[str, Any]) -> int:
    """Return the number of samples of a batch."""
    try:
        return len(batch["sample_id"])
    except KeyError:
        raise ConfigError(
            f'a batch has no "sample_id"; it has {", ".join(batch) or "nothing"}'
        ) from None


def select_share(batch: Mapping[str, Any], rank: int, world: int) -> tuple[dict[str, Any], int]:
    """Return every ``world``-th sample of a batch, and how many.

    Where there is none, return one sample and the number 0: each process has to take part in each
    step.
    """
    size = size_of(batch)
    own = slice(rank, None, world) if rank < size else slice(0, 1)
    found = {
        name: value[own]
        if hasattr(value, "__getitem__")
        and not isinstance(value, (str, dict))
        and len(value) == size
        else value
        for name, value in batch.items()
    }
    return found, len(range(rank, size, world))


def format_batch_ids(batch: Mapping[str, Any] | None) -> str:
    """Name the samples of a batch in a message."""
    if batch is None or "sample_id" not in batch:
        return ""
    ids = np.asarray(batch["sample_id"]).tolist()
    shown = ", ".join(map(str, ids[:16])) + (f", ... ({len(ids)} in all)" if len(ids) > 16 else "")
    return f", samples {shown}"


class BatchSource:
    """The batches of several sequences in one epoch, one sequence after the other or by turns."""

    def __init__(self, sequences: Mapping[str, Any], interleaved: bool) -> None:
        self._sequences = sequences
        self._interleaved = interleaved
        self._finished: list[str] = []
        self._last = ""

    def begin(self, epoch: int) -> None:
        """Begin an epoch."""
        self._finished, self._last = [], ""
        for sequence in self._sequences.values():
            sequence.set_epoch(epoch)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        names = [name for name in self._sequences if name not in self._finished]
        if self._interleaved and self._last in names:
            after = names.index(self._last) + 1
            names = names[after:] + names[:after]
        iterators: dict[str, Iterator[Any]] = {}
        while names:
            name = names[0]
            if name not in iterators:
                iterators[name] = iter(self._sequences[name])
            try:
                batch = next(iterators[name])
            except StopIteration:
                self._finished.append(names.pop(0))
                continue
            self._last = name
            if self._interleaved:
                names.append(names.pop(0))
            yield name, batch

    def __len__(self) -> int:
        return sum(len(sequence) for sequence in self._sequences.values())

    def state_dict(self) -> dict[str, Any]:
        """Return whose turn it is, and where each sequence stands."""
        states = {name: sequence.state_dict() for name, sequence in self._sequences.items()}
        return {"finished": list(self._finished), "last": self._last, "sequences": states}

    def load_state_dict(self, state: Mapping[str, Any], epoch: int) -> None:
        """Go to where an epoch was left."""
        self.begin(epoch)
        self._finished, self._last = list(state["finished"]), state["last"]
        for name, sequence in self._sequences.items():
            if name not in self._finished:
                sequence.load_state_dict(state["sequences"][name])
