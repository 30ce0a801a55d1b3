"""Small trainings that callbacks observe, with everything that a callback must not change."""

from __future__ import annotations

import functools
import hashlib
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.keras_callback import keras_callback, make_classifier_judge
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer


def _create_model() -> Any:
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc]
        """Two layers, normalisation and dropout."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(8, 16),
                torch.nn.BatchNorm1d(16),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.2),
                torch.nn.Linear(16, 3),
            )

        def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"kind": ClassificationOutput(self.layers(batch["x"]), batch["label"])}

    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Net()


def _create_data() -> dict[str, Any]:
    features, label = create_samples()
    train = {"x": features[:48], "label": label[:48]}
    test = {"x": features[48:], "label": label[48:]}
    learned = ArraySequence(train, batch=12, sampler=RandomSampler(), seed=3)
    return {"kinds": {"train": learned, "test": ArraySequence(test, batch=12)}}


@dataclass(frozen=True)
class WatchedTraining:
    """A model and its data, made again for each training.

    Attributes
    ----------
    model
        Returns a new, equal ``torch.nn.Module`` at each call, whose ``forward`` takes a batch and
        returns outputs.
    data
        Returns sequences of batches by data set and split, ``train`` and ``test``.
    """

    model: Callable[[], Any] = _create_model
    data: Callable[[], Mapping[str, Mapping[str, Any]]] = _create_data


def create_samples() -> tuple[np.ndarray, np.ndarray]:
    """Return features, float32 ``(60, 8)``, and their classes, int64 ``(60,)``, from 0 to 2."""
    label = np.arange(60, dtype=np.int64) % 3
    noise = np.random.default_rng(0).normal(0, 0.5, (60, 8))
    return (np.eye(3, 8)[label] + noise).astype(np.float32), label


class Interrupted(KeyboardInterrupt):
    """A training was interrupted on purpose."""


class Interruption(Callback):
    """Interrupts a training within an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        if fit.epoch == self.epoch:
            raise Interrupted


class _Notes(Callback):
    """Notes at each step what the random generators and the modes of the model's layers are."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def _record(self, fit: Any) -> None:
        modes = [layer.training for layer in fit.model.modules()]
        self.found.append(
            hashlib.sha256(repr((_describe_random_state(), modes)).encode()).hexdigest()
        )

    def on_epoch_begin(self, fit: Any) -> None:
        self._record(fit)

    def on_batch_begin(self, fit: Any, batch: dict[str, Any]) -> None:
        self._record(fit)

    def on_batch_end(self, fit: Any, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        self._record(fit)

    def on_evaluate_batch(
        self, fit: Any, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        self._record(fit)


def run_torch_training(
    training: WatchedTraining, folder: Path, callbacks: Sequence[Callback]
) -> dict[str, Any]:
    """Train for two epochs, and return all that a callback could have changed, to be compared by
    ``==``.
    """
    model, data, notes = training.model(), training.data(), _Notes()
    before = _describe_random_state()  # now: what the data imports may draw random numbers
    trainer = Trainer(TrainerOptions(num_epochs=2, clip_norm=1.0), [*callbacks, notes])
    history = trainer.fit(
        model, data, folder=folder, optimiser=AdamW(rate=0.01), schedule=Cosine(warmup=2)
    )
    return {
        "weights": {
            name: _describe_array(tensor.numpy()) for name, tensor in model.state_dict().items()
        },
        "history": [dict(row) for row in history.rows()],
        "random numbers and modes during the training": notes.found,
        "random numbers after it": _describe_random_state() == before,
        "hooks left on layers": any(
            layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules()
        ),
        "which parameters learn": [parameter.requires_grad for parameter in model.parameters()],
    }


@functools.lru_cache(maxsize=4)
def run_unwatched(training: WatchedTraining) -> dict[str, Any]:
    """Return what comes of a training on which nothing looks; it is carried out once."""
    with tempfile.TemporaryDirectory() as folder:
        return run_torch_training(training, Path(folder), [])


def run_keras_training(folder: Path, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Train a Keras model for two epochs, and return its weights and figures, to be compared by
    ``==``.
    """
    import keras

    keras.utils.set_random_seed(4)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(16, "relu"),
            layers.Dropout(0.2),
            layers.Dense(3, "softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    features, label = create_samples()
    data = {"kinds": {"test": ArraySequence({"x": features[48:], "label": label[48:]}, batch=12)}}
    with keras_callback(
        callbacks, data, make_classifier_judge("x", output="kind"), folder=folder
    ) as look:
        done = model.fit(
            features[:48], label[:48], batch_size=12, epochs=2, verbose=0, callbacks=[look]
        )
    return {
        "weights": [_describe_array(array) for array in model.get_weights()],
        "figures": done.history,
    }


def list_files(folder: Path) -> list[str]:
    """List the files below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def _describe_array(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()


def _describe_random_state() -> str:
    """Return the states of the random generators, as a text to be compared."""
    import torch

    of_numpy: Any = np.random.get_state()
    return repr(
        (
            random.getstate(),
            of_numpy[1].tobytes(),
            of_numpy[2:],
            torch.get_rng_state().numpy().tobytes(),
        )
    )
