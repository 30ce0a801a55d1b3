"""Random numbers that depend only on seed, epoch and sample id.

Philox is a block cipher in counter mode: any (key, counter) gives an
independent stream, without a state that has to be passed on (Salmon, Moraes,
Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).  So numbers
do not depend on the process, the order of drawing, or the place of a resume.
"""

from __future__ import annotations

import numpy as np

_WORD = 2**64
_ORDER = 2**63
"""Separates the streams for the order of an epoch from those of maps, which count from 0."""


def order_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator for the order of an epoch."""
    key = np.array([seed % _WORD, _ORDER], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, epoch % _WORD, 0], np.uint64)))


def sample_generator(seed: int, stage: int, epoch: int, sample_id: int, repeat: int = 0) -> np.random.Generator:
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
