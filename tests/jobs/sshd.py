"""A real SSH server that runs commands: ``python sshd.py FOLDER`` prints its port; FOLDER is the
home of all users.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import IO

import asyncssh

FOLDER = Path(sys.argv[1])
HOME = FOLDER / "home"


async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Carry out one command as sshd does: by the user's shell, in the home, after the start
    files had their say.
    """
    assert process.command is not None
    environment = {
        "HOME": str(HOME),
        "PATH": os.environ["PATH"],
        **{k: v for k, v in os.environ.items() if "MARK" in k},
    }
    with tempfile.TemporaryFile() as given:  # whoever does not read it does no harm
        given.write(await process.stdin.read())
        given.seek(0)
        await carry_out(process, given, environment)


async def carry_out(
    process: asyncssh.SSHServerProcess[bytes], given: IO[bytes], environment: dict[str, str]
) -> None:
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"echo 'Welcome to this machine'; {process.command}",
        cwd=HOME,
        env=environment,
        stdin=given,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    # Not process.redirect: what that has yet to write when the exit status is sent ends the whole
    # connection.
    out, errors = await child.communicate()
    process.stdout.write(out)
    process.stderr.write(errors)
    assert child.returncode is not None
    process.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


async def main() -> None:
    """Listen until somebody ends this process."""
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(FOLDER / "host")],
        authorized_client_keys=str(FOLDER / "user.pub"),
        process_factory=serve,
        encoding=None,
    )
    print(server.get_port(), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
