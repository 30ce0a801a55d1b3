"""A live model: a network that is built or loaded, trained, run and saved until it is closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import resolve_shapes
from nnpipe.core.progress import Progress, silent
from nnpipe.core.tensors import Batch, IOSpec

if TYPE_CHECKING:
    from nnpipe.core.artifact import Artifact
    from nnpipe.core.dataset import Dataset
    from nnpipe.core.graph import Graph, Profile, Selector
    from nnpipe.core.model import ModelWrapper, Samples
    from nnpipe.core.session import InferenceSession
    from nnpipe.core.training import TrainingHistory, TrainingOptions


class LiveModel(Closing):
    """A wrapper's network while it is open; :meth:`ModelWrapper.open` makes it.

    The wrapper holds frozen arguments only.  Everything that changes, above all the weights, is
    held here. Each method calls the wrapper's method of the same name.  Only one thread may use a
    model at a time.

    Attributes
    ----------
    wrapper
        The wrapper that opened the model.
    is_built
        Whether the network has been built; it is built on first access.

    Examples
    --------
    >>> from nnpipe import ModelWrapper, find
    >>> wrapper = find("PyTorchDigitsCNN", ModelWrapper)()
    >>> with wrapper.open() as model:
    ...     model.is_built, model.get_inference_graph().inputs, model.is_built
    (False, ('image',), True)
    """

    def __init__(self, wrapper: ModelWrapper) -> None:
        self.wrapper = wrapper
        self.is_built = False
        self._native: Any = None
        self._closed = False

    @property
    def native(self) -> Any:
        """The framework's model object; equal arguments of the wrapper give equal initial
        weights.
        """
        self._check_open()
        if not self.is_built:
            self.native = self.wrapper.fresh()
        return self._native

    @native.setter
    def native(self, network: Any) -> None:
        self._check_open()
        self._native, self.is_built = network, True

    @property
    def io(self) -> IOSpec:
        """Inputs and outputs of the model itself, as the wrapper declares them."""
        return self.wrapper.io

    def close(self) -> None:
        """Release the network; closing the model twice does no harm."""
        self._native, self.is_built, self._closed = None, False, True

    def _check_open(self) -> None:
        if self._closed:
            raise NNPipeError(
                f"the model of {type(self.wrapper).__name__} is closed: open it again"
            )

    # -- weights on the disk --------------------------------------------------------------------

    def load(self, path: str | Path) -> None:
        """Read weights from a file.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it.  The
            model is then unchanged.
        """
        self._check_open()
        self.wrapper.load(self, path)

    def save(self, path: str | Path) -> Artifact:
        """Write the weights to a file atomically, and return its artifact."""
        self._check_open()
        return self.wrapper.save(self, path)

    def export(self, path: str | Path, format: str) -> Artifact:
        """Write the model with its structure, in one of the wrapper's ``exports`` formats, and
        return the artifact.
        """
        self._check_open()
        return self.wrapper.export(self, path, format)

    # -- training and running -------------------------------------------------------------------

    def start(self, options: TrainingOptions) -> None:
        """Make the initial weights of a training, if there are no weights yet."""
        self._check_open()
        self.wrapper.start(self, options)

    def train(
        self, dataset: Dataset, options: TrainingOptions, progress: Progress = silent
    ) -> TrainingHistory:
        """Prepare the data set, train on its training split, and evaluate on its validation
        split.
        """
        self._check_open()
        return self.wrapper.train(self, dataset, options, progress)

    def session(self) -> InferenceSession:
        """Return a session that runs the model, with its present weights, in its own framework."""
        self._check_open()
        return self.wrapper.session(self)

    # -- analysis: the same methods for every framework -----------------------------------------

    def get_training_graph(self) -> Graph:
        """Return the graph of a training step."""
        self._check_open()
        return self.wrapper.get_training_graph(self)

    def get_inference_graph(self) -> Graph:
        """Return the graph of an inference."""
        self._check_open()
        return self.wrapper.get_inference_graph(self)

    def get_sized_graph(self, shapes: Mapping[str, Sequence[int]] = MappingProxyType({})) -> Graph:
        """Return the graph of an inference with inputs of given shapes, in which the length of
        every axis is known.

        Parameters
        ----------
        shapes
            The shape of inputs by name; free axes of the others get the length 1.

        Raises
        ------
        ConfigError
            If an input does not exist, or a shape does not fit it.
        """
        self._check_open()
        return self.wrapper.get_sized_graph(self, resolve_shapes(self.wrapper.io, shapes))

    def get_weights(self, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Return copies of all weights, or of those named, by name.

        Raises
        ------
        ConfigError
            If a name is unknown.
        """
        self._check_open()
        return self.wrapper.get_weights(self, keys)

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the given weights, and keep the others.

        All names and shapes are checked before the first weight changes.

        Raises
        ------
        ConfigError
            If a name is unknown.
        SpecMismatch
            If a shape is wrong.
        """
        self._check_open()
        self.wrapper.set_weights(self, weights)

    def run_training(
        self, n_steps: int = 1, samples: Samples | None = None
    ) -> list[tuple[float, float]]:
        """Train for ``n_steps`` and return ``(loss, score)`` of each; by default on random data
        from a fixed seed.
        """
        self._check_open()
        return self.wrapper.run_training(self, n_steps, samples)

    def run_inference(
        self, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run ``n_steps`` batches and return the outputs of each; by default on random data from
        a fixed seed.
        """
        self._check_open()
        return self.wrapper.run_inference(self, n_steps, samples)

    def profile_training(self, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of a training step."""
        self._check_open()
        return self.wrapper.profile_training(self, n_steps, samples)

    def profile_inference(self, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Measure the time of each operation of an inference."""
        self._check_open()
        return self.wrapper.profile_inference(self, n_steps, samples)

    def get_intermediates(
        self, selector: Selector, inputs: Batch | None = None, given: Batch | None = None
    ) -> dict[str, np.ndarray]:
        """Run one batch and return the values of the selected tensors, by name.

        Parameters
        ----------
        selector
            Selects the tensors.
        inputs
            The model's inputs; random ones by default.
        given
            Values by tensor.  Operations that read such a tensor use the given value, not the
            computed one, but the computed value is returned.  If the values of another model are
            given for every tensor, the result shows what each operation computes from the other
            model's inputs of that operation.

        Raises
        ------
        ConfigError
            If no tensor is selected.
        """
        self._check_open()
        return self.wrapper.get_intermediates(self, selector, inputs, given)
