"""Protocols: the connection between a host and a target, and the messages between them.

The public names are imported when they are first used, since a server needs only few of them.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.protocols.client.session import RemoteSession as RemoteSession
    from nnpipe.protocols.client.session import open_session as open_session
    from nnpipe.protocols.network import NetworkProtocol as NetworkProtocol
    from nnpipe.protocols.network import UnixProtocol as UnixProtocol
    from nnpipe.protocols.qemu import QemuTarget as QemuTarget
    from nnpipe.protocols.serial import SerialProtocol as SerialProtocol
    from nnpipe.protocols.serial import UDPProtocol as UDPProtocol
    from nnpipe.protocols.server.serve import serve as serve
    from nnpipe.protocols.ssh import SSHProtocol as SSHProtocol
    from nnpipe.protocols.tls import TLSProtocol as TLSProtocol

__getattr__ = lazy_getattr(
    __name__,
    {
        "client.session": ("RemoteSession", "open_session"),
        "network": ("NetworkProtocol", "UnixProtocol"),
        "qemu": ("QemuTarget",),
        "serial": ("SerialProtocol", "UDPProtocol"),
        "server.serve": ("serve",),
        "ssh": ("SSHProtocol",),
        "tls": ("TLSProtocol",),
    },
)
