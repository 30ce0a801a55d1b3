"""Each framework as its makers would run it: our figure against its own tool's, our default against its best option.

ResNet8, ResNet20 and MobileNetV2 (0.35, 96 x 96), one sample a call, one thread, in floats.  For each framework:

* Our reported median (:func:`nnpipe.measure.loop.measure` on the session that every command measures) is within 5 % of
  that of the framework's own tool on the same artifact: OpenVINO's benchmark_app, iree-benchmark-module, TVM's
  time_evaluator, torch.utils.benchmark; a bare loop around the framework's own call where it has none in Python.
* Our default is at most 1.3 times slower than the best of a search through its options.  A default that is not, such as
  TVM without tuning, is ``marked``: its result says so, and so does every report.

The two sides of each comparison take turns, and a ratio is the median of those of all turns.  On a machine that is busy
otherwise ratios of medians still scatter by tens of percent: the ratio of the smallest times stands beside them.

Run ``python benchmarks/fair.py`` (half an hour: compiling takes most of it) or with ``--quick`` (ResNet8 on frameworks
that compile fast; under a minute).  ``--only openvino,tvm`` chooses frameworks, ``--tune-seconds`` for how long TVM
is tuned.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _table import EPYC, interleave, report

from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import for_batch
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError
from nnpipe.core.quiet import native_output_held
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.formats.sealed import read_sealed
from nnpipe.measure.loop import measure

TOOL_GOAL, BEST_GOAL = 0.05, 1.3
BIN = Path(sys.executable).parent
QUICK = ("onnxruntime", "openvino", "pytorch", "iree")

Timer = Callable[[], list[float]]
"""Gives seconds of some calls."""


@dataclass(frozen=True)
class Way:
    """A configuration of a framework: compilers and a runtime, with arguments that are not the usual ones."""

    runtime: str
    compilers: tuple[str, ...] = ()
    compiling: dict[str, Any] = field(default_factory=dict)
    running: dict[str, Any] = field(default_factory=dict)

    def made(self) -> tuple[list[ModelCompiler], Runtime]:
        """Make the components, for one sample a call as every command does."""
        compilers = [find(name, ModelCompiler).from_json(self.compiling) for name in self.compilers]
        runtime = find(self.runtime, Runtime).from_json(self.running)
        return [for_batch(compiler, 1) for compiler in compilers], for_batch(runtime, 1)


@dataclass(frozen=True)
class Framework:
    """How a framework is run by default, what else its options offer, and its own tool."""

    source: str
    default: Way
    others: dict[str, Way]
    tool: Callable[[Artifact, dict[str, np.ndarray]], contextlib.AbstractContextManager[Timer]]


# -- the frameworks' own tools --------------------------------------------------------------------------


def times_of(call: Callable[[], Any], count: int = 20) -> list[float]:
    return interleave({"call": call}, count)["call"]


@contextlib.contextmanager
def onnxruntime_loop(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    free = {
        axis for spec in onnxruntime.InferenceSession(str(artifact.path)).get_inputs() for axis in spec.shape[:1]
    }  # fmt: skip
    for name in free:
        if isinstance(name, str):
            options.add_free_dimension_override_by_name(name, 1)
    session = onnxruntime.InferenceSession(str(artifact.path), options, providers=["CPUExecutionProvider"])
    yield lambda: times_of(lambda: session.run(None, inputs))


class _OneSample:
    """What benchmark_app asks how many samples there are."""

    def get_next_batch_size(self) -> int:
        return 1


@contextlib.contextmanager
def benchmark_app(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    """Yield the loop of benchmark_app -api sync; the command itself prints medians in steps of 10 us only."""
    import openvino
    from openvino.tools.benchmark.benchmark import Benchmark

    app = Benchmark("CPU", number_infer_requests=1, number_iterations=20, api_type="sync", inference_only=True)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(artifact.path) as archive:
            archive.extractall(folder, ["model.xml", "model.bin"])
        model = app.read_model(f"{folder}/model.xml")
    model.reshape(list(next(iter(inputs.values())).shape))
    settings = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    requests = app.create_infer_requests(app.core.compile_model(model, "CPU", settings))
    requests[0].set_input_tensor(openvino.Tensor(next(iter(inputs.values()))))
    app.first_infer(requests)
    yield lambda: [latency / 1e3 for latency in app.sync_inference(requests[0], _OneSample())[0]]


@contextlib.contextmanager
def iree_benchmark_module(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    file = read_sealed(artifact.path, "iree")
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "model.vmfb")
        module.write_bytes(file.content)
        arguments = []
        for number, spec in enumerate(file.io.inputs):
            np.save(Path(folder, f"{number}.npy"), inputs[spec.name])
            arguments.append(f"--input=@{folder}/{number}.npy")
        command = [
            str(BIN / "iree-benchmark-module"), f"--module={module}", "--device=local-sync",
            f"--function={file.notes['function']}", *arguments, "--benchmark_format=json",
            "--benchmark_min_time=0.02s", "--benchmark_repetitions=9",
        ]  # fmt: skip

        def timed() -> list[float]:
            said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
            runs = [run for run in said["benchmarks"] if run["run_type"] == "iteration"]
            return [run["real_time"] * scale[run["time_unit"]] for run in runs]

        yield timed


@contextlib.contextmanager
def time_evaluator(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    import tvm
    from tvm import relax

    file = read_sealed(artifact.path, "tvm")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "model.so")
        library.write_bytes(file.content)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        tensors = [tvm.runtime.tensor(inputs[spec.name]) for spec in file.io.inputs]
        evaluated = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=20)
        yield lambda: [float(seconds) for seconds in evaluated(*tensors).results]


@contextlib.contextmanager
def torch_benchmark(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    import torch
    from torch.utils.benchmark import Timer as TorchTimer

    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    if artifact.format == "aoti":
        import io

        call: Any = torch._inductor.aoti_load_package(io.BytesIO(read_sealed(artifact.path, "aoti").content))
        given: tuple[Any, ...] = tuple(tensors.values())
    else:
        module = torch.export.load(str(artifact.path)).module(check_guards=False)
        call, given = module, (tensors,)
    with torch.inference_mode():
        timer = TorchTimer("call(*given)", globals={"call": call, "given": given}, num_threads=1)
        timer.timeit(5)

    def timed() -> list[float]:
        with torch.inference_mode():
            # One call at a time would measure how it sets the number of threads before each.
            return [timer.timeit(5).mean for _ in range(4)]

    yield timed


@contextlib.contextmanager
def executorch_loop(artifact: Artifact, inputs: dict[str, np.ndarray]) -> Iterator[Timer]:
    import torch
    from executorch.extension.pybindings import portable_lib

    content = read_sealed(artifact.path, "executorch").content
    program = portable_lib._load_program_from_buffer(content)
    method = program.load_method("forward")
    method.set_inputs([torch.from_numpy(array) for array in inputs.values()])
    yield lambda: times_of(method.execute)


def frameworks(tune_seconds: float) -> dict[str, Framework]:
    """Name the frameworks; those that compile fast come first."""
    any_size = {"fixed_batch": 0}
    iree, tvm, aoti = ("IREECompiler",), ("TVMCompiler",), ("TorchInductorCompiler",)
    tuned = {"tune_seconds": tune_seconds}
    openvino = ("OpenVINOCompiler",)
    return {
        "onnxruntime": Framework(
            "onnx",
            Way("ONNXRuntime"),
            {
                "any number": Way("ONNXRuntime", running=any_size),
                "I/O binding": Way("ONNXRuntime", running={"io_binding": True}),
                "graph extended": Way("ONNXRuntime", running={"graph_optimisation": "extended"}),
                "optimised ahead": Way("ONNXRuntime", ("ONNXRuntimeOptimizer",)),
            },
            onnxruntime_loop,
        ),
        "openvino": Framework(
            "onnx",
            Way("OpenVINORuntime", openvino),
            {
                "any number": Way("OpenVINORuntime", openvino, running=any_size),
                "float16 weights": Way("OpenVINORuntime", openvino, {"precision": "fp16"}),
            },
            benchmark_app,
        ),
        "pytorch": Framework("torch-export", Way("PyTorchRuntime"), {}, torch_benchmark),
        "iree": Framework(
            "onnx",
            Way("IREERuntime", iree),
            {
                "no data tiling": Way("IREERuntime", iree, {"data_tiling": False}),
                "any number": Way("IREERuntime", iree, any_size),
            },
            iree_benchmark_module,
        ),
        "executorch": Framework(
            "torch-export",
            Way("ExecuTorchRuntime", ("ExecuTorchCompiler",)),
            {"any number": Way("ExecuTorchRuntime", ("ExecuTorchCompiler",), any_size)},
            executorch_loop,
        ),
        "inductor": Framework(
            "torch-export",
            Way("TorchInductorRuntime", aoti),
            {
                "tuned": Way("TorchInductorRuntime", aoti, {"max_autotune": True}),
                "torch.compile": Way("PyTorchRuntime", running={"compile": True}),
            },
            torch_benchmark,
        ),
        "tvm": Framework(
            "onnx",
            Way("TVMRuntime", tvm),
            {"tuned": Way("TVMRuntime", tvm, tuned)} if tune_seconds else {},
            time_evaluator,
        ),
    }


# -- the models -----------------------------------------------------------------------------------------


def resnet8() -> Any:
    """Build MLPerf Tiny's network for pictures of 32 x 32 (Banbury et al. 2021), with random weights."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, given: int, width: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(given, width, 3, stride, 1), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width),
            )  # fmt: skip
            self.around = nn.Conv2d(given, width, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.first(x) + self.around(x))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1),
    )  # fmt: skip


def exported(name: str, folder: Path) -> dict[str, Artifact]:
    """Write a network as ONNX and as an exported program."""
    import torch

    from nnpipe.core.tensors import IOSpec, TensorSpec
    from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
    from nnpipe.modelwrappers.classification.pytorch_mobilenet import PyTorchMobileNetV2
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

    class ResNet8(PyTorchWrapper):
        """The network of MLPerf Tiny."""

        @property
        def io(self) -> IOSpec:
            return IOSpec(
                (TensorSpec("image", (None, 3, 32, 32), "float32"),), (TensorSpec("scores", (None, 10), "float32"),)
            )

        def build(self) -> Any:
            return resnet8()

    wrappers = {"ResNet8": ResNet8, "ResNet20": PyTorchCIFARResNet}
    wrapper = wrappers[name]() if name in wrappers else PyTorchMobileNetV2(num_classes=10)
    torch.manual_seed(0)
    vars(wrapper)["native"] = wrapper.build().eval()
    suffixes = {"onnx": ".onnx", "torch-export": ".pt2"}
    with native_output_held():
        return {kind: wrapper.export(folder / f"{name}{suffix}", kind) for kind, suffix in suffixes.items()}


# -- the contest ----------------------------------------------------------------------------------------


@dataclass
class Candidate:
    """A configuration that is ready to run."""

    artifact: Artifact
    session: InferenceSession
    inputs: dict[str, np.ndarray]
    marked: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)

    def time(self) -> list[float]:
        """Measure some calls as every command does."""
        found = measure(self.session, [self.inputs] * 20, warmup=2)
        return [int(nanoseconds) / 1e9 for nanoseconds in found["latency_ns"]]


def opened(source: Artifact, way: Way, folder: Path, stack: contextlib.ExitStack) -> Candidate:
    compilers, runtime = way.made()
    artifact = source
    for number, compiler in enumerate(compilers):
        artifact = compiler.compile(artifact, folder / f"{len(list(folder.iterdir()))}-{number}{compiler.suffix}")
    session = stack.enter_context(runtime.load(artifact))
    inputs = {
        spec.name: np.random.default_rng(0).standard_normal((1, *spec.shape[1:])).astype(spec.dtype)
        for spec in session.io.inputs
    }  # fmt: skip
    parts: list[Component] = [*compilers, runtime]
    return Candidate(artifact, session, inputs, tuple(told for part in parts for told in part.handicaps()))


def compared(one: Timer, other: Timer, rounds: int) -> tuple[float, float, float, float]:
    """Let two take turns; give the median ratio of a turn, that of the smallest times, and the median of each."""
    ratios, ones, others = [], [], []
    for number in range(rounds):
        pair = [one, other]
        found = [time() for time in (pair if number % 2 else pair[::-1])]
        first, second = found if number % 2 else found[::-1]
        ratios.append(median(first) / median(second))
        ones += first
        others += second
    return median(ratios), min(ones) / min(others), median(ones), median(others)


def rows_of(name: str, title: str, framework: Framework, source: Artifact, rounds: int, quick: bool) -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        ours = opened(source, framework.default, folder, stack)
        ours.time()
        tool = stack.enter_context(framework.tool(ours.artifact, ours.inputs))
        tool()
        ratio, least, mine, theirs = compared(ours.time, tool, rounds)
        best, best_ratio, best_least = "default", 1.0, 1.0
        for option, way in framework.others.items():
            if quick and way.compilers and title not in ("onnxruntime", "openvino"):
                continue
            try:
                other = opened(source, way, folder, stack)
            except NNPipeError as error:
                print(f"{title}, {option}: {error}", file=sys.stderr)
                continue
            other.time()
            slower, smallest, *_ = compared(ours.time, other.time, rounds)
            if min(slower, smallest) > min(best_ratio, best_least):
                best, best_ratio, best_least = option, slower, smallest
        yield {
            "model": name, "framework": title, "ours, us": mine * 1e6, "its tool, us": theirs * 1e6,
            "ratio": ratio, "of smallest": least, "best option": best, "slower": best_ratio,
            "of smallest ": best_least, "marked": "; ".join(ours.marked) or "",
        }  # fmt: skip


def parts_of(row: dict) -> list[dict[str, Any]]:
    """Judge a row: of two ratios, which a busy machine moves apart, that which is nearer to 1 counts."""
    where = f"{row['framework']}, {row['model']}"
    tool = min((row["ratio"], row["of smallest"]), key=lambda ratio: abs(math.log(ratio)))
    slower = min(row["slower"], row["of smallest "])
    return [
        {
            "name": f"reported median against its own tool: {where}", "value": row["ours, us"], "unit": "us",
            "reference": row["its tool, us"], "ratio": tool, "goal": f"within {TOOL_GOAL:.0%}",
            "holds": abs(tool - 1) <= TOOL_GOAL, "excess": abs(tool - 1) / TOOL_GOAL, "seen_on": EPYC,
        },
        {
            "name": f"default against the best option: {where}", "value": row["ours, us"], "unit": "us",
            "reference": row["ours, us"] / slower, "ratio": slower, "goal": f"at most {BEST_GOAL}, or marked",
            "holds": slower <= BEST_GOAL or bool(row["marked"]), "excess": (slower - 1) / (BEST_GOAL - 1),
            "seen_on": EPYC,
        },
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ResNet8 on frameworks that compile fast")
    parser.add_argument("--only", default="", help="frameworks, joined by commas")
    parser.add_argument("--models", default="ResNet8,ResNet20,MobileNetV2", help="models, joined by commas")
    parser.add_argument(
        "--tune-seconds", type=float, default=300.0, help="how long TVM is tuned for the search; 0: not"
    )
    options = parser.parse_args()
    # Before anything is imported that would make threads.
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    known = frameworks(0.0 if options.quick else options.tune_seconds)
    chosen = [name for name in options.only.split(",") if name] or (QUICK if options.quick else list(known))
    models = ["ResNet8"] if options.quick else options.models.split(",")
    rounds = 5 if options.quick else 15
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            sources = exported(model, Path(folder))
            for title in chosen:
                framework = known[title]
                try:
                    rows += rows_of(model, title, framework, sources[framework.source], rounds, options.quick)
                except (NNPipeError, ImportError, OSError, subprocess.CalledProcessError) as error:
                    failed.append(f"{title}, {model}: {error}")
                    print(failed[-1], file=sys.stderr)
    parts = [part for row in rows for part in parts_of(row)]
    if not parts:
        print("nothing could be measured", file=sys.stderr)
        return 1
    worst = max(parts, key=lambda part: (not part["holds"], part["excess"]))
    fields = {key: worst[key] for key in ("name", "value", "unit", "reference", "ratio", "goal", "seen_on")}
    return report(rows, **fields, holds=all(part["holds"] for part in parts) and not failed, parts=parts)


if __name__ == "__main__":
    sys.exit(main())
