"""Random numbers that depend only on seed, epoch and sample id.

Philox is a block cipher in counter mode: any (key, counter) gives an
independent stream, without a state that has to be passed on (Salmon, Moraes,
Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).  So numbers
do not depend on the process, the order of drawing, or the place of a resume.
"""

from __future__ import annotations

import random as python_random
import sys
from typing import Any

import numpy as np

_WORD = 2**64
_ORDER = 2**63
"""Separates the streams for the order of an epoch from those of maps, which count from 0."""


def create_order_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator for the order of an epoch."""
    key = np.array([seed % _WORD, _ORDER], np.uint64)
    return np.random.Generator(
        np.random.Philox(key=key, counter=np.array([0, 0, epoch % _WORD, 0], np.uint64))
    )


def sample_generator(
    seed: int, stage: int, epoch: int, sample_id: int, repeat: int = 0
) -> np.random.Generator:
    """Return the generator for one sample in one epoch.

    Parameters
    ----------
    seed
        Seed of the map.
    stage
        Number of the map in the chain, so that two maps draw different numbers.
    epoch, sample_id
        The epoch and the sample.
    repeat
        How often the sample occurred before in this epoch, if a sampler repeats samples.
    """
    key = np.array([seed % _WORD, stage], np.uint64)
    counter = np.array([0, repeat, epoch % _WORD, sample_id % _WORD], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class Seeded:
    """Seeds the global generators during a block, and restores them; those of PyTorch only if it is
    imported.

    Parameters
    ----------
    seed
        A number from 0 to below 2**63.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._before: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._before = _get_states()
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.default_generator.manual_seed(self._seed)
        np.random.seed(self._seed % 2**32)
        python_random.seed(self._seed)

    def __exit__(self, *error: object) -> None:
        _restore(self._before)


class OwnGenerators(Seeded):
    """Global generators of one's own, which go on from block to block while others do not notice.

    Parameters
    ----------
    seed
        A number from 0 to below 2**63.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        super().__enter__()
        if self._own:
            _restore(self._own)

    def __exit__(self, *error: object) -> None:
        self._own = _get_states()
        _restore(self._before)


def _get_states() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    return (
        np.random.get_state(),
        python_random.getstate(),
        None if torch is None else torch.get_rng_state(),
    )


def _restore(states: tuple[Any, ...]) -> None:
    np.random.set_state(states[0])
    python_random.setstate(states[1])
    if states[2] is not None:
        sys.modules["torch"].set_rng_state(states[2])
