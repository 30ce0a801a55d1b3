"""A recurrent model has one accuracy, whatever the order of samples, in LiteRT, as C, on a
server and on a board.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.discoverable import C
from nnpipe.core.session import InferenceSession
from nnpipe.frameworks.cortex_m.image import ARM_GCC
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.qemu import QEMU, QemuTarget
from nnpipe.runtimes.c import CRuntime
from nnpipe.runtimes.litert import LiteRTRuntime

_QUICK, _ALL = 200, 10_000


@contextmanager
def _session(way: str, artifact: Artifact, folder: Path) -> Iterator[InferenceSession]:
    with ExitStack() as stack:
        if way.startswith("LiteRT"):
            runtime = LiteRTRuntime(reference_kernels="reference" in way)
            yield stack.enter_context(runtime.load(artifact))
            return
        if C.find() is None:
            pytest.skip("no C compiler is installed (apt install gcc)")
        compiled = CCompiler().compile(artifact, folder / "recurrent.c")
        if way == "C":
            yield stack.enter_context(CRuntime().load(compiled))
            return
        for tool in (QEMU, ARM_GCC):
            if tool.find() is None:
                pytest.skip(f"{tool} is not installed")
        yield stack.enter_context(open_session(QemuTarget(core="cortex-m4"), compiled))


def _right(way: str, count: int, folder: Path) -> list[int]:
    """Return how many pictures are classified right in the order of the files, backwards, and in
    each class's order.
    """
    needs("ai_edge_litert")
    path = shared_data("models/recurrent/keras_lstm_mnist_ptq.tflite")
    mnist = shared_data("mnist")
    pictures, labels = (
        np.frombuffer(
            gzip.decompress((mnist / f"t10k-{name}-ubyte.gz").read_bytes())[head:], np.uint8
        )
        for name, head in (("images-idx3", 16), ("labels-idx1", 8))
    )
    pictures, labels = pictures.reshape(-1, 1, 28, 28)[:count], labels[:count]
    artifact = Artifact.create(path, "tflite", LiteRTRuntime().io_of(path))
    found = []
    with _session(way, artifact, folder) as session:
        for order in (np.arange(count), np.arange(count)[::-1], np.argsort(labels, kind="stable")):
            scores = [session.infer({"x": pictures[number]})["output_0"][0] for number in order]
            found.append(int((np.argmax(scores, 1) == labels[order]).sum()))
    return found


@pytest.mark.parametrize("way", ["LiteRT", "LiteRT reference", "C", "board"])
def test_the_first_pictures_are_classified_alike_in_any_order(way: str, tmp_path: Path) -> None:
    assert _right(way, _QUICK, tmp_path) == [198] * 3


@pytest.mark.slow
@pytest.mark.timeout(3600)  # 30,000 runs on an emulated board
@pytest.mark.parametrize("way", ["LiteRT", "LiteRT reference", "C", "board"])
def test_all_pictures_give_97_93_percent_in_any_order(way: str, tmp_path: Path) -> None:
    assert _right(way, _ALL, tmp_path) == [9793] * 3
