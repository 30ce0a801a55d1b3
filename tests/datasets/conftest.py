"""A real HTTP server on this machine that misbehaves by script."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest


@dataclass
class Seen:
    """One request as the server saw it."""

    path: str
    headers: dict[str, str]
    body_bytes: int = 0


Behaviour = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.seen = Seen(self.path, dict(self.headers))
        with self.server.lock:
            self.server.seen.append(self.seen)
            script = self.server.scripts.get(self.path, self.server.script)
            behaviour = script.pop(0) if script else self.server.default or serve
        self.close_connection = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            behaviour(self)

    def head(self, status: int, **headers: object) -> None:
        """Send the status line and headers; underscores in names stand for hyphens."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Connection", "close")
        self.end_headers()

    def body(self, data: bytes) -> None:
        """Send ``data`` in pieces, counting what went out."""
        for start in range(0, len(data), 1 << 14):
            piece = data[start : start + (1 << 14)]
            self.wfile.write(piece)
            self.seen.body_bytes += len(piece)

    def break_off(self) -> None:
        """Close the connection for good."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(eq=False)
class Server(http.server.ThreadingHTTPServer):
    """Serves ``content`` at every path, well by default, otherwise as ``script`` or
    ``scripts[path]`` say.
    """

    content: bytes
    etag: str | None = '"v1"'
    script: list[Behaviour] = field(default_factory=list)
    scripts: dict[str, list[Behaviour]] = field(default_factory=dict)
    default: Behaviour | None = None
    seen: list[Seen] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a client that hangs up is what these tests are about

    def url(self, path: str = "/data.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def bytes_sent(self) -> int:
        return sum(seen.body_bytes for seen in self.seen)


def serve(handler: Handler) -> None:
    """Behave: honour Range and If-Range."""
    content, etag = handler.server.content, handler.server.etag
    extra = {} if etag is None else {"ETag": etag}
    wanted = handler.headers.get("Range")
    condition = handler.headers.get("If-Range")
    if wanted is None or (condition is not None and condition != etag):
        handler.head(200, Content_Length=len(content), **extra)
        handler.body(content)
        return
    start = int(wanted.removeprefix("bytes=").removesuffix("-"))
    if start >= len(content):
        handler.head(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
        return
    span = f"bytes {start}-{len(content) - 1}/{len(content)}"
    handler.head(206, Content_Length=len(content) - start, Content_Range=span, **extra)
    handler.body(content[start:])


class misbehave:
    """Ways to go wrong, each of them a behaviour for one request."""

    @staticmethod
    def status(code: int, **headers: object) -> Behaviour:
        def behave(handler: Handler) -> None:
            handler.head(code, **{"Content_Length": 0, **headers})

        return behave

    @staticmethod
    def break_after(count: int) -> Behaviour:
        """Honour the request, but hang up after ``count`` bytes of the body."""

        def behave(handler: Handler) -> None:
            body = handler.body

            def short(data: bytes) -> None:
                body(data[:count])
                handler.break_off()

            handler.body = short  # type: ignore[method-assign]
            serve(handler)

        return behave

    @staticmethod
    def ignore_range(handler: Handler) -> None:
        handler.head(200, Content_Length=len(handler.server.content))
        handler.body(handler.server.content)

    @staticmethod
    def announce(length: int | None, content: bytes | None = None) -> Behaviour:
        """Send ``content`` (or the right one) under a Content-Length of ``length``, or none."""

        def behave(handler: Handler) -> None:
            data = handler.server.content if content is None else content
            handler.head(200, **({} if length is None else {"Content_Length": length}))
            handler.body(data)
            handler.break_off()

        return behave

    @staticmethod
    def content_range(text: str) -> Behaviour:
        """Answer 206 with the right rest, but this Content-Range."""

        def behave(handler: Handler) -> None:
            start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            rest = handler.server.content[start:]
            handler.head(206, Content_Length=len(rest), Content_Range=text)
            handler.body(rest)

        return behave

    @staticmethod
    def chunked(chunks: list[bytes], last: bytes = b"0\r\n\r\n") -> Behaviour:
        def behave(handler: Handler) -> None:
            handler.head(200, Transfer_Encoding="chunked")
            for chunk in chunks:
                handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                handler.seen.body_bytes += len(chunk)
            handler.wfile.write(last)
            handler.break_off()

        return behave

    @staticmethod
    def endless(handler: Handler) -> None:
        handler.head(200)
        while True:
            handler.body(bytes(1 << 16))

    @staticmethod
    def stall_after(count: int, seconds: float = 5.0) -> Behaviour:
        def behave(handler: Handler) -> None:
            handler.head(200, Content_Length=len(handler.server.content), ETag=handler.server.etag)
            handler.body(handler.server.content[:count])
            handler.wfile.flush()
            handler.server.released.wait(seconds)

        return behave

    @staticmethod
    def trickle(handler: Handler) -> None:
        handler.head(200, Content_Length=len(handler.server.content))
        for index in range(200):
            handler.body(handler.server.content[index : index + 1])
            time.sleep(0.02)

    @staticmethod
    def raw(data: bytes) -> Behaviour:
        """Send exactly these bytes as the answer."""

        def behave(handler: Handler) -> None:
            handler.wfile.write(data)
            handler.break_off()

        return behave


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def new_server() -> Iterator[Callable[..., Server]]:
    """A function that starts a server; all are stopped at the end."""
    servers: list[Server] = []

    def start(content: bytes, **settings: object) -> Server:
        server = Server(content, **settings)  # type: ignore[arg-type]
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.released.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def misbehaving() -> type[misbehave]:
    """The ways to go wrong."""
    return misbehave
