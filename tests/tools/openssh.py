"""OpenSSH's server on a free port of this machine, with a home folder of its own for whoever
logs in.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PRIVILEGES = Path("/run/sshd")


@dataclass(frozen=True)
class SshServer:
    """A running server.

    Attributes
    ----------
    address
        ``USER@127.0.0.1:PORT``.
    home
        The home folder of that user there.
    client
        The folder with the ``ssh`` that knows the server and has a key for it; it must come first
        in ``PATH``.
    """

    address: str
    home: Path
    client: Path


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """Run a server; skip the test where there is none, or no client."""
    ssh = shutil.which("ssh")
    if SERVER is None or ssh is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs OpenSSH: apt install openssh-server openssh-client")
    if os.geteuid() == 0:
        PRIVILEGES.mkdir(mode=0o755, exist_ok=True)  # Debian's service makes it otherwise
    home, client = folder / "home", folder / "bin"
    home.mkdir(parents=True)
    client.mkdir()
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nAuthorizedKeysFile "
        f"{folder / 'user.pub'}\n"
        f"PidFile none\nStrictModes no\nPasswordAuthentication no\nSetEnv HOME={home}\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "config").write_text(
        f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {folder / 'known'}\n  GlobalKnownHostsFile /dev/null\n  "
        f"StrictHostKeyChecking yes\n"
    )
    (client / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {folder / "config"} "$@"\n')
    (client / "ssh").chmod(0o755)
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [SERVER, "-D", "-e", "-f", folder / "sshd_config"], stdout=log, stderr=log
        )
    try:
        _await(port, server, folder / "log")
        yield SshServer(f"{getpass.getuser()}@127.0.0.1:{port}", home, client)
    finally:
        server.kill()
        server.wait()


def _await(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise AssertionError(f"sshd ended: {log.read_text()}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("sshd does not listen")
