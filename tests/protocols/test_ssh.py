"""SSH as a line to a target, with OpenSSH's own client and server."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.openssh import SshServer, ssh_server

from nnpipe.core.errors import ConfigError, TransportError
from nnpipe.core.runtime_protocol import Listener, RuntimeProtocol
from nnpipe.protocols.channels.stream_socket import SocketListener
from nnpipe.protocols.ssh import SSHProtocol
from nnpipe.testing.protocol import RuntimeProtocolContract
from nnpipe.testing.session import assert_one_line


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with (
        ssh_server(tmp_path_factory.mktemp("ssh")) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", str(server.client), prepend=":")
        yield server


@pytest.mark.slow
class TestSSHProtocol(RuntimeProtocolContract):
    @pytest.fixture
    def protocol(self, machine: SshServer) -> SSHProtocol:
        return SSHProtocol(
            host=machine.address, port=0, python=sys.executable, timeout=self.timeout
        )

    @pytest.fixture
    def serving(self, protocol: SSHProtocol) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        with protocol.listen() as listener:
            assert isinstance(listener, SocketListener)
            yield listener, dataclasses.replace(protocol, port=listener.address()[1])


@pytest.mark.slow
def test_what_start_files_of_the_shell_print_is_passed_over(machine: SshServer) -> None:
    protocol = SSHProtocol(
        host=machine.address, python=f"echo Welcome; {sys.executable}", timeout=20.0
    )
    # it is one word, not a piece of a script
    with pytest.raises(TransportError, match="No such file"):
        protocol.connect()
    noisy = machine.home / "python"
    noisy.write_text(f'#!/bin/sh\necho Welcome to this machine\nexec {sys.executable} "$@"\n')
    noisy.chmod(0o755)
    with dataclasses.replace(protocol, python=str(noisy), port=0).listen() as listener:
        assert isinstance(listener, SocketListener)
        protocol = dataclasses.replace(protocol, python=str(noisy), port=listener.address()[1])
        with protocol.connect() as host, listener.accept(10.0) as target:  # type: ignore[union-attr]
            target.send([b"hello"])
            buffer = bytearray(5)
            assert host.receive_into(memoryview(buffer)) == 5
            assert buffer == b"hello"


def test_a_machine_without_ssh_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="install OpenSSH's client") as caught:
        SSHProtocol(host="box").connect()
    assert_one_line(caught.value)


def test_only_its_own_machine_can_reach_its_listener() -> None:
    protocol = SSHProtocol(host="box", port=0)
    assert not protocol.is_exposed()
    with protocol.listen() as listener:
        assert listener.address()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["", "-oProxyCommand=x", "me@-x", "a b", "$(x)", "box:99999", "ssh://box"]
)
def test_what_is_no_machine_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST, USER@HOST or USER@HOST:PORT"):
        SSHProtocol(host=host)
