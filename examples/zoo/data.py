"""Samples to train and judge on: pictures of digits, scenes, sentences and sounds.

Pictures come from ``../shared/data/mnist`` beside the current folder where that
is there, and else from the scans that are part of nnpipe.  Sentences and sounds
are made up from a seed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.datasets.mnist import MNISTDataset

SHARED = Path("../shared/data/mnist")
TRAINING, CALIBRATION, TEST = 3000, 128, 256
VOCABULARY, WORDS, TOPICS = 128, 32, 4
SIDE = 64

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class Task:
    """Inputs by name and targets ``(n, ...)``; the first ``TEST`` samples are for judging, the
    next for calibration.
    """

    inputs: dict[str, np.ndarray]
    targets: np.ndarray

    def part(self, start: int, stop: int | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return some samples, with the class of each: that of the first target if there are
        several.
        """
        targets = self.targets[start:stop]
        return {name: array[start:stop] for name, array in self.inputs.items()}, targets

    @property
    def test(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The samples to judge on."""
        inputs, targets = self.part(0, TEST)
        return inputs, _classes(targets)

    @property
    def calibration(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The samples for quantisers to observe; the training has seen them."""
        inputs, targets = self.part(TEST, TEST + CALIBRATION)
        return inputs, _classes(targets)

    @property
    def training(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All other samples."""
        return self.part(TEST, None)


def _classes(targets: np.ndarray) -> np.ndarray:
    return targets if targets.ndim == 1 else np.zeros(len(targets), np.int64)


def digits() -> Task:
    """Return pictures of a light digit on dark, noisy ground, float32 ``(n, 3, 64, 64)``, with
    ten classes.
    """
    random = np.random.default_rng(0)
    grey, labels = _grey(random)
    ink = random.uniform(0.7, 1.0, (len(grey), 3, 1, 1))
    ground = random.uniform(-1.0, -0.5, (len(grey), 3, 1, 1))
    images = (
        ground + (ink - ground) * grey[:, None] + random.normal(0, 0.05, (len(grey), 3, SIDE, SIDE))
    )
    return Task({"image": images.astype(np.float32)}, labels)


def scenes(*strides: int) -> Task:
    """Return pictures of one small digit somewhere, and where it is.

    The targets are ``(n, cells, 5)`` for the cells of a grid for each stride, one grid after the
    other: class of each cell (0: none, 1: the centre of a digit), then the box as left, top, right,
    bottom relative to the cell, in cells.
    """
    random = np.random.default_rng(1)
    grey, _ = _grey(random)
    size = SIDE // 2
    images = random.normal(0, 0.05, (len(grey), 3, SIDE, SIDE)).astype(np.float32)
    corners = random.integers(0, SIDE - size + 1, (len(grey), 2))
    for image, digit, (left, top) in zip(images, grey[:, ::2, ::2], corners, strict=True):
        image[:, top : top + size, left : left + size] += digit
    numbers, grids = np.arange(len(images)), []
    for stride in strides:
        grid = np.zeros((len(images), SIDE // stride, SIDE // stride, 5), np.float32)
        cells = np.minimum((corners + size // 2) // stride, SIDE // stride - 1)
        boxes = np.hstack([corners, corners + size]) / stride - np.tile(cells, 2)
        grid[numbers, cells[:, 1], cells[:, 0]] = np.hstack([np.ones((len(images), 1)), boxes])
        grids.append(grid.reshape(len(images), -1, 5))
    return Task({"image": images}, np.concatenate(grids, axis=1))


def outlines() -> Task:
    """Return noisy pictures of one digit, with the class of each pixel: ``(n, 64, 64)``, 0 or 1."""
    random = np.random.default_rng(1)
    grey, _ = _grey(random)
    images = grey[:, None] + random.normal(0, 0.2, (len(grey), 3, SIDE, SIDE))
    return Task({"image": images.astype(np.float32)}, (grey > 0.5).astype(np.int64))


def sentences(*, mask: bool = False) -> Task:
    """Return tokens ``(n, 32)`` int64 on one of four topics; with a mask, sentences end early
    and 0 follows.
    """
    random = np.random.default_rng(2)
    count = TRAINING + TEST
    labels = random.integers(0, TOPICS, count)
    common = random.integers(1, VOCABULARY, (count, WORDS))
    own = 1 + labels[:, None] + TOPICS * random.integers(0, 16, (count, WORDS))
    tokens = np.where(random.random((count, WORDS)) < 0.3, own, common)
    if not mask:
        return Task({"input_ids": tokens}, labels)
    there = (np.arange(WORDS) < random.integers(WORDS // 2, WORDS + 1, (count, 1))).astype(np.int64)
    return Task({"input_ids": tokens * there, "attention_mask": there}, labels)


def sounds(length: int = 1600) -> Task:
    """Return sounds of one of four pitches in noise, float32 ``(n, length)``."""
    random = np.random.default_rng(3)
    count = TRAINING // 2 + TEST
    labels = random.integers(0, TOPICS, count)
    pitch = 0.02 * 1.6**labels * random.uniform(0.95, 1.05, count)
    phase = random.uniform(0, 2 * np.pi, (count, 1))
    wave = np.sin(2 * np.pi * pitch[:, None] * np.arange(length) + phase)
    return Task({"sound": (wave + random.normal(0, 0.3, wave.shape)).astype(np.float32)}, labels)


def spectrograms(bands: int = 16, frames: int = 64) -> Task:
    """Return logarithmic spectra of such sounds, float32 ``(n, bands, frames)``."""
    task = sounds(frames * 32)
    pieces = task.inputs["sound"].reshape(-1, frames, 32) * np.hanning(32).astype(np.float32)
    power = np.abs(np.fft.rfft(pieces, axis=2))[:, :, :bands]
    return Task(
        {"features": np.log(power + 1e-2).transpose(0, 2, 1).astype(np.float32)}, task.targets
    )


def _grey(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures of digits ``(n, 64, 64)`` from 0 to 1, and their classes."""
    dataset: Dataset = MNISTDataset(dataset_root=SHARED) if SHARED.is_dir() else DigitsDataset()
    if not SHARED.is_dir():
        log.warning(
            "%s: no such folder, so that the zoo trains on the scans that are part of nnpipe",
            SHARED,
        )
    dataset.prepare()
    chosen = random.permutation(dataset.split("train"))[: TRAINING + TEST]
    inputs, truth = dataset.read(chosen)
    pixels = inputs["image"][..., 0].astype(np.float32)
    return _resized(pixels / pixels.max()), truth["label"]


def _resized(pixels: np.ndarray) -> np.ndarray:
    """Return square pictures in the size of the networks' inputs, by linear interpolation."""
    place = (np.arange(SIDE) + 0.5) * pixels.shape[1] / SIDE - 0.5
    low = np.clip(np.floor(place).astype(int), 0, pixels.shape[1] - 2)
    share = np.clip(place - low, 0, 1).astype(np.float32)
    rows = pixels[:, low] * (1 - share)[None, :, None] + pixels[:, low + 1] * share[None, :, None]
    return rows[:, :, low] * (1 - share) + rows[:, :, low + 1] * share
