"""Sessions on a server in a process of its own."""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import Server, check_session, serves

from nnpipe.core.errors import (
    ArtifactError,
    AuthenticationError,
    ConfigError,
    NNPipeError,
    NotSupported,
    SpecMismatch,
    TargetError,
    TransportError,
)
from nnpipe.core.runtime_protocol import RemoteOptions, ServerOptions
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.conversation.frame import ErrorCode, get_check_bits
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.rules import Extension
from nnpipe.protocols.network import NetworkProtocol, UnixProtocol
from nnpipe.protocols.server.serve import check_exposure
from nnpipe.protocols.tls import TLSProtocol
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.fakes import compute_expected, write_fake_model
from nnpipe.testing.protocol import IO, assert_equal_outputs, create_batch
from nnpipe.testing.session import InferenceSessionContract, OpenSession

KEYS = Path(__file__).parents[2] / "data" / "tls"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(timeout=5.0) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log, server.log


@pytest.fixture(scope="module")
def servers(server: Server) -> Iterator[list[Server]]:
    with Server(timeout=5.0) as second, Server(timeout=5.0) as third:
        yield [server, second, third]


class TestRemoteSession(InferenceSessionContract):
    @pytest.fixture
    def open_session(self, servers: list[Server], tmp_path: Path) -> OpenSession:
        turns = itertools.cycle(servers)  # each serves one client at a time
        return lambda: open_session(next(turns).protocol, write_fake_model(tmp_path, IO))

    @pytest.fixture
    def batch(self) -> Batch:
        return create_batch(2, 1)

    @pytest.fixture
    def other_batch(self) -> Batch:
        return create_batch(2, 2)


class TestRemoteOptions(ComponentContract):
    @pytest.fixture
    def component(self, tmp_path: Path) -> RemoteOptions:
        return RemoteOptions(token_file=tmp_path / "token", save_model_path="name", run_timeout=3.0)


class TestServerOptions(ComponentContract):
    @pytest.fixture
    def component(self, tmp_path: Path) -> ServerOptions:
        return ServerOptions(
            save_model_path=tmp_path, insecure=True, isolate=False, max_model_bytes=99
        )


# -- results
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["crc32", "xxh3"])
@pytest.mark.parametrize("extensions", [0, 1, 3, 4, 7])
def test_results_are_right_whatever_was_agreed_on(
    server: Server, tmp_path: Path, check: str, extensions: int
) -> None:
    limits = Limits(checks=get_check_bits([check]), extensions=extensions)
    with open_session(
        server.protocol, write_fake_model(tmp_path, IO, padding=3_000_000), limits=limits
    ) as session:
        for seed in range(4):
            batch = create_batch(500 if seed % 2 else 1, seed)
            assert_equal_outputs(session.infer(batch), compute_expected(IO, batch))
        batches = [create_batch(2, seed) for seed in range(10)]
        for batch, found in zip(batches, session.stream(batches), strict=True):
            assert_equal_outputs(found, compute_expected(IO, batch))
        assert session.stats()["inferences"] == 14
        if not extensions & Extension.PIPELINING:
            with pytest.raises(NotSupported, match="one request at a time"):
                session.run_pipelined([create_batch()])


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 1 << 20, 20_000_000])
def test_payloads_of_all_sizes_arrive(server: Server, tmp_path: Path, size: int) -> None:
    io = IOSpec((TensorSpec("x", (None,), "uint8"),), (TensorSpec("y", (None,), "uint8"),))
    with open_session(server.protocol, write_fake_model(tmp_path, io)) as session:
        batch = {"x": np.random.default_rng(size).integers(0, 256, size, np.uint8)}
        assert_equal_outputs(session.infer(batch), compute_expected(io, batch))
        batches = [batch] * 5
        for found in session.run_pipelined(batches):
            assert_equal_outputs(found, compute_expected(io, batch))


def test_outputs_fetched_twice_are_the_same_and_ones_own(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        session.put(create_batch())
        session.run()
        first = session.get()
        first["scores"][:] = 0
        assert_equal_outputs(session.get(), compute_expected(IO, create_batch()))
        session.run()
        assert_equal_outputs(session.get(), compute_expected(IO, create_batch()))


def test_a_pipeline_left_early_ends_the_session(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        for number, _ in enumerate(session.run_pipelined(create_batch(1, n) for n in range(10))):
            if number == 3:
                break
        with pytest.raises(NNPipeError, match="closed"):
            session.infer(create_batch())


def test_a_wrong_batch_in_a_pipeline_is_named_and_nothing_is_sent(
    server: Server, tmp_path: Path
) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        with pytest.raises(SpecMismatch, match="image"):
            next(session.run_pipelined([{"mask": np.zeros(7, np.float32)}]))
        check_session(session)


def test_inputs_larger_than_the_server_takes_are_refused(tmp_path: Path) -> None:
    io = IOSpec((TensorSpec("x", (None,), "uint8"),), (TensorSpec("y", (3,), "uint8"),))
    fixed = IOSpec((TensorSpec("x", (1001,), "uint8"),), io.outputs)
    with Server("--max-input-bytes", "1000") as server:
        with open_session(server.protocol, write_fake_model(tmp_path, io)) as session:
            with pytest.raises(NNPipeError, match="1,000"):
                session.put({"x": np.zeros(2000, np.uint8)})
            session.infer({"x": np.zeros(900, np.uint8)})
        with pytest.raises(TargetError, match="1,001") as caught:
            open_session(server.protocol, write_fake_model(tmp_path, fixed))
        assert caught.value.code == ErrorCode.MEMORY


def test_outputs_larger_than_the_host_takes_are_refused(server: Server, tmp_path: Path) -> None:
    io = IOSpec((TensorSpec("x", (3,), "uint8"),), (TensorSpec("y", (5000,), "uint8"),))
    options = RemoteOptions(max_output_bytes=4000)
    with open_session(server.protocol, write_fake_model(tmp_path, io), options) as session:
        session.put({"x": np.zeros(3, np.uint8)})
        session.run()
        with pytest.raises(TargetError, match="5,000"):
            session.get()
    serves(server.protocol, tmp_path)


def test_a_model_of_another_format_is_refused_with_both_named(
    server: Server, tmp_path: Path
) -> None:
    with pytest.raises(
        TargetError, match="runs fake or fake-native, the model is 'onnx'"
    ) as caught:
        open_session(server.protocol, write_fake_model(tmp_path, IO, format="onnx"))
    assert caught.value.code == ErrorCode.MODEL


def test_a_model_that_changed_since_it_was_described_is_refused(
    server: Server, tmp_path: Path
) -> None:
    model = write_fake_model(tmp_path, IO)
    model.path.write_bytes(b'{"spin_us": 1}\n')
    with pytest.raises(TargetError) as caught:
        open_session(server.protocol, model)
    assert caught.value.code == ErrorCode.DAMAGED
    model.path.unlink()
    with pytest.raises(ArtifactError, match=model.path.name):
        open_session(server.protocol, model)
    serves(server.protocol, tmp_path)


def test_strings_do_not_travel(server: Server, tmp_path: Path) -> None:
    io = IOSpec((TensorSpec("words", (3,), "string"),), (TensorSpec("y", (1,), "uint8"),))
    with pytest.raises(TargetError, match="'words'"):
        open_session(server.protocol, write_fake_model(tmp_path, io))


# -- what is known of the target
# --------------------------------------------------------------------


def test_statistics_can_be_written_as_json_and_say_what_was_counted(
    server: Server, tmp_path: Path
) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        for _ in range(5):
            session.infer(create_batch())
        found = json.loads(json.dumps(session.stats(), allow_nan=False))
        assert found["counter"] == "wall"
        assert found["rate"] == 10**9
        assert found["inferences"] == 5
        assert found["load_ns"] > 0
        assert found["target"]["host"]["cpu"]["logical_cores"] >= 1
        assert found["target"]["runtime"]["class"] == "nnpipe.testing.fakes.FakeRuntime"
        # Both ends are on one machine with one clock, whose offset from itself is known.
        assert abs(found["clock"]["offset_ns"]) <= found["clock"]["error_ns"]
        assert abs(found["clock"]["drift_ppm"]) <= found["clock"]["drift_error_ppm"]


def test_each_run_is_split_into_host_wire_and_target(server: Server, tmp_path: Path) -> None:
    import time

    with open_session(server.protocol, write_fake_model(tmp_path, IO, spin_us=300)) as session:
        session.infer(create_batch())
        starts, ends = [], []
        for _ in range(20):
            session.put(create_batch())
            starts.append(time.perf_counter_ns())
            session.run()
            ends.append(time.perf_counter_ns())
        split = session.split(np.array(starts), np.array(ends))
        assert split.keys() == {"host_ns", "wire_ns", "serve_ns", "target_ns"}
        total = split["host_ns"] + split["wire_ns"] + split["target_ns"]
        np.testing.assert_array_equal(total, np.array(ends) - np.array(starts))
        assert (split["target_ns"] >= 300_000).all()
        assert (split["serve_ns"] <= split["wire_ns"]).all()
        assert all((column >= 0).all() for column in split.values())
        with pytest.raises(NNPipeError, match="not run"):
            session.split(
                np.array([starts[0] - 5_000_000_000]), np.array([starts[0] - 4_999_999_999])
            )


def test_the_targets_resources_are_told(server: Server, tmp_path: Path) -> None:
    with open_session(server.protocol, write_fake_model(tmp_path, IO, spin_us=100_000)) as session:
        for _ in range(8):
            session.infer(create_batch())
        found = session.resources()
        assert len(found["time_ns"]) >= 3
        assert found.keys() >= {"time_ns", "cpu_percent", "process_bytes", "memory_bytes"}
        assert (np.diff(found["time_ns"]) > 0).all()
        assert 10e6 < found["process_bytes"].max() < 500e6
        assert found["cpu_percent"].max() > 5
        # What was told is not told again.
        assert (
            not len(found["time_ns"])
            or found["time_ns"][-1] < session.resources().get("time_ns", np.array([1 << 62]))[0]
        )


def test_the_targets_log_is_heard(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nnpipe")
    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        session.infer(create_batch())
    heard = [record.getMessage() for record in caplog.records if record.name == "nnpipe.target"]
    assert any("loading the model: fake" in line for line in heard)


# -- other lines
# ------------------------------------------------------------------------------------


def test_a_server_at_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Server(
        protocol=("nnpipe.protocols.network.UnixProtocol", "--socket-path", str(path))
    ) as server:
        protocol = UnixProtocol(socket_path=path)
        for _ in range(2):
            serves(protocol, tmp_path)
        with pytest.raises(TargetError, match="SIGKILL"):
            open_session(protocol, write_fake_model(tmp_path, IO, fault="die", at="load"))
        serves(protocol, tmp_path)
        assert server.stop() == 0
    assert not path.exists()


def test_a_server_with_tls(tmp_path: Path) -> None:
    certificate = ["--certificate", str(KEYS / "target.pem"), "--key", str(KEYS / "target.key")]
    with Server(
        protocol=("nnpipe.protocols.tls.TLSProtocol", "--port", "0", *certificate), timeout=3.0
    ) as server:
        protocol = TLSProtocol(port=server.port, ca=KEYS / "ca.pem", timeout=3.0)
        for _ in range(2):
            serves(protocol, tmp_path)
        with (
            open_session(protocol, write_fake_model(tmp_path, IO)),
            pytest.raises(TargetError, match="another client"),
        ):
            open_session(protocol, write_fake_model(tmp_path, IO))
        # Nobody can speak in the name of a worker that died, but that it died is noticed.
        with pytest.raises(TransportError):
            open_session(protocol, write_fake_model(tmp_path, IO, fault="die", at="load"))
        with pytest.raises(TransportError):
            open_session(
                NetworkProtocol(port=server.port, timeout=1.0), write_fake_model(tmp_path, IO)
            )
        serves(protocol, tmp_path)
        assert server.stop() == 0


def test_a_tls_server_that_wants_certificates_of_its_clients(tmp_path: Path) -> None:
    options = [
        "--certificate",
        str(KEYS / "target.pem"),
        "--key",
        str(KEYS / "target.key"),
        "--ca",
        str(KEYS / "ca.pem"),
    ]
    with Server(
        protocol=("nnpipe.protocols.tls.TLSProtocol", "--port", "0", *options), timeout=3.0
    ) as server:
        anonymous = TLSProtocol(port=server.port, ca=KEYS / "ca.pem", timeout=3.0)
        with pytest.raises(TransportError):
            open_session(anonymous, write_fake_model(tmp_path, IO))
        known = TLSProtocol(
            port=server.port,
            ca=KEYS / "ca.pem",
            certificate=KEYS / "target.pem",
            key=KEYS / "target.key",
            timeout=3.0,
        )
        serves(known, tmp_path)


def test_a_server_without_isolation(tmp_path: Path) -> None:
    with Server("--no-isolate") as server:
        for _ in range(2):
            serves(server.protocol, tmp_path)
        assert server.stop() == 0


# -- who may do what
# --------------------------------------------------------------------------------


def test_only_those_who_know_the_token_are_served(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("a token that is long enough\n")
    wrong.write_text("another token of some length\n")
    model = write_fake_model(tmp_path, IO)
    with Server("--token-file", str(right)) as server:
        with pytest.raises(AuthenticationError, match="refused"):
            open_session(server.protocol, model, RemoteOptions(token_file=wrong))
        with pytest.raises(AuthenticationError, match="--token-file"):
            open_session(server.protocol, model)
        serves(server.protocol, tmp_path, right)
        assert "long enough" not in server.log


def test_a_token_must_be_long_enough_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    with pytest.raises(ConfigError, match="16"):
        RemoteOptions(token_file=tmp_path / "short").read_token()
    with pytest.raises(ConfigError, match="nowhere"):
        RemoteOptions(token_file=tmp_path / "nowhere").read_token()


def test_other_machines_are_not_served_without_a_token_or_a_clear_word(tmp_path: Path) -> None:
    everywhere = NetworkProtocol(host="0.0.0.0")
    with pytest.raises(ConfigError, match="--token-file"):
        check_exposure(everywhere, ServerOptions())
    check_exposure(everywhere, ServerOptions(insecure=True))
    check_exposure(everywhere, ServerOptions(token_file=tmp_path / "token"))
    check_exposure(NetworkProtocol(), ServerOptions())
    with pytest.raises(ConfigError, match="--insecure"):
        ServerOptions(insecure=True, token_file=tmp_path / "token")


def test_machine_code_is_refused_unless_the_server_was_started_to_run_it(
    server: Server, tmp_path: Path
) -> None:
    model = write_fake_model(tmp_path, IO, format="fake-native")
    with pytest.raises(TargetError, match="--allow-native-code-from-clients") as caught:
        open_session(server.protocol, model)
    assert caught.value.code == ErrorCode.NATIVE_CODE
    with Server("--allow-native-code-from-clients") as open_hearted:
        with open_session(open_hearted.protocol, model) as session:
            check_session(session)


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", ".hidden"])
def test_a_client_cannot_write_where_it_likes(tmp_path: Path, name: str) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with Server("--save-model-path", str(kept)) as server:
        with pytest.raises(TargetError, match="no path"):
            open_session(
                server.protocol, write_fake_model(tmp_path, IO), RemoteOptions(save_model_path=name)
            )
    assert [*kept.iterdir()] == []


# -- a small target
# ---------------------------------------------------------------------------------


def test_the_server_imports_no_dataset_report_or_training_and_stays_small(
    server: Server, tmp_path: Path
) -> None:
    import psutil

    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        check_session(session)
        sizes = [
            process.memory_info().rss
            for process in (psutil.Process(server.process.pid), server.worker())
        ]
    assert max(sizes) < 60e6, sizes
    import subprocess

    script = (
        "import sys, nnpipe.scenarios.inference_server, nnpipe.protocols.network, "
        "nnpipe.testing.fakes\n"
        "print(*(name for name in sys.modules if name.startswith('nnpipe.')))\n"
        "print(*({*sys.modules} & {'torch', 'tensorflow', 'onnx', 'matplotlib', 'sklearn', "
        "'yaml', 'tqdm', 'pytest'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    ours, heavy = done.stdout.split("\n")[:2]
    unwanted = "datasets report modelwrappers compilers analysis onnxconverters".split()
    interfaces = "dataset evaluation training model compiler onnx_conversion".split()
    assert "nnpipe.core.runtime" in ours.split()
    assert not [name for name in ours.split() if name.split(".")[1] in unwanted]
    assert not {*ours.split()} & {f"nnpipe.core.{name}" for name in interfaces}
    assert heavy == ""


def test_the_session_is_what_measuring_expects(server: Server, tmp_path: Path) -> None:
    from nnpipe.measuring.loop import Window

    with open_session(server.protocol, write_fake_model(tmp_path, IO)) as session:
        assert isinstance(session, RemoteSession)
        batches = [create_batch(2, n) for n in range(5)]
        with Window(session) as window:
            samples = window.check(batches)
            window.warm_up(batches, 3)
            window.run_chunk(batches, samples)
        assert len(window.series()) == 5
