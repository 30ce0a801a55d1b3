"""Analysis of a Keras model: weights, graphs, profiles and intermediate values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.graph import Graph, Profile, Selector, Shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import Samples
from nnpipe.core.tensors import Batch, TensorSpec, generate_random_batch, show_shape
from nnpipe.frameworks.keras import import_keras, map_named_weights
from nnpipe.modelwrappers.frameworks import tensorflow_profile
from nnpipe.modelwrappers.frameworks.inspection import check_weights, select_tensors
from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase, apply_seed, reseed
from nnpipe.modelwrappers.frameworks.tensorflow_graph import LayerGraph, build_layer_graph
from nnpipe.modelwrappers.frameworks.tensorflow_training import TrainingStep

_BATCH = 8  # samples in a batch of noise


class TensorFlowAnalysis(TensorFlowBase):
    """The part of :class:`TensorFlowWrapper` that analyses the model."""

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of weights by name: the layer's path and the weight's name, as in
        ``"block/conv/kernel"``.

        Layers without a given name are numbered within the model, so that names
        are the same in every model of the class.
        """
        weights = map_named_weights(live.native)
        names = list(weights) if keys is None else list(keys)
        check_weights(type(self).__name__, names, weights)
        return {name: np.array(weights[name].numpy()) for name in names}

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the named weights, after a check of all names and shapes."""
        variables = map_named_weights(live.native)
        check_weights(type(self).__name__, weights, variables)
        arrays = {name: np.asarray(array) for name, array in weights.items()}
        for name, array in arrays.items():
            if array.shape != tuple(variables[name].shape) or array.dtype.kind not in "biuf":
                raise SpecMismatch(
                    f"weight {name!r} takes {variables[name].dtype} "
                    f"{show_shape(tuple(variables[name].shape))}, given: {array.dtype} "
                    f"{show_shape(array.shape)}"
                )
        for name, array in arrays.items():
            variables[name].assign(array)

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the calls of layers and Keras operations, with nested models expanded;
        ``native`` is Keras's node.
        """
        return self._build_layer_graph(live).to_graph()

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the calls of layers with the lengths that follow from those of the inputs."""
        return self._build_layer_graph(live).to_sized_graph(shapes)

    def get_training_graph(self, live: LiveModel) -> Graph:
        """Return the TensorFlow operations of a step: forward pass, backward pass and Adam's
        update.

        Each operation states its layer.  Variables have the names of their
        weights, Adam's are ``optimizer/...``.  Handles (of variables, of lists in
        loops) are not numeric tensors and are left out.
        """
        with apply_seed(0):  # as in training, which uses deterministic operations
            return tensorflow_profile.trace_training_graph(
                self,
                live.native,
                self._build_layer_graph(live),
                _describe_targets(self.random_truth(1, 0)),
            )

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for some steps of Adam at its default rate and return ``(loss, score)`` of each,
        before its update.
        """
        found: list[tuple[float, float]] = []
        model = live.native
        with apply_seed(0):
            reseed(model, 0)
            step = None
            for inputs, truth in islice(self._iter_samples(samples), n_steps):
                self.io.check_inputs(inputs)
                step = step or TrainingStep(self, model, _describe_targets(truth), 0.001)
                figures = step.train(dict(inputs), dict(truth))
                found.append((float(figures["loss"]), float(figures["score"])))
        return found

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and return the outputs of each."""
        with live.session() as session:
            return [
                session.infer(inputs) for inputs, _ in islice(self._iter_samples(samples), n_steps)
            ]

    def profile_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Return the times of the operations of :meth:`get_training_graph`; the weights stay
        unchanged.
        """
        batches = self._require_labelled_batches(n_steps, samples)
        with apply_seed(0):
            return tensorflow_profile.profile_training(
                self,
                live.native,
                self._build_layer_graph(live),
                batches,
                _describe_targets(batches[0][1]),
            )

    def profile_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Return the times of the calls of :meth:`get_inference_graph`, from TensorFlow's
        profiler.
        """
        batches = [inputs for inputs, _ in self._require_labelled_batches(n_steps, samples)]
        return tensorflow_profile.profile_inference(
            self._build_layer_graph(live), batches, self.io.inputs
        )

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch, layer by layer, and return the selected tensors of
        :meth:`get_inference_graph`.
        """
        inputs = generate_random_batch(self.io, _BATCH) if inputs is None else inputs
        self.io.check_inputs(inputs)
        graph = self._build_layer_graph(live)
        wanted = select_tensors(
            type(self).__name__, selector, (step.operation for step in graph.steps)
        )
        tensorflow, _ = import_keras()
        batch, replaced = (
            {name: tensorflow.constant(array) for name, array in side.items()}
            for side in (inputs, given or {})
        )
        values = graph.run(batch, given=replaced)
        return {name: np.array(values[name].numpy()) for name in wanted}

    def _build_layer_graph(self, live: LiveModel) -> LayerGraph:
        return build_layer_graph(live.native, self.io)

    def _iter_samples(self, samples: Samples | None) -> Iterator[tuple[Batch, Batch]]:
        if samples is not None:
            yield from samples
            return
        number = 0
        while True:
            yield generate_random_batch(self.io, _BATCH, number), self.random_truth(_BATCH, number)
            number += 1

    def _require_labelled_batches(
        self, n_steps: int, samples: Samples | None
    ) -> list[tuple[Batch, Batch]]:
        batches = list(islice(self._iter_samples(samples), n_steps))
        for inputs, _ in batches:
            self.io.check_inputs(inputs)
        if not batches:
            raise ConfigError(
                f"{type(self).__name__}: there is no step to profile; give samples and at least "
                f"one step"
            )
        return batches


def _describe_targets(truth: Batch) -> list[TensorSpec]:
    return [
        TensorSpec(name, (None, *array.shape[1:]), array.dtype.name)
        for name, array in truth.items()
    ]
