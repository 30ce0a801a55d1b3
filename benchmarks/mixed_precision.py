"""How ``nnpipe mix`` mends a network that a few channels spoil in 8 bits, beside NNCF's accuracy
control.

In ResNet20 for CIFAR-10, one channel between the two convolutions of three blocks is multiplied by
300, and the weights that take it are divided by 300.  The network in floats computes the same; in 8
bits its accuracy falls from 91 % to about 25 %.  Then

* ``nnpipe mix`` searches with 1,000 training images and confirms its choice on the test split;
* NNCF's ``quantize_with_accuracy_control`` searches with the same images, and validates on them;
* ``ONNXEqualizer`` alone evens out the channels before the quantiser.

All results run in ONNX Runtime, and take turns over many starts, as in ``nnpipe compare``.  The
goal: at most 26 evaluations to a loss of at most one point, whose paired interval on the 500 images
of the test split is below it, and a time that is not longer than that of NNCF's model: the whole
interval of their ratio is below 1.05.  The equalised model must lose at most one point as well.

Run ``python benchmarks/mixed_precision.py --data ../shared/data``: a folder with ``cifar10`` and
``models/torch_resnet``, about two minutes on two idle cores; with ``--quick``, both search with 200
images, and only their two results take turns (50 s).
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
from _table import DATA, EPYC, at_most, existing, report

import nnpipe as nnp
from nnpipe.core.registry import find
from nnpipe.datasets.cifar10 import CIFAR10Dataset
from nnpipe.measuring.paired_comparison import ComparisonPlan

PLANTS = (("relu_1", 3), ("relu_5", 7), ("relu_9", 11))
FACTOR, MOST_EVALUATIONS, ALLOWED = 300.0, 26, 0.01
PREPARATION = {"scale": 255, "mean": (0.485, 0.456, 0.406), "deviation": (0.229, 0.224, 0.225)}
CALIBRATION, SEARCH, QUICK_SEARCH = 128, 1000, 200
SLOWER = 1.05  # not slower: at most this multiple of the time of NNCF's model


def write_planted(data: Path, path: Path) -> None:
    """Write ResNet20 as ONNX, with three channels that are far larger than the others."""
    import onnx
    from onnx import numpy_helper

    wrapper: Any = find("PyTorchCIFARResNet", nnp.ModelWrapper).from_json({})
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


def with_nncf(source: Path, path: Path, dataset: CIFAR10Dataset, count: int) -> tuple[int, float]:
    """Quantise with NNCF's accuracy control; return the number of validations and the seconds."""
    import nncf
    import onnx
    import onnxruntime

    logging.getLogger("nncf").setLevel(logging.ERROR)
    drawn = np.random.default_rng(0).permutation(dataset.split("train"))
    images, labels = _prepared(dataset, drawn[: CALIBRATION + count])
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


def accuracy_of(path: Path, dataset: CIFAR10Dataset) -> float:
    """Return the share of the test images that a model has right in ONNX Runtime."""
    import onnxruntime

    images, labels = _prepared(dataset, dataset.split("test"))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return float(np.mean(session.run(None, {"image": images})[0].argmax(1) == labels))


def _prepared(dataset: CIFAR10Dataset, indices: Any) -> tuple[Any, Any]:
    inputs, truth = dataset.read(indices)
    mean, deviation = (np.array(PREPARATION[name]) for name in ("mean", "deviation"))
    images = (inputs["image"] / 255 - mean) / deviation
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32), truth["label"]


def times_of_nncf(compared: Any) -> tuple[float, float]:
    """Return the time of the mixed model as a multiple of that of NNCF's, and the upper end of
    its interval.
    """
    titles = compared.titles
    for each in compared.comparison.compare_pairs():
        pair = titles[each.first], titles[each.second]
        if set(pair) == {"mixed", "NNCF"}:
            low, high = each.interval or (0.0, float("inf"))
            turned = pair[0] == "mixed"  # the verdict has the second's time by the first's
            return (
                (1 / each.ratio, 1 / low if low else float("inf")) if turned else (each.ratio, high)
            )
    raise AssertionError("the two were not compared")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long the models take turns at most"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="search with fewer images, and time only mixed and NNCF's",
    )
    options = parser.parse_args(argv)
    count = QUICK_SEARCH if options.quick else SEARCH
    dataset = CIFAR10Dataset(dataset_root=existing(options.data / "cifar10"))
    dataset.prepare()
    with tempfile.TemporaryDirectory() as folder:
        source, mixed, other, even = (
            Path(folder, f"{name}.onnx") for name in ("source", "mixed", "nncf", "even")
        )
        write_planted(options.data, source)
        begin = time.perf_counter()
        found = nnp.mix(
            source,
            mixed,
            data=dataset,
            max_loss=ALLOWED,
            evaluations=MOST_EVALUATIONS,
            preparation=PREPARATION,
            calibration_samples=CALIBRATION,
            search_samples=count,
            max_seconds=1,
        )
        seconds = time.perf_counter() - begin
        print(found)
        validations, theirs = with_nncf(source, other, dataset, count)
        equalising = tuple(
            find(name, nnp.ModelCompiler).from_json({})
            for name in ("ONNXEqualizer", "ONNXStaticQuantizer")
        )
        way = nnp.Way("equalised", equalising, find("ONNXRuntime", nnp.Runtime).from_json({}))
        nnp.compile(source, way, even, calibration=dataset, preparation=PREPARATION)
        files = {"mixed": mixed, "NNCF": other} | (
            {} if options.quick else {"equalised": even, "floats": source}
        )
        compared = nnp.compare_models(
            list(files.values()),
            titles=list(files),
            data=dataset,
            preparation=PREPARATION,
            plan=ComparisonPlan(max_seconds=options.seconds, margin=SLOWER - 1),
        )
        print(compared)
        of_equalised = accuracy_of(even, dataset)
    value, low, high = found.loss
    ratio, most = times_of_nncf(compared)
    accuracy = {"floats": found.comparison.accuracy("floats")} | {
        name: compared.accuracy(name) for name in files
    }
    accuracy["equalised"] = of_equalised
    rows = [
        {"model": name, "models tried": number, "seconds": took, "accuracy": accuracy[name]}
        for name, number, took in (
            ("floats", 0, 0.0),
            ("mixed", len(found.steps), seconds),
            ("NNCF", validations, theirs),
            ("equalised", 0, 0.0),
        )
    ]
    print(
        f"loss of mixed: {value:.4f} ({low:.4f} to {high:.4f}) on {found.difference.samples} "
        f"unseen images, {found.verdict}; its time by that of NNCF's: {ratio:.3f}, at most "
        f"{most:.3f}"
    )
    goals = [
        at_most(
            "models tried",
            len(found.steps),
            MOST_EVALUATIONS,
            len(found.steps) <= MOST_EVALUATIONS,
            EPYC,
        ),
        at_most("loss of mixed, upper end", high, ALLOWED, found.verdict == "proven", EPYC),
        at_most("time of mixed / NNCF's, upper end", most, SLOWER, most <= SLOWER, EPYC),
        at_most(
            "loss of equalised",
            accuracy["floats"] - accuracy["equalised"],
            ALLOWED,
            accuracy["floats"] - accuracy["equalised"] <= ALLOWED,
            EPYC,
        ),
    ]
    return report(
        rows,
        "time of mixed / NNCF's",
        ratio,
        "",
        1.0,
        ratio,
        f"at most {MOST_EVALUATIONS} models tried, a loss of at most {ALLOWED:.0%} proven, not "
        f"slower than NNCF's",
        all(each["holds"] for each in goals),
        goals,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
