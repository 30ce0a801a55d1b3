"""A throttle for clients that try one token after another."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict

_FREE = 2  # wrong proofs without a delay, since a user may have named the wrong file
_SHORTEST, _LONGEST = 0.25, 2.0  # seconds between two proofs; doubled with each wrong one
_FORGET = 60.0  # seconds without a wrong proof after which an address has no delay any more
_MOST = 1024  # addresses that are remembered


class TokenThrottle:
    """Determines how long the next proof from an address must wait to be checked.

    The delay belongs to the address, not to the connection, so the proofs of
    many parallel connections from one address are checked one by one.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = (
            OrderedDict()
        )  # number of failures, and time of the last one

    def wait(self, origin: str) -> float:
        """Return the seconds until a proof from this address may be checked."""
        count, last = self._failures.get(_network(origin), (0, 0.0))
        since = time.monotonic() - last
        if count <= _FREE or since > _FORGET:
            return 0.0
        return max(min(_SHORTEST * float(2 ** min(count - _FREE - 1, 16)), _LONGEST) - since, 0.0)

    def failed(self, origin: str) -> None:
        """Record that a proof from this address was wrong."""
        key, now = _network(origin), time.monotonic()
        count, last = self._failures.pop(key, (0, now))
        self._failures[key] = (count + 1 if now - last <= _FORGET else 1, now)
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)


def _network(origin: str) -> str:
    """Return the unit that one user controls: an IPv4 address, or a /64 network of IPv6."""
    host = origin.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a client on this machine
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
