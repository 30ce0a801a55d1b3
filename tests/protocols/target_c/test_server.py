"""The server in C keeps the contract of servers, as the one in Python does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from answering import SANITISED
from servers import Server
from serving import CServer, expected, write_model

from nnpipe.core.artifact import Artifact
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.core.tensors import Batch
from nnpipe.testing.server import ServerContract
from nnpipe.workflows.devices.c_server import build_server

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")


class AnyModelContract(ServerContract):
    """The contract with the model of ``serving.py``."""

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        return write_model(tmp_path_factory.mktemp("model"))

    @pytest.fixture
    def reference(self) -> Callable[[Batch], dict[str, np.ndarray]]:
        return expected


class TestServerInC(AnyModelContract):
    flags: tuple[str, ...] = ("-O0",)

    @pytest.fixture(scope="class")
    @classmethod
    def serving(
        cls, model: Artifact, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[RuntimeProtocol]:
        program = tmp_path_factory.mktemp("server") / "server"
        build_server([model.path], program, flags=cls.flags)
        with CServer(program) as server:
            yield server.protocol
            status, log = server.stop()
            assert status == 0
            assert "ERROR" not in log, log


@pytest.mark.slow
class TestSanitisedServerInC(TestServerInC):
    flags = ("-O1", *SANITISED)


@pytest.mark.slow
class TestServerInPython(AnyModelContract):
    @pytest.fixture(scope="class")
    @classmethod
    def serving(cls) -> Iterator[RuntimeProtocol]:
        with Server("--allow-native-code-from-clients", runtime="CRuntime", timeout=5.0) as server:
            yield server.protocol
            assert server.stop() == 0
            assert "Traceback" not in server.log, server.log
