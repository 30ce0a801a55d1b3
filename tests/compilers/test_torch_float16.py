"""Programs in 16-bit floats are half as large, close to their source, and keep its element
types.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_contracts import TorchNetworkContract

from nnpipe.compilers.torch_float16 import TorchFloat16
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import generate_random_batch
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import (
    NETWORK_IO,
    create_torch_network,
    run_network,
    write_torch_network,
)
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BATCH = generate_random_batch(NETWORK_IO, 20)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_torch_network(
        tmp_path_factory.mktemp("source") / "network.pt2", create_torch_network(channels=64)
    )


class TestTorchFloat16(TorchNetworkContract):
    tolerance = 0.02  # of outputs between -8 and 8
    samples = (BATCH,)
    network = staticmethod(functools.partial(create_torch_network, channels=64))

    @pytest.fixture
    def compiler(self) -> TorchFloat16:
        return TorchFloat16()

    def test_the_number_of_samples_stays_free(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("weights_only", [False, True])
def test_weights_take_half_the_room(
    source: Artifact, tmp_path: Path, precision: Any, weights_only: bool
) -> None:
    made = TorchFloat16(precision=precision, weights_only=weights_only).compile(
        source, tmp_path / "made.pt2"
    )
    half = getattr(torch, precision)
    program = torch.export.load(made.path)
    assert {t.dtype for t in program.state_dict.values() if t.is_floating_point()} == {half}
    computed = {
        str(n.target): getattr(n.meta.get("val"), "dtype", None) for n in program.graph.nodes
    }
    assert computed["aten.linear.default"] is (torch.float32 if weights_only else half)
    (found,) = run_compiled(PyTorchRuntime(), made, NETWORK_IO, [BATCH])
    wanted = run_network(create_torch_network(channels=64), BATCH)
    scale = np.abs(wanted["scores"]).max()
    error = np.abs(found["scores"] - wanted["scores"]).max() / scale
    assert 1e-6 < error < (0.005 if precision == "float16" else 0.05)


def test_numbers_of_a_type_that_the_program_names_become_smaller_too(tmp_path: Path) -> None:
    class Naming(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(3, 5)

        def forward(self, given: Any) -> Any:
            mask = (given["image"].flatten(1)[:, :3] > 0).to(torch.float32)
            scores = self.dense(given["extra"] * mask + torch.ones(3, dtype=torch.float32))
            return {"scores": scores, "total": scores.sum(1, keepdim=True)}

    torch.manual_seed(0)
    source = write_torch_network(tmp_path / "naming.pt2", network := Naming().eval())
    made = TorchFloat16().compile(source, tmp_path / "made.pt2")
    (found,) = run_compiled(PyTorchRuntime(), made, NETWORK_IO, [BATCH])
    np.testing.assert_allclose(found["scores"], run_network(network, BATCH)["scores"], atol=5e-3)


def test_weights_beyond_float16_are_refused_by_name(tmp_path: Path) -> None:
    network = create_torch_network()
    network.dense.weight.data[0, 0] = 1e6
    source = write_torch_network(tmp_path / "large.pt2", network)
    with pytest.raises(
        CompileError, match=r"'dense\.weight' .* use --precision bfloat16"
    ) as caught:
        TorchFloat16().compile(source, tmp_path / "made.pt2")
    assert_one_line(caught.value)
    TorchFloat16(precision="bfloat16").compile(source, tmp_path / "made.pt2")
