"""Parse the address of a place for jobs."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_one_line
from nnpipe.jobs.local import HERE, LocalPlace
from nnpipe.jobs.place import Place
from nnpipe.jobs.ray import DASHBOARD, SCHEMES, RayCluster
from nnpipe.jobs.ssh import SCHEME, Ssh

RAY = "ray://"


def create_place(address: str, root: Path | None = None) -> Place:
    """Return the place with this address.

    Parameters
    ----------
    address
        ``here``, ``ssh:HOST``, ``ssh://USER@HOST:PORT`` or ``ray://HEAD:PORT``; ``ray+https://``
        where Ray's dashboard speaks HTTPS.
    root
        The folder in which folders of new jobs are made on this machine.

    Raises
    ------
    ConfigError
        If the address is of an unknown kind.
    """
    if address == HERE:
        return LocalPlace(root)
    if address.startswith("ssh:"):
        return Ssh.at(
            address if address.startswith(SCHEME) else f"{SCHEME}{address.removeprefix('ssh:')}"
        )
    if address.startswith(RAY):
        host = address.removeprefix(RAY).rstrip("/")
        port = "" if ":" in host.rpartition("]")[2] else f":{DASHBOARD}"
        return RayCluster.at(f"ray+http://{host}{port}")
    if address.startswith(SCHEMES):
        return RayCluster.at(address)
    raise ConfigError(
        f"{format_one_line(address, 80)}: expected here, ssh:HOST, ssh://USER@HOST:PORT or "
        f"ray://HEAD:{DASHBOARD}"
    )
