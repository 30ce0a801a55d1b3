"""The target's side of a conversation over a channel with one client, from handshake to end."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable

from nnpipe.core.errors import (
    AuthenticationError,
    LineTimeout,
    ProtocolError,
    RemoteProtocolError,
    TransportError,
)
from nnpipe.core.runtime_protocol import Channel
from nnpipe.protocols.channels.stream_socket import SLOWEST, PollableChannel
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import Buffer, ErrorCode, FrameFlag, FrameKind, size_of
from nnpipe.protocols.conversation.handshake import VersionMismatch
from nnpipe.protocols.conversation.payloads import ErrorPayload, pack_log, pack_stamps
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.inference_service import InferenceService
from nnpipe.protocols.server.model_store import Refusal
from nnpipe.protocols.server.shared_page import Phase, SharedPage

_BATCH = 32  # buffers of answers that are collected while more requests have already arrived
# bytes that a system accepts without waiting for the other side, and so never sends in part
_AT_ONCE = 1 << 14
_QUICK_NS = 1_000_000
_WAITING, _SENDING, _RUNNING = int(Phase.WAITING), int(Phase.SENDING), int(Phase.RUNNING)
_PROCESS, _OUTPUT, _INFER = FrameKind.PROCESS, FrameKind.OUTPUT, FrameKind.INFER
_BUSY = {
    FrameKind.MODEL: int(Phase.LOADING),
    FrameKind.DATA: _RUNNING,
    FrameKind.OUTPUT: _RUNNING,
    FrameKind.STATS: _WAITING,
}
_STARTED = int(FrameFlag.STARTED)
_SKIPPED = ErrorPayload(ErrorCode.SKIPPED, "")
log = logging.getLogger("nnpipe")


def perform_handshake(channel: Channel, conversation: TargetConversation, patience: float) -> None:
    """Perform the handshake on a line with a single client.

    Raises
    ------
    TransportError, RemoteProtocolError, AuthenticationError
        If the handshake failed; the client has been told.
    """
    from nnpipe.protocols.conversation.rules import ConversationState

    deadline = time.monotonic() + patience
    while conversation.state in (ConversationState.NEW, ConversationState.GREETED):
        try:
            message = conversation.next_message()
            if message is not None:
                channel.send(conversation.answer_handshake(message))
                continue
        except ProtocolError as error:
            refuse(channel, conversation, create_failure(error))
            raise
        if time.monotonic() > deadline:
            raise LineTimeout("a client did not say who it is in time")
        count = channel.receive_into(conversation.wanted())
        if not count:
            raise TransportError("a client left before it had said anything")
        conversation.received(count)


def refuse(channel: Channel, conversation: TargetConversation, failure: ErrorPayload) -> None:
    """Send a client that still reads the reason why it is no longer served, and close the
    connection.
    """
    with contextlib.suppress(TransportError):
        channel.send(conversation.error(failure, fatal=True))
    end(channel)


def end(channel: Channel) -> None:
    """Close a connection so that the last bytes sent still arrive."""
    if isinstance(channel, PollableChannel):
        channel.finish()
    channel.close()


def create_failure(error: ProtocolError) -> ErrorPayload:
    """Return the payload that tells the client about an error that ends the conversation."""
    if isinstance(error, AuthenticationError):
        return ErrorPayload(ErrorCode.AUTHENTICATION, "")
    if isinstance(error, VersionMismatch):
        return ErrorPayload(ErrorCode.VERSION, str(error))
    return ErrorPayload(ErrorCode.PROTOCOL, str(error))


class ClientWorker:
    """Serves one client after its handshake.

    Parameters
    ----------
    channel, conversation
        The channel, and its conversation so far.
    service
        Carries out the requests.
    board
        The shared page on which the supervisor sees the worker's state.
    idle
        Seconds without a request after which the client is disconnected.
    stopping
        Called while no request comes; true ends the conversation.
    """

    def __init__(
        self,
        channel: Channel,
        conversation: TargetConversation,
        service: InferenceService,
        board: SharedPage,
        idle: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._channel = channel
        self._conversation = conversation
        self._service = service
        self._board = board
        self._idle = idle
        self._stopping = stopping
        self._out: list[Buffer] = []
        self._last_run_ns = _QUICK_NS + 1
        self._shared = isinstance(
            channel, PollableChannel
        )  # others wait for their turn, so that a frame must come in time
        self._late = False  # whether a frame has been received only in part
        self._due = 0.0  # the time by which the rest must come
        # Cached, since they are used with every request and each lookup goes through two objects.
        self._reader, self._next_message = conversation.reader, conversation.next_message
        self._wanted, self._received, self._receive_into = (
            conversation.wanted,
            conversation.received,
            channel.receive_into,
        )
        self._actions = service.actions
        self._log: deque[bytes] = deque(maxlen=64)
        conversation.place = service.place

    def serve(self) -> str:
        """Answer requests until the client leaves, and return the reason for the end, for the
        log.
        """
        handler = _LogForwarder(self._log, self._service.remove_private_paths)
        log.addHandler(handler)
        try:
            return self._serve_requests()
        finally:
            log.removeHandler(handler)
            self._service.close()
            self._channel.close()

    def _serve_requests(self) -> str:
        conversation = self._conversation
        try:
            while True:
                self._answer_received()
                if not self._receive():
                    where = "" if conversation.between_frames else " in the middle of a frame"
                    return f"it left{where}"
        except RemoteProtocolError as error:
            refuse(self._channel, conversation, create_failure(error))
            return str(error)
        except _ConversationEnded as over:
            refuse(self._channel, conversation, over.failure)
            return str(over.failure)
        except TransportError as error:
            return str(error)

    def _answer_received(self) -> None:
        reader, next_message, attend = self._reader, self._next_message, self._handle_message
        while (message := next_message()) is not None:
            attend(message)
            if reader.begin == reader.end:
                self._late, self._due = False, 0.0
                break
        else:
            self._late = self._shared
        if self._out:
            self._flush()

    def _receive(self) -> bool:
        conversation, channel, receive_into = self._conversation, self._channel, self._receive_into
        silent_since = None
        while True:
            try:
                count = receive_into(self._wanted())
            except LineTimeout:
                silent_since = silent_since or time.monotonic() - channel.timeout
                if self._stopping():
                    raise _ConversationEnded(ErrorPayload(ErrorCode.STOPPING, "")) from None
                if not conversation.between_frames:
                    raise _ConversationEnded(
                        ErrorPayload(ErrorCode.TIMEOUT, "the rest of a frame did not come")
                    ) from None
                if time.monotonic() - silent_since > self._idle:
                    raise _ConversationEnded(
                        ErrorPayload(ErrorCode.TIMEOUT, f"no request came for {self._idle:g} s")
                    ) from None
                continue
            if self._late:
                self._check_pace(count)
            self._received(count)
            return count > 0

    def _check_pace(self, count: int) -> None:
        """Disconnect a client that sends its frame too slowly."""
        now = time.monotonic()
        if not self._due:
            self._due = now + self._channel.timeout
        self._due += count / SLOWEST
        if now > self._due:
            raise _ConversationEnded(
                ErrorPayload(ErrorCode.TIMEOUT, "a frame came more slowly than can be waited for")
            )

    def _handle_message(self, message: Message) -> None:
        conversation, board = self._conversation, self._board
        kind = message.kind
        if message.skipped:
            self._out += conversation.error(_SKIPPED)
            return
        try:
            if kind is _INFER:
                self._infer(message)
            elif kind is _PROCESS:
                self._process()
            else:
                board.begin(_BUSY[kind], conversation.number)
                parts = self._actions[kind](message)
                if kind is _OUTPUT:
                    self._check_size(parts)
                self._out += conversation.answer(parts)
        except Refusal as refusal:
            failure = refusal.failure
            self._out += conversation.error(
                ErrorPayload(failure.code, self._service.remove_private_paths(failure.text))
            )
        board.phase[0] = _WAITING
        if self._log:
            self._tell_log()
        if len(self._out) > _BATCH:
            self._flush()

    def _check_size(self, outputs: list[Buffer]) -> None:
        size, most = size_of(outputs), self._conversation.agreement.sendable
        if size > most:
            raise Refusal(
                ErrorCode.TENSORS, f"the outputs take {size:,} bytes, the host takes {most:,}"
            )

    def _process(self) -> None:
        received = time.perf_counter_ns()
        conversation = self._conversation
        self._out += conversation.answer((), _STARTED)
        # If the model is fast, or the host has sent ahead, both OKs are sent together: waking the
        # host while the model runs could disturb it, and no host waits for the first OK alone.
        if self._last_run_ns > _QUICK_NS and conversation.between_frames:
            self._flush()
        self._board.begin(_RUNNING, conversation.number)
        started, stopped = self._service.process()
        self._last_run_ns = stopped - started
        stamps = pack_stamps(received, started, stopped, time.perf_counter_ns())
        self._out += conversation.answer((stamps,))

    def _infer(self, message: Message) -> None:
        received = time.perf_counter_ns()
        conversation, service = self._conversation, self._service
        self._board.begin(_RUNNING, conversation.number)
        service.put(message.payload)
        started, stopped = service.process()
        outputs = service.get()
        self._check_size(outputs)
        stamps = pack_stamps(received, started, stopped, time.perf_counter_ns())
        self._out += conversation.answer((stamps, *outputs))

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        if len(out) == 1 or size_of(out) <= _AT_ONCE:  # a header alone is small
            self._channel.send(out)
        else:
            phase = self._board.phase
            phase[0] = _SENDING
            self._channel.send(out)
            phase[0] = _WAITING
        self._out = []

    def _tell_log(self) -> None:
        while self._log:
            self._out += self._conversation.log(self._log.popleft())


class _ConversationEnded(Exception):
    def __init__(self, failure: ErrorPayload) -> None:
        super().__init__(str(failure))
        self.failure = failure


class _LogForwarder(logging.Handler):
    """Keeps log lines until the next answer is sent; the oldest are dropped if there are too
    many.
    """

    def __init__(self, lines: deque[bytes], tellable: Callable[[str], str]) -> None:
        super().__init__(logging.INFO)
        self._lines, self._tellable = lines, tellable

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self._lines.append(
                pack_log(min(record.levelno, 255), self._tellable(record.getMessage()[:2000])[:500])
            )
