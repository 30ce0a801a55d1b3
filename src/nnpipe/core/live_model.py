"""A live model: a network that is built or loaded, trained, run and saved until it is closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
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
    """A wrapper's network from its opening until it is closed; :meth:`ModelWrapper.open` makes it.

    The wrapper stays frozen arguments: whatever changes, the weights first of all, is held here and nowhere else.
    The methods are carried out by the wrapper's methods of the same names.  One thread uses a model at a time.

    Attributes
    ----------
    wrapper
        What the network was opened from.
    is_built
        Whether there is a network yet; it is built when first asked for.

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
        """The framework's own model object; equal arguments of the wrapper give equal fresh weights."""
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
        """Inputs and outputs of the model itself, as the wrapper has them."""
        return self.wrapper.io

    def close(self) -> None:
        """Let the network go; closing twice does no harm."""
        self._native, self.is_built, self._closed = None, False, True

    def _check_open(self) -> None:
        if self._closed:
            raise NNPipeError(f"the model of {type(self.wrapper).__name__} is closed: open it again")

    # -- weights on the disk --------------------------------------------------------------------

    def load(self, path: str | Path) -> None:
        """Read weights.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or belongs to another model; the message names it, and the model is as
            before.
        """
        self._check_open()
        self.wrapper.load(self, path)

    def save(self, path: str | Path) -> Artifact:
        """Write the weights, whole or not at all."""
        self._check_open()
        return self.wrapper.save(self, path)

    def export(self, path: str | Path, format: str) -> Artifact:
        """Write the model with its structure in one of the formats of the wrapper's ``exports``."""
        self._check_open()
        return self.wrapper.export(self, path, format)

    # -- training and running -------------------------------------------------------------------

    def start(self, options: TrainingOptions) -> None:
        """Make the weights that a training starts from, if there are none yet."""
        self._check_open()
        self.wrapper.start(self, options)

    def train(self, dataset: Dataset, options: TrainingOptions, progress: Progress = silent) -> TrainingHistory:
        """Fit the weights to the training split and watch the validation split; prepares the data set first."""
        self._check_open()
        return self.wrapper.train(self, dataset, options, progress)

    def session(self) -> InferenceSession:
        """Run the model in its own framework, as it is now."""
        self._check_open()
        return self.wrapper.session(self)

    # -- analysis: the same nine questions to every framework -----------------------------------

    def get_training_graph(self) -> Graph:
        """Return the graph of a training step."""
        self._check_open()
        return self.wrapper.get_training_graph(self)

    def get_inference_graph(self) -> Graph:
        """Return the graph of an inference."""
        self._check_open()
        return self.wrapper.get_inference_graph(self)

    def get_weights(self, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Copy weights by name; all of them, or those named (an unknown name is a :class:`ConfigError`)."""
        self._check_open()
        return self.wrapper.get_weights(self, keys)

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
        self._check_open()
        self.wrapper.set_weights(self, weights)

    def run_training(self, n_steps: int = 1, samples: Samples | None = None) -> list[tuple[float, float]]:
        """Train for some steps and give ``(loss, score)`` of each; on random data from a fixed seed by default."""
        self._check_open()
        return self.wrapper.run_training(self, n_steps, samples)

    def run_inference(self, n_steps: int = 1, samples: Samples | None = None) -> list[dict[str, np.ndarray]]:
        """Run some batches and give the outputs of each; on random data from a fixed seed by default."""
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
        """Run one batch and give the values of the chosen tensors, by name.

        Parameters
        ----------
        selector
            Which tensors.
        inputs
            Of the model; random ones by default.
        given
            Values, by tensor, with which operations go on instead of with what was computed.  What
            is returned is what was computed: with another model's values given for every tensor,
            that is what each operation makes of the other model's inputs to it.

        Raises
        ------
        ConfigError
            If nothing is chosen.
        """
        self._check_open()
        return self.wrapper.get_intermediates(self, selector, inputs, given)
