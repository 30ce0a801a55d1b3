"""Parse the address of a place for jobs."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import one_line
from nnpipe.jobs.local import HERE, LocalPlace
from nnpipe.jobs.place import Place
from nnpipe.jobs.ray import SCHEMES, RayCluster
from nnpipe.jobs.ssh import SCHEME, Ssh


def place_at(address: str, root: Path | None = None) -> Place:
    """Return the place with this address.

    Parameters
    ----------
    address
        ``here``, ``ssh://USER@HOST:PORT`` or ``ray+http://HOST:PORT``.
    root
        The folder in which folders of new jobs are made on this machine.

    Raises
    ------
    ConfigError
        If the address is of an unknown kind.
    """
    if address == HERE:
        return LocalPlace(root)
    if address.startswith(SCHEME):
        return Ssh.at(address)
    if address.startswith(SCHEMES):
        return RayCluster.at(address)
    raise ConfigError(f"{one_line(address, 80)}: a job runs here, on ssh://USER@HOST or on ray+http://HOST:8265")
