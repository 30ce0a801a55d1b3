"""Firmware in QEMU serves models: right answers, clean refusals, a line that recovers, no
process left.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from installed import needs

sys.path.insert(0, str(Path(__file__).parent))
from emulated import by_udp

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError, MissingTool, TargetError, TransportError
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.core.tensors import Batch
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.cortex_m.image import ARM_GCC, CORES, FORMAT, build_image, read_image
from nnpipe.protocols.client.connection import Connection, upload
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.qemu import QEMU, QemuTarget
from nnpipe.protocols.serial import SerialChannel, SerialLine
from nnpipe.protocols.serial import open_session as open_line
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import generate_integer_graph
from nnpipe.testing.protocol import EmulatedProtocolContract
from nnpipe.testing.session import assert_one_line

needs("ai_edge_litert")
TOOLS = ARM_GCC.find() and QEMU.find()
WITHOUT = f"no boards can be emulated here ({ARM_GCC.install} qemu-system-arm)"
SEED = 165  # a graph with convolutions, dense layers and sums
FLOATS = (
    Path(__file__).parents[3] / "shared" / "data" / "models" / "tflm" / "hello_world_float.tflite"
)
ADDRESS = CORES["cortex-m4"].model_address


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("source") / "graph.tflite"
    path.write_bytes(generate_integer_graph(SEED, 8))
    return Artifact.create(path, "tflite", read_tflite(path).io)


@pytest.fixture(scope="module")
def compiled(source: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return CCompiler().compile(source, tmp_path_factory.mktemp("compiled") / "graph.c")


@pytest.fixture
def image(compiled: Artifact) -> bytes:
    return build_image(compiled, CORES["cortex-m4"], ADDRESS, "-O2", "a test")


def batches(source: Artifact, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            spec.name: rng.integers(-128, 128, [length or 1 for length in spec.shape]).astype(
                spec.dtype
            )
            for spec in source.io.inputs
        }
        for _ in range(count)
    ]


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return found.keys() == wanted.keys() and all(
        np.array_equal(found[name], wanted[name]) for name in wanted
    )


def qemu_processes() -> set[int]:
    found = subprocess.run(
        ["ps", "-eo", "pid,comm"], capture_output=True, text=True, check=True
    ).stdout
    return {int(line.split()[0]) for line in found.splitlines() if "qemu-system-arm" in line}


def described(content: bytes, compiled: Artifact, folder: Path) -> Artifact:
    path = folder / "model.bin"
    path.write_bytes(content)
    return Artifact.create(path, FORMAT, compiled.io)


@pytest.mark.slow
@pytest.mark.skipif(not TOOLS, reason=WITHOUT)
class TestQemuTarget(EmulatedProtocolContract):
    @pytest.fixture
    def protocol(self) -> QemuTarget:
        return QemuTarget()

    @pytest.fixture
    def model(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def refused(self, source: Artifact) -> Artifact:
        return source

    @pytest.fixture
    def batches(self, source: Artifact) -> Sequence[Batch]:
        return batches(source, 2)

    @pytest.fixture
    def expected(self, source: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        with LiteRTRuntime(reference_kernels=True).load(source) as session:
            return [session.infer(batch) for batch in batches]


@pytest.mark.slow
@pytest.mark.skipif(not TOOLS, reason=WITHOUT)
class TestEmulated:
    @pytest.mark.parametrize(
        ("core", "line"),
        [
            ("cortex-m3", "network"),
            ("cortex-m4", "network"),
            ("cortex-m7", "network"),
            ("cortex-m55", "network"),
            ("cortex-m4", "uart"),
            ("cortex-m55", "uart"),
        ],
    )
    def test_it_computes_what_the_reference_kernels_do_in_the_memory_that_was_predicted(
        self, core: str, line: str, source: Artifact, compiled: Artifact, tmp_path: Path
    ) -> None:
        path = tmp_path / "model.bin"
        path.write_bytes(
            build_image(compiled, CORES[core], CORES[core].model_address, "-O2", "a test")
        )
        facts = read_image(path)
        with (
            open_session(QemuTarget(core=core, line=line), compiled) as session,
            LiteRTRuntime(reference_kernels=True).load(source) as reference,
        ):
            for batch in batches(source, 3):
                assert same(session.infer(batch), reference.infer(batch))
            counts = session.columns(3)["target_counts"]
            stats = session.stats()
        assert stats["counter"] == "instructions"
        assert np.ptp(counts) <= 80  # two ticks of SysTick
        board = stats["board"]
        assert board["flash_bytes"] == facts.flash_bytes
        assert (board["arena_bytes"], board["data_bytes"]) == (facts.arena_bytes, facts.data_bytes)
        # With vector instructions, these kernels have a path with a deeper stack that this graph
        # does not take.
        assert 0 < board["stack_bytes"] <= facts.stack_bytes
        assert board["stack_bytes"] == facts.stack_bytes or core == "cortex-m55"
        assert board["ram_bytes"] == board["arena_bytes"] + board["stack_bytes"]

    @pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4"])
    def test_models_in_floats_need_the_stack_that_was_predicted_without_a_floating_point_unit_too(
        self, core: str, tmp_path: Path
    ) -> None:
        if not FLOATS.is_file():
            pytest.skip(f"{FLOATS.name} is not there")
        compiled = CCompiler().compile(
            Artifact.create(FLOATS, "tflite", read_tflite(FLOATS).io), tmp_path / "floats.c"
        )
        with open_session(QemuTarget(core=core), compiled) as session:
            session.infer(
                {spec.name: np.ones(spec.shape, spec.dtype) for spec in session.io.inputs}
            )
            stats = session.stats()
        assert stats["board"]["stack_bytes"] == stats["target"]["stack_predicted_bytes"]

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda data: data[:-64], "the file is cut: "),
            (lambda data: data[:50], "no machine code of nnpipe"),
            (
                lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
                "not what its CRC-32 says",
            ),
            (
                lambda data: checked(data[:28] + struct.pack("<I", 1 << 28) + data[32:]),
                "there are 16777216",
            ),
            (
                lambda data: checked(data[:68] + struct.pack("<I", 12345) + data[72:]),
                "tensor 1 of 2 is not what",
            ),
            (
                lambda data: checked(data[:40] + struct.pack("<I", 1 << 20) + data[44:]),
                "1048576 bytes of stack, there",
            ),
            (
                lambda data: checked(data[:12] + struct.pack("<I", 0x1000) + data[16:]),
                "models lie at",
            ),
        ],
    )
    def test_files_that_cannot_run_are_refused_in_one_line(
        self, spoil: object, said: str, image: bytes, compiled: Artifact, tmp_path: Path
    ) -> None:
        spoilt = described(spoil(image), compiled, tmp_path)  # type: ignore[operator]
        with pytest.raises(TargetError, match=said) as caught, open_session(QemuTarget(), spoilt):
            pass
        assert_one_line(caught.value)

    def test_files_for_another_core_and_other_formats_are_refused(
        self, source: Artifact, compiled: Artifact, image: bytes, tmp_path: Path
    ) -> None:
        other = described(image, compiled, tmp_path)
        with (
            pytest.raises(TargetError, match="it is for a cortex-m4, this is a cortex-m7"),
            open_session(QemuTarget(core="cortex-m7"), other),
        ):
            pass
        with (
            pytest.raises(TargetError, match="no machine code"),
            open_session(QemuTarget(), source),
        ):
            pass

    @pytest.mark.parametrize("line", ["network", "uart"])
    def test_a_model_that_faults_is_told_and_the_board_answers_again(
        self, line: str, source: Artifact, compiled: Artifact, image: bytes, tmp_path: Path
    ) -> None:
        faulty = described(
            checked(image[:52] + struct.pack("<I", 0xF0000001) + image[56:]), compiled, tmp_path
        )
        channel = QemuTarget(line=line).connect()
        port = channel._line
        try:
            for _ in range(2):
                channel._owns_line = (
                    channel._line is not port
                )  # a fatal error closes the channel; the board is used again
                connection = Connection(channel, HostConversation())
                connection.perform_handshake()
                taken = upload(connection, faulty, "", 10.0)
                session = RemoteSession(
                    connection, faulty.io, RemoteOptions(), taken.load, taken.about
                )
                with pytest.raises(TargetError, match="the board began anew"):
                    session.infer(batches(source, 1)[0])
                channel = open_again(port) if line == "uart" else by_udp(port).connect()
        finally:
            channel.close()
            port.close()

    @pytest.mark.parametrize("line", ["network", "uart"])
    def test_the_line_recovers_from_noise(
        self, line: str, source: Artifact, compiled: Artifact, image: bytes, tmp_path: Path
    ) -> None:
        model, (batch,) = described(image, compiled, tmp_path), batches(source, 1)
        with LiteRTRuntime(reference_kernels=True).load(source) as reference:
            wanted = reference.infer(batch)
        channel = QemuTarget(line=line).connect()
        draw = random.Random(0)
        try:
            for _ in range(2):
                channel._line.write(draw.randbytes(5000))
                channel = open_again(channel._line)
                connection = Connection(channel, HostConversation())
                connection.perform_handshake()
                taken = upload(connection, model, "", 10.0)
                session = RemoteSession(
                    connection, model.io, RemoteOptions(), taken.load, taken.about
                )
                assert same(session.infer(batch), wanted)
        finally:
            channel.close()

    def test_no_emulator_is_left_when_its_user_is_killed(self, tmp_path: Path) -> None:
        before = qemu_processes()
        program = (
            "from nnpipe.protocols import QemuTarget; c = QemuTarget().connect(); print(1, "
            "flush=True); input()"
        )
        user = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        try:
            assert user.stdout is not None
            assert user.stdout.readline() == "1\n"
            assert qemu_processes() - before
        finally:
            os.kill(user.pid, signal.SIGKILL)
            user.communicate()
        deadline = time.monotonic() + 20
        while qemu_processes() - before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not qemu_processes() - before

    def test_an_emulator_that_dies_is_told(self, source: Artifact, compiled: Artifact) -> None:
        before = qemu_processes()
        with open_session(QemuTarget(), compiled) as session:
            for process in qemu_processes() - before:
                os.kill(process, signal.SIGKILL)
            with pytest.raises(TransportError, match="the emulator"):
                session.infer(batches(source, 1)[0])


def checked(data: bytes) -> bytes:
    """Return an image with the check that belongs to it."""
    content = bytearray(data)
    struct.pack_into("<I", content, 20, 0)
    struct.pack_into("<I", content, 20, zlib.crc32(content))
    return bytes(content)


def open_again(line: SerialLine) -> SerialChannel:
    found = open_line(line)
    assert found is not None
    return found


def test_what_is_missing_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool, match="apt install qemu-system-arm") as caught:
        QemuTarget().connect()
    assert_one_line(caught.value)


def test_an_unknown_core_is_refused() -> None:
    with pytest.raises(ConfigError, match="cortex-m0"):
        QemuTarget(core="cortex-m0")  # type: ignore[arg-type]
