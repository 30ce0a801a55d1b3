"""The decoder of a model from a file, chosen by options."""

from __future__ import annotations

from collections.abc import Sequence

from nnpipe.core.argument_words import arguments_in
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.registry import find


def chosen_decoder(known: OutputDecoder | None, name: str | None, options: Sequence[str]) -> OutputDecoder | None:
    """Return the decoder with this name, or the known one, with the arguments that options state.

    Parameters
    ----------
    known
        The decoder in the model's description, whose arguments are kept unless options change them.
    name
        The name of a class; ``"none"`` for no decoder; ``None`` for the known one.
    options
        Words such as ``score_threshold=0.25``.

    Raises
    ------
    ComponentNotFound
        If there is no such class.
    ConfigError
        If an option is unknown or malformed, or there are options and no decoder.
    """
    cls = find(name, OutputDecoder) if name not in (None, "none") else None if known is None else type(known)
    if name == "none" or cls is None:
        if options:
            raise ConfigError("--decoder-options are for a decoder: name one with --decoder")
        return None
    kept = known.to_json() if known is not None and type(known) is cls else {}
    return cls.from_json({**kept, **arguments_in(cls, options)})


def check_task(model: str, decoder: OutputDecoder, spec: DatasetSpec) -> None:
    """Raise :class:`ConfigError` if a decoder's predictions are for other tasks than that of a data set."""
    if decoder.tasks and spec.task not in decoder.tasks:
        raise ConfigError(
            f"{model} is decoded by {type(decoder).__name__} for {' or '.join(decoder.tasks)}, and the data set is "
            f"for {spec.task}"
        )
