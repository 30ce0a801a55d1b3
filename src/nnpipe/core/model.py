"""A model in the framework that trains it, behind one interface for all frameworks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset, DatasetSpec
from nnpipe.core.errors import ConfigError, NotSupported, SpecMismatch
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.progress import Progress, silent
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.core.training import TrainingHistory, TrainingOptions

if TYPE_CHECKING:
    from typing_extensions import Self

Samples = Iterable[tuple[Batch, Batch]]
"""Batches of model inputs (already preprocessed) with their truth."""


class ModelWrapper(Component):
    """A model of one training framework.

    The wrapper itself is frozen arguments; its weights live in the framework's
    own object, :attr:`native`, which is built when first asked for.  One thread
    uses a wrapper at a time.

    Attributes
    ----------
    framework
        The framework's name in reports.
    weights_format
        What :meth:`save` writes and :meth:`load` reads.
    exports
        Formats that :meth:`export` can write, preferred ones first.
    """

    framework: ClassVar[str] = ""
    weights_format: ClassVar[str] = ""
    exports: ClassVar[tuple[str, ...]] = ()

    # -- required -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def io(self) -> IOSpec:
        """Inputs and outputs of the model itself, after ``preprocess`` and before ``postprocess``."""
        raise NotImplementedError

    @abstractmethod
    def build(self) -> Any:
        """Make the framework's model with fresh weights."""
        raise NotImplementedError

    @abstractmethod
    def load(self, path: str | Path) -> None:
        """Read weights into :attr:`native`.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it.
        """
        raise NotImplementedError

    @abstractmethod
    def save(self, path: str | Path) -> Artifact:
        """Write the weights, whole or not at all."""
        raise NotImplementedError

    @abstractmethod
    def session(self) -> InferenceSession:
        """Run the model in its own framework, as it is now."""
        raise NotImplementedError

    @cached_property
    def native(self) -> Any:
        """The framework's own model object."""
        self.check_installed()
        return self.build()

    # -- optional -----------------------------------------------------------------------------

    def for_dataset(self, spec: DatasetSpec) -> Self:
        """Give this wrapper with whatever the data set decides (input shape, number of classes) filled in.

        The default takes the wrapper as it is.

        Raises
        ------
        ConfigError
            If model and data set do not fit; the message names both shapes.
        """
        return self

    def knowing(self, io: IOSpec) -> Self:
        """Give this wrapper for a process in which its framework shall not be started to find out what ``io`` is.

        Wrappers whose ``io`` stands in a file that only the framework can read
        take it from here; the default takes the wrapper as it is.
        """
        return self

    def preprocess(self, inputs: Batch) -> Batch:
        """Turn what the data set gives into what :attr:`io` takes."""
        return inputs

    def postprocess(self, outputs: Batch) -> Batch:
        """Turn what the model gives into what the data set evaluates."""
        return outputs

    def train(self, dataset: Dataset, options: TrainingOptions, progress: Progress = silent) -> TrainingHistory:
        """Fit the weights to the training split and watch the validation split; prepares the data set first."""
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def export(self, path: str | Path, format: str) -> Artifact:
        """Write the model with its structure in one of the formats of ``exports``."""
        raise NotSupported(f"{type(self).__name__} cannot be exported as {format}")

    # -- analysis: the same nine questions to every framework -----------------------------------

    def get_training_graph(self) -> Graph:
        """Give the graph of a training step."""
        raise NotSupported(f"{type(self).__name__} has no training graph to show")

    def get_inference_graph(self) -> Graph:
        """Give the graph of an inference."""
        raise NotSupported(f"{type(self).__name__} has no inference graph to show")

    def get_weights(self, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Copy weights by name; all of them, or those named (an unknown name is a :class:`ConfigError`)."""
        raise NotSupported(f"{type(self).__name__} does not show its weights")

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the weights named and leave the rest alone.

        All names and shapes are checked before the first weight changes.

        Raises
        ------
        ConfigError
            For an unknown name.
        SpecMismatch
            For a wrong shape.
        """
        raise NotSupported(f"{type(self).__name__} does not let its weights be set")

    def run_training(self, n_steps: int = 1, samples: Samples | None = None) -> list[tuple[float, float]]:
        """Train for some steps and give ``(loss, score)`` of each; on random data from a fixed seed by default."""
        raise NotSupported(f"{type(self).__name__} cannot be trained")

    def run_inference(self, n_steps: int = 1, samples: Samples | None = None) -> list[dict[str, np.ndarray]]:
        """Run some batches and give the outputs of each; on random data from a fixed seed by default."""
        raise NotSupported(f"{type(self).__name__} cannot run by itself")

    def profile_training(self, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of a training step."""
        raise NotSupported(f"{type(self).__name__} cannot profile its training")

    def profile_inference(self, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of an inference."""
        raise NotSupported(f"{type(self).__name__} cannot profile its inference")

    def get_intermediates(self, selector: Selector, inputs: Batch | None = None) -> dict[str, np.ndarray]:
        """Run one batch and give the values of the chosen tensors, by name.

        Raises
        ------
        ConfigError
            If nothing is chosen.
        """
        raise NotSupported(f"{type(self).__name__} does not show intermediate values")


def check_fits(
    wrapper: ModelWrapper, spec: DatasetSpec, task: str, shape: tuple[int | None, ...], classes: int
) -> None:
    """Raise :class:`ConfigError` unless a data set has this task, sample shape and number of classes."""
    name = type(wrapper).__name__
    if spec.task != task:
        raise ConfigError(f"{name} is made for {task}, the data set is for {spec.task}")
    have = spec.inputs[0].shape[1:]
    if have != shape:
        raise ConfigError(f"{name} takes samples of {show_shape(shape)}, the data set gives {show_shape(have)}")
    if len(spec.class_names) != classes:
        raise ConfigError(f"{name} tells {classes} classes apart, the data set has {len(spec.class_names)}")


def random_batch(io: IOSpec, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Make inputs of any model: standard normal reals, small integers, from a seed.

    Free axes other than the first get length 1.
    """
    generator = np.random.default_rng(seed)
    batch: dict[str, np.ndarray] = {}
    for spec in io.inputs:
        shape = tuple((size if i == 0 else 1) if n is None else n for i, n in enumerate(spec.shape))
        if spec.dtype.startswith("float"):
            batch[spec.name] = generator.standard_normal(shape).astype(spec.dtype)
        elif spec.dtype == "bool":
            batch[spec.name] = generator.random(shape) < 0.5
        elif spec.dtype.startswith(("int", "uint")):
            batch[spec.name] = generator.integers(0, 2, shape).astype(spec.dtype)
        else:
            raise SpecMismatch(f"tensor {spec.name!r}: cannot make random {spec.dtype}")
    return batch
