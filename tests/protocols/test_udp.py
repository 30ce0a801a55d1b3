"""UDP leads to firmware that has an address, whatever else is sent there; without firmware, that is told."""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from installed import needs

sys.path.insert(0, str(Path(__file__).parent))
from emulated import by_udp

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConfigError, NotSupported, TransportError
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.cortex_m.cores import ARM_GCC
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.qemu import QEMU, QemuTarget
from nnpipe.protocols.udp import UDPProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.integer_graphs import random_integer_graph
from nnpipe.testing.session import assert_one_line


class TestUDPProtocol(ComponentContract):
    @pytest.fixture
    def component(self) -> UDPProtocol:
        return UDPProtocol(host="192.168.1.50", core="cortex-m7", model_address="0x60000000")


@pytest.mark.slow
@pytest.mark.skipif(not (ARM_GCC.find() and QEMU.find()), reason=f"no boards can be emulated here ({ARM_GCC.install})")
def test_a_board_computes_amid_datagrams_that_mean_nothing(tmp_path: Path) -> None:
    needs("ai_edge_litert")
    path = tmp_path / "graph.tflite"
    path.write_bytes(random_integer_graph(165, 8))
    source = Artifact.of(path, "tflite", read_tflite(path).io)
    compiled = CCompiler().compile(source, tmp_path / "graph.c")
    batch = {spec.name: np.ones([length or 1 for length in spec.shape], spec.dtype) for spec in source.io.inputs}
    with LiteRTRuntime(reference_kernels=True).load(source) as reference:
        wanted = {name: array.tolist() for name, array in reference.infer(batch).items()}
    draw = random.Random(0)
    emulated = QemuTarget().connect()
    board = by_udp(emulated._line)
    try:
        for _ in range(2):  # a second host gets the board when it begins
            with (
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
                open_session(board, compiled) as session,
            ):
                stranger.connect((board.host, board.port))
                for _ in range(5):
                    for head in (b"", b"nnp", b"nnp\2", b"nnp\2" + draw.randbytes(6)):
                        stranger.send(head + draw.randbytes(draw.randrange(1400)))
                    assert {name: array.tolist() for name, array in session.infer(batch).items()} == wanted
    finally:
        emulated.close()


def test_a_host_without_firmware_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with pytest.raises(TransportError, match=r"no firmware answers at 127\.0\.0\.1:") as caught:
            UDPProtocol(host="127.0.0.1", port=port, timeout=0.3).connect()
        assert_one_line(caught.value)
    with pytest.raises(TransportError, match=r"no firmware answers at 127\.0\.0\.1:"):
        UDPProtocol(host="127.0.0.1", port=port, timeout=0.3).connect()
    with pytest.raises(TransportError, match="'no such host' is not the name or address of a board") as caught:
        UDPProtocol(host="no such host").connect()
    assert_one_line(caught.value)


def test_it_is_no_server_and_a_core_needs_an_address_of_models() -> None:
    with pytest.raises(NotSupported, match="NetworkProtocol"):
        UDPProtocol(host="127.0.0.1").listen()
    with pytest.raises(ConfigError, match="core and model_address go together"):
        UDPProtocol(host="127.0.0.1", core="cortex-m4")
