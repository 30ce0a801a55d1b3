"""A user's own parts: data, a task, a meter, a model, a compiler, a runtime with a session, and
a line to a target.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import nnpipe as nn
from nnpipe.core.compiler import Calibration
from nnpipe.core.energy_meter import MeterReading
from nnpipe.core.onnx_conversion import ConversionCase
from nnpipe.core.runtime_protocol import Channel, Listener

Arrays = Mapping[str, npt.NDArray[Any]]
POINT = nn.TensorSpec("point", (None, 2), "float32")
SCORES = nn.TensorSpec("scores", (None, 2), "float32")
IO = nn.IOSpec((POINT,), (SCORES,))


class Points(nn.Dataset):
    """Points on a plane: is the first number negative?"""

    count: int = nn.argument(100, help="how many points", minimum=10)

    @property
    def spec(self) -> nn.DatasetSpec:
        """One point, and its class."""
        label = nn.TensorSpec("label", (None,), "int64")
        return nn.DatasetSpec("classification", (POINT,), (label,), ("positive", "negative"))

    def prepare(self) -> None:
        """Do nothing: the points are computed."""

    def __len__(self) -> int:
        return self.count

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Arrays, Arrays]:
        """Return some points with their classes."""
        points = (
            np.random.default_rng(self.split_seed)
            .normal(size=(self.count, 2))
            .astype(np.float32)[indices]
        )
        return {"point": points}, {"label": (points[:, 0] < 0).astype(np.int64)}

    def evaluate(self, predictions: Arrays, truth: Arrays) -> nn.Evaluation:
        """Reduce scores to the class that has the greatest."""
        found = {"truth": truth["label"], "predicted": predictions["scores"].argmax(1)}
        return nn.Evaluation("classification", found, self.spec.class_names)


class Crossing(nn.Task):
    """How far from zero the sign is still right."""

    name = "crossing"
    arrays = truth = ("distance",)

    @property
    def metrics(self) -> tuple[nn.QualityMetric, ...]:
        """The mean distance."""
        return (
            nn.QualityMetric(
                "distance",
                "Distance",
                "Distance",
                "mean distance",
                "share",
                False,
                values=self._distance,
            ),
        )

    def _evaluate(self, predictions: Arrays, truth: Arrays, spec: nn.DatasetSpec) -> nn.Evaluation:
        """Hold predictions against the truth."""
        return nn.Evaluation(self.name, {"distance": np.abs(predictions["place"] - truth["place"])})

    def perfect(self, truth: Arrays, spec: nn.DatasetSpec) -> Arrays:
        """Return the truth."""
        return {"place": truth["place"]}

    @staticmethod
    def _distance(found: nn.Evaluation) -> npt.NDArray[np.float64]:
        return found.arrays["distance"].astype(np.float64)


class Halves(nn.InputTransform):
    """Halves all numbers."""

    def shape(self, sample: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the same shape."""
        return sample

    def _apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return samples / 2


class Doubles(nn.OutputDecoder):
    """Doubles all numbers again."""

    def decode(
        self, outputs: Arrays, io: nn.IOSpec, inputs: Sequence[nn.InputProcessing] = ()
    ) -> Arrays:
        """Return the doubles."""
        return {name: 2 * values for name, values in outputs.items()}


class BenchSupply(nn.EnergyMeter):
    """A supply on the bench that gives two joules a span."""

    def _open(self) -> MeterReading:
        return SupplyReading()


class SupplyReading(MeterReading):
    """The joules of each span."""

    source = "the supply on the bench"
    resolution_s = 0.01

    def __init__(self) -> None:
        self._marks = 0

    def mark(self) -> None:
        """Count the spans."""
        self._marks += 1

    def joules(self) -> list[float]:
        """Return two joules a span."""
        return [2.0] * (self._marks - 1)


class SignSession(nn.InferenceSession):
    """Scores a point by its first number."""

    def __init__(self, io: nn.IOSpec) -> None:
        self.io = io
        self._points = self._scores = np.empty((0, 2), np.float32)

    def _put(self, batch: Arrays) -> None:
        self._points = batch["point"]

    def _run(self) -> None:
        self._scores = np.stack([self._points[:, 0], -self._points[:, 0]], 1)

    def _get(self) -> dict[str, npt.NDArray[Any]]:
        return {"scores": self._scores.copy()}


class SignModel(nn.ModelWrapper):
    """Knows the answer without training."""

    framework: ClassVar[str] = "signs"
    weights_format: ClassVar[str] = "signs"
    exports: ClassVar[tuple[str, ...]] = ("signs",)

    @property
    def io(self) -> nn.IOSpec:
        """Points in, scores out."""
        return IO

    def build(self) -> None:
        """There is nothing to build."""

    def load(self, live: nn.LiveModel, path: str | Path) -> None:
        """Refuse what is no file of ours."""
        if Path(path).read_bytes() != b"signs":
            raise nn.ArtifactError(f"{path}: holds another model")

    def save(self, live: nn.LiveModel, path: str | Path) -> nn.Artifact:
        """Write the file and its description."""
        Path(path).write_bytes(b"signs")
        return nn.Artifact.create(path, "signs", IO, producer=self.describe(), meaning=self.meaning)

    def session(self, live: nn.LiveModel) -> nn.InferenceSession:
        """Open the model."""
        return SignSession(IO)

    @property
    def meaning(self) -> nn.ModelMetadata:
        """Points as they are in, scores out."""
        return nn.ModelMetadata(
            (nn.InputProcessing("point"),),
            (nn.OutputMetadata("scores", "logits", ("positive", "negative")),),
        )

    def train(
        self,
        live: nn.LiveModel,
        dataset: nn.Dataset,
        options: nn.TrainingOptions,
        progress: object = None,
    ) -> nn.TrainingHistory:
        """Learn nothing, as often as asked."""
        if options.num_epochs > 1000:
            raise nn.TrainingError("the sign of a number is known by now")
        return nn.TrainingHistory(tuple({"loss": 0.0} for _ in range(options.num_epochs)))


class Copying(nn.ModelCompiler):
    """Copies a model."""

    accepts: ClassVar[tuple[str, ...]] = ("signs",)
    produces: ClassVar[str] = "signs-copy"
    suffix: ClassVar[str] = ".copy"

    def _compile(
        self, artifact: nn.Artifact, path: Path, calibration: Calibration | None
    ) -> nn.Artifact:
        try:
            shutil.copyfile(artifact.path, path)
        except OSError as error:
            raise nn.CompileError(f"{path}: {error.strerror}") from error
        return nn.Artifact.create(
            path, self.produces, artifact.io, parent=artifact, producer=self.describe()
        )


class SignRuntime(nn.Runtime):
    """Runs the models."""

    accepts: ClassVar[tuple[str, ...]] = ("signs", "signs-copy")
    threads: int = nn.argument(1, help="threads that one inference may use", minimum=1)

    def _load(self, artifact: nn.Artifact) -> nn.InferenceSession:
        return SignSession(artifact.io)


class Pigeon(nn.RuntimeProtocol):
    """Flies nowhere."""

    def connect(self) -> Channel:
        """Fail."""
        raise nn.TransportError("no pigeon has come back")

    def listen(self) -> Listener:
        """Fail too."""
        raise nn.TransportError("no pigeon has come")


class Converter(nn.ONNXConversion):
    """Speaks no ONNX."""

    framework: ClassVar[str] = "signs"

    def models(self) -> Iterator[ConversionCase]:
        """Return the only model."""
        yield ConversionCase("sign", None, {"point": np.zeros((1, 2), np.float32)})

    def run_model(self, model: object, inputs: Arrays) -> list[npt.NDArray[Any]]:
        """Run it."""
        with SignSession(IO) as session:
            return list(session.infer(inputs).values())

    def export_model(self, case: ConversionCase, path: Path, opset: int) -> None:
        """Fail."""
        raise nn.ConversionError(f"{case.name} cannot be written")

    def import_model(self, path: Path) -> object:
        """Fail too."""
        raise nn.NotSupported("nothing reads it back")


def names_of(classes: Iterable[type[nn.Component]]) -> list[str]:
    """Return what components are called."""
    return [cls.get_dotted_path() for cls in classes]
