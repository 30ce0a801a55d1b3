"""Two servers on one folder: each client gets the answers of its own model."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import Server, check_session, wait_for

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import TargetError
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.protocols.client.connection import Connection, describe
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.frame import ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ModelOffer
from nnpipe.protocols.server.inference_service import remove_folders
from nnpipe.testing.fakes import write_fake_model
from nnpipe.testing.protocol import IO, create_batch

PART = 1 << 20


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


@pytest.fixture
def servers(kept: Path) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(Server("--save-model-path", str(kept), timeout=5.0))
            for _ in range(2)
        ]
        yield found
        for server in found:
            assert server.stop() == 0
    assert not list(kept.glob(".nnpipe-*"))


def stranger(server: Server) -> Connection:
    connection = Connection(server.protocol.connect(), HostConversation())
    connection.perform_handshake()
    return connection


def begin(connection: Connection, model: Artifact, name: str = "") -> None:
    offer = ModelOffer(model.size, bytes.fromhex(model.sha256), describe(model, name)).pack()
    connection.ask(FrameKind.MODEL, (offer,), FrameFlag.BEGIN)


def send(connection: Connection, content: bytes, at: int, end: int) -> None:
    for start in range(at, end, PART):
        part = start.to_bytes(8, "little") + content[start : min(start + PART, end)]
        connection.ask(FrameKind.MODEL, (part,), FrameFlag.PART)


@pytest.fixture(params=[8, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def rounds(request: pytest.FixtureRequest) -> int:
    return request.param


def models(rounds: int, folder: Path, **behaviour: object) -> Iterator[Artifact]:
    """A new model in each round, of two parts and a bit."""
    for number in range(rounds):
        place = folder / f"{number}"
        place.mkdir()
        yield write_fake_model(place, IO, padding=2 * PART + number, **behaviour)


def test_a_client_gets_its_own_model_whatever_others_send_under_its_digest(
    servers: list[Server], tmp_path: Path, kept: Path, rounds: int
) -> None:
    honest, other = servers
    for model in models(rounds, tmp_path):
        content = model.path.read_bytes()
        wrong = b'{"fault": "raise"}\n' + bytes(model.size - 19)
        mine, theirs = stranger(honest), stranger(other)
        begin(mine, model)
        send(mine, content, 0, PART)
        begin(theirs, model)
        send(theirs, wrong, 0, len(wrong))
        send(mine, content, PART, len(content))
        with pytest.raises(TargetError) as caught:
            theirs.ask(FrameKind.MODEL, (), FrameFlag.END)
        assert caught.value.code == ErrorCode.DAMAGED
        mine.ask(FrameKind.MODEL, (), FrameFlag.END)
        (path,) = [
            path
            for path in kept.iterdir()
            if path.name.startswith(model.sha256[:16]) and path.suffix != ".json"
        ]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
        mine.close()
        theirs.close()


@pytest.mark.slow
def test_two_models_of_one_name_do_not_get_mixed_up(
    servers: list[Server], tmp_path: Path, rounds: int
) -> None:
    options = RemoteOptions(save_model_path="model.fake")
    (tmp_path / "right").mkdir()
    (tmp_path / "failing").mkdir()
    rights, faults = (
        models(rounds, tmp_path / "right"),
        models(rounds, tmp_path / "failing", fault="raise"),
    )
    wrong: list[str] = []

    def use_right(model: Artifact) -> None:
        try:
            with open_session(servers[0].protocol, model, options) as session:
                check_session(session)
        except BaseException as error:
            wrong.append(repr(error))

    def use_failing(model: Artifact) -> None:
        try:
            with open_session(servers[1].protocol, model, options) as session:
                session.infer(create_batch())
            wrong.append("it did not fail")
        except TargetError as error:
            if "told to fail" not in str(error):
                wrong.append(repr(error))

    for right, failing in zip(rights, faults, strict=True):
        threads = [
            threading.Thread(target=use_right, args=(right,)),
            threading.Thread(target=use_failing, args=(failing,)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


@pytest.mark.slow
def test_a_part_that_a_stranger_left_costs_the_next_client_nothing(
    servers: list[Server], tmp_path: Path
) -> None:
    """It is found out when all has come; the client then sends the whole by itself."""
    server = servers[0]
    for model in models(5, tmp_path):
        strange = stranger(server)
        begin(strange, model)
        send(strange, bytes(2 * PART), 0, PART)
        strange.close()
        wait_for(lambda: not server.workers())
        with open_session(server.protocol, model) as session:
            check_session(session)


@pytest.mark.slow
def test_a_server_that_starts_removes_what_one_that_was_killed_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / "models"
    folder.mkdir()
    with Server(timeout=2.0) as alive, Server(timeout=2.0) as killed:
        with open_session(killed.protocol, write_fake_model(folder, IO)):
            killed.kill()
            killed.process.wait(20)
        left = set(tmp_path.glob("nnpipe-*"))
        with Server(timeout=2.0) as restarted:
            assert len(left - set(tmp_path.glob("nnpipe-*"))) == len(left) / 2, (
                "those of the one alive stay"
            )
            for server in (alive, restarted):
                with open_session(server.protocol, write_fake_model(folder, IO)) as session:
                    check_session(session)
            assert restarted.stop() == alive.stop() == 0
    assert list(tmp_path.glob("nnpipe-*")) == []


# -- what clients are told
# ---------------------------------------------------------------------------


def test_a_client_is_not_told_where_things_lie_on_the_server(kept: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange.onnx"
    strange.write_bytes(b"this is no model")
    model = Artifact.create(strange, "onnx", IO)
    with Server("--save-model-path", str(kept), runtime="ONNXRuntime", timeout=10.0) as server:
        with pytest.raises(TargetError) as caught:
            open_session(server.protocol, model)
        assert server.stop() == 0
    assert str(kept) not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert model.sha256[:16] in str(caught.value), "which file it was is told nevertheless"
    assert str(kept) in server.log, "whoever runs the server can see it"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/usr/lib/libgone.so: no such file", "libgone.so: no such file"),
        ("cannot open '/usr/lib/x/y.so' (2)", "cannot open 'y.so' (2)"),
        ("node /conv1/Conv has no kernel", "node /conv1/Conv has no kernel"),
        ("1/2 of it; a/b/c", "1/2 of it; a/b/c"),
        ("the model /srv of mine/models/x.onnx is damaged", "the model x.onnx is damaged"),
        ("C:\\Users\\me\\x.dll failed", "x.dll failed"),
        (f"{os.getcwd()}/x.py", "x.py"),  # noqa: PTH109
    ],
)
def test_paths_lose_their_folders(text: str, told: str) -> None:
    assert remove_folders(text, Path("/srv of mine/models")) == told
