"""The model that a command shows: a file, weights of a class, or a folder with a model that
generates text.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers import TextGenerator
from nnpipe.scenarios._cli.command import ParsedCommand, parse_component_options, parse_option_early
from nnpipe.workflows.candidates.model_files import (
    create_file_wrapper,
    find_file_wrapper,
    find_generator_wrapper,
    require_wrapper,
    set_model_path,
)


def find_wrapper_for_file(token: str) -> type[Component] | None:
    """Return the wrapper class for a file or folder that is named instead of a class; ``None``
    if it is neither.
    """
    return find_generator_wrapper(Path(token)) or find_file_wrapper(token)


def create_first_model(parsed: ParsedCommand) -> Any:
    """Return the model of the role MODEL with its file, or alone if it generates text, from its
    folder.

    Raises
    ------
    ConfigError
        If its file or folder is missing.
    """
    options = parsed.options
    if find_generator_wrapper(Path(options.model)) is not None:
        options.model_folder = Path(options.model)
    if issubclass(parsed.classes["MODEL"][0], TextGenerator):
        if options.model_folder is None:
            raise ConfigError(
                f"--model-folder is missing: the folder with the model of {options.model}"
            )
        return parsed.make("MODEL")
    set_model_path(
        options,
        "MODEL",
        f"the file with the weights of {options.model}, or a compiled one",
        always=True,
    )
    return parsed.make("MODEL"), options.model_path


SECOND = ("beside", "beside_options")
"""The destinations of the options."""


def add_second_model(parser: argparse.ArgumentParser) -> None:
    """Declare ``--beside`` and ``--beside-options``."""
    parser.add_argument(
        "--beside",
        metavar="FILE",
        help="a second model file, to show pictures side by side; it has the same options as "
        "MODEL, unless others are given",
    )
    parser.add_argument(
        "--beside-options",
        metavar="OPTIONS",
        help='the options of the second model instead, in quotes: "--fit squeeze --scale 255"; " '
        '" for none, if '
        "the description beside it tells everything",
    )


def find_second_classes(given: Sequence[str]) -> list[type[Component]]:
    """Return the wrapper class of a second model that has the first one's options; none for
    options of its own.
    """
    own = parse_option_early(list(given), "--beside-options")
    return (
        []
        if own
        else [require_wrapper(file) for file in parse_option_early(list(given), "--beside")]
    )


def create_second_model(options: argparse.Namespace, prog: str) -> list[tuple[ModelWrapper, Path]]:
    """Return the second model, if there is one, with its file.

    Raises
    ------
    ConfigError
        If there is no such file, no wrapper opens it, or its options are not those of its wrapper.
    """
    if options.beside is None:
        if options.beside_options is not None:
            raise ConfigError(
                "--beside-options are for a second model: name its file with --beside"
            )
        return []
    given = options
    if options.beside_options is not None:
        given = parse_component_options(
            options.beside_options, prog, require_wrapper(options.beside)
        )
    return [cast("tuple[ModelWrapper, Path]", create_file_wrapper(options.beside, given))]
