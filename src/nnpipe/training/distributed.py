"""Several processes that train one model, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnpipe.core.errors import ConfigError


@dataclass(frozen=True)
class Team:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world: int = 1

    def gathered(self, value: Any) -> list[Any]:
        """Return the values of all processes, in order of rank; all processes must call it."""
        if self.world == 1:
            return [value]
        import torch.distributed

        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, value)
        return found


@contextmanager
def team(device: str) -> Iterator[Team]:
    """Join the processes that ``torchrun`` started, or be a single process.

    This uses the current process group, if there is one.  Otherwise it makes one,
    with gloo, or with NCCL on GPUs, and ends it with the block.  Each process
    uses the GPU of its local rank.
    """
    import torch

    distributed = torch.distributed
    if not distributed.is_available():
        yield Team()
        return
    if distributed.is_initialized():
        yield Team(distributed.get_rank(), distributed.get_world_size())
        return
    if not distributed.is_torchelastic_launched():
        yield Team()
        return
    if device.startswith("cuda:"):
        raise ConfigError(f"device {device!r}: each of several processes has a GPU of its own; give 'cuda'")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
