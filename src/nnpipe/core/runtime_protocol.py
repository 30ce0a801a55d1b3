"""The interface of runtime protocols, by which host and target communicate."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


class Channel(Closing):
    """An open connection that carries bytes in order in both directions.

    One thread may send while one other receives.  A call that makes no progress
    within the channel's time limit raises :class:`LineTimeout`; a call on a broken
    connection raises :class:`TransportError`.

    Attributes
    ----------
    timeout
        The time limit in seconds without progress.
    capacity
        Bytes that can be sent while the other side does not read.  Requests are
        sent ahead only as long as their answers fit into this capacity.
    """

    timeout: float
    capacity: ClassVar[int] = 0

    @abstractmethod
    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers in order, without copying them into one."""

    @abstractmethod
    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, read at most ``len(buffer)`` of them, and return their number; 0 if
        the other side closed.
        """


class Listener(Closing):
    """A server's open endpoint that waits for clients."""

    @abstractmethod
    def accept(self, timeout: float | None = None) -> Channel | None:
        """Wait for the next client; return ``None`` after ``timeout`` seconds without one."""

    @abstractmethod
    def close(self) -> None:
        """Stop waiting; accepted channels stay open."""


class RuntimeProtocol(Component):
    """A kind of connection between a host and a target, with its address.

    Examples
    --------
    >>> from nnpipe.protocols import NetworkProtocol
    >>> line = NetworkProtocol(host="board", port=12345)
    >>> line.to_json()["port"]
    12345
    >>> isinstance(line, RuntimeProtocol)
    True
    """

    def is_exposed(self) -> bool:
        """Return whether other machines can reach a listener; servers then require a token."""
        return True

    def convert_artifact(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield the model in the form in which the targets take it; by default as it is.

        What is made for it lasts as long as the ``with`` block.
        """
        return contextlib.nullcontext(artifact)

    @abstractmethod
    def connect(self) -> Channel:
        """Connect from the host to the target; raise :class:`TransportError` on failure."""

    @abstractmethod
    def listen(self) -> Listener:
        """Listen for hosts on the target; raise :class:`TransportError` on failure."""


_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 4096


class RemoteOptions(Component):
    """Options of a host that uses a target.

    Examples
    --------
    >>> RemoteOptions(run_timeout=10.0).run_timeout
    10.0
    """

    token_file: Path | None = argument(
        default=None, help="file that holds the token shared with the server"
    )
    save_model_path: str = argument(
        default="",
        help=(
            "name under which the target keeps the model, in the folder of its server's "
            "--save-model-path"
        ),
        metavar="NAME",
    )
    run_timeout: float = argument(
        default=120.0, help="seconds that one inference on the target may take", minimum=0.01
    )
    load_timeout: float = argument(
        default=600.0, help="seconds that the target may take to load the model", minimum=0.01
    )
    max_output_bytes: int = argument(
        default=1 << 28,
        help="most bytes of outputs taken from the target",
        minimum=1,
        maximum=(1 << 32) - 1,
    )

    def read_token(self) -> bytes | None:
        """Read the token."""
        return None if self.token_file is None else read_token(self.token_file)


class ServerOptions(Component):
    """Options of a server: limits and permissions.

    Examples
    --------
    >>> ServerOptions(isolate=False).isolate
    False
    """

    save_model_path: Path | None = argument(
        default=None,
        help=(
            "file, or existing folder, in which the model is kept (default: a folder that is "
            "deleted at the end)"
        ),
    )
    token_file: Path | None = argument(
        default=None, help="file with the token that clients must know"
    )
    insecure: bool = argument(
        default=False,
        help=(
            "serve everybody who can reach the address, without a token, even if other machines "
            "can reach it"
        ),
    )
    allow_native_code_from_clients: bool = argument(
        default=False,
        help=(
            "run models that contain machine code (shared libraries): then clients can do anything "
            "on this machine"
        ),
    )
    greeting_timeout: float = argument(
        default=10.0, help="seconds in which a client must identify itself", minimum=0.01
    )
    idle_timeout: float = argument(
        default=300.0,
        help="seconds without a request after which a client is disconnected",
        minimum=0.01,
    )
    run_timeout: float = argument(
        default=60.0, help="seconds that one inference may take", minimum=0.01
    )
    load_timeout: float = argument(
        default=300.0, help="seconds that loading a model may take", minimum=0.01
    )
    max_model_bytes: int = argument(default=1 << 32, help="largest model file taken", minimum=1)
    max_input_bytes: int = argument(
        default=1 << 28, help="most bytes of inputs taken", minimum=1, maximum=(1 << 32) - 1
    )
    isolate: bool = argument(
        default=True,
        help=(
            "run each client's model in a process of its own, so that the server survives its crash"
        ),
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if ``insecure`` and ``token_file`` are both given."""
        if self.insecure and self.token_file is not None:
            raise ConfigError(
                "--insecure asks for no token, --token-file for one: give one of the two"
            )

    def read_token(self) -> bytes | None:
        """Read the token."""
        return None if self.token_file is None else read_token(self.token_file)


def read_token(path: Path) -> bytes:
    """Read a token from a file, without the white space around it.

    Raises
    ------
    ConfigError
        If the file cannot be read, or the token is too short.
    """
    try:
        with open(path, "rb") as handle:
            token = handle.read(_LONGEST_TOKEN + 1).strip()
    except OSError as error:
        raise ConfigError(f"cannot read the token from {path}: {error.strerror}") from None
    if not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:
        raise ConfigError(
            f"{path} holds a token of {len(token)} bytes; it needs {_SHORTEST_TOKEN} at least, "
            f"for instance: python -c 'import secrets; print(secrets.token_hex())' > {path.name}"
        )
    return token
