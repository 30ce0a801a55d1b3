"""The admission of new clients: handshakes with several clients at a time, none of which is trusted
yet.

A client that sends nothing, or garbage, needs a descriptor and a few kilobytes
until its time limit.  When too many wait, the one that has waited longest is
disconnected.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import selectors
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nnpipe.core.errors import AuthenticationError, NNPipeError, ProtocolError, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener
from nnpipe.protocols.channels.stream_socket import LineListener, PollableChannel
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import ErrorCode, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import ConversationState
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.worker import create_failure, perform_handshake

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
        count, last = self._failures.get(_get_network(origin), (0, 0.0))
        since = time.monotonic() - last
        if count <= _FREE or since > _FORGET:
            return 0.0
        return max(min(_SHORTEST * float(2 ** min(count - _FREE - 1, 16)), _LONGEST) - since, 0.0)

    def record_failure(self, origin: str) -> None:
        """Record that a proof from this address was wrong."""
        key, now = _get_network(origin), time.monotonic()
        count, last = self._failures.pop(key, (0, now))
        self._failures[key] = (count + 1 if now - last <= _FORGET else 1, now)
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)


def _get_network(origin: str) -> str:
    """Return the unit that one user controls: an IPv4 address, or a /64 network of IPv6."""
    host = origin.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a client on this machine
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host


_MOST_GUESTS = 64
log = logging.getLogger("nnpipe")


@dataclass
class PendingClient:
    """A client that has connected but has not completed the handshake."""

    channel: Channel
    conversation: TargetConversation
    deadline: float = 0.0

    @property
    def name(self) -> str:
        """The client's name, for messages."""
        return self.channel.name if isinstance(self.channel, PollableChannel) else "a client"

    def has_left(self) -> bool:
        """Return whether the client has closed the connection."""
        return isinstance(self.channel, PollableChannel) and self.channel.is_hung_up()


class Admission:
    """Accepts clients and performs the handshake with them.

    Parameters
    ----------
    listener
        The listener that accepts them; the caller closes it.
    limits, token
        The limits and the token of the conversations.
    patience
        The time limit of the handshake in seconds.

    Attributes
    ----------
    serving_since
        Since when a client is served, on the monotonic clock, for those who are refused meanwhile;
        ``None`` if none is.
    """

    def __init__(
        self, listener: Listener, limits: Limits, token: bytes | None, patience: float
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._token = token
        self._patience = patience
        self._guests: dict[int, PendingClient] = {}
        self._greeted: list[PendingClient] = []
        # clients whose proof must wait to be checked
        self._held: list[tuple[PendingClient, Message]] = []
        self._throttle = TokenThrottle()
        self.serving_since: float | None = None
        self._selector: selectors.BaseSelector | None = None
        if isinstance(listener, LineListener):
            self._selector = selectors.DefaultSelector()
            self._selector.register(listener.fileno(), selectors.EVENT_READ)

    def watch(self, descriptor: int) -> None:
        """End :meth:`step` early when this descriptor becomes readable."""
        if self._selector is not None:
            self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching this descriptor."""
        if self._selector is not None:
            self._selector.unregister(descriptor)

    def step(self, timeout: float, busy: Callable[[], bool]) -> PendingClient | None:
        """Handle events for a while, and return a client that has completed the handshake, or None.

        Parameters
        ----------
        timeout
            The longest time to wait for an event, in seconds.
        busy
            Called for each HELLO; returns whether a client is being served, in which case the new
            one is refused.
        """
        if self._selector is None:
            return self._accept_next(timeout, busy())
        now = time.monotonic()
        waits = [guest.deadline - now for guest in self._guests.values()]
        waits += [self._throttle.wait(guest.name) for guest, _ in self._held]
        events = self._selector.select(0 if self._greeted else max(min([timeout, *waits]), 0))
        self._check_postponed_proofs()
        for key, _ in events:
            guest = self._guests.get(key.fd)
            if guest is not None:
                self._handle_client(
                    guest, lambda: not all(other.has_left() for other in self._greeted) or busy()
                )
            elif key.fd == self._listener.fileno():  # type: ignore[attr-defined]
                self._accept_client()
        self._send_away_late()
        return self._greeted.pop(0) if self._greeted else None

    def _accept_next(self, timeout: float, busy: bool) -> PendingClient | None:
        if busy:
            time.sleep(timeout)
            return None
        channel = self._listener.accept(timeout)
        if channel is None:
            return None
        guest = PendingClient(channel, TargetConversation(self._limits, self._token))
        try:
            perform_handshake(channel, guest.conversation, self._patience)
        except NNPipeError as error:
            channel.close()
            log.info("%s was not let in: %s", guest.name, error)
            return None
        return guest

    def _accept_client(self) -> None:
        try:
            channel = self._listener.accept(0)
        except TransportError as error:
            # Out of descriptors: disconnect the client that has waited longest.
            log.warning("%s", error)
            self._drop_oldest()
            return
        if channel is None:
            return
        assert isinstance(channel, PollableChannel)
        if len(self._guests) >= _MOST_GUESTS:
            self._drop_oldest()
        guest = PendingClient(
            channel,
            TargetConversation(self._limits, self._token),
            time.monotonic() + self._patience,
        )
        self._guests[channel.fileno()] = guest
        assert self._selector is not None
        self._selector.register(channel.fileno(), selectors.EVENT_READ)

    def _handle_client(self, guest: PendingClient, busy: Callable[[], bool]) -> None:
        conversation, channel = guest.conversation, guest.channel
        assert isinstance(channel, PollableChannel)
        with self._disconnect_on_error(guest):
            while True:
                message = conversation.next_message()
                if message is None:
                    count = channel.receive_now(conversation.wanted())
                    if count is None:
                        return
                    if not count:
                        raise TransportError("it left")
                    conversation.received(count)
                    continue
                if message.kind is FrameKind.HELLO and busy():
                    self._send_away(guest, self._build_busy_error())
                    return
                if message.kind is FrameKind.AUTH and self._throttle.wait(guest.name):
                    self._postpone_proof(guest, message)
                    return
                self._answer_handshake(guest, message)
                if conversation.state is ConversationState.EMPTY:
                    return

    @contextlib.contextmanager
    def _disconnect_on_error(self, guest: PendingClient) -> Iterator[None]:
        """Disconnect a client if an error occurs in the block."""
        try:
            yield
        except ProtocolError as error:
            if isinstance(error, AuthenticationError):
                self._throttle.record_failure(guest.name)
            log.info("%s was not let in: %s", guest.name, error)
            self._send_away(guest, create_failure(error))
        except TransportError:
            self._send_away(guest, None)

    def _answer_handshake(self, guest: PendingClient, message: Message) -> None:
        assert isinstance(guest.channel, PollableChannel)
        guest.channel.send_now(guest.conversation.answer_handshake(message))
        if guest.conversation.state is ConversationState.EMPTY:
            self._remove_client(guest)
            self._greeted.append(guest)

    def _postpone_proof(self, guest: PendingClient, message: Message) -> None:
        """Let a client wait until its proof is checked; it is not polled meanwhile."""
        guest.deadline = math.inf
        assert isinstance(guest.channel, PollableChannel)
        assert self._selector is not None
        self._selector.unregister(guest.channel.fileno())
        self._held.append((guest, message))

    def _check_postponed_proofs(self) -> None:
        """Check the proofs that have waited long enough, those that have waited longest first."""
        for guest, message in self._held[:]:
            if not self._throttle.wait(guest.name):
                self._held.remove((guest, message))
                with self._disconnect_on_error(guest):
                    self._answer_handshake(guest, message)

    def refuse(self, guest: PendingClient) -> None:
        """Refuse a client that has completed the handshake, because another one is being served."""
        self._send_away(guest, self._build_busy_error())

    def _build_busy_error(self) -> ErrorPayload:
        """Return why a client is refused; who is being served does not concern it, but for how
        long may help it.
        """
        since = self.serving_since
        text = (
            "try again later"
            if since is None
            else f"for {time.monotonic() - since:.0f} s now; try again later"
        )
        return ErrorPayload(ErrorCode.BUSY, text)

    def _send_away(self, guest: PendingClient, failure: ErrorPayload | None) -> None:
        self._remove_client(guest)
        if failure is not None:
            with contextlib.suppress(TransportError):
                assert isinstance(guest.channel, PollableChannel)
                guest.channel.send_now(guest.conversation.error(failure, fatal=True))
                guest.channel.shut_down()
        guest.channel.close()

    def _remove_client(self, guest: PendingClient) -> None:
        assert isinstance(guest.channel, PollableChannel)
        descriptor = guest.channel.fileno()
        self._held = [(other, message) for other, message in self._held if other is not guest]
        if self._guests.pop(descriptor, None) is not None and self._selector is not None:
            with contextlib.suppress(KeyError):  # a waiting client is not registered
                self._selector.unregister(descriptor)

    def _send_away_late(self) -> None:
        now = time.monotonic()
        for guest in [guest for guest in self._guests.values() if guest.deadline <= now]:
            log.info("%s was not let in: it did not say who it is in time", guest.name)
            self._send_away(
                guest, ErrorPayload(ErrorCode.TIMEOUT, f"no greeting came for {self._patience:g} s")
            )

    def _drop_oldest(self) -> None:
        if self._guests:
            self._send_away(next(iter(self._guests.values())), None)

    def close(self, failure: ErrorPayload | None = None) -> None:
        """Disconnect all waiting clients."""
        for guest in [*self._guests.values(), *self._greeted]:
            self._send_away(guest, failure)
        self._greeted.clear()
        if self._selector is not None:
            self._selector.close()

    def abandon(self) -> None:
        """Close all descriptors without sending anything, in a forked process that does not
        serve these clients.
        """
        for guest in [*self._guests.values(), *self._greeted]:
            guest.channel.close()
        if self._selector is not None:
            self._selector.close()
        # otherwise, the listener is the client's own line
        if isinstance(self._listener, LineListener):
            self._listener.close()
