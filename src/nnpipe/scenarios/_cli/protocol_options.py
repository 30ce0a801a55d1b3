"""The options that select the target on which a model runs, and the protocol to reach it."""

from __future__ import annotations

import argparse
from typing import cast

from nnpipe.core.arguments import arguments_of
from nnpipe.core.deployment import RemoteOptions
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.scenarios._cli.command import Parsed
from nnpipe.workflows.candidates.deployment import Deployment, check_reached

_OPTION = "--protocol-cls"
PROTOCOL = (_OPTION, RuntimeProtocol)
"""The option that names a protocol, for :func:`~nnpipe.scenarios._cli.command.parse`."""


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the protocol to a target."""
    parser.add_argument(
        _OPTION, metavar="PROTOCOL",
        help="run the model on a target: dotted path or name of the RuntimeProtocol that leads to its server",
    )  # fmt: skip


def deployment_of(parsed: Parsed, *, reach: bool = True) -> Deployment | None:
    """Return the deployment that a command line selects; ``None`` if the model runs on this machine.

    With ``reach``, the connection to the target is tested.

    Raises
    ------
    ConfigError
        If options of a target are given without a target, or its token cannot be read.
    NNPipeError
        If the target does not answer, or refuses the token.
    """
    remote = RemoteOptions.from_argparse(parsed.options)
    if not parsed.classes[_OPTION]:
        given = [a.flag for a in arguments_of(RemoteOptions) if getattr(remote, a.name) != a.default]
        if given:
            raise ConfigError(f"{', '.join(given)} is for targets: name the protocol to one with {_OPTION}")
        return None
    protocol = cast(RuntimeProtocol, parsed.make(_OPTION))
    protocol.check_installed()
    deployment = Deployment(protocol, remote)
    if reach:
        check_reached(deployment)
    return deployment
