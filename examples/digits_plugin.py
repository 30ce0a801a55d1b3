"""A plugin: print all digits dark on light, load test data, and show what a model takes for what.

nnpipe model_training PyTorchDigitsCNN PluginDataset --wrapped DigitsDataset --plugin
examples/digits_plugin.py ... nnpipe testrun PyTorchDigitsCNN test.npz tried --model-path digits.pt
--plugin examples/digits_plugin.py
"""

import csv
import struct
import zlib
from pathlib import Path

import numpy as np


def process_dataset(x, y):
    """Turn scans that are mostly light to their negative, so that all look alike."""
    light = x.mean(axis=(1, 2, 3), keepdims=True) < 5
    return np.where(light, 16 - x, x).astype(x.dtype), y


def load_test_data(path):
    """Read scans and their labels from a file of numpy arrays, a hundred or less in each step."""
    with np.load(path, allow_pickle=False) as arrays:
        image, label = arrays["image"], arrays["label"]
    return image, label, -(-len(image) // 100)


def process_model_output(model_input, expected_output, model_output):
    """Write a table of all scans, and a picture of those that were taken for others."""
    taken = np.argmax(model_output, axis=1)
    with open("output/scans.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["digit", "taken for", "score"])
        table.writerows(
            zip(expected_output, taken, np.max(model_output, axis=1).round(4), strict=True)
        )
    wrong = np.flatnonzero(taken != expected_output)
    lines = [f"{expected_output[n]} taken for {taken[n]}" for n in wrong]
    Path("output/mistakes.txt").write_text("\n".join(lines) + "\n", "utf-8")
    if len(wrong):
        scans = 255 - model_input[wrong, :, :, 0].astype(float) * (255 / 16)
        write_png("output/mistakes.png", np.concatenate(list(scans), axis=1).astype(np.uint8))


def write_png(path, picture):
    """Write a grey picture, ``(rows, columns)`` uint8; see https://www.w3.org/TR/png."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows, columns = picture.shape
    lines = b"".join(b"\0" + row.tobytes() for row in picture)
    with open(path, "wb") as file:
        file.write(
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0))
        )
        file.write(chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))
