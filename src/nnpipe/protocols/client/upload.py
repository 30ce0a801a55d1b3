"""The upload of a model to a target: only the missing part, without waiting for the answer to each piece."""

from __future__ import annotations

import logging
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, RemoteProtocolError, TargetError
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.payloads import LoadedModel, ModelOffer, pack_count, unpack_count

_AHEAD = 8
log = logging.getLogger("nnpipe")


def upload(connection: Connection, artifact: Artifact, name: str, load_timeout: float) -> LoadedModel:
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
        return _loaded(connection, load_timeout)
    except TargetError as error:
        if error.code != ErrorCode.DAMAGED or not had:
            raise
    log.info("what the target had of the model was something else; it is sent once more")
    _send(connection, artifact, name)
    return _loaded(connection, load_timeout)


def _send(connection: Connection, artifact: Artifact, name: str) -> int:
    """Send the missing part of a file, and return how many bytes of it the target already had."""
    try:
        size = artifact.size
        with open(artifact.path, "rb") as file:
            begin = ModelOffer(size, bytes.fromhex(artifact.sha256), describe(artifact, name)).pack()
            had = unpack_count(connection.ask(FrameKind.MODEL, (begin,), FrameFlag.BEGIN))
            if had > size:
                raise RemoteProtocolError(f"the target claims {had:,} bytes of a model of {size:,}")
            if had:
                log.info("the target has %s of the model's %s bytes already", f"{had:,}", f"{size:,}")
            _send_parts(connection, file, had, size)
    except OSError as error:
        if isinstance(error, ArtifactError) or error.filename is None:
            raise
        raise ArtifactError(f"{artifact.path}: cannot be read: {error.strerror}") from None
    return had


def _loaded(connection: Connection, load_timeout: float) -> LoadedModel:
    return LoadedModel.unpack(connection.ask(FrameKind.MODEL, (), FrameFlag.END, load_timeout))


def _send_parts(connection: Connection, file: Any, at: int, size: int) -> None:
    conversation = connection.conversation
    ahead = _AHEAD if conversation.pipelining and connection.channel.capacity else 1
    piece = memoryview(bytearray(min(conversation.agreement.part, max(size - at, 0))))
    file.seek(at)
    while at < size:
        count = file.readinto(piece[: min(len(piece), size - at)])
        if not count:
            raise ArtifactError(f"{file.name}: the file has become shorter than it was; make the model anew")
        while conversation.waiting >= ahead:
            connection.answer()
        connection.send(conversation.ask(FrameKind.MODEL, (pack_count(at), piece[:count]), FrameFlag.PART))
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
