"""Networks that cost as much as others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK

from nnpipe.analysis.operation_costs import compute_graph_cost
from nnpipe.core.errors import ArtifactError, ConfigError, ConversionError, NotSupported
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.modelwrappers.files.mimic import Mimic, read_file_graph
from nnpipe.testing.model_files import write_onnx_network
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("onnx", "onnx_ir", "onnxruntime")


@pytest.mark.slow
class TestMimic(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
        path = tmp_path_factory.mktemp("source") / "network.onnx"
        write_onnx_network(path)
        return Mimic(original=path)


def costs(path: Path) -> tuple[int, int]:
    """Return the multiply-accumulates and the number of weights of the network in a file."""
    cost = compute_graph_cost(read_file_graph(path, {}))
    return cost.arithmetic.macs, cost.parameters


def test_it_costs_what_the_original_does_and_shows_nothing_else_of_it(tmp_path: Path) -> None:
    import onnx

    write_onnx_network(tmp_path / "secret.onnx")
    wrapper = find("Mimic", ModelWrapper)(original=tmp_path / "secret.onnx")
    with wrapper.open() as live:
        live.export(tmp_path / "mimic.onnx", "onnx")
        folder = live.native.file.path.parent
        assert folder.is_dir()
    assert not folder.exists(), "what was written for it is removed"
    assert costs(tmp_path / "mimic.onnx") == costs(tmp_path / "secret.onnx")
    original, made = (onnx.load(tmp_path / name) for name in ("secret.onnx", "mimic.onnx"))
    names = [
        {name for node in each.graph.node for name in node.output} for each in (original, made)
    ]
    assert not names[0] & names[1]
    weights = [
        {
            array.tobytes()
            for each in model.graph.initializer
            if (array := onnx.numpy_helper.to_array(each)).size > 1
        }
        for model in (original, made)
    ]
    assert weights[0]
    assert not weights[0] & weights[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "mnist-8.onnx",
        "fastestdet/FastestDet.onnx",
        "mlperf_tiny_kws/kws_ref_model.tflite",
        "mlperf_tiny_ad/ad01_fp32.tflite",
        "coral/movenet_single_pose_lightning_ptq.tflite",
        "coral/deeplabv3_mnv2_dm05_pascal_quant.tflite",
        "tflm/trained_lstm.tflite",
    ],
)
def test_networks_of_files_have_mimics_that_run(
    name: str, shared_data: Path, tmp_path: Path
) -> None:
    path = shared_data / "models" / name
    with Mimic(original=path).open() as live:
        (found,) = live.run_inference()
        assert all(np.isfinite(array).all() for array in found.values())
        live.export(tmp_path / "mimic.onnx", "onnx")
    (macs, weights), (its, own) = costs(path), costs(tmp_path / "mimic.onnx")
    assert its == macs
    assert own == pytest.approx(weights, rel=0.02)


def test_what_cannot_be_mimicked_is_refused_in_one_line(tmp_path: Path) -> None:
    import onnx

    node = onnx.helper.make_node("TopK", ["x", "k"], ["y", "i"], "n")
    kind = onnx.TensorProto
    ends = [
        onnx.helper.make_tensor_value_info(name, type, shape)
        for name, type, shape in (("x", kind.FLOAT, ["batch", 4]), ("y", kind.FLOAT, ["batch", 2]))
    ]
    many = onnx.helper.make_tensor("k", kind.INT64, [1], [2])
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [many])
    odd = tmp_path / "odd.onnx"
    onnx.save_model(onnx.helper.make_model(graph, ir_version=8), str(odd))
    huge = tmp_path / "huge.json"
    huge.write_text(
        '{"layers": [{"class": "Input", "shape": [100000]}, {"class": "Dense", "units": 100000}]}'
    )
    for refused, kind_of_error, told in (
        (lambda: Mimic(original=tmp_path / "none.onnx").io, ArtifactError, r"none\.onnx"),
        (lambda: Mimic(original=odd, original_shapes=("x",)), ConfigError, "expected INPUT=N,N"),
        (lambda: Mimic(original=odd, original_shapes=("x=3",)).io, ConfigError, "does not fit"),
        (lambda: Mimic(original=odd).io, NotSupported, r"odd\.onnx.*without a rule: 1 TopK"),
        (lambda: Mimic(original=huge).io, ConversionError, r"huge\.json.*larger than 2 GB"),
    ):
        with pytest.raises(kind_of_error, match=told) as caught:
            refused()
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_program_whose_views_change_sizes_has_a_mimic_of_the_same_cost(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 128), torch.nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, other = self.first(x).chunk(2, dim=-1)
            return self.second((one + other)[:, 1:].unsqueeze(0).expand(3, -1, -1, -1))

    program = torch.export.export(Halves().eval(), (torch.ones(1, 9, 64),))
    torch.export.save(program, tmp_path / "halves.pt2")
    with Mimic(original=tmp_path / "halves.pt2").open() as live:
        live.export(tmp_path / "mimic.onnx", "onnx")
    assert costs(tmp_path / "mimic.onnx") == costs(tmp_path / "halves.pt2")
