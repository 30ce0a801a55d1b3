"""What can go wrong with one client or its model; the next client is always served rightly."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from servers import Server, check_session, serves, wait_for, within

from nnpipe.core.errors import (
    AuthenticationError,
    NNPipeError,
    ProtocolError,
    RemoteProtocolError,
    TargetError,
    TransportError,
)
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.protocols.channels.stream_socket import SocketChannel
from nnpipe.protocols.client.connection import Connection
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind, pack_header
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ModelOffer
from nnpipe.testing.fakes import compute_expected, write_fake_model
from nnpipe.testing.protocol import IO, assert_equal_outputs, create_batch

TIMEOUT = 1.0
SOON = 5.0  # the time limit, and what a busy machine may add


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    with Server(
        "--run-timeout", "1", "--load-timeout", "1", "--greeting-timeout", "2", timeout=TIMEOUT
    ) as server:
        yield server
        assert server.stop() == 0
        # Only failures of the runtime, which is not ours, are told with a traceback.
        assert server.log.count("Traceback") == server.log.count("the runtime failed"), server.log


@pytest.fixture
def server(one_server: Server) -> Server:
    """The server of this module when nobody is served: the worker of the test before may still
    be ending.
    """
    wait_for(lambda: not one_server.workers())
    return one_server


def raw(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SOON)


@contextlib.contextmanager
def greeted(server: Server) -> Iterator[Connection]:
    """A client that was let in, and that leaves even if the test fails: the next test must find
    no client.
    """
    with contextlib.closing(
        Connection(server.protocol.connect(), HostConversation(number=1))
    ) as connection:
        connection.perform_handshake()
        yield connection


def said_by(sock: socket.socket) -> bytes:
    """All that comes until the line is closed."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(4096):
            found += data
    return found


# -- what is sent makes no sense
# --------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 23, 24, 1000, 100_000])
def test_random_bytes_and_then_nothing(server: Server, tmp_path: Path, size: int) -> None:
    with raw(server) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(random.Random(size).randbytes(size))
    serves(server.protocol, tmp_path)


def test_a_web_browser_is_told_off(server: Server, tmp_path: Path) -> None:
    with raw(server) as sock, within(SOON):
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = said_by(sock)
    assert answer[2:4] == bytes([FrameKind.ERROR, FrameFlag.FATAL])
    serves(server.protocol, tmp_path)


@pytest.mark.parametrize("greeting", [False, True])
@pytest.mark.parametrize("kind", [0, 12, 200, 255])
def test_an_unknown_kind(server: Server, tmp_path: Path, kind: int, greeting: bool) -> None:
    if greeting:
        with greeted(server) as connection:
            connection.send([pack_header(kind, 0, 2, 0, 0)])
            connection.conversation.ask(FrameKind.STATS)
            with within(SOON), pytest.raises(RemoteProtocolError, match="not a request"):
                connection.answer()
    else:
        with raw(server) as sock, within(SOON):
            sock.sendall(pack_header(kind, 0, 1, 0, 0))
            assert said_by(sock)[2] == FrameKind.ERROR
    serves(server.protocol, tmp_path)


@pytest.mark.parametrize(
    "kind", [FrameKind.HELLO, FrameKind.MODEL, FrameKind.DATA, FrameKind.STATS]
)
def test_four_gigabytes_announced(server: Server, tmp_path: Path, kind: FrameKind) -> None:
    with greeted(server) as connection:
        worker = server.worker()
        connection.send([pack_header(kind, 0, 2, 0xFFFF_FFFF, 0)])
        connection.conversation.ask(FrameKind.STATS)
        with within(SOON), pytest.raises(RemoteProtocolError):
            connection.answer()
        with contextlib.suppress(psutil.NoSuchProcess):
            assert worker.memory_info().rss < 200 << 20
    serves(server.protocol, tmp_path)


def test_four_gigabytes_announced_by_a_stranger(server: Server, tmp_path: Path) -> None:
    with raw(server) as sock, within(SOON):
        sock.sendall(pack_header(FrameKind.HELLO, 0, 1, 0xFFFF_FFFF, 0))
        assert b"4,294,967,295" in said_by(sock)
    serves(server.protocol, tmp_path)


def test_a_model_larger_than_the_server_takes(server: Server, tmp_path: Path) -> None:
    offer = ModelOffer(1 << 50, bytes(32), {"format": "fake"}).pack()
    with greeted(server) as connection, pytest.raises(TargetError) as caught:
        connection.ask(FrameKind.MODEL, (offer,), FrameFlag.BEGIN)
    assert caught.value.code == ErrorCode.NO_SPACE
    serves(server.protocol, tmp_path)


# -- clients that leave
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("step", ["hello", "model", "data", "process", "output"])
def test_death_at_any_step(server: Server, tmp_path: Path, step: str, share: float) -> None:
    """The client dies when it has sent a part of a frame."""
    model = write_fake_model(tmp_path, IO)
    if step == "hello":
        with raw(server) as sock:
            frames = b"".join(HostConversation().build_hello())
            sock.sendall(frames[: int(share * len(frames))])
    else:
        with greeted(server) as connection:
            conversation = connection.conversation
            offer = ModelOffer(
                model.size, bytes.fromhex(model.sha256), {"format": "fake", "io": IO.to_json()}
            )
            if step == "model":
                frames = conversation.ask(FrameKind.MODEL, (offer.pack(),), FrameFlag.BEGIN)
            else:
                from nnpipe.protocols.client.connection import upload
                from nnpipe.protocols.conversation.payloads import TensorLayout

                upload(connection, model, "", 5.0)
                data = TensorLayout(IO.inputs).pack(create_batch())
                frames = conversation.ask(FrameKind.DATA, data)
                if step in ("process", "output"):
                    connection.send(frames)
                    connection.answer()
                    frames = conversation.ask(FrameKind.PROCESS)
                if step == "output":
                    connection.send(frames)
                    connection.answer()
                    connection.answer()
                    frames = conversation.ask(FrameKind.OUTPUT)
            whole = b"".join(map(bytes, frames))
            connection.send([whole[: int(share * len(whole))]])
    with within(SOON):
        serves(server.protocol, tmp_path)


def test_death_between_data_and_process(server: Server, tmp_path: Path) -> None:
    session = open_session(server.protocol, write_fake_model(tmp_path, IO))
    session.put(create_batch(3, 99))
    session.close()
    # The next client's input is its own, whole, and not prefixed with the dead one's.
    with within(SOON):
        serves(server.protocol, tmp_path)


def test_death_while_the_model_runs(server: Server, tmp_path: Path) -> None:
    session = open_session(server.protocol, write_fake_model(tmp_path, IO, spin_us=700_000))
    session.put(create_batch())
    session._connection.send(session._conversation.ask(FrameKind.PROCESS))
    session.close()
    with within(SOON):
        serves(server.protocol, tmp_path)


# -- runtimes that fail
# -----------------------------------------------------------------------------

Ask = Callable[[RemoteSession], object]


def one_by_one(session: RemoteSession) -> None:
    session.put(create_batch())
    session.run()
    session.get()


def in_one_request(session: RemoteSession) -> None:
    session.infer(create_batch())


@pytest.mark.parametrize("ask", [one_by_one, in_one_request])
@pytest.mark.parametrize("at", ["load", "put", "run", "get"])
@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("raise", ErrorCode.RUNTIME, "RuntimeError: the fake model was told to fail in two lines"),
        ("memory", ErrorCode.MEMORY, "wants more than there is"),
    ],
)
def test_a_runtime_that_raises(
    server: Server, tmp_path: Path, ask: Ask, at: str, fault: str, code: ErrorCode, text: str
) -> None:
    def use() -> None:
        with open_session(
            server.protocol, write_fake_model(tmp_path, IO, fault=fault, at=at)
        ) as session:
            ask(session)

    with within(SOON), pytest.raises(TargetError, match=text) as caught:
        use()
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    serves(server.protocol, tmp_path)


def test_a_runtime_that_raises_once_can_be_used_on(server: Server, tmp_path: Path) -> None:
    with open_session(
        server.protocol, write_fake_model(tmp_path, IO, fault="raise", after=2)
    ) as session:
        found = []
        with pytest.raises(TargetError, match="told to fail"):
            found.extend(session.run_pipelined(create_batch(2, n) for n in range(6)))
        assert len(found) == 2
        assert session.stats()["inferences"] == 2
        with pytest.raises(NNPipeError, match="no outputs"):
            session.get()


def test_a_runtime_whose_outputs_are_not_what_it_said(server: Server, tmp_path: Path) -> None:
    model = write_fake_model(tmp_path, IO, fault="wrong-shape", at="get")
    with open_session(server.protocol, model) as session:
        session.put(create_batch())
        session.run()
        with pytest.raises(TargetError, match="expected outputs"):
            session.get()
    serves(server.protocol, tmp_path)


@pytest.mark.parametrize("ask", [one_by_one, in_one_request])
@pytest.mark.parametrize(
    "at", [*(pytest.param(at, marks=pytest.mark.slow) for at in ("load", "put", "get")), "run"]
)
def test_a_runtime_that_hangs(server: Server, tmp_path: Path, ask: Ask, at: str) -> None:
    def use() -> None:
        with open_session(
            server.protocol, write_fake_model(tmp_path, IO, fault="hang", at=at)
        ) as session:
            ask(session)

    # To put and get the host grants a second, as long as the server does: either may be the first
    # to lose patience.
    ends = (TransportError, TargetError) if at in ("put", "get") else (TargetError,)
    with within(SOON), pytest.raises(ends) as caught:
        use()
    if isinstance(caught.value, TargetError):
        assert caught.value.code == ErrorCode.TIMEOUT
        assert "more than 1 s" in str(caught.value)
    with within(SOON):
        serves(server.protocol, tmp_path)


@pytest.mark.parametrize("ask", [one_by_one, in_one_request])
@pytest.mark.parametrize("at", ["load", "put", "run", "get"])
@pytest.mark.parametrize(("fault", "how"), [("die", "SIGKILL"), ("exit", "status 3")])
def test_a_runtime_that_takes_its_process_along(
    server: Server, tmp_path: Path, ask: Ask, at: str, fault: str, how: str
) -> None:
    def use() -> None:
        with open_session(
            server.protocol, write_fake_model(tmp_path, IO, fault=fault, at=at)
        ) as session:
            ask(session)

    with within(SOON), pytest.raises(TargetError, match=how) as caught:
        use()
    assert caught.value.code == ErrorCode.DIED
    with within(SOON):
        serves(server.protocol, tmp_path)


# -- servers that die
# -------------------------------------------------------------------------------

STEPS = ("connected", "greeted", "begun", "half", "loaded", "put", "running", "done", "fetched")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=[pytest.mark.slow] * (step not in ("connected", "running")))
        for step in STEPS
    ],
)
def test_a_server_that_is_killed_at_any_step(tmp_path: Path, step: str) -> None:
    model = write_fake_model(
        tmp_path, IO, spin_us=400_000 if step == "running" else 0, padding=20_000
    )
    offer = ModelOffer(
        model.size, bytes.fromhex(model.sha256), {"format": "fake", "io": IO.to_json()}
    )
    with Server(timeout=TIMEOUT) as server:

        def kill() -> None:
            workers = server.workers()
            server.kill()
            server.process.wait(10)
            for worker in workers:  # they go with their supervisor
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.wait(5)

        def use() -> None:
            if step == "connected":
                channel = server.protocol.connect()
                kill()
                Connection(channel, HostConversation()).perform_handshake()
            if step in ("greeted", "begun", "half"):
                with greeted(server) as connection:
                    if step != "greeted":
                        connection.ask(FrameKind.MODEL, (offer.pack(),), FrameFlag.BEGIN)
                    if step == "half":
                        connection.send(
                            [
                                b"".join(
                                    connection.conversation.ask(
                                        FrameKind.MODEL, (bytes(8008),), FrameFlag.PART
                                    )
                                )[:5000]
                            ]
                        )
                    kill()
                    connection.send([b"x"])
                    connection.answer()
            with open_session(server.protocol, model) as session:
                for action in (
                    "loaded",
                    session.put,
                    "put",
                    session.run,
                    "done",
                    session.get,
                    "fetched",
                ):
                    if step == "running" and action == session.run:
                        threading.Timer(0.1, kill).start()
                    if action == step:
                        kill()
                    elif callable(action):
                        action(*([create_batch()] if action == session.put else []))
                session.infer(create_batch())

        with within(SOON + 2), pytest.raises((TransportError, ProtocolError)) as caught:
            use()
        assert "\n" not in str(caught.value)
    with Server(timeout=TIMEOUT) as server:
        serves(server.protocol, tmp_path)


@pytest.mark.parametrize("step", ["loaded", "put", "done"])
def test_a_worker_that_is_killed_while_it_waits(server: Server, tmp_path: Path, step: str) -> None:
    session = open_session(server.protocol, write_fake_model(tmp_path, IO))
    if step != "loaded":
        session.put(create_batch())
    if step == "done":
        session.run()
    server.worker().kill()
    with within(SOON), pytest.raises((TargetError, TransportError)):
        session.infer(create_batch())
    session.close()
    serves(server.protocol, tmp_path)


# -- too many, too slow
# -----------------------------------------------------------------------------


def test_a_second_client_is_told_at_once_that_the_server_is_busy(
    server: Server, tmp_path: Path
) -> None:
    model = write_fake_model(tmp_path, IO)
    with open_session(server.protocol, model) as first:
        for _ in range(3):
            with within(1.0), pytest.raises(TargetError, match="another client") as caught:
                open_session(server.protocol, model)
            assert caught.value.code == ErrorCode.BUSY
            check_session(first)
    serves(server.protocol, tmp_path)


def test_a_second_client_is_told_while_the_model_runs(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO, spin_us=900_000)) as first:
        first.put(create_batch())
        thread = threading.Thread(target=first.run)
        thread.start()
        with within(0.7), pytest.raises(TargetError, match="another client"):
            open_session(server.protocol, write_fake_model(tmp_path, IO))
        thread.join()


@pytest.mark.slow
def test_clients_that_say_nothing_do_not_keep_others_out(server: Server, tmp_path: Path) -> None:
    silent = [raw(server) for _ in range(100)]
    try:
        with within(SOON):
            serves(server.protocol, tmp_path)
        with within(SOON):
            said = [said_by(sock) for sock in silent[-10:]]
        assert all(b"no greeting came for 2 s" in words for words in said)
    finally:
        for sock in silent:
            sock.close()


def test_a_client_that_stalls_in_the_middle_of_a_frame(server: Server, tmp_path: Path) -> None:
    session = open_session(server.protocol, write_fake_model(tmp_path, IO))
    frames = session._conversation.ask(FrameKind.DATA, session._inputs.pack(create_batch()))
    session._connection.send([frames[0], bytes(frames[1])[:1]])
    with within(SOON), pytest.raises(TargetError, match="rest of a frame") as caught:
        session._connection.answer(patience=SOON)
    assert caught.value.code == ErrorCode.TIMEOUT
    serves(server.protocol, tmp_path)


@pytest.mark.slow
def test_a_client_that_does_not_take_its_answers(server: Server, tmp_path: Path) -> None:
    from nnpipe.core.tensors import IOSpec, TensorSpec

    io = IOSpec((TensorSpec("x", (8,), "uint8"),), (TensorSpec("y", (30_000_000,), "uint8"),))
    import numpy as np

    session = open_session(server.protocol, write_fake_model(tmp_path, io))
    session.put({"x": np.zeros(8, np.uint8)})
    session.run()
    session._connection.send(session._conversation.ask(FrameKind.OUTPUT))
    wait_for(lambda: not server.workers())
    session.close()
    serves(server.protocol, tmp_path)


@pytest.mark.slow
def test_a_client_that_asks_for_nothing_must_go(tmp_path: Path) -> None:
    with Server("--idle-timeout", "0.5", timeout=0.2) as server:
        session = open_session(server.protocol, write_fake_model(tmp_path, IO))
        with within(SOON):
            wait_for(lambda: not server.workers())
        with pytest.raises((TargetError, TransportError)):
            session.infer(create_batch())
        serves(server.protocol, tmp_path)


def test_ten_thousand_strangers_leave_nothing_behind(tmp_path: Path) -> None:
    """The slow test does ten thousand; a thousand show a leak as well."""
    strangers(1000, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_strangers_leave_nothing_behind_indeed(tmp_path: Path) -> None:
    strangers(10_000, tmp_path)


def descriptors_at_rest(server: Server) -> int:
    """The server's descriptors without a client; it closes those of a worker only after it has
    waited for that.
    """
    wait_for(lambda: not server.workers())
    process = psutil.Process(server.process.pid)
    counts = [process.num_fds()]
    while len(counts) < 10 or len(set(counts[-10:])) > 1:
        time.sleep(0.05)
        counts.append(process.num_fds())
    return counts[-1]


def strangers(count: int, folder: Path) -> None:
    chance = random.Random(count)
    token = folder / "token"
    token.write_text("a token that is long enough")
    with Server("--token-file", str(token), "--greeting-timeout", "1", timeout=TIMEOUT) as server:
        process = psutil.Process(server.process.pid)

        def visit() -> None:
            with raw(server) as sock, contextlib.suppress(ConnectionError):
                what = chance.randrange(5)
                if what == 0:
                    sock.sendall(chance.randbytes(chance.choice((1, 30, 3000))))
                elif what == 1:
                    sock.sendall(b"".join(HostConversation().build_hello()))
                    sock.recv(100)
                elif what == 2:
                    sock.sendall(pack_header(chance.randrange(12), 0, 1, chance.getrandbits(32), 0))
                elif what == 3:
                    sock.close()
                    # Each from an address of its own: from one, they would have to wait longer and
                    # longer.
                    origin = f"127.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"
                    other = socket.create_connection(
                        ("127.0.0.1", server.port), SOON, source_address=(origin, 0)
                    )
                    other.settimeout(None)
                    channel = SocketChannel(other, SOON, 1 << 22, "the target")
                    connection = Connection(
                        channel, HostConversation(token=b"not the right one at all")
                    )
                    with contextlib.suppress(AuthenticationError):
                        connection.perform_handshake()
                    connection.close()

        for _ in range(200):
            visit()
        serves(server.protocol, folder, token)
        before = process.memory_info().rss, descriptors_at_rest(server)
        for number in range(count):
            visit()
            if number == count // 2:
                serves(server.protocol, folder, token)
        serves(server.protocol, folder, token)
        assert descriptors_at_rest(server) == before[1]
        assert process.memory_info().rss <= before[0] + (2 << 20)


# -- disks that fill up
# -----------------------------------------------------------------------------


def test_a_disk_that_fills_up_while_a_model_arrives(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    with Server(prepare=limit, timeout=TIMEOUT) as server:
        with within(SOON), pytest.raises(TargetError, match="disk is full") as caught:
            open_session(server.protocol, write_fake_model(tmp_path, IO, padding=5 << 20))
        assert caught.value.code == ErrorCode.NO_SPACE
        serves(server.protocol, tmp_path)


# -- an upload that breaks off
# ----------------------------------------------------------------------


def test_an_upload_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    model = write_fake_model(tmp_path, IO, padding=5 << 20)
    with Server("--save-model-path", str(kept), timeout=20.0) as server:
        from nnpipe.protocols.client.connection import describe

        offer = ModelOffer(
            model.size, bytes.fromhex(model.sha256), describe(model, "kept.fake")
        ).pack()
        content = model.path.read_bytes()
        with greeted(server) as connection:
            connection.ask(FrameKind.MODEL, (offer,), FrameFlag.BEGIN)
            for at in (0, 1 << 20, 2 << 20):
                part = at.to_bytes(8, "little") + content[at : at + (1 << 20)]
                connection.ask(FrameKind.MODEL, (part,), FrameFlag.PART)
        options = RemoteOptions(save_model_path="kept.fake")
        sent: list[int] = []

        with counting(sent), open_session(server.protocol, model, options) as session:
            check_session(session)
        assert sum(sent) < 3 << 20
        sent.clear()
        with counting(sent), open_session(server.protocol, model, options) as session:
            check_session(session)
        assert sum(sent) < 100_000
        # one that is killed leaves what its worker had not cleared away yet to the next
        assert server.stop() == 0
    assert (kept / "kept.fake").read_bytes() == content
    from nnpipe.core.artifact import Artifact

    assert Artifact.read(kept / "kept.fake").io == IO
    assert sorted(path.name for path in kept.iterdir()) == ["kept.fake", "kept.fake.json"]


@contextlib.contextmanager
def counting(sent: list[int]) -> Iterator[None]:
    from nnpipe.protocols.channels import stream_socket

    original = stream_socket.SocketChannel.send

    def send(self: object, buffers: list[bytes]) -> None:
        sent.append(sum(map(len, buffers)))
        original(self, buffers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_socket.SocketChannel, "send", send)
        yield


# -- stopping
# ---------------------------------------------------------------------------------------


def test_sigterm_stops_an_idle_server_at_once() -> None:
    with Server() as server, within(SOON):
        assert server.stop() == 0
        assert "the server has stopped" in server.log


def test_ctrl_c_stops_it_too() -> None:
    with Server() as server, within(SOON):
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0


@pytest.mark.parametrize("running", [False, True])
def test_sigterm_tells_the_client(
    tmp_path: Path, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the server's own; other tests' servers come and go beside it
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Server(timeout=TIMEOUT) as server:
        session = open_session(
            server.protocol, write_fake_model(tmp_path, IO, spin_us=3e6 if running else 0)
        )
        worker = server.worker()
        session.put(create_batch())
        if running:
            threading.Timer(0.2, lambda: server.process.send_signal(signal.SIGTERM)).start()
        else:
            assert server.stop() == 0
        with pytest.raises(TargetError, match="being stopped") as caught:
            session.run()
        assert caught.value.code == ErrorCode.STOPPING
        # Not told again: a second signal could meet an interpreter that is ending and no longer
        # handles any.
        assert server.process.wait(20) == 0
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.wait(5)
        assert list(tmp_path.glob("nnpipe-*")) == []


def test_a_server_that_cannot_listen_says_so_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "nnpipe.scenarios.inference_server",
                "NetworkProtocol",
                "nnpipe.testing.fakes.FakeRuntime",
                "--port",
                str(taken.getsockname()[1]),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot listen" in done.stderr


def test_right_results_after_all_this(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        check_session(session, range(20))
        batch = create_batch(4, 4)
        assert_equal_outputs(session.infer(batch), compute_expected(IO, batch))
