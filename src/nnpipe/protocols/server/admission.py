"""Admit clients: several may be greeted at a time, none of them trusted yet.

A client that says nothing, or nonsense, costs a descriptor and a few kilobytes
until its time is up; when too many wait, the one that has waited longest goes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nnpipe.core.errors import AuthenticationError, NNPipeError, ProtocolError, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener
from nnpipe.protocols.channels.server_channel import LineListener, PollableChannel
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import ErrorCode, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.rules import ConversationState
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.token_throttle import Throttle
from nnpipe.protocols.server.worker import failure_of, hello

_MOST_GUESTS = 64
log = logging.getLogger("nnpipe")


@dataclass
class Guest:
    """A client that has been let in but has not been greeted to the end."""

    channel: Channel
    conversation: TargetConversation
    deadline: float = 0.0

    @property
    def name(self) -> str:
        """Who it is, for people to read."""
        return self.channel.name if isinstance(self.channel, PollableChannel) else "a client"

    def left(self) -> bool:
        """Return whether it has hung up."""
        return isinstance(self.channel, PollableChannel) and self.channel.hung_up()


class Reception:
    """Greets clients.

    Parameters
    ----------
    listener
        Where they come from; the caller closes it.
    limits, token
        What conversations are opened with.
    patience
        Seconds that a client has to say who it is.
    """

    def __init__(self, listener: Listener, limits: Limits, token: bytes | None, patience: float) -> None:
        self._listener = listener
        self._limits = limits
        self._token = token
        self._patience = patience
        self._guests: dict[int, Guest] = {}
        self._greeted: list[Guest] = []
        self._held: list[tuple[Guest, Message]] = []  # with a proof that must wait to be looked at
        self._throttle = Throttle()
        self._selector: selectors.BaseSelector | None = None
        if isinstance(listener, LineListener):
            self._selector = selectors.DefaultSelector()
            self._selector.register(listener.fileno(), selectors.EVENT_READ)

    def watch(self, descriptor: int) -> None:
        """End :meth:`step` early when this descriptor becomes readable."""
        if self._selector is not None:
            self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        """Watch it no longer."""
        if self._selector is not None:
            self._selector.unregister(descriptor)

    def step(self, timeout: float, busy: Callable[[], bool]) -> Guest | None:
        """Go on for a while; gives a client that has been greeted, if there is one.

        Parameters
        ----------
        timeout
            Most seconds to wait for something to happen.
        busy
            Asked with each HELLO whether a client is being served: others are told so and leave.
        """
        if self._selector is None:
            return self._simple_step(timeout, busy())
        now = time.monotonic()
        waits = [guest.deadline - now for guest in self._guests.values()]
        waits += [self._throttle.wait(guest.name) for guest, _ in self._held]
        events = self._selector.select(0 if self._greeted else max(min([timeout, *waits]), 0))
        self._judge_held()
        for key, _ in events:
            guest = self._guests.get(key.fd)
            if guest is not None:
                self._attend(guest, lambda: not all(other.left() for other in self._greeted) or busy())
            elif key.fd == self._listener.fileno():  # type: ignore[attr-defined]
                self._let_in()
        self._send_away_late()
        return self._greeted.pop(0) if self._greeted else None

    def _simple_step(self, timeout: float, busy: bool) -> Guest | None:
        if busy:
            time.sleep(timeout)
            return None
        channel = self._listener.accept(timeout)
        if channel is None:
            return None
        guest = Guest(channel, TargetConversation(self._limits, self._token))
        try:
            hello(channel, guest.conversation, self._patience)
        except NNPipeError as error:
            channel.close()
            log.info("%s was not let in: %s", guest.name, error)
            return None
        return guest

    def _let_in(self) -> None:
        try:
            channel = self._listener.accept(0)
        except TransportError as error:
            # Out of descriptors: those that have waited longest make room.
            log.warning("%s", error)
            self._drop_oldest()
            return
        if channel is None:
            return
        assert isinstance(channel, PollableChannel)
        if len(self._guests) >= _MOST_GUESTS:
            self._drop_oldest()
        guest = Guest(channel, TargetConversation(self._limits, self._token), time.monotonic() + self._patience)
        self._guests[channel.fileno()] = guest
        assert self._selector is not None
        self._selector.register(channel.fileno(), selectors.EVENT_READ)

    def _attend(self, guest: Guest, busy: Callable[[], bool]) -> None:
        conversation, channel = guest.conversation, guest.channel
        assert isinstance(channel, PollableChannel)
        with self._seeing_off(guest):
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
                    self._send_away(guest, ErrorPayload(ErrorCode.BUSY, "try again later"))
                    return
                if message.kind is FrameKind.AUTH and self._throttle.wait(guest.name):
                    self._hold(guest, message)
                    return
                self._greet(guest, message)
                if conversation.state is ConversationState.EMPTY:
                    return

    @contextlib.contextmanager
    def _seeing_off(self, guest: Guest) -> Iterator[None]:
        """Send a guest away with whom something goes wrong in the block."""
        try:
            yield
        except ProtocolError as error:
            if isinstance(error, AuthenticationError):
                self._throttle.failed(guest.name)
            log.info("%s was not let in: %s", guest.name, error)
            self._send_away(guest, failure_of(error))
        except TransportError:
            self._send_away(guest, None)

    def _greet(self, guest: Guest, message: Message) -> None:
        guest.channel.send(guest.conversation.greet(message))
        if guest.conversation.state is ConversationState.EMPTY:
            self._forget(guest)
            self._greeted.append(guest)

    def _hold(self, guest: Guest, message: Message) -> None:
        """Let a guest wait with its proof; what it says meanwhile is not listened to."""
        guest.deadline = math.inf
        assert isinstance(guest.channel, PollableChannel)
        assert self._selector is not None
        self._selector.unregister(guest.channel.fileno())
        self._held.append((guest, message))

    def _judge_held(self) -> None:
        """Look at the proofs whose time has come, those first that have waited longest."""
        for guest, message in self._held[:]:
            if not self._throttle.wait(guest.name):
                self._held.remove((guest, message))
                with self._seeing_off(guest):
                    self._greet(guest, message)

    def turn_away(self, guest: Guest) -> None:
        """Tell a client that was greeted that another came first."""
        self._send_away(guest, ErrorPayload(ErrorCode.BUSY, "try again later"))

    def _send_away(self, guest: Guest, failure: ErrorPayload | None) -> None:
        self._forget(guest)
        if failure is not None:
            with contextlib.suppress(TransportError):
                guest.channel.send(guest.conversation.error(failure, fatal=True))
                assert isinstance(guest.channel, PollableChannel)
                guest.channel.hush()
        guest.channel.close()

    def _forget(self, guest: Guest) -> None:
        assert isinstance(guest.channel, PollableChannel)
        descriptor = guest.channel.fileno()
        self._held = [(other, message) for other, message in self._held if other is not guest]
        if self._guests.pop(descriptor, None) is not None and self._selector is not None:
            with contextlib.suppress(KeyError):  # one that is held is not listened to
                self._selector.unregister(descriptor)

    def _send_away_late(self) -> None:
        now = time.monotonic()
        for guest in [guest for guest in self._guests.values() if guest.deadline <= now]:
            log.info("%s was not let in: it did not say who it is in time", guest.name)
            self._send_away(guest, ErrorPayload(ErrorCode.TIMEOUT, f"no greeting came for {self._patience:g} s"))

    def _drop_oldest(self) -> None:
        if self._guests:
            self._send_away(next(iter(self._guests.values())), None)

    def close(self, failure: ErrorPayload | None = None) -> None:
        """Send all away that wait."""
        for guest in [*self._guests.values(), *self._greeted]:
            self._send_away(guest, failure)
        self._greeted.clear()
        if self._selector is not None:
            self._selector.close()

    def abandon(self) -> None:
        """Close everything without a word: in a process that was forked off, these clients are not its own."""
        for guest in [*self._guests.values(), *self._greeted]:
            guest.channel.close()
        if self._selector is not None:
            self._selector.close()
        if isinstance(self._listener, LineListener):  # else it is the very line that the client speaks on
            self._listener.close()
