"""The frameworks' own ways of timing a model, for benchmarks/fair.py.

Each is a context manager that takes an artifact and inputs, and gives a function that times calls:
seconds of each, or means of a few where the tool tells no more.  Before those a few calls go that
do not count, as before ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.formats.sealed import read_sealed

Timer = Callable[[int], list[float]]
"""Takes a number of calls and gives seconds."""

Inputs = Mapping[str, np.ndarray]
Tool = Callable[[Artifact, Inputs], contextlib.AbstractContextManager[Timer]]


def warming(calls: int) -> int:
    """Return how many calls go before so many that count: whoever ran before has taken the
    caches.
    """
    return max(2, calls // 2)


def loop(call: Callable[[], Any]) -> Timer:
    """Return a bare loop around a call."""

    def timed(calls: int) -> list[float]:
        for _ in range(warming(calls)):
            call()
        found = []
        for _ in range(calls):
            start = perf_counter()
            call()
            found.append(perf_counter() - start)
        return found

    return timed


def fastest(timers: Mapping[str, Timer], calls: int = 10, rounds: int = 5) -> str:
    """Name the timer with the smallest median, of several that take turns."""
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            found[name] += timer(calls)
    return min(found, key=lambda name: median(found[name]))


@contextlib.contextmanager
def onnxruntime_loop(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield a bare loop around ``InferenceSession.run``, its free number of samples overridden."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    free = {
        axis
        for spec in onnxruntime.InferenceSession(str(artifact.path)).get_inputs()
        for axis in spec.shape[:1]
    }
    for name in free:
        if isinstance(name, str):
            options.add_free_dimension_override_by_name(name, 1)
    session = onnxruntime.InferenceSession(
        str(artifact.path), options, providers=["CPUExecutionProvider"]
    )
    given = dict(inputs)
    yield loop(lambda: session.run(None, given))


class _OneSample:
    """What benchmark_app asks how many samples there are."""

    def get_next_batch_size(self) -> int:
        return 1


@contextlib.contextmanager
def benchmark_app(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield the loop of ``benchmark_app -api sync``; the command itself prints medians in steps
    of 10 us only.
    """
    import openvino
    from openvino.tools.benchmark.benchmark import Benchmark

    app = Benchmark(
        "CPU", number_infer_requests=1, number_iterations=20, api_type="sync", inference_only=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(artifact.path) as archive:
            archive.extractall(folder, ["model.xml", "model.bin"])
        model = app.read_model(f"{folder}/model.xml")
    model.reshape(list(next(iter(inputs.values())).shape))
    settings = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    requests = app.create_infer_requests(app.core.compile_model(model, "CPU", settings))
    requests[0].set_input_tensor(openvino.Tensor(next(iter(inputs.values()))))
    app.first_infer(requests)

    def timed(calls: int) -> list[float]:
        for app.niter in (warming(calls), calls):  # it gives latencies sorted
            latencies = app.sync_inference(requests[0], _OneSample())[0]
        return [latency / 1e3 for latency in latencies]

    yield timed


@contextlib.contextmanager
def iree_benchmark_module(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield iree-benchmark-module on the module; it tells means of as many calls as it takes for
    10 ms.
    """
    file = read_sealed(artifact.path, "iree")
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "model.vmfb")
        module.write_bytes(file.content)
        arguments = []
        for number, spec in enumerate(file.io.inputs):
            np.save(Path(folder, f"{number}.npy"), inputs[spec.name])
            arguments.append(f"--input=@{folder}/{number}.npy")
        command = [
            str(Path(sys.executable).parent / "iree-benchmark-module"),
            f"--module={module}",
            "--device=local-sync",
            f"--function={file.notes['function']}",
            *arguments,
            "--benchmark_format=json",
            "--benchmark_min_time=0.01s",
            "--benchmark_repetitions=3",
        ]
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

        def timed(calls: int) -> list[float]:
            said = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout
            )
            runs = [run for run in said["benchmarks"] if run["run_type"] == "iteration"]
            return [run["real_time"] * scale[run["time_unit"]] for run in runs]

        yield timed


@contextlib.contextmanager
def time_evaluator(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield TVM's time_evaluator of the compiled function."""
    import tvm
    from tvm import relax

    file = read_sealed(artifact.path, "tvm")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "model.so")
        library.write_bytes(file.content)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        tensors = [tvm.runtime.tensor(inputs[spec.name]) for spec in file.io.inputs]

        def timed(calls: int) -> list[float]:
            before = warming(calls)
            evaluated = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=before + calls)
            return [float(seconds) for seconds in evaluated(*tensors).results][before:]

        yield timed


def _torch_timer(call: Callable[..., Any], given: tuple[Any, ...]) -> Timer:
    """Return torch.utils.benchmark's timer of one call, which sets the number of threads, warms
    up and times.
    """
    import torch
    from torch.utils.benchmark import Timer as TorchTimer

    with torch.inference_mode():
        timer = TorchTimer(
            "call(*given)",
            setup="call(*given)",
            globals={"call": call, "given": given},
            num_threads=1,
        )

    def timed(calls: int) -> list[float]:
        with torch.inference_mode():
            return [timer.timeit(1).mean for _ in range(warming(calls) + calls)][-calls:]

    return timed


@contextlib.contextmanager
def inductor_benchmark(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield torch.utils.benchmark on what AOTInductor compiled."""
    import torch

    package = torch._inductor.aoti_load_package(
        io.BytesIO(read_sealed(artifact.path, "aoti").content)
    )
    yield _torch_timer(package, tuple(map(torch.from_numpy, inputs.values())))


@contextlib.contextmanager
def torch_benchmark(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield torch.utils.benchmark on the fastest of PyTorch's own ways to run an exported program.

    ``ExportedProgram.module()`` is what its pages show; it packs and unpacks arguments in Python
    around the graph, for longer than a small model takes.  ``graph_module`` is that graph.  Both
    are tried with convolutions laid out as they were exported and with channels last.
    """
    import torch
    from torch.export.graph_signature import InputKind

    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    given = list(tensors.values())
    timers = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        program = torch.export.load(str(artifact.path))
        module = program.module(check_guards=False).to(memory_format=layout)
        held = {**program.state_dict, **program.constants}
        user = iter(given)
        arguments = tuple(
            next(user)
            if spec.kind is InputKind.USER_INPUT
            else _laid_out(held[spec.target], layout)
            for spec in program.graph_signature.input_specs
        )
        timers[f"module() {layout}"] = _torch_timer(module, (tensors,))
        timers[f"graph_module {layout}"] = _torch_timer(program.graph_module, arguments)
    yield timers[fastest(timers)]


def _laid_out(tensor: Any, layout: Any) -> Any:
    return tensor.to(memory_format=layout) if tensor.dim() == 4 else tensor


@contextlib.contextmanager
def executorch_loop(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield a bare loop around ExecuTorch's ``execute``."""
    import torch
    from executorch.extension.pybindings import portable_lib

    content = read_sealed(artifact.path, "executorch").content
    program = portable_lib._load_program_from_buffer(content)
    method = program.load_method("forward")
    method.set_inputs([torch.from_numpy(array) for array in inputs.values()])
    yield loop(method.execute)


@contextlib.contextmanager
def litert_loop(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield a bare loop around LiteRT's ``invoke``; its benchmark_model is no part of the
    package.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(artifact.path), num_threads=1)
    for spec, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.resize_tensor_input(spec["index"], array.shape)
    interpreter.allocate_tensors()
    for spec, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(spec["index"], array)
    yield loop(interpreter.invoke)


@contextlib.contextmanager
def keras_loop(artifact: Artifact, inputs: Inputs) -> Iterator[Timer]:
    """Yield a bare loop around the fastest of Keras' and TensorFlow's own ways to call a model.

    They are the model itself in a ``tf.function``, called by its concrete function, that frozen,
    compiled by XLA, and ``predict_on_batch``.
    """
    import keras
    import tensorflow
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = keras.saving.load_model(artifact.path, compile=False)
    array = next(iter(inputs.values()))
    tensor = tensorflow.constant(array)
    traced = tensorflow.function(lambda given: model(given, training=False), autograph=False)
    concrete = traced.get_concrete_function(tensorflow.TensorSpec(tensor.shape, tensor.dtype))
    frozen = convert_variables_to_constants_v2(concrete)
    compiled = tensorflow.function(
        lambda given: model(given, training=False), autograph=False, jit_compile=True
    )
    timers = {
        "frozen": loop(lambda: frozen(tensor)),
        # Without a wrapper in Python that takes 0.8 ms.
        "frozen, as an operation": loop(
            lambda: tensorflow.raw_ops.PartitionedCall(args=[tensor], Tout=[tensor.dtype], f=frozen)
        ),
        "XLA": loop(lambda: compiled(tensor)),
        "tf.function": loop(lambda: traced(tensor)),
        "concrete function": loop(lambda: concrete(tensor)),
        "predict_on_batch": loop(lambda: model.predict_on_batch(array)),
    }
    yield timers[fastest(timers)]
