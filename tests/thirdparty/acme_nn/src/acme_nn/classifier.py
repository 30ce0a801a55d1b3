"""The library's network as a model that nnpipe trains, exports and measures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from acme_nn import __version__
from acme_nn.files import read_arrays, write_arrays
from acme_nn.network import Adam, Network, check_layers
from acme_nn.session import AcmeSession
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported, SpecMismatch
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper, Samples
from nnpipe.core.progress import Progress, silent
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec, generate_random_batch
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.training_curves import write_training_curves

if TYPE_CHECKING:
    from typing_extensions import Self


class AcmeClassifier(ModelWrapper):
    """A network with one hidden layer for any classification."""

    framework: ClassVar[str] = "acme-nn"
    weights_format: ClassVar[str] = "acme-npz"
    exports: ClassVar[tuple[str, ...]] = ("acme-npz",)

    # The data set decides on these two; their options keep clear of what data sets call theirs.
    num_features: int = argument(
        2, help="length of the input vector", minimum=1, flag="--model-features"
    )
    num_classes: int = argument(
        2, help="how many classes to tell apart", minimum=2, flag="--model-classes"
    )
    width: int = argument(32, help="units of the hidden layer", minimum=1)

    @property
    def io(self) -> IOSpec:
        """Vectors in, a score for each class out."""
        return IOSpec(
            inputs=(TensorSpec("features", (None, self.num_features), "float32"),),
            outputs=(TensorSpec("scores", (None, self.num_classes), "float32"),),
        )

    def build(self) -> Network:
        """Make a network with fresh weights."""
        return Network(self.num_features, self.width, self.num_classes)

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read all weights, or leave them as they are."""
        weights = read_arrays(Path(path))
        try:
            check_layers(weights)
            live.set_weights(weights)
        except ValueError as error:
            raise ArtifactError(f"{path}: holds the weights of another model: {error}") from None

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the weights and, beside them, what they are."""
        write_arrays(Path(path), live.native.parameters)
        made_by = (("acme-nn", __version__),)
        return Artifact.create(
            path, "acme-npz", self.io, frameworks=made_by, producer=self.describe()
        )

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model; the weights file is all there is to it."""
        if format not in self.exports:
            raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")
        return live.save(path)

    def session(self, live: LiveModel) -> AcmeSession:
        """Run the network as it is now."""
        return AcmeSession(self.io, live.native.parameters)

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Take the number of features and classes from the data set."""
        shape = spec.inputs[0].shape[1:]
        if spec.task != "classification" or len(spec.inputs) != 1 or None in shape:
            raise ConfigError(
                f"{type(self).__name__} tells classes of one tensor of fixed size apart, this is "
                f"{spec}"
            )
        features = math.prod(length for length in shape if length is not None)
        return dataclasses.replace(self, num_features=features, num_classes=len(spec.class_names))

    def preprocess(self, inputs: Batch) -> Batch:
        """Make a vector of each sample."""
        (samples,) = inputs.values()
        return {"features": samples.reshape(len(samples), -1).astype(np.float32)}

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Fit the weights from scratch by Adam."""
        dataset.prepare()
        network, rng = live.native, np.random.default_rng(options.seed)
        network.parameters = Network(
            self.num_features, self.width, self.num_classes, options.seed
        ).parameters
        optimiser, size = Adam(options.learning_rate), options.batch_size
        training, held_back = dataset.split("train"), dataset.split("validation")
        epochs = []
        with write_training_curves(options.logdir) as write:
            for epoch in range(1, options.num_epochs + 1):
                batches = self._batches(dataset, rng.permutation(training), size)
                steps = progress(
                    batches, f"epoch {epoch}/{options.num_epochs}", math.ceil(len(training) / size)
                )
                loss, accuracy = _mean(
                    (*network.step(x, labels, optimiser), len(x)) for x, labels in steps
                )
                figures = {"loss": loss, "accuracy": accuracy}
                if len(held_back):
                    batches = self._batches(dataset, held_back, size)
                    loss, accuracy = _mean(
                        (*network.loss(x, labels), len(x)) for x, labels in batches
                    )
                    figures |= {"validation_loss": loss, "validation_accuracy": accuracy}
                write(epoch, figures)
                epochs.append(figures)
        return TrainingHistory(tuple(epochs))

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Copy the weights."""
        chosen = list(live.native.parameters if keys is None else keys)
        _check_names(live, chosen)
        return {name: live.native.parameters[name].copy() for name in chosen}

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the weights named."""
        _check_names(live, weights)
        for name, array in weights.items():
            if array.shape != live.native.parameters[name].shape:
                have = live.native.parameters[name].shape
                raise SpecMismatch(f"the weight {name!r} has the shape {have}, not {array.shape}")
        live.native.parameters |= {
            name: np.array(array, np.float32) for name, array in weights.items()
        }

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for some steps, each with its loss and accuracy."""
        optimiser = Adam(learning_rate=0.01)
        given = self._random_samples() if samples is None else samples
        return [
            live.native.step(inputs["features"], truth["label"], optimiser)
            for inputs, truth in islice(given, n_steps)
        ]

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and give the outputs of each."""
        given = self._random_samples() if samples is None else samples
        with live.session() as session:
            return [session.infer(inputs) for inputs, _ in islice(given, n_steps)]

    def _batches(
        self, dataset: Dataset, indices: np.ndarray, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for inputs, truth in dataset.batches(indices, size):
            yield self.preprocess(inputs)["features"], truth["label"]

    def _random_samples(self) -> Iterator[tuple[Batch, Batch]]:
        rng = np.random.default_rng(0)
        while True:
            inputs = generate_random_batch(self.io, 32, seed=int(rng.integers(1 << 32)))
            yield inputs, {"label": rng.integers(0, self.num_classes, 32)}


def _check_names(live: LiveModel, names: Iterable[str]) -> None:
    for name in names:
        if name not in live.native.parameters:
            raise ConfigError(
                f"there is no weight {name!r}; there are {', '.join(live.native.parameters)}"
            )


def _mean(figures: Iterable[tuple[float, float, int]]) -> tuple[float, float]:
    """Average loss and accuracy of batches, each weighed by its samples."""
    rows = np.array(list(figures))
    loss, accuracy = np.average(rows[:, :2], axis=0, weights=rows[:, 2])
    return float(loss), float(accuracy)
