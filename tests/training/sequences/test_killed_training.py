"""A training that is killed in mid-epoch, with workers and augmentation, ends as one that never was."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnpipe.experiment.statefile import read_state

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

HERE = Path(__file__).parent


def train(folder, kills):
    folder.mkdir()
    answer = subprocess.run(
        [sys.executable, str(HERE / "killed_training.py"), str(folder), *map(str, kills)],
        capture_output=True,
        text=True,
        timeout=200,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path]),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["killed"] * len(kills)
    return read_state(folder / "result.state", kind="result")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_end_is_the_same_to_the_bit(tmp_path, seed):
    wanted = train(tmp_path / "whole", [])
    numbers = random.Random(seed)
    found = train(tmp_path / "killed", [numbers.randint(1, 9) for _ in range(3)])
    assert found["figures"] == wanted["figures"]
    assert [bool(row) for row in wanted["figures"]] == [True, True]
    assert found["weights"].keys() == wanted["weights"].keys()
    for name, value in wanted["weights"].items():
        np.testing.assert_array_equal(found["weights"][name], value)
