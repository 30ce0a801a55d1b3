"""Training of Keras models: seeds, steps of Adam, epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.component import find_source_files, is_overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, tell
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.frameworks.keras import import_keras, make_named_call
from nnpipe.frameworks.training_curves import DATA, map_epoch_figures, write_training_curves
from nnpipe.modelwrappers.frameworks.inspection import convert_history
from nnpipe.modelwrappers.frameworks.tensorflow_base import apply_seed, reseed
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import choose
from nnpipe.training.keras import KerasTraining
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.array_outputs import GivenClassification, GivenOutput
from nnpipe.training.sequences.dataset import DatasetSequence

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

OUTPUT = "output"
"""Name of the outputs of a wrapper's model in histories."""

_INPUT, _TRUTH = "input/", "truth/"


def make_sequence(
    wrapper: TensorFlowBase, dataset: Dataset, split: str, size: int, seed: int | None
) -> DatasetSequence:
    """Return the batches of a split, prepared for the model and, with a seed, shuffled and
    augmented.
    """

    def prepare(inputs: Batch) -> Batch:
        prepared = wrapper.preprocess(inputs)
        wrapper.io.check_inputs(prepared)
        return prepared

    return DatasetSequence(
        dataset,
        split,
        batch=size,
        shuffle=seed is not None,
        seed=seed or 0,
        prepare=prepare,
        augment=None if seed is None else wrapper.augment,
        prefixes=(_INPUT, _TRUTH),
    )


def split_batch(batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inputs and the targets of a batch by name."""
    inputs, truth = (
        {
            name.removeprefix(prefix): value
            for name, value in batch.items()
            if name.startswith(prefix)
        }
        for prefix in (_INPUT, _TRUTH)
    )
    return inputs, truth


def is_classifier(wrapper: TensorFlowBase) -> bool:
    """Return whether a wrapper keeps the default loss and score, those of a classifier."""
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase

    return not any(is_overridden(wrapper, method, TensorFlowBase) for method in ("loss", "score"))


def make_outputs(
    wrapper: TensorFlowBase, found: Mapping[str, Any], truth: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the outputs of a batch for callbacks; none if the step returns none."""
    if "losses" not in found:
        return {}
    losses = np.asarray(found["losses"])
    arrays = {name: np.asarray(tensor) for name, tensor in found["outputs"].items()}
    if is_classifier(wrapper):
        (chances,), (target,) = arrays.values(), truth.values()
        return {OUTPUT: GivenClassification.from_probabilities(chances, target, losses)}
    return {OUTPUT: GivenOutput(arrays, dict(truth), given=losses)}


def create_callbacks(
    wrapper: TensorFlowBase, dataset: Dataset, options: TrainingOptions
) -> tuple[Callback, ...]:
    """Return the requested callbacks; none without a folder for their files."""
    if options.run_folder is None:
        return ()
    known = {"classes": dataset.spec.class_names, "folders": find_source_files(wrapper, dataset)}
    return choose(options.callbacks, framework="keras", known=known, classes=is_classifier(wrapper))


_LOOK_EVERY = 32  # steps; reading a loss waits for the device
Call = Callable[..., dict[str, Any]]


class TrainingStep:
    """A step of Adam, compiled once for batches of any size.

    Parameters
    ----------
    wrapper
        The wrapper with ``loss`` and ``score``.
    model
        The ``keras.Model`` to train.
    truth
        Specs of the targets, with free first axes.
    learning_rate
        A number or a Keras schedule.
    call
        Runs the model on tensors by name; the model itself by default.
    samples
        Whether to return the outputs and the loss of each sample as well.
    """

    def __init__(
        self,
        wrapper: TensorFlowBase,
        model: Any,
        truth: Iterable[TensorSpec],
        learning_rate: Any,
        call: Call | None = None,
        samples: bool = False,
    ) -> None:
        tensorflow, keras = import_keras()
        self.model = model
        if not self.model.trainable_variables:
            raise ConfigError(
                f"{type(wrapper).__name__} has no weights to train: all of its layers are frozen"
            )
        self._wrapper = wrapper
        self._tensorflow = tensorflow
        self._samples = samples
        self._call = call or make_named_call(self.model, wrapper.io)
        self.optimizer = keras.optimizers.Adam(learning_rate, name="adam")
        self.optimizer.build(self.model.trainable_variables)

        def make_specs(of: Iterable[TensorSpec]) -> dict[str, Any]:
            return {
                spec.name: tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name)
                for spec in of
            }

        self.signature = [make_specs(wrapper.io.inputs), make_specs(truth)]
        self.train = tensorflow.function(
            self._train, input_signature=self.signature, autograph=False
        )
        self.judge = tensorflow.function(
            self._judge, input_signature=self.signature, autograph=False
        )

    def _train(self, inputs: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
        variables = self.model.trainable_variables
        with self._tensorflow.GradientTape() as tape:
            found = self._compute_figures(self._call(inputs, training=True), truth)
        gradients = tape.gradient(found["loss"], variables)
        pairs = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        self.optimizer.apply(
            [gradient for gradient, _ in pairs], [variable for _, variable in pairs]
        )
        return found

    def _judge(self, inputs: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
        return self._compute_figures(self._call(inputs, training=False), truth)

    def _compute_figures(
        self, outputs: Mapping[str, Any], truth: Mapping[str, Any]
    ) -> dict[str, Any]:
        mean = self._tensorflow.reduce_mean
        # Penalties on weights are part of the minimised loss, and the same for every sample.
        penalty = sum(self.model.losses)
        losses = self._wrapper.loss(outputs, truth)
        loss = mean(losses) + penalty
        score = mean(self._tensorflow.cast(self._wrapper.score(outputs, truth), "float32"))
        found = {"loss": loss, "score": score}
        return found | {"losses": losses, "outputs": dict(outputs)} if self._samples else found


class RunningMeans:
    """Means over samples of the figures of steps, with a check for losses that are not finite."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pending: list[tuple[Mapping[str, Any], int]] = []
        self._sums = {"loss": 0.0, "score": 0.0}
        self._steps = self._samples = 0

    def add(self, figures: Mapping[str, Any], samples: int) -> None:
        """Add the mean figures of a batch."""
        self._pending.append((figures, samples))
        if len(self._pending) >= _LOOK_EVERY:
            self._flush()

    def _flush(self) -> None:
        for figures, samples in self._pending:
            self._steps += 1
            for name in self._sums:
                self._sums[name] += float(figures[name]) * samples
            self._samples += samples
            if not math.isfinite(self._sums["loss"]):
                raise ConfigError(
                    f"{self._what}: the loss became {float(figures['loss'])} in step "
                    f"{self._steps}; "
                    "lower --learning-rate, or look for samples that are not finite"
                )
        self._pending.clear()

    def compute_means(self) -> dict[str, float]:
        """Return the means over all samples."""
        self._flush()
        return {name: total / self._samples for name, total in self._sums.items()}


def train(
    wrapper: TensorFlowBase,
    model: Any,
    dataset: Dataset,
    options: TrainingOptions,
    progress: Progress,
) -> TrainingHistory:
    """Fit the model; see :meth:`TensorFlowWrapper.train`."""
    dataset.prepare()
    if not len(dataset.split("train")):
        raise ConfigError(f"{type(dataset).__name__} has no training samples")
    parts = {"train": make_sequence(wrapper, dataset, "train", options.batch_size, options.seed)}
    if len(dataset.split("validation")):
        parts["validation"] = make_sequence(
            wrapper, dataset, "validation", options.batch_size, None
        )
    asked = TrainerOptions.from_json(
        {"num_epochs": options.num_epochs, "seed": options.seed, "weights": options.weights}
    )
    described = {"wrapper": wrapper.describe(), "dataset": dataset.describe()}
    identity = {**hide_settings_secrets(described), "training": options.get_weight_options()}
    with apply_seed(options.seed), write_training_curves(options.logdir) as write:
        reseed(model, options.seed)
        callbacks = create_callbacks(wrapper, dataset, options)
        steps = len(parts["train"]) * options.num_epochs
        step = TrainingStep(
            wrapper,
            model,
            dataset.spec.targets,
            wrapper.learning_rates(options.learning_rate, steps),
            samples=bool(callbacks),
        )
        with KerasTraining(
            model,
            step.optimizer,
            {DATA: parts},
            asked,
            callbacks=callbacks,
            folder=options.run_folder,
            identity=identity,
            resume=options.resume,
        ) as training:
            training.begin()
            while training.goes_on:
                training.begin_epoch()
                row = _run_epoch(wrapper, step, training, progress)
                write(training.fit.epoch, map_epoch_figures(row))
                training.end_epoch(row)
                tell(progress, training.fit.epoch, options.num_epochs, map_epoch_figures(row))
            training.end()
    return convert_history(training.fit.history, training.fit.final)


def _run_epoch(
    wrapper: TensorFlowBase, step: TrainingStep, training: KerasTraining, progress: Progress
) -> dict[str, float]:
    """Train on all training samples and evaluate all others; return the figures by their names
    in histories.
    """
    fit = training.fit
    parts = fit.datasets[DATA]
    what = f"epoch {fit.epoch}/{fit.options.num_epochs}"
    trained = RunningMeans(what)
    parts["train"].set_epoch(fit.epoch)
    for batch in progress(parts["train"], what, len(parts["train"])):
        training.begin_batch(DATA, batch)
        inputs, truth = split_batch(batch)
        found = step.train(inputs, truth)
        trained.add(found, len(batch["sample_id"]))
        training.end_batch(batch, make_outputs(wrapper, found, truth))
    row = _format_row("train", trained.compute_means(), wrapper.score_name)
    if "validation" in parts:
        judged = RunningMeans(f"{what}, validation")
        parts["validation"].set_epoch(0)
        for batch in parts["validation"]:
            inputs, truth = split_batch(batch)
            found = step.judge(inputs, truth)
            judged.add(found, len(batch["sample_id"]))
            training.report_evaluated_batch(
                DATA, "validation", batch, make_outputs(wrapper, found, truth)
            )
        row |= _format_row("validation", judged.compute_means(), wrapper.score_name)
    return row


def _format_row(split: str, means: Mapping[str, float], score_name: str) -> dict[str, float]:
    return {
        f"{DATA}/{split}/loss": means["loss"],
        f"{DATA}/{split}/{OUTPUT}/{score_name}": means["score"],
    }
