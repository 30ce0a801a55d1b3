"""The model that a command shows: a file, weights of a class, or a folder with a model that generates text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.modelwrappers import TextGenerator
from nnpipe.scenarios._cli.command import Parsed
from nnpipe.workflows.candidates.model_files import generator_of_folder, settle_model_path, wrapper_of_file


def wrapper_of_model(token: str) -> type[Component] | None:
    """Return the wrapper class for a file or folder that is named instead of a class; ``None`` if it is neither."""
    return generator_of_folder(Path(token)) or wrapper_of_file(token)


def first_model(parsed: Parsed) -> Any:
    """Return the model of the role MODEL with its file, or alone if it generates text, from its folder.

    Raises
    ------
    ConfigError
        If its file or folder is missing.
    """
    options = parsed.options
    if generator_of_folder(Path(options.model)) is not None:
        options.model_folder = Path(options.model)
    if issubclass(parsed.classes["MODEL"][0], TextGenerator):
        if options.model_folder is None:
            raise ConfigError(f"--model-folder is missing: the folder with the model of {options.model}")
        return parsed.make("MODEL")
    settle_model_path(options, "MODEL", f"the file with the weights of {options.model}, or a compiled one", always=True)
    return parsed.make("MODEL"), options.model_path
