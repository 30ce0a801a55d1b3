"""The global generators of PyTorch, numpy and Python, seeded for a block."""

from __future__ import annotations

import random as python_random
import sys
from typing import Any

import numpy as np


class Seeded:
    """Seeds the global generators during a block, and restores them; those of PyTorch only if it is imported.

    Parameters
    ----------
    seed
        A number from 0 to below 2**63.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._before: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._before = _states()
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
        self._own = _states()
        _restore(self._before)


def _states() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    return np.random.get_state(), python_random.getstate(), None if torch is None else torch.get_rng_state()


def _restore(states: tuple[Any, ...]) -> None:
    np.random.set_state(states[0])
    python_random.setstate(states[1])
    if states[2] is not None:
        sys.modules["torch"].set_rng_state(states[2])
