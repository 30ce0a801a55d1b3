"""Functions for maps; worker processes import them by name."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np


def noisy(sample, random):
    sample["input"] = sample["input"] + random.normal(size=sample["input"].shape)
    return sample


def noisy_batch(batch, randoms):
    batch["input"] = batch["input"] + np.stack(
        [random.normal(size=batch["input"].shape[1:]) for random in randoms]
    )
    return batch


def uneven(sample, random):
    time.sleep(float(random.uniform(0, 0.004)))
    return {"input": sample["input"], "pid": os.getpid(), "text": str(sample["sample_id"])}


def fails_for_17(sample, random):
    if sample["sample_id"] == 17:
        raise ValueError("no good")
    return {"input": sample["input"]}


def batch_fails_for_17(batch, randoms):
    if 17 in batch["sample_id"]:
        raise ValueError("no good")
    return batch


def waits(sample, random):
    time.sleep(0.001)
    return sample


def stuck(sample, random):
    time.sleep(1000)
    return sample


def stuck_in_c(sample, random):
    # One call that never lets another thread run.
    return {"input": 7 ** (10**9)}


def dies(sample, random):
    if sample["sample_id"] == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def leaves(sample, random):
    sys.exit(3)


def forgets_ids(sample, random):
    return {"input": sample["input"]}


def lies_about_ids(sample, random):
    return {"input": sample["input"], "sample_id": -1}


def grows(sample, random):
    return {"input": np.full((sample["sample_id"] * 100 + 1,), sample["sample_id"], np.float32)}


def cannot_travel(sample, random):
    return {"input": lambda: None}


def not_a_dictionary(sample, random):
    return sample["input"]


class CannotArrive:
    """Pickles, but raises where it is unpickled."""

    def __call__(self, sample, random):
        return sample

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise OSError("no licence for a second process")


def noisy_scalar(sample, random):
    return {"input": float(sample["input"]) + random.normal()}


class DrawingDataset:
    """A PyTorch data set that augments from numpy's global generator."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return np.array([index, np.random.rand()]), index % 3


def drawing_dataset():
    return DrawingDataset()


def shaken(sample, random):
    sample["x"] = sample["x"] + random.normal(size=sample["x"].shape).astype(np.float32)
    return sample
