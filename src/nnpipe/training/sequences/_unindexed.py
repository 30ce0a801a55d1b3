"""Continuing data sets that only yield one batch after another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._content_digest import compute_digest
from nnpipe.training.sequences.sequence import Batch, Stream


def iter_unindexed_batches(
    iterate: Callable[[], Iterator[Batch]], position: Any, what: str, stateful: Any = None
) -> Stream:
    """Yield batches; the position is their number, the number of samples, a digest of the last one,
    and a state.

    A data set with a state is continued from it.  Otherwise batches before the position are read
    again and left out; the last of them must be the one that was given before.

    Parameters
    ----------
    iterate
        Returns an iterator over the batches of an epoch, without ids.
    position
        Where to continue, or None.
    what
        What the data set is called in messages.
    stateful
        An object with ``state_dict`` and ``load_state_dict``, if the data set has these.

    Raises
    ------
    ConfigError
        If other batches come than before the interruption, or the state cannot be stored.
    """
    start, count, digest, state = position if position is not None else (0, 0, "", None)
    skipped = start
    if start and state is not None and stateful is not None:
        stateful.load_state_dict(parse_json(state))
        skipped = 0
    batches = iterate()
    for number in range(skipped):
        batch = next(batches, None)
        if batch is None or (number == skipped - 1 and compute_batch_digest(batch) != digest):
            raise ConfigError(
                f"{what} gives other batches than before the interruption, so the training cannot "
                f"go on to the bit: "
                "give it state_dict() and load_state_dict(), or an order that does not change, or "
                "begin a new run"
            )
    for number, batch in enumerate(batches, start + 1):
        count += len(next(iter(batch.values())))
        # A state of one's own needs no proof that earlier batches are the same.
        after = None if stateful is None else _dump_state(stateful, what)
        yield batch, [number, count, compute_batch_digest(batch) if after is None else "", after]


def get_stateful(dataset: Any) -> Any:
    """Return the data set if it has ``state_dict`` and ``load_state_dict``, else None."""
    has = callable(getattr(dataset, "state_dict", None)) and callable(
        getattr(dataset, "load_state_dict", None)
    )
    return dataset if has else None


def compute_batch_digest(batch: Batch) -> str:
    """Return a digest of some of the content of a batch, which costs little."""
    return compute_digest({name: value for name, value in batch.items() if name != "sample_id"})


def _dump_state(stateful: Any, what: str) -> str:
    try:
        return json.dumps(stateful.state_dict(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: its state_dict() cannot be stored as JSON: {error}") from None
