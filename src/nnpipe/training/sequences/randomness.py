"""Random numbers that follow from (seed, epoch, sample id) alone.

Philox is a block cipher in counter mode: any (key, counter) gives an
independent stream at once, without a state that is handed on (Salmon, Moraes,
Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).  So it does
not matter which process draws, in which order, or where a run was resumed.
"""

from __future__ import annotations

import numpy as np

_WORD = 2**64
_ORDER = 2**63
"""Sets the streams for the order of an epoch apart from those of maps, which count from 0."""


def order_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator for the order of an epoch."""
    key = np.array([seed % _WORD, _ORDER], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, epoch % _WORD, 0], np.uint64)))


def sample_generator(seed: int, stage: int, epoch: int, sample_id: int, repeat: int = 0) -> np.random.Generator:
    """Return the generator for one sample in one epoch.

    Parameters
    ----------
    seed
        Of the map.
    stage
        Which map of the chain draws, so that two of them do not draw alike.
    epoch, sample_id
        The epoch and the sample.
    repeat
        How often the sample came before in this epoch, where a sampler repeats samples.
    """
    key = np.array([seed % _WORD, stage], np.uint64)
    counter = np.array([0, repeat, epoch % _WORD, sample_id % _WORD], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
