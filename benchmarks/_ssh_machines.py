"""Machines that are reached by ssh: real clients and servers, each with a home of its own, on
this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _table import skip_without

_SERVER = """
import asyncio, os, sys
from pathlib import Path
import asyncssh

folder = Path(sys.argv[1])

async def serve(process):
    given = await process.stdin.read()
    environment = {**os.environ, "HOME": str(folder / "home")}
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", process.command, cwd=folder / "home", env=environment, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await child.communicate(given)
    process.stdout.write(out)
    process.stderr.write(errors)
    process.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)

async def main():
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[str(folder / "host")], authorized_client_keys=str(folder / "user.pub"),
        process_factory=serve, encoding=None,
    )
    print(server.get_port(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def ssh_machines(folder: Path, count: int) -> Iterator[list[str]]:
    """Yield the addresses of so many machines; meanwhile ``ssh`` in PATH knows them."""
    import asyncssh

    skip_without("ssh")
    client = shutil.which("ssh")
    (folder / "bin").mkdir(parents=True)
    user = asyncssh.generate_private_key("ssh-ed25519")
    user.write_private_key(str(folder / "user"))
    (folder / "user").chmod(0o600)
    known = []
    with ExitStack() as stack:
        addresses = []
        for number in range(count):
            machine = folder / f"machine{number}"
            (machine / "home").mkdir(parents=True)
            user.write_public_key(str(machine / "user.pub"))
            host = asyncssh.generate_private_key("ssh-ed25519")
            host.write_private_key(str(machine / "host"))
            server = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _SERVER, str(machine)],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(_end, server)
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            known.append(f"[127.0.0.1]:{port} {host.export_public_key().decode().strip()}\n")
            addresses.append(f"ssh://tester@127.0.0.1:{port}")
        (folder / "known").write_text("".join(known))
        (folder / "config").write_text(
            f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent "
            f"none\n"
            f"  UserKnownHostsFile {folder / 'known'}\n  GlobalKnownHostsFile /dev/null\n  "
            f"StrictHostKeyChecking yes\n"
        )
        # The user's own configuration would say such things; ssh finds that by the password file,
        # not by HOME.
        (folder / "bin" / "ssh").write_text(
            f'#!/bin/sh\nexec {client} -F {folder / "config"} "$@"\n'
        )
        (folder / "bin" / "ssh").chmod(0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{path}"
        stack.callback(os.environ.__setitem__, "PATH", path)
        yield addresses


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()
