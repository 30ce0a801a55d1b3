"""The interface of model wrappers, the same for all training frameworks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component, is_overridden
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.evaluation import NOT_FINITE
from nnpipe.core.files import check_destination
from nnpipe.core.graph import Graph, Profile, Selector, Shapes, infer_shapes_by_running
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model_metadata import ModelMetadata, Preparation
from nnpipe.core.output_decoder import OutputDecoder, get_decoder
from nnpipe.core.preprocessing import check_samples, match_inputs, preprocess
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, get_batch_size
from nnpipe.core.training import TrainingHistory, TrainingOptions

if TYPE_CHECKING:
    from typing_extensions import Self

Samples = Iterable[tuple[Batch, Batch]]
"""Batches of model inputs (already preprocessed) with their truth."""


class ModelWrapper(Component):
    """A model of one training framework.

    The wrapper itself holds frozen arguments only.  A
    :class:`~nnpipe.core.live_model.LiveModel`, which :meth:`open` makes, holds the
    weights.  The methods that load, train, run and write take it as ``live``;
    callers use the live model's methods of the same names.

    Attributes
    ----------
    framework
        The framework's name in reports.
    weights_format
        The format that :meth:`save` writes and :meth:`load` reads.
    exports
        The formats that :meth:`export` can write, preferred ones first.
    makes_weights
        Whether arguments state where weights come from, so that no file of weights need be given.
    channel_axis
        The axis of channels in the arrays that :meth:`get_intermediates` returns.

    Examples
    --------
    >>> from nnpipe import find
    >>> wrapper = find("PyTorchDigitsCNN", ModelWrapper)()
    >>> wrapper.framework, wrapper.exports[0], wrapper.io.inputs[0].name
    ('PyTorch', 'onnx', 'image')
    >>> with wrapper.open() as model:
    ...     model.is_built
    False
    """

    framework: ClassVar[str] = ""
    weights_format: ClassVar[str] = ""
    exports: ClassVar[tuple[str, ...]] = ()
    makes_weights: ClassVar[bool] = False
    channel_axis: ClassVar[int] = 1

    # -- required -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def io(self) -> IOSpec:
        """Inputs and outputs of the model itself, after ``preprocess`` and before
        ``postprocess``.
        """

    @abstractmethod
    def build(self) -> Any:
        """Build the framework's model with initial weights."""

    @abstractmethod
    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights into ``live.native``, or replace that network.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it.
        """

    @abstractmethod
    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the weights to a file atomically, and return its artifact."""

    @abstractmethod
    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the model, with its present weights, in its own framework."""

    # -- the live model -------------------------------------------------------------------------

    def open(self, path: str | Path | None = None) -> LiveModel:
        """Return a live model with its own network, to be used in a ``with`` block.

        Parameters
        ----------
        path
            The weights to load.  Without a path, the network is built with initial weights on first
            access.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it.
        """
        live = LiveModel(self)
        if path is not None:
            live.load(path)
        return live

    def fresh(self, seed: int = 0) -> Any:
        """Build a network; ``seed`` determines its random initial weights.

        Raises
        ------
        MissingDependency
            If the framework is not installed.
        """
        self.check_installed()
        return self.build()

    # -- optional -----------------------------------------------------------------------------

    @classmethod
    def offers(cls, *methods: str) -> bool:
        """Return whether this class implements all of these optional methods.

        Examples
        --------
        >>> ModelWrapper.offers("get_weights")
        False
        """
        return all(is_overridden(cls, method, ModelWrapper) for method in methods)

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with the arguments that a data set determines (input shape, number of
        classes).

        By default, the wrapper is returned unchanged.

        Raises
        ------
        ConfigError
            If the model does not fit the data set; the message names both shapes.
        """
        return self

    def with_io(self, io: IOSpec) -> Self:
        """Return this wrapper with a known ``io``, so that it need not start its framework to find
        it out.

        This is for wrappers that read ``io`` from a file with their framework.
        By default, the wrapper is returned unchanged.
        """
        return self

    def for_samples(self, spec: DatasetSpec) -> Self:
        """Return this wrapper fitted to the samples of a data set whose truth does not fit the
        model's outputs.

        If :meth:`for_dataset` fails, it is enough that the samples fit the :attr:`meaning` of the
        inputs.

        Raises
        ------
        ConfigError
            If the samples do not fit the model's inputs; the message names both shapes.
        """
        try:
            return self.for_dataset(spec)
        except ConfigError:
            meaning = self.meaning
            if meaning is None or not meaning.inputs:
                raise
        name, inputs = type(self).__name__, self.io.inputs
        for given, taken in match_inputs(
            name, inputs, tuple(tensor.name for tensor in spec.inputs)
        ).items():
            sample = next(tensor for tensor in spec.inputs if tensor.name == given)
            expected = meaning.input(taken.name) or InputProcessing(taken.name)
            check_samples(name, sample, taken, expected, spec.sample_rates.get(given))
        return self

    def fitting_notes(self, spec: DatasetSpec) -> tuple[str, ...]:
        """Return what was decided in fitting this wrapper to a data set and nobody said, a line
        each.
        """
        return ()

    @property
    def meaning(self) -> ModelMetadata | None:
        """How samples are prepared for the inputs, and what the outputs mean; ``None`` if only code
        determines it.

        :meth:`preprocess` applies this meaning, and every file of the model records it.
        """
        return None

    def preparation(self) -> Preparation:
        """Return how samples are prepared for the model, and what determined it."""
        return Preparation("wrapper", self.get_dotted_path(), self.meaning)

    def preprocess(self, inputs: Batch) -> Batch:
        """Convert samples of the data set to inputs of :attr:`io`, as :attr:`meaning` declares.

        Without a meaning, the samples are returned unchanged.  A subclass may override this method
        if a declaration is not enough.
        """
        meaning = self.meaning
        if meaning is None or not meaning.inputs:
            return inputs
        return preprocess(
            type(self).__name__,
            inputs,
            self.io.inputs,
            {each.name: each for each in meaning.inputs},
        )

    def preprocess_real(self, inputs: Batch) -> Batch:
        """Do the same as :meth:`preprocess`, but return real numbers instead of quantised ones."""
        return self.preprocess(inputs)

    @property
    def output_decoder(self) -> OutputDecoder | None:
        """The decoder that :attr:`meaning` states, which :meth:`postprocess` applies; ``None``
        without one.
        """
        return get_decoder(self.meaning)

    def postprocess(self, outputs: Batch) -> Batch:
        """Convert the model's outputs to the predictions that the data set evaluates, by
        :attr:`output_decoder`.
        """
        decoder, meaning = self.output_decoder, self.meaning
        if decoder is None:
            return outputs
        found = decoder.decode(outputs, self.io, meaning.inputs if meaning else ())
        lost = decoder.without_answer(outputs, get_batch_size(outputs))
        return {**found, NOT_FINITE: lost} if lost.any() else found

    def check_saving(self, path: str | Path, size: int = 0) -> None:
        """Raise :class:`ConfigError` if :meth:`save` could not write this file of ``size`` bytes.

        It is called before the weights are trained, which may take hours.
        """
        check_destination(path, size)

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Make the initial weights of a training, if the model has none; by default,
        :meth:`train` makes them.
        """

    def train(
        self,
        live: LiveModel,
        dataset: Dataset,
        options: TrainingOptions,
        progress: Progress = silent,
    ) -> TrainingHistory:
        """Prepare the data set, train on its training split, and evaluate on its validation
        split.
        """
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model with its structure, in one of the ``exports`` formats, and return the
        artifact.
        """
        raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")

    # -- for authors ------------------------------------------------------------------------------

    def artifact_of(
        self, path: str | Path, format: str, frameworks: tuple[tuple[str, str], ...] = ()
    ) -> Artifact:
        """Describe a file that this model has just been written to, and write the description
        beside it.

        If the model has no :attr:`meaning`, the description names this class, whose code prepares
        samples.
        """
        meaning = self.meaning_of_files()
        return Artifact.create(
            path, format, self.io, frameworks=frameworks, producer=self.describe(), meaning=meaning
        )

    def meaning_of_files(self) -> ModelMetadata | None:
        """Return the meaning for the descriptions of this model's files."""
        return self.meaning or ModelMetadata(code=self.describe())

    # -- analysis: the same methods for every framework -----------------------------------------

    def get_training_graph(self, live: LiveModel) -> Graph:
        """Return the graph of a training step."""
        raise NotSupported(f"{type(self).__name__} has no training graph to show")

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the graph of an inference."""
        raise NotSupported(f"{type(self).__name__} has no inference graph to show")

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the graph of an inference with inputs of these shapes, in which the length of
        every axis is known.

        By default the model is run once to learn the lengths that depend on its inputs.
        """
        return infer_shapes_by_running(
            live.get_inference_graph(), self.io, shapes, live.get_intermediates
        )

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of all weights, or of those named; raise :class:`ConfigError` if a name
        is unknown.
        """
        raise NotSupported(f"{type(self).__name__} does not show its weights")

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the given weights, and keep the others.

        All names and shapes are checked before the first weight changes, as documented at the live
        model's method.
        """
        raise NotSupported(f"{type(self).__name__} does not let its weights be set")

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for ``n_steps`` and return ``(loss, score)`` of each; by default on random data
        from a fixed seed.
        """
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run ``n_steps`` batches and return the outputs of each; by default on random data from
        a fixed seed.
        """
        raise NotSupported(f"{type(self).__name__} cannot run by itself")

    def profile_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Measure the time of each operation of a training step."""
        raise NotSupported(f"{type(self).__name__} cannot profile its training")

    def profile_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> Profile:
        """Measure the time of each operation of an inference."""
        raise NotSupported(f"{type(self).__name__} cannot profile its inference")

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch and return the values of the selected tensors, by name.

        The parameters are those of the live model's method.
        """
        raise NotSupported(f"{type(self).__name__} does not show intermediate values")
