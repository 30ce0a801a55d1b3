"""A training that is killed in mid-epoch, with workers and augmentation, ends as one that never
was.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnpipe.experiment.state_file import read_state

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

HERE = Path(__file__).parent


def train(folders):
    """Train in folders, each with some workers and kills; return the result of each."""
    for folder in folders:
        folder.mkdir()
    answer = subprocess.run(
        [
            sys.executable,
            str(HERE / "killed_training.py"),
            json.dumps({str(folder): given for folder, given in folders.items()}),
        ],
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
    assert answer.stdout.split() == ["killed"] * sum(len(kills) for _, kills in folders.values())
    return [read_state(folder / "result.state", kind="result") for folder in folders]


# test_map.py goes on amid an epoch, and tests/training/test_resume.py after kills
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(0, 1), *((seed, 3) for seed in range(3))])
def test_the_end_is_the_same_to_the_bit(tmp_path, seed, kills):
    numbers = random.Random(seed)
    at = [numbers.randint(1, 9) for _ in range(kills)]
    wanted, found = train({tmp_path / "whole": (0, []), tmp_path / "killed": (2, at)})
    assert found["figures"] == wanted["figures"]
    assert [bool(row) for row in wanted["figures"]] == [True, True]
    assert found["weights"].keys() == wanted["weights"].keys()
    for name, value in wanted["weights"].items():
        np.testing.assert_array_equal(found["weights"][name], value)
