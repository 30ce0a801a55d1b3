"""The host's side of a conversation over a channel, which sends requests and waits for the
answers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import (
    ArtifactError,
    AuthenticationError,
    LineTimeout,
    NNPipeError,
    RemoteProtocolError,
    TargetError,
    TransportError,
)
from nnpipe.core.runtime_protocol import Channel
from nnpipe.protocols.channels.stream_socket import SLOWEST
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import Buffer, ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import (
    ErrorPayload,
    LoadedModel,
    ModelOffer,
    pack_count,
    unpack_count,
    unpack_log,
)

_OK, _LOG = FrameKind.OK, FrameKind.LOG
log = logging.getLogger("nnpipe.target")


class Connection:
    """A channel with a host's conversation.

    If the target reports a failure, a :class:`TargetError` is raised and the
    connection can still be used.  After any other error it is closed, since
    answers could no longer be assigned to requests.
    """

    def __init__(self, channel: Channel, conversation: HostConversation) -> None:
        self.conversation = conversation
        self.channel = channel
        # Cached, since they are used with every answer and each lookup goes through two objects.
        self._next_message, self._wanted, self._received = (
            conversation.next_message,
            conversation.wanted,
            conversation.received,
        )
        self._reader = conversation.reader
        self._send, self._receive_into = channel.send, channel.receive_into
        self._broken: str | None = None

    def perform_handshake(self) -> None:
        """Perform the handshake.

        Raises
        ------
        AuthenticationError
            If one side cannot prove that it knows the token.
        TargetError
            If the target is busy with another client.
        """
        self.send(self.conversation.build_hello())
        self.answer()
        if self.conversation.agreement.proof_wanted:
            self.send(self.conversation.build_proof())
            self.answer()

    def ask(
        self,
        kind: FrameKind,
        parts: Sequence[Buffer] = (),
        flags: int = 0,
        patience: float | None = None,
    ) -> bytes | memoryview:
        """Send a request, wait for its answer, and return the payload of the OK; raises as
        :meth:`answer`.
        """
        self.send(self.conversation.ask(kind, parts, flags))
        return self.answer(patience)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send frames that the conversation made."""
        if self._broken is not None:
            self._check()
        try:
            self._send(frames)
        except TransportError as error:
            words = None if isinstance(error, LineTimeout) else self._receive_final_message()
            raise self._break(_create_error(words) if words else error) from None
        except BaseException as error:
            raise self._break(error) from None

    def answer(self, patience: float | None = None) -> bytes | memoryview:
        """Wait for the next answer, and return the payload of the OK.

        Parameters
        ----------
        patience
            The time limit in seconds, if the target may need longer than the channel's limit.

        Raises
        ------
        TargetError, AuthenticationError
            If the target reports an error.
        RemoteProtocolError
            If the target broke the rules, or a frame was damaged.
        TransportError
            If the connection was lost or timed out.
        """
        if self._broken is not None:
            self._check()
        message, reader = None, self._reader
        try:
            while True:
                # Called only if bytes have already arrived, since the call takes as long as the
                # check of a header.
                message = (reader.begin != reader.end and self._next_message()) or self._receive(
                    patience
                )
                kind = message.kind
                if kind is _OK:
                    return message.payload
                if kind is not _LOG:
                    raise _create_error(message)
                log.log(*_unpack_log_line(message))
        except TargetError as error:
            if message is not None and message.flags & FrameFlag.FATAL:
                self._break(error)
            raise
        except BaseException as error:
            raise self._break(error) from None

    def _receive(self, patience: float | None = None) -> Message:
        """Wait for the next message."""
        conversation, receive_into = self.conversation, self._receive_into
        deadline = 0.0  # the clock is not read if the whole answer arrives at once
        while True:
            try:
                count = receive_into(self._wanted())
            except LineTimeout:
                deadline = deadline or self._compute_deadline(patience) - self.channel.timeout
                if time.monotonic() >= deadline:
                    raise
                continue
            if not count:
                where = "" if conversation.between_frames else " in the middle of a frame"
                raise TransportError(
                    f"the target closed the line{where}; its server's log may tell why"
                )
            self._received(count)
            message = self._next_message()
            if message is not None:
                return message
            deadline = (deadline or self._compute_deadline(patience)) + count / SLOWEST
            if time.monotonic() > deadline:
                raise LineTimeout("the target sends less than can be waited for")

    def _compute_deadline(self, patience: float | None) -> float:
        return time.monotonic() + (patience or self.channel.timeout)

    def _receive_final_message(self) -> Message | None:
        """Return the last message of a target that closed the connection while this side was
        sending, if any.
        """
        with contextlib.suppress(TransportError, RemoteProtocolError):
            while True:
                message = self._next_message() or self._receive()
                if message.kind is FrameKind.ERROR and message.flags & FrameFlag.FATAL:
                    return message
        return None

    def _check(self) -> None:
        if self._broken is not None:
            raise TransportError(f"the connection is closed: {self._broken}")

    def _break(self, error: BaseException) -> BaseException:
        if self._broken is None:
            self._broken = str(error) or type(error).__name__
            self.channel.close()
        return error

    def close(self) -> None:
        """Close the connection; closing it twice does no harm."""
        if self._broken is None:
            self._broken = "it was closed on this side"
            self.channel.close()


def _unpack_log_line(message: Message) -> tuple[int, str, str]:
    level, text = unpack_log(message.payload)
    return level, "%s", text


def _create_error(message: Message) -> NNPipeError:
    failure: ErrorPayload = message.failure
    if failure.code == ErrorCode.AUTHENTICATION:
        return AuthenticationError(f"the target refused: {failure}")
    if failure.code in (ErrorCode.PROTOCOL, ErrorCode.VERSION):
        return RemoteProtocolError(f"the target says: {failure}")
    error = TargetError(f"the target says: {failure}")
    error.code = failure.code
    return error


_AHEAD = 8
_upload_log = logging.getLogger("nnpipe")


def upload(
    connection: Connection, artifact: Artifact, name: str, load_timeout: float
) -> LoadedModel:
    """Send a model to the target, which loads it.

    The part of the file that the target already has may be wrong, since an
    earlier client may have sent other bytes under this model's SHA-256.  The
    target detects this when it has all bytes; then the whole file is sent again.

    Parameters
    ----------
    connection
        The connection to a target, after the handshake.
    artifact
        The model; the target refuses a file that has changed since it was described.
    name
        The name under which the target keeps the model; empty for the target's choice.
    load_timeout
        The time limit for loading in seconds.

    Raises
    ------
    TargetError
        If the target refuses the model.
    """
    had = _send(connection, artifact, name)
    try:
        return _request_load(connection, load_timeout)
    except TargetError as error:
        if error.code != ErrorCode.DAMAGED or not had:
            raise
    _upload_log.info("what the target had of the model was something else; it is sent once more")
    _send(connection, artifact, name)
    return _request_load(connection, load_timeout)


def _send(connection: Connection, artifact: Artifact, name: str) -> int:
    """Send the missing part of a file, and return how many bytes of it the target already had."""
    try:
        size = artifact.size
        with open(artifact.path, "rb") as file:
            begin = ModelOffer(
                size, bytes.fromhex(artifact.sha256), describe(artifact, name)
            ).pack()
            had = unpack_count(connection.ask(FrameKind.MODEL, (begin,), FrameFlag.BEGIN))
            if had > size:
                raise RemoteProtocolError(f"the target claims {had:,} bytes of a model of {size:,}")
            if had:
                _upload_log.info(
                    "the target has %s of the model's %s bytes already", f"{had:,}", f"{size:,}"
                )
            _send_parts(connection, file, had, size)
    except OSError as error:
        if isinstance(error, ArtifactError) or error.filename is None:
            raise
        raise ArtifactError(f"{artifact.path}: cannot be read: {error.strerror}") from None
    return had


def _request_load(connection: Connection, load_timeout: float) -> LoadedModel:
    return LoadedModel.unpack(connection.ask(FrameKind.MODEL, (), FrameFlag.END, load_timeout))


def _send_parts(connection: Connection, file: Any, at: int, size: int) -> None:
    conversation = connection.conversation
    ahead = _AHEAD if conversation.pipelining and connection.channel.capacity else 1
    piece = memoryview(bytearray(min(conversation.agreement.part, max(size - at, 0))))
    file.seek(at)
    while at < size:
        count = file.readinto(piece[: min(len(piece), size - at)])
        if not count:
            raise ArtifactError(
                f"{file.name}: the file has become shorter than it was; make the model anew"
            )
        while conversation.waiting >= ahead:
            connection.answer()
        connection.send(
            conversation.ask(FrameKind.MODEL, (pack_count(at), piece[:count]), FrameFlag.PART)
        )
        at += count
    while conversation.waiting:
        connection.answer()


def describe(artifact: Artifact, name: str) -> dict[str, Any]:
    """Return the description of a model for a target, without paths and history of this machine."""
    return {
        "format": artifact.format,
        "io": artifact.io.to_json(),
        "frameworks": [list(pair) for pair in artifact.frameworks],
        "target": artifact.target,
        "suffix": artifact.path.suffix,
        "name": name,
    }
