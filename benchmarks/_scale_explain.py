"""What explaining large networks costs: a graph of many nodes, its page, errors per channel, and
many predictions.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from _growth import growth
from _scale_files import cost_of
from _table import EPYC

from report import in_browser, made_up_run

_RUNS = 10

_MANY = """
import sys
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

random, nodes, stored, name = np.random.default_rng(0), [], [], "image"
for number in range(int(sys.argv[1]) // 4):
    weights = (random.standard_normal((16, 16)) / 4).astype(np.float32)
    stored.append(numpy_helper.from_array(weights, f"w{number}"))
    for kind, inputs, output in (
        ("MatMul", [name, f"w{number}"], "c"), ("Relu", [f"c{number}"], "r"), ("Add", [f"r{number}", name], "a"),
        ("Tanh", [f"a{number}"], "t"),
    ):
        nodes.append(helper.make_node(kind, inputs, [f"{output}{number}"], f"block{number}/{kind}"))
    name = f"t{number}"
sides = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [None, 64, 16]) for each in ("image", name)]
graph = helper.make_graph(nodes, "many", sides[:1], sides[1:], stored)
onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[2])
"""

_RUNS_ALONE = """
import sys, time
import numpy as np, onnxruntime

image = np.random.default_rng(0).random((1, 64, 16), np.float32)
for recorded in (False, True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = recorded
    options.profile_file_prefix = sys.argv[2]
    session = onnxruntime.InferenceSession(sys.argv[1], options)
    for _ in range(int(sys.argv[3])):
        session.run(None, {"image": image})
    session.end_profiling()
print(time.process_time())
"""

_LARGE = """
import sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
import nnpipe as nnp

path, integers, million = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
random, nodes, stored, name, before, side = np.random.default_rng(0), [], [], "image", 3, 112
left, number = 1e6 * million, 0
while left > 0:
    width = min(1024, 64 << (number // 2))
    stride = 2 if number % 2 and side > 7 else 1
    weights = random.standard_normal((width, before, 3, 3), np.float32) * np.float32(np.sqrt(2 / (9 * before)))
    stored.append(numpy_helper.from_array(weights, f"w{number}"))
    nodes.append(helper.make_node(
        "Conv", [name, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1] * 4, strides=[stride] * 2
    ))
    nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"))
    name, before, side, left, number = f"r{number}", width, -(-side // stride), left - weights.size, number + 1
nodes.append(helper.make_node("GlobalAveragePool", [name], ["scores"], "pool"))
sides = [
    helper.make_tensor_value_info("image", TensorProto.FLOAT, [None, 3, 112, 112]),
    helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, before, 1, 1]),
]
graph = helper.make_graph(nodes, "large", sides[:1], sides[1:], stored)
onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
samples = random.standard_normal((8, 3, 112, 112), np.float32)
nnp.compile(path, "onnx-int8", integers, calibration=(samples, np.arange(8)))
"""

_EXPLAINED = """
import json, sys, time
from pathlib import Path
import nnpipe as nnp
from nnpipe.report.inputs.layer_profile import LayerProfile
from nnpipe.scenarios.explain import main

path, folder = sys.argv[1:3]
written = ["--csv", f"{folder}/costs.csv", "--json", f"{folder}/costs.json", "--pictures", folder]
assert main([path, "--runtime", "ONNXRuntime", "--runs", sys.argv[3], *written]) == 0
took = time.process_time()
found = nnp.explain(path, runtime="ONNXRuntime", runs=int(sys.argv[3]))
profile = LayerProfile(found.times, tuple(each.text for each in found.reasons), found.cost.live_bytes)
Path(folder, "profile.json").write_text(json.dumps(profile.to_json()))
print(took)
"""

_ERRORS = """
import sys
import numpy as np
import nnpipe as nnp

samples = np.random.default_rng(1).standard_normal((int(sys.argv[3]), 3, 112, 112)).astype(np.float32)
found = nnp.explain(sys.argv[2], against=sys.argv[1], data=samples, samples=len(samples))
assert found.errors.samples == len(samples) and len(found.errors.errors) > 2
"""

_PREDICTIONS = """
import sys, time
from pathlib import Path
import nnpipe as nnp
from nnpipe import layers

kernels, count = Path(sys.argv[1]), int(sys.argv[2])
if not kernels.exists():
    nnp.learn_kernels(kernels=120, seconds=5).save(kernels)
candidates = []
for number in range(count):
    x = image = layers.Input((32, 32, 3))
    for block in range(5):
        x = layers.Conv2d(x, 8 + number // 10**block % 10 * 8, 3, padding="same")
        x = layers.Activation(layers.BatchNorm(x), "relu")
    candidates.append(layers.network(image, layers.Dense(layers.GlobalAvgPool2d(x), 10), f"candidate{number}"))
before = time.process_time()
assert len(nnp.predict(candidates, kernels).predictions) == count
print(time.process_time() - before)
"""


def _ran(script: str, *arguments: object) -> tuple[str, int]:
    """Return the last word that a script prints, and the bytes of memory at its peak."""
    cost = cost_of(sys.executable, "-c", script, *map(str, arguments))
    if cost.status:
        raise SystemExit(cost.told[-1000:])
    return (cost.told.split() or [""])[-1], cost.peak


def many_nodes(nodes: int) -> tuple[float, float | None]:
    """Return the CPU seconds of explaining a graph beyond those of running it, and of a browser
    to open its page.
    """
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as name:
        folder = Path(name)
        _ran(_MANY, nodes, folder / "many.onnx")
        ours = float(_ran(_EXPLAINED, folder / "many.onnx", folder, _RUNS)[0])
        alone = float(_ran(_RUNS_ALONE, folder / "many.onnx", folder / "alone", _RUNS)[0])
        profile = json.loads((folder / "profile.json").read_text("utf-8"))
        dataclasses.replace(made_up_run(500, 10, 0), profile=profile).write(folder / "run.json")
        _ran(
            "from nnpipe.scenarios.render_report import main; main()",
            folder / "run.json",
            "Many",
            folder / "page.html",
        )
        return ours - alone, in_browser(folder / "page.html")["load, s"]


def errors_peak(million: float, samples: int) -> float:
    """Return the GB of memory that errors per channel take for a network of so many million
    weights.
    """
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as name:
        files = Path(name, "large.onnx"), Path(name, "integers.onnx")
        _ran(_LARGE, *files, million)
        return _ran(_ERRORS, *files, samples)[1] / 1e9


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge explaining 5,000 nodes and its page, errors of a network of 100 MB, and predicting
    10,000 networks.
    """
    sizes = [100, 500] if quick else [500, 5000]
    costs, loads = zip(*(many_nodes(nodes) for nodes in sizes), strict=True)
    found = [
        growth(
            "explaining a graph of many nodes, beyond its runs",
            "CPU s",
            sizes,
            costs,
            20,
            seen_on=EPYC,
        )
    ]
    if None not in loads:
        found.append(growth("opening its page", "s", sizes, loads, 2, seen_on=EPYC))
    weights = [1, 4] if quick else [5, 26]
    peaks = [errors_peak(million, 4 if quick else 64) for million in weights]
    megabytes = [4 * million for million in weights]
    found.append(
        growth(
            "memory of errors per channel, by MB of weights",
            "GB",
            megabytes,
            peaks,
            2,
            seen_on=EPYC,
        )
    )
    counts = [100, 500] if quick else [1000, 10_000]
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as name:
        seconds = [
            float(_ran(_PREDICTIONS, Path(name, "kernels.json"), count)[0]) for count in counts
        ]
    return [
        *found,
        growth("predicting declared networks", "CPU s", counts, seconds, 30, seen_on=EPYC),
    ]
