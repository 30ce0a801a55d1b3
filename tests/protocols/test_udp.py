"""UDP leads to firmware that has an address, whatever else is sent there; without firmware, that
is told.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from installed import needs

sys.path.insert(0, str(Path(__file__).parent))
from emulated import by_udp

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError, NotSupported, TransportError
from nnpipe.core.tensors import Batch
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.cortex_m.image import ARM_GCC
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.qemu import QEMU, QemuTarget
from nnpipe.protocols.serial import UDPProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import generate_integer_graph
from nnpipe.testing.protocol import EmulatedProtocolContract, assert_equal_outputs
from nnpipe.testing.session import assert_one_line

needs("ai_edge_litert")


WITHOUT = f"no boards can be emulated here ({ARM_GCC.install} qemu-system-arm)"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("source") / "graph.tflite"
    path.write_bytes(generate_integer_graph(165, 8))
    return Artifact.create(path, "tflite", read_tflite(path).io)


@pytest.fixture(scope="module")
def boards() -> Iterator[list[UDPProtocol]]:
    with QemuTarget().connect() as one, QemuTarget().connect() as another:
        yield [by_udp(one._line), by_udp(another._line)]


@pytest.mark.slow
@pytest.mark.skipif(not (ARM_GCC.find() and QEMU.find()), reason=WITHOUT)
class TestUDPProtocol(EmulatedProtocolContract):
    @pytest.fixture
    def protocol(self, boards: list[UDPProtocol]) -> UDPProtocol:
        return boards[0]

    @pytest.fixture
    def other(self, boards: list[UDPProtocol]) -> UDPProtocol:
        return boards[1]

    @pytest.fixture
    def model(self, source: Artifact, tmp_path: Path) -> Artifact:
        return CCompiler().compile(source, tmp_path / "graph.c")

    @pytest.fixture
    def refused(self, source: Artifact) -> Artifact:
        return source

    @pytest.fixture
    def batches(self, source: Artifact) -> Sequence[Batch]:
        shapes = {
            spec.name: ([length or 1 for length in spec.shape], spec.dtype)
            for spec in source.io.inputs
        }
        return [
            {name: np.full(shape, value, dtype) for name, (shape, dtype) in shapes.items()}
            for value in (1, 9)
        ]

    @pytest.fixture
    def expected(self, source: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        with LiteRTRuntime(reference_kernels=True).load(source) as session:
            return [session.infer(batch) for batch in batches]

    def test_it_computes_amid_datagrams_that_mean_nothing(
        self,
        protocol: UDPProtocol,
        model: Artifact,
        batches: Sequence[Batch],
        expected: Sequence[Batch],
    ) -> None:
        draw = random.Random(0)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
            open_session(protocol, model) as session,
        ):
            stranger.connect((protocol.host, protocol.port))
            for batch, wanted in zip(batches, expected, strict=True):
                for head in (b"", b"nnp", b"nnp\2", b"nnp\3" + draw.randbytes(6)):
                    stranger.send(head + draw.randbytes(draw.randrange(1400)))
                assert_equal_outputs(session.infer(batch), dict(wanted))


def test_a_host_without_firmware_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with pytest.raises(TransportError, match=r"no firmware answers at 127\.0\.0\.1:") as caught:
            UDPProtocol(host="127.0.0.1", port=port, timeout=0.3).connect()
        assert_one_line(caught.value)
    with pytest.raises(TransportError, match=r"no firmware answers at 127\.0\.0\.1:"):
        UDPProtocol(host="127.0.0.1", port=port, timeout=0.3).connect()
    with pytest.raises(
        TransportError, match="'no such host' is not the name or address of a board"
    ) as caught:
        UDPProtocol(host="no such host").connect()
    assert_one_line(caught.value)


def test_it_is_no_server_and_a_core_needs_an_address_of_models() -> None:
    with pytest.raises(NotSupported, match="NetworkProtocol"):
        UDPProtocol(host="127.0.0.1").listen()
    with pytest.raises(ConfigError, match="core and model_address go together"):
        UDPProtocol(host="127.0.0.1", core="cortex-m4")
