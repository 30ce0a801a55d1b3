"""A small space, and small pictures whose class is seen by a convolution."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.training import Features

SMALL = {
    "cell": {"operations": ["none", "skip_connect", "nor_conv_3x3"], "nodes": 2},
    "input": [8, 8, 1],
    "classes": 2,
    "channels": 4,
    "cells": 1,
    "stages": 1,
}


def stripes(count: int, seed: int) -> Features:
    """Return pictures of horizontal or vertical stripes with noise."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, count)
    wave = np.where(np.arange(8) % 2, 1.0, -1.0)
    image = np.where(label[:, None, None] == 1, wave[None, :, None], wave[None, None, :])
    image = image + random.normal(0, 0.5, (count, 8, 8))
    return {"image": image[..., None].astype(np.float32), "label": label.astype(np.int64)}


@pytest.fixture
def space() -> ArchitectureSpace:
    return ArchitectureSpace.from_json(SMALL)
