"""Models that are compiled here for ARM Linux compute there what they compute here; the
processor is emulated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.tools.arm_linux import emulated
from tests.tools.shared_data import shared_data

from nnpipe.compilers.iree import IREECompiler
from nnpipe.compilers.tvm import TVMCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.formats.tflite import read_tflite
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import write_onnx_network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TRIPLE = "aarch64-linux-gnu"
TOKEN = "a token of more than sixteen bytes"
NATIVE = "--option=--allow-native-code-from-clients"
EACH = 4  # calls with other samples


def network(folder: Path) -> Artifact:
    pytest.importorskip("onnx", reason="onnx is not installed")
    return write_onnx_network(folder / "network.onnx")


def tvm(folder: Path) -> Artifact:
    return compiled(TVMCompiler(target=TRIPLE, mcpu="cortex-a72"), folder)


def iree(folder: Path) -> Artifact:
    return compiled(IREECompiler(target=TRIPLE, mcpu="cortex-a72"), folder)


def compiled(compiler: ModelCompiler, folder: Path) -> Artifact:
    compiler.check_ready()
    made = compiler.compile(network(folder), folder / f"network{compiler.suffix}")
    assert made.target == TRIPLE
    return made


def keywords(folder: Path) -> Artifact:
    path = shared_data("models/mlperf_tiny_kws/kws_ref_model.tflite")
    return Artifact.create(path, "tflite", read_tflite(path).io)


@pytest.mark.parametrize(
    ("runtime", "options", "deployed", "source", "tolerance"),
    [
        ("ONNXRuntime", (), network, network, 1e-5),
        ("TVMRuntime", (NATIVE,), tvm, network, 1e-5),
        ("IREERuntime", (NATIVE,), iree, network, 1e-5),
        ("LiteRTRuntime", ("--option=--reference-kernels",), keywords, keywords, 0.0),
    ],
)
def test_it_computes_there_what_it_computes_here(
    runtime: str,
    options: tuple[str, ...],
    deployed: Callable[[Path], Artifact],
    source: Callable[[Path], Artifact],
    tolerance: float,
    tmp_path: Path,
) -> None:
    here: Runtime = (
        LiteRTRuntime(reference_kernels=True) if runtime == "LiteRTRuntime" else ONNXRuntime()
    )
    here.check_ready()
    artifact, original = deployed(tmp_path), source(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    words = ["serve", runtime, "--token-file", str(tmp_path / "token"), *options]
    remote = RemoteOptions(token_file=tmp_path / "token", run_timeout=600.0)
    random = np.random.default_rng(0)
    with emulated("qemu-aarch64", " is served at ", words, tmp_path) as (port, _):
        protocol = NetworkProtocol(port=port, timeout=600.0)
        with open_session(protocol, artifact, remote) as there, here.load(original) as session:
            for _ in range(EACH):
                batch = {}
                for spec in original.io.inputs:
                    shape = [3 if length is None else length for length in spec.shape]
                    drawn = (
                        random.integers(-128, 128, shape)
                        if spec.dtype == "int8"
                        else random.normal(size=shape)
                    )
                    batch[spec.name] = drawn.astype(spec.dtype)
                found, wanted = there.infer(batch), session.infer(batch)
                assert found.keys() == wanted.keys()
                for name, array in wanted.items():
                    np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)
                    assert len(np.unique(array)) > 1, (
                        "outputs that are all alike would prove nothing"
                    )
