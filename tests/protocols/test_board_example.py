"""The example of a board in the documentation is built as the page says, and serves in QEMU's
emulation of the chip.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.cortex_m.image import ARM_GCC
from nnpipe.protocols.channels.emulator import EmulatorPort
from nnpipe.protocols.client.connection import Connection, upload
from nnpipe.protocols.client.session import RemoteSession
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.qemu import QEMU
from nnpipe.protocols.serial import SerialLine, SerialProtocol, open_session
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.integer_graphs import generate_integer_graph

needs("ai_edge_litert")
ROOT = Path(__file__).resolve().parents[2]
BOARD = SerialProtocol(serial_port="unused", core="cortex-m4", model_address="0x20006000")


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ARM_GCC.find() and QEMU.find()):
        pytest.skip(f"no boards can be emulated here ({ARM_GCC.install} qemu-system-arm)")
    folder = tmp_path_factory.mktemp("board")
    for name in ("stm32f405.c", "stm32f405.ld"):
        shutil.copy(ROOT / "examples" / "target_c" / name, folder)
    page = (ROOT / "docs" / "microcontrollers.md").read_text("utf-8")
    (block,) = re.findall(r"```text\n(\$ T=.*?)```", page, re.DOTALL)
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE).replace("python3", sys.executable)
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "firmware.elf"


@pytest.mark.slow
def test_it_serves_models_that_are_built_for_it(firmware: Path, tmp_path: Path) -> None:
    path = tmp_path / "graph.tflite"
    path.write_bytes(generate_integer_graph(165, 8))
    source = Artifact.create(path, "tflite", read_tflite(path).io)
    compiled = CCompiler().compile(source, tmp_path / "graph.c")
    with LiteRTRuntime(reference_kernels=True).load(source) as reference:
        batch = {
            spec.name: np.ones([length or 1 for length in spec.shape], spec.dtype)
            for spec in source.io.inputs
        }
        wanted = reference.infer(batch)
    command = [
        str(QEMU.find()),
        "-M",
        "netduinoplus2",
        "-display",
        "none",
        "-monitor",
        "none",
        "-kernel",
        str(firmware),
        "-chardev",
        "socket,id=line,fd={line}",
        "-serial",
        "chardev:line",
    ]
    line = SerialLine(EmulatorPort(command, 20.0), "STM32F405 in QEMU", 20.0, 512)
    try:
        channel = open_session(line)
        assert channel is not None
        connection = Connection(channel, HostConversation())
        connection.perform_handshake()
        with BOARD.convert_artifact(compiled) as built:
            taken = upload(connection, built, "", 20.0)
        session = RemoteSession(connection, compiled.io, RemoteOptions(), taken.load, taken.about)
        found = session.infer(batch)
        stats = session.stats()
    finally:
        line.close()
    assert {name: array.tolist() for name, array in found.items()} == {
        n: a.tolist() for n, a in wanted.items()
    }
    assert (stats["counter"], stats["rate"]) == ("cycles", 16_000_000)
    assert stats["target"]["board"] == "STM32F405"
    assert stats["board"]["stack_bytes"] == stats["target"]["stack_predicted_bytes"]
