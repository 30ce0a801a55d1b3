"""Every call of the front door, with arguments and results of the kinds that the documentation
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import nnpipe as nn
from nnpipe.compilers import ONNXStaticQuantizer
from nnpipe.datasets import DigitsDataset
from nnpipe.runtimes import ONNXRuntime

from .parts import IO, Copying, Points, SignModel, SignRuntime, names_of

Data = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def parts_of_ours() -> tuple[nn.Dataset, nn.Recipe]:
    """Make components by their classes."""
    return DigitsDataset(), nn.Recipe(
        "mine", compilers=(ONNXStaticQuantizer(),), runtime=ONNXRuntime(num_threads=1)
    )


def choose(model: str | Path, data: Data) -> Path:
    """Compare ways to run a model, and keep the best."""
    known: tuple[str, ...] = nn.recipes()
    own = nn.Recipe("copied", compilers=(), runtime=SignRuntime())
    result: nn.ComparisonResult = nn.compare(
        model, data=data, ways=[known[0], own], max_seconds=5.0, batch_size=8
    )
    result.show()
    accuracy: float = result.accuracy(result.titles[0])
    best: nn.Choice = result.best("size <= 1 MB", accuracy_loss=1 - accuracy, by="latency_p90")
    return best.save("ship/")


def compare_files(files: list[Path], data: nn.Dataset) -> Mapping[str, str]:
    """Compare model files, and the candidates of a pipeline."""
    result = nn.compare_models(
        files, data=data, titles=[file.name for file in files], output="comparison.json"
    )
    result.save("copy.json")
    again = nn.compare_pipeline("pipeline.yaml", ["measure.measure_samples=100"], title="again")
    kept: nn.Comparison = nn.Comparison.read("comparison.json")
    return {**result.failures, **again.failures, **kept.failures}


def measure(model: Path, data: Data) -> float | None:
    """Compile a model, measure it here, under load and on a target, and hold it against the one
    it came from.
    """
    artifact: nn.Artifact = nn.compile(model, "onnx-int8", "small.onnx", calibration=data)
    found: nn.Measurement = nn.measure(
        model,
        data=data,
        way="onnx",
        options=nn.MeasureOptions(measure_samples=100),
        load=nn.LoadOptions(),
        verify=nn.VerifyOptions(),
        output="result.json",
    )
    line = nn.find("NetworkProtocol", nn.RuntimeProtocol)
    target = nn.Deployment(
        line.from_json({"host": "board", "port": 12345}), nn.RemoteOptions(run_timeout=10.0)
    )
    away = nn.measure(model, data=data, deployment=target)
    mixed: nn.MixResult = nn.mix(model, "mixed.onnx", data=data, max_loss=0.01)
    print(mixed.verdict)
    explained: nn.ExplainResult = nn.explain(model, shapes={"image": (1, 8, 8)})
    explained.show()
    roof: nn.RooflineResult = nn.roofline(threads=1, folder="machine")
    nn.explain(
        model,
        runtime="ONNXRuntime",
        ceilings=nn.read_ceilings("c.json") or roof.ceilings,
        memory=True,
    ).show()
    kernels: nn.KernelTable = nn.learn_kernels("ONNXRuntime", kernels=300, seconds=60.0)
    kernels.save("kernels.json")
    predicted: nn.PredictResult = nn.predict(
        [model], nn.read_kernels("kernels.json"), shapes={"image": (1, 8, 8)}
    )
    predicted.show()
    checked: nn.VerifyResult = nn.verify(
        model, artifact.path, data=data[0], tolerances=nn.Tolerances()
    )
    if not checked.agrees("close"):
        checked.show()
    run: nn.Run = away.run
    judged: nn.GateResult = nn.gate(found.run, run, max_slowdown=0.05, max_accuracy_loss=0.01)
    return found.figure("latency_median").value if judged.passed else None


def from_files() -> list[Path | None]:
    """Carry out a pipeline and a sweep, and try what was published."""
    pipeline: nn.PipelineResult = nn.run_pipeline("pipeline.yaml", retrain=True)
    planned = nn.read_sweep("sweep.yaml", ["batch_sizes=[1]"])
    fleet: nn.Fleet = nn.read_devices("devices.yaml")
    boards: tuple[nn.Device, ...] = fleet.find_devices(["arm"])
    print([board.format_price(fleet.currency) for board in boards])
    swept: nn.SweepResult = nn.sweep("sweep.yaml", retry_failed=len(planned.points) > 1)
    searched: nn.SearchResult = nn.search(
        lambda x: x,
        {"x": {"kind": "bool"}},
        objectives={"value": "minimize"},
        sampler="grid",
        trials=2,
    )
    print(searched.best.values, searched.arguments)
    tried: nn.TestrunResult = nn.testrun(
        "model.onnx", "scans.npy", "out", plugin="plugin.py", keep_going=True
    )
    vectors: nn.ConformanceResult = nn.conformance("vectors.tar.gz", only=[SignRuntime], jobs=2)
    support: nn.ONNXSupport = nn.onnx_support(["PyTorchONNXConversion"], opsets=[18])
    reduced: nn.ReduceResult = nn.reduce("model.onnx", "openvino", to="reduced")
    print(reduced.symptom, reduced.nodes)
    if not (vectors.passed and support.passed):
        vectors.show()
    return [pipeline.report, swept.model, swept.certificate, tried.page]


def by_hand(folder: Path) -> nn.Run:
    """Train, export, compile, load and measure, step by step."""
    dataset, wrapper = Points(count=50), SignModel()
    formats: nn.Plan = nn.plan(
        SignModel, [Copying], SignRuntime, known=nn.components(nn.ModelCompiler)
    )
    with wrapper.open() as model:
        history: nn.TrainingHistory = model.train(dataset, nn.TrainingOptions(num_epochs=2))
        artifact = Copying().compile(
            model.save(folder / f"model-{len(history.epochs)}"), folder / formats.final
        )
    with SignRuntime(threads=2).load(artifact) as session:
        scores: npt.NDArray[Any] = session.infer({"point": np.zeros((1, 2), np.float32)})["scores"]
    assert scores.shape == (1, 2)
    return nn.benchmark(
        lambda: SignRuntime().load(artifact),
        dataset=dataset,
        indices=np.arange(len(dataset)),
        wrapper=wrapper,
        preparation=nn.Preparation("options"),
        artifact=artifact,
    )


def look_inside(model: nn.LiveModel, batch: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """Ask a model for its operations, and for where time goes."""
    graph: nn.Graph = model.get_inference_graph()
    operations: tuple[nn.Operation, ...] = graph.operations
    profile: nn.Profile = model.profile_inference(n_steps=10)
    model.get_intermediates(nn.Selector(layer="conv*"), batch)
    return [
        *(operation.kind for operation in operations),
        *(timing.kind for timing in profile.timings),
    ]


def serve(options: nn.ServerOptions) -> list[str]:
    """Refuse to serve everybody, and name what there is."""
    if options.insecure:
        raise nn.ConfigError("a token is needed here")
    return [
        nn.__version__,
        *names_of(nn.components(nn.Runtime)),
        *names_of([nn.ArraysDataset, *nn.components(nn.Dataset)]),
    ]


def mend(error: nn.NNPipeError) -> str:
    """Tell somebody what to do."""
    if isinstance(error, (nn.MissingDependency, nn.MissingTool)):
        return "install it"
    if isinstance(error, (nn.ComponentNotFound, nn.SpecMismatch, nn.DatasetError, nn.StorageError)):
        return f"correct the name or the data: {error}"
    if isinstance(error, nn.TargetError):
        return f"the target says {error.code}"
    if isinstance(error, (nn.AuthenticationError, nn.ProtocolError)):
        return "use another token, or another version"
    return f"{IO}: {error}"
