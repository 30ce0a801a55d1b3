"""The interface of output decoders: how a model's raw outputs become the predictions that a task
judges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import list_arguments
from nnpipe.core.component import Component
from nnpipe.core.evaluation import find_nonfinite_samples
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.quantization import adapt
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec

INPUT = "input:"
"""Before the names of inputs that a decoder takes beside the outputs."""


class OutputDecoder(Component):
    """Turns a model's raw outputs into predictions.

    Networks that give no finished predictions need code after them: a detector's cells become
    boxes, a recogniser's frames become text.  The decoder is part of what the outputs mean, so it
    is stored with the model in :class:`~nnpipe.core.model_metadata.ModelMetadata`, by its class and
    arguments, and travels with every compiled file.  It is applied by the wrapper's
    ``postprocess``.  Files are not trusted: only classes of nnpipe and its plugins are found by
    what a file says.

    Attributes
    ----------
    tasks
        The names of the tasks that judge its predictions; empty for any.
    takes_inputs
        Whether it also needs what the model was given, as the error of a reconstruction does.  The
        inputs are then among the outputs, with :data:`INPUT` before their names.

    Examples
    --------
    >>> import numpy as np
    >>> class Logarithms(OutputDecoder):
    ...     'Models that give logarithms.'
    ...     tasks = ("regression",)
    ...     def decode(self, outputs, io, inputs=()):
    ...         return {name: np.exp(values) for name, values in outputs.items()}
    >>> Logarithms().decode({"value": np.zeros(2)}, IOSpec((), ()))["value"]
    array([1., 1.])
    """

    tasks: ClassVar[tuple[str, ...]] = ()
    takes_inputs: ClassVar[bool] = False

    @abstractmethod
    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return the predictions of a batch.

        Parameters
        ----------
        outputs
            The model's outputs by name, as real numbers; ``(n, ...)``.
        io
            The inputs and outputs of the model.
        inputs
            How samples were prepared for the inputs, as far as it is known.

        Returns
        -------
        dict
            Arrays by name, as the task expects them; ``(n, ...)``.

        Raises
        ------
        SpecMismatch
            If the outputs are not those of such a model; the message says what they should be.
        """

    def without_answer(self, outputs: Batch, samples: int) -> npt.NDArray[np.bool_]:
        """Return for which samples raw outputs are no answer, ``(samples,)``: by default those that
        are not finite.

        A decoder that looks at some of the numbers only keeps NaN and infinity of these in its
        predictions, and returns false for all samples.
        """
        return find_nonfinite_samples(outputs, samples)

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check, before anything is run, that a model's outputs can be decoded for a data set.

        Raises
        ------
        ConfigError
            If they cannot; the message says why.
        """

    def format_description(self) -> str:
        """Return a short description: the name, and the arguments that differ from the defaults."""
        changed = [
            each.name
            for each in list_arguments(type(self))
            if getattr(self, each.name) != each.default
        ]
        told = ", ".join(f"{name} {getattr(self, name)}" for name in changed)
        return type(self).__name__ + (f" ({told})" if told else "")


def with_inputs(
    decoder: OutputDecoder | None, outputs: Batch, inputs: Batch, io: IOSpec, session_io: IOSpec
) -> Mapping[str, np.ndarray]:
    """Return outputs with the inputs that a decoder takes beside them, as the model stores these.

    Parameters
    ----------
    decoder
        The decoder, if there is one.
    outputs
        The model's outputs.
    inputs
        What the session was given.
    io, session_io
        The tensors of the model, and those of the session, which may store them otherwise.
    """
    if decoder is None or not decoder.takes_inputs:
        return outputs
    given = adapt(inputs, session_io.inputs, io.inputs)
    return {**outputs, **{INPUT + name: array for name, array in given.items()}}


def get_decoder(meaning: ModelMetadata | None) -> OutputDecoder | None:
    """Return the decoder that a model's meaning states; ``None`` without one.

    Raises
    ------
    ComponentNotFound
        If the class is neither of nnpipe nor of an installed plugin.
    ConfigError
        If it does not accept its arguments.
    """
    if meaning is None or meaning.decoder is None:
        return None
    from nnpipe.core.registry import find_installed

    return find_installed(meaning.decoder["class"], OutputDecoder).from_json(
        meaning.decoder["arguments"]
    )
