"""Running a candidate on a target instead of this machine, with a server started for it if
requested.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import NNPipeError, TargetError
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Listener, RemoteOptions, RuntimeProtocol, ServerOptions
from nnpipe.workflows.isolation.signals import stop_signals

if TYPE_CHECKING:
    from typing_extensions import Self

_SOON = 10.0  # seconds to wait for a server to end


@dataclass(frozen=True)
class Deployment:
    """Where a candidate runs.

    With ``serve``, a server runs on this machine while the candidate is measured;
    otherwise a server must be running on the target.

    Examples
    --------
    >>> from nnpipe import RemoteOptions
    >>> from nnpipe.protocols import NetworkProtocol
    >>> Deployment(NetworkProtocol(host="board", port=12345), RemoteOptions(run_timeout=10.0)).serve
    False
    """

    protocol: RuntimeProtocol
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    serve: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the deployment as JSON can hold it."""
        return {
            "protocol": self.protocol.describe(),
            "remote": self.remote.to_json(),
            "serve": self.serve,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the deployment that :meth:`to_json` described."""
        protocol = create_component(data["protocol"], RuntimeProtocol)
        return cls(protocol, RemoteOptions.from_json(data["remote"]), data["serve"])


def check_reached(deployment: Deployment) -> None:
    """Connect to the target's server, so that a wrong address or token is reported before anything
    slow begins.

    A server that is busy with another client counts as reached: it may be free when it is needed.

    Raises
    ------
    ConfigError
        If the token cannot be read.
    TransportError
        If no server answers.
    AuthenticationError
        If the server refuses the token.
    """
    if deployment.serve:
        return
    from nnpipe.protocols.client.connection import Connection
    from nnpipe.protocols.conversation.frame import ErrorCode
    from nnpipe.protocols.conversation.host import HostConversation

    conversation = HostConversation(token=deployment.remote.read_token())
    with contextlib.closing(Connection(deployment.protocol.connect(), conversation)) as connection:
        try:
            connection.perform_handshake()
        except TargetError as error:
            if error.code != ErrorCode.BUSY:
                raise


@contextlib.contextmanager
def start_deployment(deployment: Deployment, runtime: Runtime) -> Iterator[RuntimeProtocol]:
    """Start a server if requested, and yield the protocol that connects to it.

    Raises
    ------
    NNPipeError
        If the server cannot be started.
    """
    if not deployment.serve:
        yield deployment.protocol
        return
    request = {"protocol": deployment.protocol.describe(), "runtime": runtime.describe()}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.close()
            line = server.stdout.readline()
            if not line:
                raise NNPipeError(
                    f"the server on this machine ended with status {server.wait()} before it could "
                    f"serve"
                )
            told = json.loads(line)
            if "error" in told:
                raise NNPipeError(f"the server on this machine cannot serve: {told['error']}")
            yield dataclasses.replace(deployment.protocol, **told["reached"])
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
            try:
                server.wait(_SOON)
            except subprocess.TimeoutExpired:
                server.kill()


def _run_server(request: dict[str, Any]) -> None:
    from nnpipe.protocols.server.serve import serve

    def tell(**what: Any) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    def report_ready(listener: Listener) -> None:
        # Only now is a port known that the system chose.
        address = getattr(listener, "address", None)
        tell(
            reached={"port": address()[1]}
            if address and getattr(protocol, "port", None) == 0
            else {}
        )

    try:
        protocol = create_component(request["protocol"], RuntimeProtocol)
        runtime = create_component(request["runtime"], Runtime)
        runtime.check_installed()
        with stop_signals() as signals:
            serve(
                protocol,
                runtime,
                ServerOptions(),
                ready=report_ready,
                stopping=signals.has_signal,
                wake=signals.wake,
            )
    except NNPipeError as error:
        tell(error=str(error))


if __name__ == "__main__":
    _run_server(json.loads(sys.stdin.readline()))
