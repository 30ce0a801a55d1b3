"""Seed all random numbers of Keras and TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nnpipe.frameworks.keras import import_keras

_SEEDS = 2**32  # limit of NumPy's global generator


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all random numbers of Keras, TensorFlow, NumPy and Python inside the block.

    TensorFlow uses deterministic operations only.  The global generators of
    Python, NumPy and Keras are restored afterwards.
    """
    tensorflow, keras = import_keras()
    from keras.src.backend.common import global_state
    from tensorflow.python.framework import config  # there is no public function to switch it off

    python, numpy = random.getstate(), np.random.get_state()
    names = ("global_random_seed", "global_seed_generator")
    kept = {name: global_state.get_global_attribute(name) for name in names}
    deterministic = config.is_op_determinism_enabled()
    keras.utils.set_random_seed(seed % _SEEDS)
    tensorflow.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        if not deterministic:
            config.disable_op_determinism()
        for name, value in kept.items():
            global_state.set_global_attribute(name, value)
        random.setstate(python)
        np.random.set_state(numpy)


def reseed(model: Any, seed: int) -> None:
    """Set the state of the model's own random generators (dropout), which are not among the saved weights."""
    weights = {id(variable) for variable in model.weights}
    states = [variable for variable in model.variables if id(variable) not in weights and variable.shape == (2,)]
    for number, state in enumerate(states):
        state.assign(np.array([seed % _SEEDS, number]).astype(state.dtype))
