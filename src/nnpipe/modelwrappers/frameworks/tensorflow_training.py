"""Training a Keras model: seeds, steps of Adam, epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress
from nnpipe.core.tensors import Batch, TensorSpec, batch_size
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.curves import curves
from nnpipe.frameworks.keras import import_keras, named_call
from nnpipe.modelwrappers.frameworks.tensorflow_resume import keras_run
from nnpipe.modelwrappers.frameworks.tensorflow_seeds import reseed, seeded

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

_LOOK_EVERY = 32  # steps; looking at a loss waits for the device
Call = Callable[..., dict[str, Any]]


class TrainingStep:
    """A step of Adam, compiled once for batches of any size.

    Parameters
    ----------
    wrapper
        Its model is trained, its ``loss`` and ``score`` are used.
    truth
        The tensors of the truth, with free first axes.
    learning_rate
        A number or a Keras schedule.
    call
        Runs the model on tensors by name; the model itself by default.
    """

    def __init__(
        self,
        wrapper: TensorFlowBase,
        truth: Iterable[TensorSpec],
        learning_rate: Any,
        call: Call | None = None,
    ) -> None:
        tensorflow, keras = import_keras()
        self.model = wrapper.native
        if not self.model.trainable_variables:
            raise ConfigError(f"{type(wrapper).__name__} has no weights to train: all of its layers are frozen")
        self._wrapper = wrapper
        self._tensorflow = tensorflow
        self._call = call or named_call(self.model, wrapper.io)
        self.optimizer = keras.optimizers.Adam(learning_rate, name="adam")
        self.optimizer.build(self.model.trainable_variables)

        def specs(of: Iterable[TensorSpec]) -> dict[str, Any]:
            return {spec.name: tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in of}

        self.signature = [specs(wrapper.io.inputs), specs(truth)]
        self.train = tensorflow.function(self._train, input_signature=self.signature, autograph=False)
        self.judge = tensorflow.function(self._judge, input_signature=self.signature, autograph=False)

    def _train(self, inputs: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
        variables = self.model.trainable_variables
        with self._tensorflow.GradientTape() as tape:
            found = self._figures(self._call(inputs, training=True), truth)
        gradients = tape.gradient(found["loss"], variables)
        pairs = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        self.optimizer.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return found

    def _judge(self, inputs: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
        return self._figures(self._call(inputs, training=False), truth)

    def _figures(self, outputs: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
        mean = self._tensorflow.reduce_mean
        # Penalties on weights are part of what is minimised, and the same for every sample.
        penalty = sum(self.model.losses)
        loss = mean(self._wrapper.loss(outputs, truth)) + penalty
        score = mean(self._tensorflow.cast(self._wrapper.score(outputs, truth), "float32"))
        return {"loss": loss, "score": score}


class Average:
    """Means over samples of what steps report, and a watch over losses that are no numbers."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pending: list[tuple[Mapping[str, Any], int]] = []
        self._sums = {"loss": 0.0, "score": 0.0}
        self._steps = self._samples = 0

    def add(self, figures: Mapping[str, Any], samples: int) -> None:
        """Note the mean figures of a batch."""
        self._pending.append((figures, samples))
        if len(self._pending) >= _LOOK_EVERY:
            self._look()

    def _look(self) -> None:
        for figures, samples in self._pending:
            self._steps += 1
            for name in self._sums:
                self._sums[name] += float(figures[name]) * samples
            self._samples += samples
            if not math.isfinite(self._sums["loss"]):
                raise ConfigError(
                    f"{self._what}: the loss became {float(figures['loss'])} in step {self._steps}; "
                    "lower --learning-rate, or look for samples that are not finite"
                )
        self._pending.clear()

    def means(self) -> dict[str, float]:
        """Give the means over all samples."""
        self._look()
        return {name: total / self._samples for name, total in self._sums.items()}


def train(wrapper: TensorFlowBase, dataset: Dataset, options: TrainingOptions, progress: Progress) -> TrainingHistory:
    """Fit the wrapper's model; see :meth:`TensorFlowWrapper.train`."""
    dataset.prepare()
    indices, validation = dataset.split("train"), dataset.split("validation")
    if not len(indices):
        raise ConfigError(f"{type(dataset).__name__} has no training samples")
    identity = {"wrapper": wrapper.describe(), "dataset": dataset.describe(), "training": options.course()}
    with seeded(options.seed), curves(options.logdir) as write, keras_run(options.run_folder, identity) as run:
        if "native" not in vars(wrapper):  # initial weights come from the seed; a model that is there is trained on
            vars(wrapper)["native"] = wrapper.fresh(options.seed)
        reseed(wrapper.native, options.seed)
        steps = len(_cuts(len(indices), options.batch_size)) * options.num_epochs
        step = TrainingStep(wrapper, dataset.spec.targets, wrapper.learning_rates(options.learning_rate, steps))
        model, optimiser = wrapper.native, step.optimizer
        epochs = run.restore(model, optimiser)
        for number in range(len(epochs) + 1, options.num_epochs + 1):
            rng = np.random.default_rng([options.seed, number])
            what = f"epoch {number}/{options.num_epochs}"
            batches = _batches(wrapper, dataset, rng.permutation(indices), options.batch_size, rng)
            total = len(_cuts(len(indices), options.batch_size))
            figures = _means(step.train, progress(batches, what, total), what, wrapper.score_name)
            if len(validation):
                batches = _batches(wrapper, dataset, validation, options.batch_size)
                found = _means(step.judge, batches, f"{what}, validation", wrapper.score_name)
                figures |= {f"validation_{name}": value for name, value in found.items()}
            write(number, figures)
            epochs.append(figures)
            run.keep(model, optimiser, epochs)
    return TrainingHistory(tuple(epochs))


def _means(
    step: Callable[..., Mapping[str, Any]], batches: Iterable[tuple[Batch, Batch]], what: str, score_name: str
) -> dict[str, float]:
    average = Average(what)
    for inputs, truth in batches:
        average.add(step(dict(inputs), dict(truth)), batch_size(inputs))
    means = average.means()
    return {"loss": means["loss"], score_name: means["score"]}


def _batches(
    wrapper: TensorFlowBase,
    dataset: Dataset,
    indices: np.ndarray,
    size: int,
    rng: np.random.Generator | None = None,
) -> Iterator[tuple[Batch, Batch]]:
    """Read, preprocess and, where there is a generator, vary samples in batches."""
    for start, end in _cuts(len(indices), size):
        raw, truth = dataset.read(indices[start:end])
        inputs = wrapper.preprocess(dataset.preprocess(raw))
        wrapper.io.check_inputs(inputs)
        yield (inputs if rng is None else wrapper.augment(inputs, rng)), truth


def _cuts(count: int, size: int) -> list[tuple[int, int]]:
    """Cut a number of samples into batches; a single one left over joins the last batch.

    Batch normalisation cannot learn from one sample.
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))
