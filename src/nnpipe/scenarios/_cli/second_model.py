"""The options of a second model that a command shows beside the first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.scenarios._cli.command import component_options, option_values
from nnpipe.workflows.candidates.model_files import known_wrapper, opened_file

SECOND = ("beside", "beside_options")
"""The destinations of the options."""


def add_second_model(parser: argparse.ArgumentParser) -> None:
    """Declare ``--beside`` and ``--beside-options``."""
    parser.add_argument(
        "--beside", metavar="FILE",
        help="a second model file, to show pictures side by side; it has the same options as MODEL, unless others are "
        "given",
    )  # fmt: skip
    parser.add_argument(
        "--beside-options", metavar="OPTIONS",
        help="the options of the second model instead, in quotes: \"--fit squeeze --scale 255\"; \" \" for none, if "
        "the description beside it tells everything",
    )  # fmt: skip


def second_classes(given: Sequence[str]) -> list[type[Component]]:
    """Return the wrapper class of a second model that has the first one's options; none for options of its own."""
    own = option_values(list(given), "--beside-options")
    return [] if own else [known_wrapper(file) for file in option_values(list(given), "--beside")]


def second_model(options: argparse.Namespace, prog: str) -> list[tuple[ModelWrapper, Path]]:
    """Return the second model, if there is one, with its file.

    Raises
    ------
    ConfigError
        If there is no such file, no wrapper opens it, or its options are not those of its wrapper.
    """
    if options.beside is None:
        if options.beside_options is not None:
            raise ConfigError("--beside-options are for a second model: name its file with --beside")
        return []
    given = options
    if options.beside_options is not None:
        given = component_options(options.beside_options, prog, known_wrapper(options.beside))
    return [cast("tuple[ModelWrapper, Path]", opened_file(options.beside, given))]
