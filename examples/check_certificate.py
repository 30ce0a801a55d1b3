"""Check the certificate of a sweep over the handwritten digits, without nnpipe.

Uses ONNX Runtime to run the model that the certificate names and scikit-learn
for the data and the accuracy, and holds every claim against what it finds:

    pip install onnxruntime scikit-learn
    python examples/check_certificate.py build/sweep/certificate.json

The exit status is 0 if every claim holds, 1 if one does not, 2 if the
certificate cannot be checked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("certificate", type=Path, help="certificate.json of a sweep")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="how long to time the model (default: 2)"
    )
    options = parser.parse_args()
    try:
        given = json.loads(options.certificate.read_text("utf-8"))
        if given["kind"] != "nnpipe certificate" or given["schema"] != 1:
            raise ValueError("another kind of file")
        if (
            not given["dataset"]["class"].endswith(".DigitsDataset")
            or given["artifact"]["format"] != "onnx"
        ):
            raise ValueError("this script checks ONNX models on the handwritten digits only")
        checks = check(given, options.certificate.parent, options.seconds)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{options.certificate}: cannot be checked: {error}", file=sys.stderr)
        return 2
    for name, holds, text in checks:
        print(f"{'holds' if holds else 'FAILS'}  {name}: {text}")
    return 0 if all(holds for _, holds, _ in checks) else 1


def check(given: dict[str, Any], folder: Path, seconds: float) -> list[tuple[str, bool, str]]:
    content = (folder / given["artifact"]["path"]).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    found = [("SHA-256", digest == given["artifact"]["sha256"], digest)]
    data, samples = load_digits(), np.array(given["dataset"]["samples"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given["runtime"]["arguments"]["num_threads"]
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    images = prepared(data.images[samples], session.get_inputs()[0])
    predicted = np.concatenate(
        [session.run(None, {session.get_inputs()[0].name: image[None]})[0] for image in images]
    )
    right = int(accuracy_score(data.target[samples], predicted.argmax(1), normalize=False))
    found.append(
        (
            "right answers",
            right == given["right"],
            f"{right} of {len(samples)}, certified {given['right']}",
        )
    )
    latencies = timed(session, images, given["batch_size"], seconds)
    values = {
        "size": len(content),
        "accuracy": right / len(samples),
        "accuracy_loss": (given["right_as_trained"] - right) / len(samples),
    }
    for claim in given["claims"]:
        value = values.get(claim["metric"])
        if value is None:
            value = latency(claim["metric"], latencies)
        if value is None:
            found.append((claim["constraint"], False, "this script cannot measure it"))
            continue
        holds = value <= claim["bound"] if claim["at_most"] else value >= claim["bound"]
        found.append((claim["constraint"], holds, f"{value:.6g}, certified {claim['value']:.6g}"))
    return found


def prepared(images: np.ndarray, wanted: Any) -> np.ndarray:
    """Scale pixels from 0..16 to 0..1, with the channel where the model wants it."""
    pixels = (images / 16).astype(np.float32)
    return pixels[..., None] if wanted.shape[-1] == 1 else pixels[:, None]


def timed(session: Any, images: np.ndarray, batch: int, seconds: float) -> np.ndarray:
    name = session.get_inputs()[0].name
    batches = [
        np.ascontiguousarray(np.resize(images[i : i + batch], (batch, *images.shape[1:])))
        for i in range(0, len(images), batch)
    ]
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        for one in batches:
            start = time.perf_counter()
            session.run(None, {name: one})
            taken.append(time.perf_counter() - start)
    return np.array(taken)


def latency(metric: str, latencies: np.ndarray) -> float | None:
    if metric == "latency_median":
        return float(np.median(latencies))
    if metric.startswith("latency_p"):
        return float(np.percentile(latencies, float(metric.removeprefix("latency_p"))))
    return None


if __name__ == "__main__":
    sys.exit(main())
