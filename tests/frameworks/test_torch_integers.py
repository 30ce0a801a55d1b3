"""Numbers that are added to integers stay integers for quantisers."""

from __future__ import annotations

import pytest

from nnpipe.frameworks.torch_program import keep_integers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return (x + 1.5)[2 * (places + 1)]


def test_only_integers_are_added_by_operators_for_scalars() -> None:
    example = (torch.arange(12.0), torch.tensor([0, 3]))
    module = torch.export.export(Shifted(), example).module()
    keep_integers(module)
    targets = {str(node.target) for node in module.graph.nodes}
    assert {"aten.add.Scalar", "aten.mul.Scalar", "aten.add.Tensor"} <= targets
    assert "aten.mul.Tensor" not in targets
    assert module(*example).tolist() == Shifted()(*example).tolist() == [3.5, 9.5]


@pytest.mark.slow
def test_a_quantised_program_computes_indices() -> None:
    quantizers = pytest.importorskip(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
        reason="ExecuTorch is not installed",
    )
    pt2e = pytest.importorskip(
        "torchao.quantization.pt2e.quantize_pt2e", reason="torchao is not installed"
    )
    rules = quantizers.XNNPACKQuantizer().set_global(quantizers.get_symmetric_quantization_config())
    example = (torch.arange(12.0), torch.tensor([0, 3]))
    module = torch.export.export(Shifted(), example).module()
    keep_integers(module)
    prepared = pt2e.prepare_pt2e(module, rules)
    prepared(*example)
    assert pt2e.convert_pt2e(prepared)(*example).tolist() == pytest.approx([3.5, 9.5], abs=0.1)
