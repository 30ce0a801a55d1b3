"""The interface of output decoders: how a model's raw outputs become the predictions that a task judges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.arguments import arguments_of
from nnpipe.core.component import Component
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.meaning import Meaning
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec


class OutputDecoder(Component):
    """Turns a model's raw outputs into predictions.

    Networks that give no finished predictions need code after them: a detector's cells become boxes, a recogniser's
    frames become text.  The decoder is part of what the outputs mean, so it is stored with the model in
    :class:`~nnpipe.core.meaning.Meaning`, by its class and arguments, and travels with every compiled file.  It is
    applied by the wrapper's ``postprocess``.  Files are not trusted: only classes of nnpipe and its plugins are found
    by what a file says.

    Attributes
    ----------
    tasks
        The names of the tasks that judge its predictions; empty for any.

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

    @abstractmethod
    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
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

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check, before anything is run, that a model's outputs can be decoded for a data set.

        Raises
        ------
        ConfigError
            If they cannot; the message says why.
        """

    def words(self) -> str:
        """Return a short description: the name, and the arguments that differ from the defaults."""
        changed = [each.name for each in arguments_of(type(self)) if getattr(self, each.name) != each.default]
        told = ", ".join(f"{name} {getattr(self, name)}" for name in changed)
        return type(self).__name__ + (f" ({told})" if told else "")


def decoder_of(meaning: Meaning | None) -> OutputDecoder | None:
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
    from nnpipe.core.registry import registered

    return registered(meaning.decoder["class"], OutputDecoder).from_json(meaning.decoder["arguments"])
