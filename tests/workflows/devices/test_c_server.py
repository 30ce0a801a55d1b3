from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "protocols" / "target_c"))
sys.path.insert(0, str(Path(__file__).parents[2] / "protocols"))
from servers import Server
from serving import CServer, expected, write_model

from nnpipe.core.errors import ArtifactError, CompileError, ConfigError, MissingTool
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.c_source import write_c_source
from nnpipe.protocols.client.session import open_session
from nnpipe.testing.protocol import assert_equal_outputs
from nnpipe.testing.raw_host import create_model_batch
from nnpipe.workflows.candidates.model_files import compute_model_size
from nnpipe.workflows.devices.c_server import build_server
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.inspection import try_out

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
SMALL = ("-O0",)


def test_the_same_model_twice_is_refused(tmp_path: Path) -> None:
    one = write_model(tmp_path).path
    other = tmp_path / "other.c"
    shutil.copyfile(one, other)
    with pytest.raises(ConfigError, match=r"other\.c is the same model as .*any\.c"):
        build_server([one, other], tmp_path / "server", flags=SMALL)


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="apt install gcc-no-such-machine"):
        build_server([write_model(tmp_path).path], tmp_path / "server", "no-such-machine-gcc")


def test_a_damaged_source_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = write_model(tmp_path).path
    path.write_text(path.read_text().replace("* 100", "* 101"))
    with pytest.raises(ArtifactError, match="damaged"):
        build_server([path], tmp_path / "server", flags=SMALL)
    assert not (tmp_path / "server").exists()


def test_what_the_compiler_says_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.c"
    write_c_source(
        path, "void nn_run(void) { nonsense }\n", IOSpec((), (TensorSpec("y", (1,), "int8"),)), {}
    )
    with pytest.raises(CompileError, match="nonsense") as caught:
        build_server([path], tmp_path / "server", flags=SMALL)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_names_are_never_read_as_c(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    odd = tmp_path / 'a"??=\\n é %s.c'
    shutil.copyfile(model.path, odd)
    built = build_server([odd], tmp_path / "server", flags=SMALL)
    assert built.models == (odd.name,)
    with CServer(built.path) as server, open_session(server.protocol, model) as session:
        assert_equal_outputs(
            session.infer(create_model_batch(model, 0)), expected(create_model_batch(model, 0))
        )


@pytest.mark.slow
def test_the_program_is_smaller_than_a_hundred_kilobytes(tmp_path: Path) -> None:
    built = build_server([write_model(tmp_path).path], tmp_path / "server")
    assert built.own_size < built.size < 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "emulator", "flags"),
    [
        ("aarch64-linux-gnu", "qemu-aarch64", ("-static",)),
        ("aarch64-linux-gnu", "qemu-aarch64", ()),
        ("arm-linux-gnueabihf", "qemu-arm", ()),
        ("mipsel-linux-gnu", "qemu-mipsel", ()),
    ],
)
def test_it_serves_on_other_processors_as_here(
    tmp_path: Path, machine: str, emulator: str, flags: tuple[str, ...]
) -> None:
    if None in (shutil.which(f"{machine}-gcc"), shutil.which(emulator)):
        pytest.skip(f"needs {machine}-gcc and {emulator}: apt install gcc-{machine} qemu-user")
    model = write_model(tmp_path)
    built = build_server([model.path], tmp_path / "server", f"{machine}-gcc", flags)
    prefix = (emulator, "-L", f"/usr/{machine}")
    with (
        CServer(built.path, prefix=prefix, timeout=20) as server,
        open_session(server.protocol, model) as session,
    ):
        for seed in range(5):
            batch = create_model_batch(model, seed)
            assert_equal_outputs(session.infer(batch), expected(batch))
        assert session.stats()["target"]["host"]["system"]["machine"] != platform.machine()
        assert np.all(session.columns(5)["target_ns"] > 0)
        assert server.stop()[0] == 0


@pytest.mark.slow
def test_a_device_with_such_a_server_is_tried_out(tmp_path: Path) -> None:
    built = build_server([write_model(tmp_path).path], tmp_path / "server", flags=SMALL)
    with CServer(built.path) as server:
        (found,) = try_out([Device("router", server.protocol)])
    assert (found.state, found.reason) == ("free", "20 inferences of c are right")
    assert found.facts["host"]["system"]["machine"] == platform.machine()


@pytest.mark.slow
def test_a_device_that_takes_no_machine_code_from_clients_is_not_tried() -> None:
    with Server(runtime="CRuntime", timeout=10) as server:
        (found,) = try_out([Device("board", server.protocol)])
    assert found.state == "not tried"
    assert "--allow-native-code-from-clients" in found.reason


def test_a_target_tells_the_size_of_what_it_built(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    with Server("--allow-native-code-from-clients", runtime="CRuntime", timeout=10) as server:
        with open_session(server.protocol, model) as session:
            found = compute_model_size(model, session.stats())
    assert found is not None
    assert 100 < found < model.size
