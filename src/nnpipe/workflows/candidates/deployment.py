"""Running a candidate on a target instead of on this machine; with a server started for it, if wanted."""

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

from nnpipe.core.deployment import RemoteOptions, ServerOptions
from nnpipe.core.errors import NNPipeError, TargetError
from nnpipe.core.registry import component_from
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol
from nnpipe.workflows.isolation.signals import stop_signals

if TYPE_CHECKING:
    from typing_extensions import Self

_SOON = 10.0  # seconds that a server has to end


@dataclass(frozen=True)
class Deployment:
    """Where a candidate runs.

    With ``serve`` a server is started on this machine for as long as the
    candidate is measured; otherwise one must be running at the target.

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
        """Return it as JSON can hold it."""
        return {"protocol": self.protocol.describe(), "remote": self.remote.to_json(), "serve": self.serve}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_json` gave."""
        protocol = component_from(data["protocol"], RuntimeProtocol)
        return cls(protocol, RemoteOptions.from_json(data["remote"]), data["serve"])


def check_reached(deployment: Deployment) -> None:
    """Greet the target's server, so that what is wrong with the line or the token is told before anything slow begins.

    A server that serves another client now is as good as one that is free: it may be free when it is needed.

    Raises
    ------
    ConfigError
        If the token cannot be read.
    TransportError
        If nobody answers.
    AuthenticationError
        If the token is not the server's.
    """
    if deployment.serve:
        return
    from nnpipe.protocols.client.connection import Connection
    from nnpipe.protocols.conversation.frame import ErrorCode
    from nnpipe.protocols.conversation.host import HostConversation

    conversation = HostConversation(token=deployment.remote.token())
    with contextlib.closing(Connection(deployment.protocol.connect(), conversation)) as connection:
        try:
            connection.greet()
        except TargetError as error:
            if error.code != ErrorCode.BUSY:
                raise


@contextlib.contextmanager
def deployed(deployment: Deployment, runtime: Runtime) -> Iterator[RuntimeProtocol]:
    """See to it that there is a server, and yield the protocol that leads to it.

    Raises
    ------
    NNPipeError
        If a server was to be started and cannot serve.
    """
    if not deployment.serve:
        yield deployment.protocol
        return
    request = {"protocol": deployment.protocol.describe(), "runtime": runtime.describe()}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.close()
            line = server.stdout.readline()
            if not line:
                raise NNPipeError(f"the server on this machine ended with status {server.wait()} before it could serve")
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


def _serve(request: dict[str, Any]) -> None:
    from nnpipe.protocols.server.serve import serve

    def tell(**what: Any) -> None:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    def ready(listener: Listener) -> None:
        # A port that the system chose is known only now.
        address = getattr(listener, "address", None)
        tell(reached={"port": address()[1]} if address and getattr(protocol, "port", None) == 0 else {})

    try:
        protocol = component_from(request["protocol"], RuntimeProtocol)
        runtime = component_from(request["runtime"], Runtime)
        runtime.check_installed()
        with stop_signals() as signals:
            serve(protocol, runtime, ServerOptions(), ready=ready, stopping=signals.came, wake=signals.wake)
    except NNPipeError as error:
        tell(error=str(error))


if __name__ == "__main__":
    _serve(json.loads(sys.stdin.readline()))
