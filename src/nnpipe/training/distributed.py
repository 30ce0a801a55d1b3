"""Several processes that train one model, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name


@dataclass(frozen=True)
class Team:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world: int = 1

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in order of rank; all processes must call it."""
        if self.world == 1:
            return [value]
        import torch.distributed

        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, value)
        return found


@contextmanager
def join_team(device: str) -> Iterator[Team]:
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
        raise ConfigError(
            f"device {device!r}: each of several processes has a GPU of its own; give 'cuda'"
        )
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


# Dividing the weights of a model, their gradients and the optimiser's state over processes.
#
# Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", 2023; this uses
# PyTorch's second interface to it, ``fully_shard``.  Files hold whole weights, so that any number
# of processes can read them.


def shard(model: Any, names: Sequence[str], team: Team, device: str) -> bool:
    """Divide the weights of a model over the processes; return whether they are divided.

    The weights of the first process count.

    Parameters
    ----------
    model
        The ``torch.nn.Module``, on its device.
    names
        The layers that gather their weights on their own when they compute, with ``*`` for any
        letters; all other weights are gathered at once.  Nothing is divided if there are no names,
        or if there is a single process.
    team
        The processes.
    device
        Where the model is.

    Raises
    ------
    ConfigError
        If no layer has one of the names.
    """
    if not names:
        return False
    layers = {name: layer for name, layer in model.named_modules() if name}
    chosen = {}
    for pattern in names:
        found = {name: layer for name, layer in layers.items() if fnmatchcase(name, pattern)}
        if not found:
            raise ConfigError(
                f"shard: {type(model).__name__} has no layer "
                f"{pattern!r}{suggest_name(pattern, layers)}"
            )
        chosen.update(found)
    if team.world == 1:
        return False
    import torch
    from torch.distributed.fsdp import fully_shard

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            torch.distributed.broadcast(tensor, 0)
    mesh = torch.distributed.init_device_mesh(device.partition(":")[0], (team.world,))
    for name in reversed(layers):  # inner layers before those that contain them
        if name in chosen:
            fully_shard(layers[name], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return True


def check_sharded(callbacks: Sequence[Any], optimiser: Any, parameters: Any) -> None:
    """Raise :class:`ConfigError` for arguments of a training that do not work with divided
    weights.
    """
    if callbacks:
        raise ConfigError(
            "shard: callbacks run in one process, which cannot use divided weights; give "
            "callbacks=()"
        )
    if (
        isinstance(optimiser, Mapping)
        or hasattr(optimiser, "param_groups")
        or parameters is not None
    ):
        raise ConfigError(
            "shard: give one optimiser for all weights, by what makes it, such as AdamW(rate=0.001)"
        )


def is_sharded(model: Any) -> bool:
    """Return whether the weights of a model are divided over processes, all of which have to
    compute together.
    """
    return any(_is_divided(weight) for weight in model.parameters())


def gather_shards(state: Any, keep: bool) -> Any:
    """Return a state with whole tensors in place of divided ones; all processes must call this.

    Only those that ``keep`` it receive the tensors; others receive None in their place, one tensor
    at a time.
    """
    if isinstance(state, dict):
        return {key: gather_shards(value, keep) for key, value in state.items()}
    if isinstance(state, list):
        return [gather_shards(value, keep) for value in state]
    if not _is_divided(state):
        return state
    found = state.full_tensor()
    return found if keep else None


def shard_like(value: Any, other: Any) -> Any:
    """Return a tensor divided as another one is; as it is if the other is not divided."""
    if not _is_divided(other) or _is_divided(value) or value.shape != other.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    here = value.to(other.device)
    return distribute_tensor(here, other.device_mesh, other.placements, src_data_rank=None)


def load_weights(model: Any, state: Mapping[str, Any]) -> None:
    """Load whole weights into a model, whether or not its own are divided."""
    own = model.state_dict()
    found = OrderedDict((name, shard_like(value, own.get(name))) for name, value in state.items())
    # The versions of the modules: without them, some (torchao's observers) take the state for one
    # of old and change it.
    found._metadata = getattr(own, "_metadata", {})  # type: ignore[attr-defined]
    model.load_state_dict(found)


def load_optimiser(optimiser: Any, state: Mapping[str, Any]) -> None:
    """Load the whole state of an optimiser, whether or not its weights are divided."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    if any(map(_is_divided, parameters)):
        values = {
            number: {
                name: shard_like(value, parameters[number]) if hasattr(value, "shape") else value
                for name, value in own.items()
            }
            for number, own in state["state"].items()
        }
        state = {**state, "state": values}
    optimiser.load_state_dict(state)


def broadcast_buffers(model: Any) -> None:
    """Copy the buffers of the first process to all others, such as the statistics of batch
    normalisations.
    """
    import torch

    for buffer in model.buffers():
        torch.distributed.broadcast(buffer, 0)


def _is_divided(value: Any) -> bool:
    return hasattr(value, "full_tensor")
