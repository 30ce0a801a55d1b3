"""What can go wrong at the server in C, and what its options say."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import CRASH, HANG, LARGE, SLOW, CServer, expected, write_large_model, write_model

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import AuthenticationError, TargetError
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.conversation.frame import ErrorCode, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import NO_GPU, Stats
from nnpipe.testing.protocol import assert_equal_outputs
from nnpipe.testing.raw_host import RawHost, connect_host, create_model_batch, create_model_payload
from nnpipe.workflows.devices.c_server import build_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")

TOKEN = "a token that is long enough"
SOON = 5.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_model(tmp_path_factory.mktemp("counting"), counts_runs=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_large_model(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def program(
    model: Artifact, counting: Artifact, large: Artifact, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("server") / "server"
    build_server([model.path, counting.path, large.path], path, flags=("-O0",))
    return path


@pytest.fixture
def serve(program: Path) -> Callable[..., contextlib.AbstractContextManager[CServer]]:
    return lambda *options: CServer(program, *options)


def told(model: Artifact, what: int) -> dict[str, np.ndarray]:
    """Return inputs that make the model do something else than compute."""
    batch = create_model_batch(model, 0)
    batch["image"][0, 0] = what
    return batch


def check(server: CServer, model: Artifact, options: RemoteOptions | None = None) -> None:
    batch = create_model_batch(model, 3)
    with open_session(server.protocol, model, options) as session:
        assert_equal_outputs(session.infer(batch), expected(batch))


def in_one(session: RemoteSession, batch: dict[str, np.ndarray]) -> None:
    session.infer(batch)


def one_by_one(session: RemoteSession, batch: dict[str, np.ndarray]) -> None:
    session.put(batch)
    session.run()


@pytest.mark.parametrize("ask", [in_one, one_by_one])
@pytest.mark.parametrize(
    ("what", "code", "text"),
    [
        (CRASH, ErrorCode.DIED, "it ended by SIGSEGV while it ran the model"),
        (HANG, ErrorCode.TIMEOUT, "the inference took more than 0.2 s"),
    ],
)
def test_a_model_that_fails_costs_its_client_the_connection(
    serve: Callable[..., CServer],
    model: Artifact,
    ask: Callable[..., None],
    what: int,
    code: ErrorCode,
    text: str,
) -> None:
    with serve("--run-timeout", "0.2") as server:
        with (
            open_session(server.protocol, model) as session,
            pytest.raises(TargetError, match=text) as caught,
        ):
            ask(session, told(model, what))
        assert caught.value.code == code
        check(server, model)


@pytest.mark.parametrize(
    ("options", "sent", "text"),
    [
        (("--timeout", "0.2"), 30, "the rest of a frame did not come"),
        (("--idle-timeout", "0.2"), 0, "no request came for 0.2 s"),
    ],
)
def test_a_client_that_stops_must_go(
    serve: Callable[..., CServer], model: Artifact, options: tuple[str, ...], sent: int, text: str
) -> None:
    with serve(*options) as server:
        with connect_host(server.protocol) as (host, _):
            host.load(model)
            host.send(host.frame(FrameKind.DATA, create_model_payload(model, 0))[:sent])
            answer = host.answer()
            assert (answer.fatal, answer.code) == (True, ErrorCode.TIMEOUT)
            assert text in answer.payload.decode("utf-8", "replace")
        check(server, model)


def test_a_client_that_does_not_say_who_it_is_must_go(
    serve: Callable[..., CServer], model: Artifact
) -> None:
    with serve("--greeting-timeout", "0.2") as server, RawHost(server.protocol) as host:
        assert host.answer().code == ErrorCode.TIMEOUT
        check(server, model)


def test_each_sample_begins_anew_and_so_does_each_client(
    serve: Callable[..., CServer], counting: Artifact
) -> None:
    with serve() as server:
        for _ in range(2):
            with connect_host(server.protocol, extensions=4) as (host, _):
                for _ in range(2):
                    host.load(counting)
                    counted = [
                        host.ask(FrameKind.INFER, bytes(44)).payload[-16:-12] for _ in range(3)
                    ]
                    assert [np.frombuffer(each, "<f4")[0] for each in counted] == [0.0] * 3


@pytest.mark.parametrize("extensions", [0, 7])
def test_tensors_larger_than_its_buffers_arrive_unchanged(
    serve: Callable[..., CServer], large: Artifact, model: Artifact, extensions: int
) -> None:
    batches = [
        {"x": np.random.default_rng(seed).integers(0, 256, LARGE, np.uint8)} for seed in range(4)
    ]
    with serve() as server:
        with open_session(server.protocol, large, limits=Limits(extensions=extensions)) as session:
            for batch, found in zip(batches, session.stream(batches), strict=True):
                assert_equal_outputs(found, {"y": batch["x"] + 1})
            session.put(batches[0])
            session.run()
            assert_equal_outputs(session.get(), {"y": batches[0]["x"] + 1})
        check(server, model)


def test_a_client_that_does_not_take_its_outputs_must_go(
    serve: Callable[..., CServer], large: Artifact, model: Artifact
) -> None:
    with serve("--timeout", "0.3") as server:
        with connect_host(server.protocol, extensions=5) as (host, _):
            host.load(large)
            host.send(host.frame(FrameKind.INFER, bytes(LARGE)))
            ahead = b"".join(host.frame(FrameKind.OUTPUT) for _ in range(300))
            host.send(ahead)
            with connect_host(server.protocol):  # who waits until the seat is free
                pass
        check(server, model)


def test_a_second_client_is_told_while_the_model_runs(
    serve: Callable[..., CServer], model: Artifact
) -> None:
    with serve() as server, open_session(server.protocol, model) as session:
        running = threading.Thread(target=session.infer, args=(told(model, SLOW),))
        running.start()
        time.sleep(0.1)
        with RawHost(server.protocol) as host:
            assert host.perform_handshake().code == ErrorCode.BUSY
        running.join()


@pytest.mark.parametrize("running", [False, True])
def test_sigterm_tells_the_client(
    serve: Callable[..., CServer], model: Artifact, running: bool
) -> None:
    with serve() as server, open_session(server.protocol, model) as session:
        if running:
            threading.Timer(0.1, server.process.terminate).start()
        else:
            assert server.stop()[0] == 0
        with pytest.raises(TargetError, match="being stopped"):
            session.infer(told(model, HANG if running else 0))
        assert server.process.wait(SOON) == 0


def test_the_process_is_watched(serve: Callable[..., CServer], model: Artifact) -> None:
    with serve() as server, connect_host(server.protocol) as (host, _):
        time.sleep(0.5)
        rows = Stats.unpack(host.ask(FrameKind.STATS).payload).table()
        assert len(rows["time"]) >= 2
        assert all(1 << 16 < size < 64 << 20 for size in rows["process_bytes"])
        assert set(rows["gpu_bytes"]) == {NO_GPU}
        again = Stats.unpack(host.ask(FrameKind.STATS).payload)
        assert len(again.rows) <= 40


# -- the token
# --------------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f" {TOKEN}\n")
    return path


def test_a_client_must_know_the_token(
    serve: Callable[..., CServer], model: Artifact, token_file: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another token, as long as it")
    with serve("--token-file", str(token_file)) as server:
        check(server, model, RemoteOptions(token_file=token_file))
        with pytest.raises(AuthenticationError, match="--token-file"):
            open_session(server.protocol, model)
        with pytest.raises(AuthenticationError, match="the target refused"):
            open_session(server.protocol, model, RemoteOptions(token_file=wrong))
        check(server, model, RemoteOptions(token_file=token_file))


@pytest.mark.parametrize("token", [b"x" * 16, b"y" * 64, b"z" * 65, bytes(range(33, 127)) * 40])
def test_tokens_of_any_length_are_proved(
    serve: Callable[..., CServer], model: Artifact, token: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_bytes(token)
    with serve("--token-file", str(path)) as server:
        check(server, model, RemoteOptions(token_file=path))


def test_who_tries_tokens_has_to_wait_and_others_do_not(
    serve: Callable[..., CServer], token_file: Path
) -> None:
    def attempt(server: CServer, origin: str) -> float:
        begun = time.monotonic()
        host = RawHost(server.protocol)
        host.channel.close()
        sock = socket.create_connection(
            ("127.0.0.1", server.protocol.port), source_address=(origin, 0)
        )
        host.channel = type(host.channel)(sock, SOON, 1 << 20, "the target")  # type: ignore[call-arg]
        with host:
            assert host.perform_handshake(token=b"wrong").code == ErrorCode.AUTHENTICATION
        return time.monotonic() - begun

    with serve("--token-file", str(token_file)) as server:
        waited = [attempt(server, "127.0.0.2") for _ in range(4)]
        assert waited[3] > 0.2
        assert attempt(server, "127.0.0.3") < waited[3]


# -- the command line
# -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "0.0.0.0"], "--token-file"),
        (["--host", "::"], "--token-file"),
        (["--host", "router.lan"], "not an IP address"),
        (["--port", "70000"], "not a TCP port: 70000"),
        (["--port"], "a value is missing after --port"),
        (["--timeout", "0"], "not a number of seconds: 0"),
        (["--token-file", "/no/such/file"], "/no/such/file"),
        (["--insecure", "--token-file", "{short}"], "one of the two"),
        (["--token-file", "{short}"], "16 to 4096 bytes"),
        (["--nonsense"], "no option --nonsense"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    program: Path, words: list[str], text: str, tmp_path: Path
) -> None:
    short = tmp_path / "short"
    short.write_text("too short")
    words = [word.format(short=short) for word in words]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=SOON)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert text in done.stderr


def test_a_port_that_is_taken_is_named(program: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [str(program), "--port", port], capture_output=True, text=True, timeout=SOON
        )
    assert done.returncode == 2
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr


def test_it_lists_its_models(program: Path, model: Artifact) -> None:
    done = subprocess.run([str(program), "--models"], capture_output=True, text=True, timeout=SOON)
    assert model.sha256 in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "any.c",
        "counting.c",
        "large.c",
        "difference.c",
    ]


def test_a_server_out_of_descriptors_waits_instead_of_spinning(
    program: Path, model: Artifact
) -> None:
    limited = ("prlimit", "--nofile=7")  # the server has six before its first client
    if shutil.which("prlimit") is None:
        pytest.skip("there is no prlimit")
    with (
        CServer(program, prefix=limited) as server,
        open_session(server.protocol, model) as session,
    ):
        others = [socket.create_connection(("127.0.0.1", server.protocol.port)) for _ in range(3)]
        before = _processor_seconds(server.process.pid)
        time.sleep(1.5)
        spent = _processor_seconds(server.process.pid) - before
        assert_equal_outputs(
            session.infer(create_model_batch(model, 1)), expected(create_model_batch(model, 1))
        )
        for other in others:
            other.close()
    assert spent < 0.1


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
