"""Serve a runtime to hosts, one after another.

Each host sends its model and inputs and receives the outputs, within the limits
of the options.  Only this machine can connect, unless you give another address,
which also needs a token.  SIGTERM or Ctrl-C ends the server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol, ServerOptions
from nnpipe.protocols.server.serve import serve
from nnpipe.scenarios._cli.command import Role, execute, parse
from nnpipe.workflows.isolation.signals import stop_signals

ROLES = (
    Role("PROTOCOL", RuntimeProtocol, "the line: dotted path or name of a RuntimeProtocol"),
    Role("RUNTIME", Runtime, "what runs the models: dotted path or name of a Runtime"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe inference_server PROTOCOL RUNTIME ...``."""
    return execute(_run_server, argv, "inference_server")


def _add_options(parser: argparse.ArgumentParser) -> None:
    pass  # all come from the protocol, the runtime and ServerOptions


def _run_server(argv: Sequence[str] | None) -> None:
    parsed = parse(
        argv, "inference_server", __doc__ or "", ROLES, _add_options, fixed=(ServerOptions,)
    )
    protocol = cast(RuntimeProtocol, parsed.make("PROTOCOL"))
    runtime = cast(Runtime, parsed.make("RUNTIME"))
    options = ServerOptions.from_argparse(parsed.options)
    protocol.check_installed()
    runtime.check_installed()

    def report_ready(listener: Listener) -> None:
        where = getattr(listener, "name", type(protocol).__name__)
        print(f"{type(runtime).__name__} is served at {where}", flush=True)

    with stop_signals() as signals:
        serve(
            protocol,
            runtime,
            options,
            ready=report_ready,
            stopping=signals.has_signal,
            wake=signals.wake,
        )
    print("the server has stopped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
