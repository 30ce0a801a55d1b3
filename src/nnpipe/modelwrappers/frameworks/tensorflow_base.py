"""The creation of Keras models, and the loss and score that they are trained for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch
from nnpipe.frameworks.keras import check_io, get_inner_graph, import_keras

_SEEDS = 2**32  # limit of NumPy's global generator


@contextmanager
def apply_seed(seed: int) -> Iterator[None]:
    """Seed all random numbers of Keras, TensorFlow, NumPy and Python inside the block.

    TensorFlow uses deterministic operations only.  The global generators of
    Python, NumPy and Keras are restored afterwards.
    """
    tensorflow, keras = import_keras()
    from keras.src.backend.common import global_state
    from tensorflow.python.framework import config  # there is no public function to switch it off

    python, numpy = random.getstate(), np.random.get_state()
    names = ("global_random_seed", "global_seed_generator")
    kept = {name: global_state.get_global_attribute(name) for name in names}
    deterministic = config.is_op_determinism_enabled()
    keras.utils.set_random_seed(seed % _SEEDS)
    tensorflow.config.experimental.enable_op_determinism()
    try:
        yield
    finally:
        if not deterministic:
            config.disable_op_determinism()
        for name, value in kept.items():
            global_state.set_global_attribute(name, value)
        random.setstate(python)
        np.random.set_state(numpy)


def reseed(model: Any, seed: int) -> None:
    """Set the state of the model's own random generators (dropout), which are not among the
    saved weights.
    """
    weights = {id(variable) for variable in model.weights}
    states = [
        variable
        for variable in model.variables
        if id(variable) not in weights and variable.shape == (2,)
    ]
    for number, state in enumerate(states):
        state.assign(np.array([seed % _SEEDS, number]).astype(state.dtype))


class TensorFlowBase(ModelWrapper):
    """The part of :class:`TensorFlowWrapper` that builds the model and defines its loss and score.

    Attributes
    ----------
    score_name
        Name of :meth:`score` in histories and curves.
    """

    framework: ClassVar[str] = "TensorFlow"
    weights_format: ClassVar[str] = "keras"
    exports: ClassVar[tuple[str, ...]] = ("keras", "onnx")
    channel_axis: ClassVar[int] = -1
    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[tensorflow]"
    score_name: ClassVar[str] = "accuracy"

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )

    def fresh(self, seed: int = 0) -> Any:
        """Return a new model with weights drawn from a seed.

        Raises
        ------
        MissingDependency
            If TensorFlow or Keras is not installed.
        ConfigError
            If Keras uses another backend, or the model's inputs and outputs are not those of
            ``io``.
        """
        self.check_installed()
        import_keras()
        with apply_seed(seed):
            model = self.build()
        if get_inner_graph(model) is None:
            raise ConfigError(
                f"{type(self).__name__}.build gives a {type(model).__name__}; make it functional: "
                f"keras.Model(x, f(x))"
            )
        check_io(model, self.io, type(self).__name__)
        return model

    # -- loss and score -------------------------------------------------------------------------

    def loss(self, outputs: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
        """Return the loss of each sample, a tensor ``(n,)``.

        By default the cross entropy between the probabilities in the only
        output, ``(n, classes)``, and the integer classes in the only target, ``(n,)``.
        """
        import keras

        scores, labels = self._require_single(outputs, truth)
        return keras.losses.sparse_categorical_crossentropy(labels, scores)

    def score(self, outputs: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
        """Return the score of each sample, a tensor ``(n,)``; by default 1 if the class is
        right, otherwise 0.
        """
        import keras

        scores, labels = self._require_single(outputs, truth)
        return keras.metrics.sparse_categorical_accuracy(labels, scores)

    def learning_rates(self, initial: float, steps: int) -> Any:
        """Return the learning rate for this number of steps, as a number or a Keras schedule.

        By default half a cosine from ``initial`` down to zero.
        """
        import keras

        return keras.optimizers.schedules.CosineDecay(initial, steps)

    def augment(self, inputs: Batch, rng: np.random.Generator) -> Batch:
        """Return preprocessed training samples with random changes but the same shapes;
        unchanged by default.
        """
        return inputs

    def random_truth(self, size: int, seed: int) -> Batch:
        """Return random targets for samples of noise; by default integer classes ``"label"``."""
        if len(self.io.outputs) != 1:
            raise NotSupported(
                f"{type(self).__name__} has several outputs; give samples, or write random_truth"
            )
        classes = self.io.outputs[0].shape[-1] or 1
        return {"label": np.random.default_rng([seed, 1]).integers(0, classes, size)}

    def _require_single(
        self, outputs: Mapping[str, Any], truth: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        if len(outputs) != 1 or len(truth) != 1:
            raise NotSupported(
                f"{type(self).__name__} has several outputs or truths: write loss and score"
            )
        return next(iter(outputs.values())), next(iter(truth.values()))
