"""How ``nnpipe mix`` mends a network that a few channels spoil in 8 bits, beside NNCF's accuracy control.

In ResNet20 for CIFAR-10, one channel between the two convolutions of three blocks is multiplied by 300, and the
weights that take it are divided by 300.  The network in floats computes the same; in 8 bits its accuracy falls from
91 % to about 25 %.  Then

* ``nnpipe mix`` searches with 1,000 training images and confirms its choice on the test split;
* NNCF's ``quantize_with_accuracy_control`` searches with the same images, and validates on them;
* ``ONNXEqualizer`` alone evens out the channels before the quantiser.

All results run in ONNX Runtime.  The goal: at most 26 evaluations to a loss of at most one point, whose interval holds
on the test split, and a median no longer than that of NNCF's model where the two can be told apart.

Run ``python benchmarks/mixed_precision.py --data ../shared/data``: a folder with ``cifar10`` and
``models/torch_resnet``, about three minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from _table import EPYC, report

import nnpipe as nn
from nnpipe.core.registry import find
from nnpipe.datasets.cifar10 import CIFAR10Dataset
from nnpipe.measuring.paired_comparison import ComparisonPlan

PLANTS = (("relu_1", 3), ("relu_5", 7), ("relu_9", 11))
FACTOR, MOST_EVALUATIONS, ALLOWED = 300.0, 26, 0.01
PREPARATION = {"scale": 255, "mean": (0.485, 0.456, 0.406), "deviation": (0.229, 0.224, 0.225)}
CALIBRATION, SEARCH = 128, 1000


def write_planted(data: Path, path: Path) -> None:
    """Write ResNet20 as ONNX, with three channels that are far larger than the others."""
    import onnx
    from onnx import numpy_helper

    wrapper: Any = find("PyTorchCIFARResNet", nn.ModelWrapper).from_json({})
    with wrapper.open(data / "models/torch_resnet/resnet20-12fca82f.th") as model:
        model.export(path, "onnx")
    network = onnx.load_model(str(path))
    constants = {constant.name: constant for constant in network.graph.initializer}

    def scale(name: str, at: tuple[Any, ...], factor: float) -> None:
        array = numpy_helper.to_array(constants[name]).copy()
        array[at] *= factor
        constants[name].CopyFrom(numpy_helper.from_array(array, name))

    for tensor, channel in PLANTS:
        relu = next(node for node in network.graph.node if tensor in node.output)
        before = next(node for node in network.graph.node if relu.input[0] in node.output)
        (after,) = (node for node in network.graph.node if tensor in node.input)
        for name in before.input[1:]:
            scale(name, (channel,), FACTOR)
        scale(after.input[1], (slice(None), channel), 1 / FACTOR)
    onnx.save_model(network, str(path))
    Path(f"{path}.json").unlink()  # its checksum is that of the file as exported


def with_nncf(source: Path, path: Path, dataset: CIFAR10Dataset) -> tuple[int, float]:
    """Quantise with NNCF's accuracy control; return the number of validations and the seconds."""
    import nncf
    import onnx
    import onnxruntime

    logging.getLogger("nncf").setLevel(logging.ERROR)
    drawn = np.random.default_rng(0).permutation(dataset.split("train"))
    images, labels = _prepared(dataset, drawn[: CALIBRATION + SEARCH])
    validations = 0

    def validate(model: Any, batches: Iterable[Any]) -> tuple[float, None]:
        nonlocal validations
        samples = list(batches)
        validations += len(samples) > 1  # it also asks for the result of single samples
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        right = [int(session.run(None, {"image": x})[0].argmax()) == y for x, y in samples]
        return float(np.mean(right)), None

    pairs = [(images[n : n + 1], int(labels[n])) for n in range(len(images))]
    begin = time.perf_counter()
    made = nncf.quantize_with_accuracy_control(
        onnx.load_model(str(source)),
        nncf.Dataset(pairs[:CALIBRATION], lambda sample: {"image": sample[0]}),
        nncf.Dataset(pairs[CALIBRATION:]),
        validation_fn=validate,
        max_drop=ALLOWED,
        subset_size=CALIBRATION,
    )
    onnx.save_model(made, str(path))
    return validations, time.perf_counter() - begin


def _prepared(dataset: CIFAR10Dataset, indices: Any) -> tuple[Any, Any]:
    inputs, truth = dataset.read(indices)
    mean, deviation = (np.array(PREPARATION[name]) for name in ("mean", "deviation"))
    images = (inputs["image"] / 255 - mean) / deviation
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32), truth["label"]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the models take turns at most")
    options = parser.parse_args(argv)
    dataset = CIFAR10Dataset(dataset_root=options.data / "cifar10")
    dataset.prepare()
    with tempfile.TemporaryDirectory() as folder:
        source, mixed, other, even = (Path(folder, f"{name}.onnx") for name in ("source", "mixed", "nncf", "even"))
        write_planted(options.data, source)
        begin = time.perf_counter()
        found = nn.mix(
            source, mixed, data=dataset, max_loss=ALLOWED, evaluations=MOST_EVALUATIONS, preparation=PREPARATION,
            calibration_samples=CALIBRATION, search_samples=SEARCH, max_seconds=1,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        print(found)
        validations, theirs = with_nncf(source, other, dataset)
        equalising = tuple(
            find(name, nn.ModelCompiler).from_json({}) for name in ("ONNXEqualizer", "ONNXStaticQuantizer")
        )
        way = nn.Way("equalised", equalising, find("ONNXRuntime", nn.Runtime).from_json({}))
        nn.compile(source, way, even, calibration=dataset, preparation=PREPARATION)
        plan = ComparisonPlan(max_seconds=options.seconds)
        compared = nn.compare_models(
            [source, mixed, other, even], titles=["floats", "mixed", "NNCF", "equalised"], data=dataset,
            preparation=PREPARATION, plan=plan,
        )  # fmt: skip
        print(compared)
    value, low, high = found.loss
    tried = len(found.steps)
    titles = compared.titles
    ratio, slower = 1.0, False
    for each in compared.comparison.verdicts():
        if {titles[each.first], titles[each.second]} == {"mixed", "NNCF"}:
            ratio = each.ratio if titles[each.first] == "NNCF" else 1 / each.ratio
            slower = each.kind == "faster" and titles[each.first] == "NNCF"
    rows = [
        {"model": name, "models tried": count, "seconds": took, "accuracy": compared.accuracy(name)}
        for name, count, took in (
            ("floats", 0, 0.0), ("mixed", tried, seconds), ("NNCF", validations, theirs), ("equalised", 0, 0.0)
        )
    ]  # fmt: skip
    print(f"loss of mixed: {value:.4f} ({low:.4f} to {high:.4f}), {found.verdict}; NNCF's time: 1, mixed: {ratio:.3f}")
    return report(
        rows, "models tried", tried, "", validations, ratio,
        f"at most {MOST_EVALUATIONS} models tried, a loss of at most {ALLOWED:.0%} proven, not slower than NNCF's",
        tried <= MOST_EVALUATIONS and found.verdict == "proven" and not slower, seen_on=EPYC,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
