"""A model in the framework that trains it, behind one interface for all frameworks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component, overridden
from nnpipe.core.dataset import Dataset, DatasetSpec
from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.meaning import Meaning
from nnpipe.core.preparation import Preparation
from nnpipe.core.preprocessing import bound, check_samples, prepared
from nnpipe.core.progress import Progress, silent
from nnpipe.core.saving import check_destination
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.core.training import TrainingHistory, TrainingOptions

if TYPE_CHECKING:
    from typing_extensions import Self

Samples = Iterable[tuple[Batch, Batch]]
"""Batches of model inputs (already preprocessed) with their truth."""


class ModelWrapper(Component):
    """A model of one training framework.

    The wrapper itself is frozen arguments.  Its weights live in a
    :class:`~nnpipe.core.live_model.LiveModel`, which :meth:`open` makes, and
    which the methods that load, train, run and write are given as ``live``.
    Callers use the methods of the same names of the live model.

    Attributes
    ----------
    framework
        The framework's name in reports.
    weights_format
        What :meth:`save` writes and :meth:`load` reads.
    exports
        Formats that :meth:`export` can write, preferred ones first.
    channel_axis
        Axis of the channels in what :meth:`get_intermediates` gives.

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
    channel_axis: ClassVar[int] = 1

    # -- required -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def io(self) -> IOSpec:
        """Inputs and outputs of the model itself, after ``preprocess`` and before ``postprocess``."""

    @abstractmethod
    def build(self) -> Any:
        """Make the framework's model with fresh weights."""

    @abstractmethod
    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read weights into ``live.native``, or put another network there.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it.
        """

    @abstractmethod
    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the weights, whole or not at all."""

    @abstractmethod
    def session(self, live: LiveModel) -> InferenceSession:
        """Run the model in its own framework, as it is now."""

    # -- the live model -------------------------------------------------------------------------

    def open(self, path: str | Path | None = None) -> LiveModel:
        """Return the model with a network of its own, used in a ``with`` block.

        Parameters
        ----------
        path
            Weights to load.  Without them, the network is built with fresh ones when it is first asked for.

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
        """Build a network, its weights drawn from a seed where the framework draws them.

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
        """Return whether this class has all of these optional methods.

        Examples
        --------
        >>> ModelWrapper.offers("get_weights")
        False
        """
        return all(overridden(cls, method, ModelWrapper) for method in methods)

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Return this wrapper with whatever the data set decides (input shape, number of classes) filled in.

        The default takes the wrapper as it is.

        Raises
        ------
        ConfigError
            If model and data set do not fit; the message names both shapes.
        """
        return self

    def knowing(self, io: IOSpec) -> Self:
        """Return this wrapper for a process in which its framework shall not be started to find out what ``io`` is.

        Wrappers whose ``io`` stands in a file that only the framework can read
        take it from here; the default takes the wrapper as it is.
        """
        return self

    def for_samples(self, spec: DatasetSpec) -> Self:
        """Return this wrapper fitted to the samples of a data set alone, which has no truth for what the model gives.

        Where the data set does not fit as a whole, what :attr:`meaning` says of samples is enough.

        Raises
        ------
        ConfigError
            If the model does not take such samples; the message names both shapes.
        """
        try:
            return self.for_dataset(spec)
        except ConfigError:
            meaning = self.meaning
            if meaning is None or not meaning.inputs:
                raise
        name, inputs = type(self).__name__, self.io.inputs
        for given, taken in bound(name, inputs, tuple(tensor.name for tensor in spec.inputs)).items():
            sample = next(tensor for tensor in spec.inputs if tensor.name == given)
            check_samples(name, sample, taken, meaning.input(taken.name) or InputMeaning(taken.name))
        return self

    @property
    def meaning(self) -> Meaning | None:
        """What the inputs expect of samples, and what the outputs mean; ``None`` where only code says.

        What stands here is what :meth:`preprocess` carries out, and goes along with every file of the model.
        """
        return None

    def preparation(self) -> Preparation:
        """Return how samples are prepared for the model, and who says that it should be so."""
        return Preparation("wrapper", self.dotted_path(), self.meaning)

    def preprocess(self, inputs: Batch) -> Batch:
        """Turn what the data set gives into what :attr:`io` takes: as :attr:`meaning` says, or not at all.

        Samples for which a data description is not enough are prepared by a subclass's own code, in place of this.
        """
        meaning = self.meaning
        if meaning is None or not meaning.inputs:
            return inputs
        return prepared(type(self).__name__, inputs, self.io.inputs, {each.name: each for each in meaning.inputs})

    def preprocess_real(self, inputs: Batch) -> Batch:
        """Do what :meth:`preprocess` does, but give real numbers where it gives quantised ones."""
        return self.preprocess(inputs)

    def postprocess(self, outputs: Batch) -> Batch:
        """Turn what the model gives into what the data set evaluates."""
        return outputs

    def check_saving(self, path: str | Path, size: int = 0) -> None:
        """Raise :class:`ConfigError` unless :meth:`save` could write this file, of so many bytes.

        It is asked before what shall be saved is made, which may take hours.
        """
        check_destination(path, size)

    def start(self, live: LiveModel, options: TrainingOptions) -> None:
        """Make the weights that a training starts from, if the model has none yet; by default :meth:`train` does."""

    def train(
        self, live: LiveModel, dataset: Dataset, options: TrainingOptions, progress: Progress = silent
    ) -> TrainingHistory:
        """Fit the weights to the training split and watch the validation split; prepares the data set first."""
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model with its structure in one of the formats of ``exports``."""
        raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")

    # -- for authors ------------------------------------------------------------------------------

    def artifact_of(self, path: str | Path, format: str, frameworks: tuple[tuple[str, str], ...] = ()) -> Artifact:
        """Describe a file that this model has just been written to, and write the description beside it.

        Where no data say what the model expects, the description names this class, whose own code does.
        """
        meaning = self.meaning_of_files()
        return Artifact.of(path, format, self.io, frameworks=frameworks, producer=self.describe(), meaning=meaning)

    def meaning_of_files(self) -> Meaning | None:
        """What the descriptions of files say that this model is written to."""
        return self.meaning or Meaning(code=self.describe())

    # -- analysis: the same nine questions to every framework -----------------------------------

    def get_training_graph(self, live: LiveModel) -> Graph:
        """Return the graph of a training step."""
        raise NotSupported(f"{type(self).__name__} has no training graph to show")

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the graph of an inference."""
        raise NotSupported(f"{type(self).__name__} has no inference graph to show")

    def get_weights(self, live: LiveModel, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Copy weights by name; all of them, or those named (an unknown name is a :class:`ConfigError`)."""
        raise NotSupported(f"{type(self).__name__} does not show its weights")

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the weights named and leave the rest alone.

        All names and shapes are checked before the first weight changes, as the live model's method says.
        """
        raise NotSupported(f"{type(self).__name__} does not let its weights be set")

    def run_training(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for some steps and give ``(loss, score)`` of each; on random data from a fixed seed by default."""
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and give the outputs of each; on random data from a fixed seed by default."""
        raise NotSupported(f"{type(self).__name__} cannot run by itself")

    def profile_training(self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of a training step."""
        raise NotSupported(f"{type(self).__name__} cannot profile its training")

    def profile_inference(self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of an inference."""
        raise NotSupported(f"{type(self).__name__} cannot profile its inference")

    def get_intermediates(
        self, live: LiveModel, selector: Selector, inputs: Batch | None = None, given: Batch | None = None
    ) -> dict[str, np.ndarray]:
        """Run one batch and give the values of the chosen tensors, by name.

        The parameters are those of the live model's method.
        """
        raise NotSupported(f"{type(self).__name__} does not show intermediate values")
