"""What files cost as they grow: memory of whole commands and processor time, each in a process
of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _growth import growth
from _table import EPYC

_WIDE = 4096
_BLOCK = _WIDE * _WIDE * 4
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Cost:
    """What a command took, with all processes that it started.

    Attributes
    ----------
    status
        Its exit status.
    cpu
        Seconds of processor time.
    peak
        Bytes of memory at its peak; pages that processes share count once.
    told
        What it printed.
    """

    status: int
    cpu: float
    peak: int
    told: str


def cost_of(*command: str) -> Cost:
    """Run a command and measure what it takes."""
    before = os.times()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = [0]

    def watch() -> None:
        while process.poll() is None:
            try:
                whole = psutil.Process(process.pid)
                peak[0] = max(
                    peak[0],
                    sum(one.memory_full_info().pss for one in [whole, *whole.children(True)]),
                )
            except psutil.Error:
                pass
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stdout is not None
    told = process.stdout.read()
    status = process.wait()
    watcher.join()
    after = os.times()
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return Cost(status, cpu, peak[0], told)


def nnpipe(*arguments: str) -> Cost:
    """Run ``nnpipe`` and measure what it takes."""
    return cost_of(sys.executable, "-m", "nnpipe", *arguments)


def write_onnx(folder: Path, size: int) -> Path:
    """Write a network of at least so many bytes, with its weights in a file beside it."""
    import onnx
    from onnx import TensorProto, helper

    random = np.random.default_rng(0)
    weights, place = [], 0
    nodes = [helper.make_node("Reshape", ["image", "flat"], ["v0"])]

    def weight(handle: object, name: str, shape: tuple[int, int]) -> None:
        nonlocal place
        values = (random.random(shape, dtype=np.float32) - np.float32(0.5)) / np.float32(
            shape[0] ** 0.5
        )
        handle.write(values.tobytes())  # type: ignore[attr-defined]
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", "weights.bin"),
            ("offset", place),
            ("length", values.nbytes),
        ):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        place += values.nbytes

    shapes = [(64, _WIDE), *[(_WIDE, _WIDE)] * max(1, -(-size // _BLOCK)), (_WIDE, 10)]
    with open(folder / "weights.bin", "wb") as handle:
        for number, shape in enumerate(shapes):
            weight(handle, f"w{number}", shape)
            last = number == len(shapes) - 1
            nodes.append(
                helper.make_node(
                    "MatMul", [f"v{number}", f"w{number}"], ["scores" if last else f"m{number}"]
                )
            )
            if not last:
                nodes.append(helper.make_node("Tanh", [f"m{number}"], [f"v{number + 1}"]))
    weights.append(helper.make_tensor("flat", TensorProto.INT64, [2], [-1, 64]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [None, 8, 8, 1])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "large.onnx"
    onnx.save_model(model, str(path))
    return path


def looking(path: Path) -> Cost:
    """Return what ``nnpipe info`` of such a file takes; its goal is 2 s and 200 MB."""
    return nnpipe("info", str(path))


def testing(path: Path, folder: Path) -> Cost:
    """Return what ``nnpipe inference_tester`` of such a file takes; its goal is 1.3 times the
    file in memory.
    """
    return nnpipe(
        "inference_tester",
        "ONNXModel",
        "none",
        "ONNXRuntime",
        "DigitsDataset",
        str(folder / "tested.json"),
        "--model-path",
        str(path),
        "--scale",
        "16",
        "--test-fraction",
        "0.02",
        "--verify-samples",
        "2",
        "--warmup-runs",
        "1",
        "--measure-seconds",
        "1",
    )


_PROGRAM = """
import sys
import torch
from torch import nn

hidden = (layer for _ in range(int(sys.argv[1])) for layer in (nn.Linear(4096, 4096), nn.Tanh()))
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4096), *hidden, nn.Linear(4096, 10)).eval()
shapes = ({0: torch.export.Dim("batch", min=1)},)
torch.export.save(torch.export.export(network, (torch.rand(2, 8, 8, 1),), dynamic_shapes=shapes), sys.argv[2])
"""


def write_program(folder: Path, size: int) -> Path:
    """Write an exported PyTorch program of at least so many bytes."""
    path = folder / "large.pt2"
    subprocess.run([sys.executable, "-c", _PROGRAM, str(-(-size // _BLOCK)), str(path)], check=True)
    return path


def testing_program(path: Path, folder: Path) -> Cost:
    """Return what such a program takes by way of ONNX Runtime; its goal is 1.3 times the file in
    memory.
    """
    cost = nnpipe(
        "inference_tester",
        "TorchExportModel",
        "none",
        "ONNXRuntime",
        "DigitsDataset",
        str(folder / "tested.json"),
        "--model-path",
        str(path),
        "--scale",
        "16",
        "--test-fraction",
        "0.02",
        "--verify-samples",
        "2",
        "--warmup-runs",
        "1",
        "--measure-seconds",
        "1",
    )
    for made in folder.glob("tested.onnx*"):
        made.unlink()
    return cost


def refusing(path: Path, folder: Path) -> Cost:
    """Return what a quantiser takes to refuse a file of more than 2 GB; its goal is 2 s and 200
    MB.
    """
    return nnpipe(
        "inference_tester",
        "ONNXModel",
        "ONNXStaticQuantizer",
        "ONNXRuntime",
        "DigitsDataset",
        str(folder / "refused.json"),
        "--model-path",
        str(path),
    )


_SPLITTING = """
import sys
from nnpipe.datasets.image_files import ImageFolderDataset
dataset = ImageFolderDataset(dataset_root=sys.argv[1])
print(len(dataset.split("test")))
with open("/proc/self/io") as facts:
    print("read", next(line.split()[1] for line in facts if line.startswith("rchar")))
"""


def write_pictures(folder: Path, count: int, size: int = 20_000) -> Path:
    """Write so many files in two classes that all have one length, as pictures that were not
    compressed have.
    """
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / "ab"[number % 2] / f"{number:06}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(size))
        os.utime(path, (1, 1))
    return folder


def splitting(folder: Path, cache: Path) -> tuple[int, int]:
    """Return the bytes that a first process reads to split pictures, and those that a second one
    does.
    """
    changed = max(each.stat().st_mtime for each in folder.iterdir())
    # a file that was changed a moment ago is not taken for settled
    time.sleep(max(0.0, changed + 2.5 - time.time()))
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _SPLITTING, str(folder)],
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(int(done.stdout.split()[-1]))
    return found[0], found[1]


_COMPILING = """
import sys
from pathlib import Path
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.registry import find
from nnpipe.modelwrappers.files.onnx import ONNXModel
path, name, folder = sys.argv[1:]
compiler = find(name, ModelCompiler)()
made = ONNXModel(model_path=Path(path)).open().export(Path(folder, "source.onnx"), "onnx")
compiler.compile(made, Path(folder, "compiled"))
"""


def compiling(path: Path, compiler: str, folder: Path) -> Cost:
    """Return what exporting a file and compiling it takes; its goal is three times the file in
    memory.
    """
    return cost_of(sys.executable, "-c", _COMPILING, str(path), compiler, str(folder))


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge each: time and memory of whole commands, and how many times a file they take for
    each byte more of it.
    """
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as place:
        folder = Path(place)
        wanted = (_BLOCK, 5 * _BLOCK) if quick else (300 << 20, 3 << 30)
        paths, sizes = [], []
        for number, size in enumerate(wanted):
            (folder / str(number)).mkdir()
            paths.append(write_onnx(folder / str(number), size))
            sizes.append((folder / str(number) / "weights.bin").stat().st_size)
        looked = [sound(looking(path)) for path in paths]
        tested = [sound(testing(path, path.parent)) for path in paths]
        found = [
            growth(
                "info of an ONNX file, bytes",
                "CPU s",
                sizes,
                [cost.cpu for cost in looked],
                2,
                seen_on=EPYC,
            ),
            growth(
                "info of an ONNX file, bytes",
                "MB",
                sizes,
                [cost.peak / 1e6 for cost in looked],
                200,
                seen_on=EPYC,
            ),
            _times("inference_tester of an ONNX file, bytes", sizes, tested, 1.3),
        ]
        if sizes[-1] > _LARGEST:
            refused = refusing(paths[-1], folder)
            found.append(
                growth(
                    "refusal of a large ONNX file, bytes",
                    "CPU s",
                    sizes,
                    [0.0, refused.cpu],
                    2,
                    seen_on=EPYC,
                )
            )
            found.append(
                growth(
                    "refusal of a large ONNX file, bytes",
                    "MB",
                    sizes,
                    [0.0, refused.peak / 1e6],
                    200,
                    seen_on=EPYC,
                )
            )
            paths[-1] = write_onnx(folder, 1 << 30)
            sizes[-1] = (folder / "weights.bin").stat().st_size
        if not quick:
            found.append(_programs(folder, wanted))
        for name in ("ONNXRuntimeOptimizer", "ONNXFloat16"):
            made = [sound(compiling(path, name, path.parent)) for path in paths]
            found.append(_times(f"{name}, bytes", sizes, made, 3))
        counts, shares = ([100, 500] if quick else [2_000, 20_000]), []
        folders = [write_pictures(folder / f"{count}", count) for count in counts]
        for count, pictures in zip(counts, folders, strict=True):
            first, again = splitting(pictures, folder / f"cache{count}")
            shares.append(again / first)
        found.append(
            growth(
                "splitting pictures a second time",
                "of the bytes read first",
                counts,
                shares,
                0.5,
                seen_on=EPYC,
            )
        )
    return found


def _programs(folder: Path, wanted: Sequence[int]) -> dict[str, Any]:
    sizes, costs = [], []
    for size in wanted:
        path = write_program(folder, size)
        sizes.append(path.stat().st_size)
        costs.append(sound(testing_program(path, folder)))
        path.unlink()
    return _times("inference_tester of a .pt2 file, bytes", sizes, costs, 1.3)


def sound(cost: Cost) -> Cost:
    """Refuse to judge a command that failed."""
    if cost.status:
        raise SystemExit(cost.told[-500:])
    return cost


def _times(name: str, sizes: Sequence[int], costs: Sequence[Cost], most: float) -> dict[str, Any]:
    """Judge the memory that a command takes for each byte more of its file; what it takes anyway
    cancels.
    """
    slope = (costs[-1].peak - costs[0].peak) / (sizes[-1] - sizes[0])
    return growth(
        name,
        "of the file, for each byte more",
        sizes,
        [costs[0].peak / sizes[0], slope],
        most,
        seen_on=EPYC,
    )


def main() -> None:
    """Measure each and print it; ``--quick`` takes smaller files with the same goals where a
    ratio is one.
    """
    quick = "--quick" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as place:
        folder = Path(place)
        path = write_onnx(folder, (300 << 20) if quick else (3 << 30))
        size = (folder / "weights.bin").stat().st_size
        for what, cost in (("info", looking(path)), ("inference_tester", testing(path, folder))):
            told = "" if cost.status == 0 else cost.told[-300:]
            print(
                f"{what}: {cost.cpu:.1f} CPU s, {cost.peak / 1e6:,.0f} MB = {cost.peak / size:.2f} "
                f"files {told}"
            )
        if size > _LARGEST:
            cost = refusing(path, folder)
            print(f"refusal: status {cost.status}, {cost.cpu:.1f} CPU s, {cost.peak / 1e6:,.0f} MB")
        for name in (
            ("ONNXRuntimeOptimizer", "ONNXFloat16", "OpenVINOCompiler") if size <= _LARGEST else ()
        ):
            (folder / name).mkdir()
            cost = compiling(path, name, folder / name)
            told = "" if cost.status == 0 else cost.told[-300:]
            print(
                f"{name}: {cost.cpu:.1f} CPU s, {cost.peak / 1e6:,.0f} MB = {cost.peak / size:.2f} "
                f"files {told}"
            )
        pictures = write_pictures(folder / "pictures", 500 if quick else 20_000)
        first, again = splitting(pictures, folder / "cache")
        print(
            f"splitting pictures: {first / 1e6:,.1f} MB read by the first process, "
            f"{again / 1e6:,.1f} by the next"
        )


if __name__ == "__main__":
    main()
