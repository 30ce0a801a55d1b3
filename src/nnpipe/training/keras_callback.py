"""A ``keras.callbacks.Callback`` with which callbacks of nnpipe observe ``keras.Model.fit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.training._batches import size_of
from nnpipe.training._optimisers import convert_datasets
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.keras import KerasTraining
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.array_outputs import GivenClassification

Judge = Callable[[Any, dict[str, Any]], dict[str, Any]]
"""Takes a model and a batch of arrays, and returns outputs by name."""

FITTED = "fit"
"""The name in histories of the data that ``keras.Model.fit`` itself reads."""


def make_classifier_judge(*inputs: str, target: str = "label", output: str = "output") -> Judge:
    """Return a function that evaluates a classifier, whose only output are probabilities, by its
    cross entropy.

    The output is ``(n, classes)``, or for a binary classifier ``(n, 1)`` or ``(n,)``.

    Parameters
    ----------
    inputs
        The features that the model takes, in the order of its inputs.
    target
        The feature that holds classes ``(n,)``.
    output
        The name of the output in histories.
    """
    check_call(make_classifier_judge, locals())

    def evaluate_batch(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        given = [batch[name] for name in inputs]
        import keras

        said = model(given[0] if len(given) == 1 else given, training=False)
        chances = keras.ops.convert_to_numpy(said).astype(np.float64)
        classes = np.asarray(batch[target])
        if chances.size == len(classes):  # of a sigmoid: the probability of class 1
            yes = chances.reshape(-1, 1)
            chances, classes = (
                np.concatenate([1 - yes, yes], 1),
                classes.reshape(-1).astype(np.int64),
            )
        found = GivenClassification.from_probabilities(chances, classes, None)
        found.given = -found.output[np.arange(len(classes)), classes]
        return {output: found}

    return evaluate_batch


def keras_callback(
    callbacks: Sequence[Callback],
    datasets: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    judge: Judge | None = None,
    *,
    folder: str | Path | None = None,
    options: TrainerOptions | None = None,
    resume: bool = True,
) -> Any:
    """Return a ``keras.callbacks.Callback`` with which callbacks of nnpipe observe
    ``keras.Model.fit``.

    ::

        with keras_callback(callbacks, {"digits": {"test": test}}, classifier("image"), folder="runs/digits") as look:
            model.fit(images, labels, epochs=5, initial_epoch=look.restore(model), callbacks=[look])

    Keras gives access neither to the batches nor to the outputs of its steps.  So
    all splits in ``datasets`` are evaluated after each epoch, including training
    splits.  Of the steps, callbacks learn only that they happened.

    A checkpoint is written after each epoch.  ``look.restore(model)`` restores the
    last one and returns the number of finished epochs.  The order in which Keras
    draws samples is not restored.

    Parameters
    ----------
    callbacks
        Observers of the training; one that needs PyTorch is an error.
    datasets
        Sequences of batches by data set and split.
    judge
        Runs the model on a batch, such as :func:`make_classifier_judge`; required if there are data
        sets.
    folder
        The run's folder; None to write nothing.
    options
        Options of the trainer.  Only ``seed``, ``callback_errors`` and those that decide the best
        epoch are used.
    resume
        Whether ``restore`` continues from the folder's last checkpoint.
    """
    check_call(keras_callback, locals())
    import keras

    if datasets and judge is None:
        raise ConfigError("keras_callback: say how to judge a batch, such as classifier('image')")
    asked = options or TrainerOptions(train_splits=("train",))
    data = convert_datasets(datasets, asked.seed) if datasets else {}

    class LookOn(keras.callbacks.Callback):  # type: ignore[misc]
        """Calls callbacks of nnpipe from Keras's hooks."""

        def __init__(self) -> None:
            super().__init__()
            self.training: KerasTraining | None = None

        def restore(self, model: Any) -> int:
            """Restore the folder's last checkpoint, if there is one, and return the number of
            finished epochs.
            """
            if self.training is None:
                if not model.optimizer.built:
                    model.optimizer.build(model.trainable_variables)
                where = None if folder is None else Path(folder)
                self.training = KerasTraining(
                    model,
                    model.optimizer,
                    data,
                    asked,
                    callbacks=callbacks,
                    folder=where,
                    identity={"options": asked.get_weight_options()},
                    resume=resume,
                )
                self.training.begin(self._figures, (f"{FITTED}/train", f"{FITTED}/validation"))
            return self.training.fit.epoch

        @property
        def _looking(self) -> KerasTraining:
            assert self.training is not None  # on_train_begin has set it
            return self.training

        def on_train_begin(self, logs: Any = None) -> None:
            self.restore(self.model)
            fit = self._looking.fit
            fit.options = TrainerOptions.from_json(
                asked.to_json() | {"num_epochs": self.params["epochs"]}
            )

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._looking.begin_epoch()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._looking.end_batch({"sample_id": np.zeros(0, np.int64)}, {})

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            row = {}
            for name, value in (logs or {}).items():
                split = "validation" if name.startswith("val_") else "train"
                if name != "learning_rate":
                    row[f"{FITTED}/{split}/{name.removeprefix('val_')}"] = float(value)
            for dataset, parts in data.items():
                for split, sequence in parts.items():
                    row |= self._judged(dataset, split, sequence)
            self._looking.end_epoch(row)
            if self._looking.fit.stopping:
                self.model.stop_training = True

        def _judged(self, dataset: str, split: str, sequence: Any) -> dict[str, float]:
            assert judge is not None
            sums: dict[str, float] = {}
            count = 0
            sequence.set_epoch(0)
            for batch in sequence:
                outputs = judge(self.model, batch)
                count += size_of(batch)
                for name, output in outputs.items():
                    sums["loss"] = sums.get("loss", 0.0) + float(np.sum(output.losses))
                    if isinstance(output, GivenClassification):
                        hits = float(np.sum(output.predictions() == output.target))
                        sums[f"{name}/accuracy"] = sums.get(f"{name}/accuracy", 0.0) + hits
                self._looking.report_evaluated_batch(dataset, split, batch, outputs)
            return (
                {f"{dataset}/{split}/{name}": total / count for name, total in sums.items()}
                if count
                else {}
            )

        def _figures(self, dataset: str, split: str) -> list[str]:
            """Return the names of a split's figures, read from its first batch."""
            assert judge is not None
            sequence = data[dataset][split]
            sequence.set_epoch(0)
            first = next(iter(sequence), None)
            outputs = {} if first is None else judge(self._looking.fit.model, first)
            told = [
                f"{name}/accuracy"
                for name, output in outputs.items()
                if isinstance(output, GivenClassification)
            ]
            return ["loss", *told] if outputs else []

        def on_train_end(self, logs: Any = None) -> None:
            self._looking.end()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: Any) -> None:
            if self.training is not None:
                self.training.__exit__(*error)

    return LookOn()
