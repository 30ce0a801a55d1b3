"""The base of PyTorch models, on a model that has everything which is easily got wrong."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, ConversionError
from nnpipe.core.graph import Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.datasets.synthetic import SyntheticImagesDataset
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.testing.modelwrapper import ModelWrapperContract
from nnpipe.testing.session import InferenceSessionContract, OpenSession

try:  # the contract imports this file where there is no PyTorch
    import torch
except ImportError:
    pytestmark = pytest.mark.skip(reason="PyTorch is not installed")


def tangled() -> Any:
    """Two inputs and outputs; works in place, calls a layer twice, takes results apart, has a
    constant of its own.
    """

    class Tangled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm = torch.nn.BatchNorm2d(6)
            self.first = torch.nn.Sequential(
                torch.nn.Conv2d(3, 6, 3), norm, torch.nn.ReLU(inplace=True)
            )
            self.twice = torch.nn.Linear(6, 6)
            self.embedding = torch.nn.Embedding(2, 6)
            self.drop = torch.nn.Dropout(0.1)
            self.head = torch.nn.Linear(6, 4)
            self.register_buffer("offset", torch.arange(4))
            self.scale = torch.full((1,), 0.5)

        def forward(self, image: Any, number: Any) -> Any:
            pooled, where = self.first(image).flatten(2).max(2)
            x = self.drop(self.twice(torch.tanh(self.twice(pooled)))) + self.embedding(number)
            left, right = x.split(3, dim=1)
            return self.head(torch.cat([right, left], 1)) * self.scale + self.offset, where

    return Tangled()


class TangledWrapper(PyTorchWrapper):
    """A model with everything that is easily got wrong."""

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (
                TensorSpec("image", (None, 3, 6, 7), "float32"),
                TensorSpec("number", (None,), "int64"),
            ),
            (TensorSpec("scores", (None, 4), "float32"), TensorSpec("where", (None, 6), "int64")),
        )

    def build(self) -> Any:
        return tangled()

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return outputs[0].softmax(-1), outputs[1]

    def preprocess(self, inputs: Batch) -> Batch:
        planes = inputs["image"].transpose(0, 3, 1, 2).astype(np.float32, order="C") / 255
        return {"image": planes, "number": np.zeros(len(planes), np.int64)}

    def postprocess(self, outputs: Batch) -> Batch:
        return {"scores": outputs["scores"]}


class TestTangled(ModelWrapperContract):
    learning_rate = 0.02

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        return TangledWrapper()

    @pytest.fixture
    def dataset(self) -> Dataset:
        return images()


def images(count: int = 300, **more: Any) -> SyntheticImagesDataset:
    return SyntheticImagesDataset(num_samples=count, image_size=(6, 7), channels=3, **more)


class PlainWrapper(TangledWrapper):
    """A model whose loss on a sample depends on nothing but the sample."""

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (TensorSpec("image", (None, 3, 6, 7), "float32"),),
            (TensorSpec("scores", (None, 4), "float32"),),
        )

    def build(self) -> Any:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(126, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
        )

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (outputs[0].softmax(-1),)

    def preprocess(self, inputs: Batch) -> Batch:
        return {"image": super().preprocess(inputs)["image"]}


def same(found: Batch, expected: Batch, atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=atol, err_msg=name)


def outputs_of(model: LiveModel, batch: Batch) -> dict[str, np.ndarray]:
    with model.session() as session:
        return session.infer(batch)


# -- exports --------------------------------------------------------------------------------------


ExportOnce = Callable[[str, int], Artifact]


@pytest.fixture(scope="module")
def export_once(tmp_path_factory: pytest.TempPathFactory) -> ExportOnce:
    """Export the tangled model with weights of seed 0, once in each format."""

    @functools.cache
    def exported(format: str, opset: int) -> Artifact:
        return (
            TangledWrapper(onnx_opset=opset)
            .open()
            .export(tmp_path_factory.mktemp("exported") / "model", format)
        )

    return exported


@pytest.mark.parametrize(
    "opset", [13, *(pytest.param(opset, marks=pytest.mark.slow) for opset in (17, 18, 21))]
)
@pytest.mark.parametrize("size", [1, 5])
def test_onnx_computes_the_same_for_any_batch(
    export_once: ExportOnce, opset: int, size: int
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    wrapper = TangledWrapper(onnx_opset=opset)
    artifact = export_once("onnx", opset)
    model = onnx.load(artifact.path)
    assert [(entry.domain, entry.version) for entry in model.opset_import if not entry.domain] == [
        ("", opset)
    ]
    session = onnxruntime.InferenceSession(str(artifact.path), providers=["CPUExecutionProvider"])
    names = [spec.name for spec in wrapper.io.outputs]
    batch = generate_random_batch(wrapper.io, size, seed=size)
    same(
        dict(zip(names, session.run(names, batch), strict=True)),
        outputs_of(wrapper.open(), batch),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("format", "opset"),
    [("onnx", 17), pytest.param("onnx", 18, marks=pytest.mark.slow), ("torch-export", 18)],
)
def test_exports_tell_nothing_of_this_machine(
    export_once: ExportOnce, format: str, opset: int
) -> None:
    data = export_once(format, opset).path.read_bytes()
    for secret in (str(Path(torch.__file__).parent), str(Path(__file__).parent), "site-packages"):
        assert secret.encode() not in data


def test_exports_hold_no_pickles(tmp_path: Path) -> None:
    import zipfile

    path = TangledWrapper().open().export(tmp_path / "model.pt2", "torch-export").path
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    assert [name for name, data in parts.items() if data.startswith((b"\x80", b"PK"))] == []


class BranchingWrapper(PlainWrapper):
    """A model that cannot be written as a graph."""

    def build(self) -> Any:
        class Branching(torch.nn.Module):
            def forward(self, image: Any) -> Any:
                return image.flatten(1)[:, :4] if image.sum() > 0 else image.flatten(1)[:, 4:8]

        return Branching()


class ScribblingWrapper(PlainWrapper):
    """A model that works in the memory of its input, and gives that away."""

    @property
    def io(self) -> IOSpec:
        image = TensorSpec("image", (None, 4), "float32")
        return IOSpec(
            (image,),
            (TensorSpec("scores", (None, 4), "float32"), TensorSpec("sum", (None, 4), "float32")),
        )

    def build(self) -> Any:
        class Scribbling(torch.nn.Module):
            def forward(self, image: Any) -> Any:
                image += 1
                return image * 2, image

        return Scribbling()

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return outputs


class TestScribbling(InferenceSessionContract):
    @pytest.fixture
    def open_session(self) -> OpenSession:
        return ScribblingWrapper().open().session


class FreeWrapper(PlainWrapper):
    """A model for images of any size."""

    @property
    def io(self) -> IOSpec:
        image = TensorSpec("image", (None, 3, None, None), "float32")
        return IOSpec((image,), (TensorSpec("scores", (None, 4), "float32"),))

    def build(self) -> Any:
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )


class FixedWrapper(FreeWrapper):
    """A model that says it takes images of any size, but does not."""

    def build(self) -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(32, 4), torch.nn.AdaptiveAvgPool2d((1, 4)), torch.nn.Flatten()
        )


class TiedWrapper(PlainWrapper):
    """A model two of whose layers share their weights."""

    def build(self) -> Any:
        module = super().build()
        module.append(torch.nn.Linear(4, 8)).append(torch.nn.Linear(8, 4))
        module[5].weight = module[3].weight
        return module


@pytest.mark.parametrize(("format", "opset"), [("onnx", 17), ("onnx", 18), ("torch-export", 18)])
def test_a_model_that_is_no_graph_is_refused_in_one_line(
    tmp_path: Path, format: str, opset: int
) -> None:
    model = BranchingWrapper(onnx_opset=opset).open()
    with pytest.raises(ConversionError, match="BranchingWrapper") as caught:
        model.export(tmp_path / "model", format)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    outputs_of(model, generate_random_batch(model.io, 2))  # running it is another matter


@pytest.mark.slow
def test_images_of_any_size_stay_so_in_exports(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from nnpipe.runtimes.pytorch import PyTorchRuntime

    live = FreeWrapper().open()
    exported = live.export(tmp_path / "model.pt2", "torch-export")
    paths = [
        FreeWrapper(onnx_opset=opset).open().export(tmp_path / f"{opset}.onnx", "onnx").path
        for opset in (17, 18)
    ]
    models = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for path in paths
    ]
    with PyTorchRuntime().load(exported) as session:
        for shape in ((1, 3, 9, 17), (3, 3, 40, 21)):
            batch = {"image": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
            expected = outputs_of(live, batch)
            same(session.infer(batch), expected, atol=1e-5)
            for model in models:
                same({"scores": model.run(["scores"], batch)[0]}, expected, atol=1e-5)


class ConstantWrapper(PlainWrapper):
    """A model with a computation on constants that the exporter tries to carry out, and cannot."""

    def build(self) -> Any:
        class Constant(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(12, 4)
                self.register_buffer("plane", torch.ones(1, 1, 2, 2))

            def forward(self, image: Any) -> Any:
                read = torch.nn.functional.grid_sample(
                    self.plane, torch.zeros(1, 2, 2, 2), align_corners=False
                )
                return (
                    self.linear(torch.nn.functional.adaptive_avg_pool2d(image, 2).flatten(1))
                    + read.flatten()
                )

        return Constant()


@pytest.mark.slow
def test_what_the_exporter_logs_is_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    ConstantWrapper(onnx_opset=18).open().export(tmp_path / "m.onnx", "onnx")
    assert not [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_a_free_axis_that_is_not_free_is_found_out(tmp_path: Path, format: str) -> None:
    with pytest.raises(
        ConversionError, match=r"FixedWrapper cannot do with any length of axis 3 of 'image'"
    ):
        FixedWrapper().open().export(tmp_path / "model", format)


# -- graphs ---------------------------------------------------------------------------------------


def test_the_inference_graph_names_layers_and_weights_as_the_module_does() -> None:
    model = TangledWrapper().open()
    graph = model.get_inference_graph()
    modules = {name for name, _ in model.native.named_modules()}
    assert {operation.layer for operation in graph.operations} <= modules
    assert graph.inputs == ("image", "number")
    by_kind = {operation.kind: operation for operation in graph.operations}
    convolution = by_kind["aten.conv2d.default"]
    assert convolution.layer == "first.0"
    assert convolution.inputs == ("image", "first.0.weight", "first.0.bias")
    assert set(model.get_weights()) - {
        "first.1.num_batches_tracked",
        "tied.weight",
        "head.weight",
    } <= set(graph.tensors)
    linears = [
        operation.layer for operation in graph.operations if operation.kind == "aten.linear.default"
    ]
    assert linears == ["twice", "twice", "head"]
    assert len(by_kind["aten.max.dim"].outputs) == 2
    assert graph.tensors[by_kind["aten.max.dim"].outputs[1]].dtype == "int64"
    assert graph.tensors["image"].shape == (None, 3, 6, 7)
    assert by_kind["aten.softmax.int"].layer == ""


def test_values_before_an_operation_in_place_are_those_before_it() -> None:
    model = TangledWrapper().open()
    batch = generate_random_batch(model.io, 3)
    found = model.get_intermediates(Selector(layer="first.*"), batch)
    with torch.no_grad():
        convolved = model.native.first[0](torch.from_numpy(batch["image"]))
        normalised = model.native.first[1](convolved)
    expected = [convolved, normalised, normalised.relu()]
    assert (normalised < 0).any()
    assert len(found) == 3
    for array, tensor in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), atol=1e-6)


def test_the_training_graph_computes_the_gradients() -> None:
    model = TangledWrapper().open()
    graph = model.get_training_graph()
    module = model.native
    parameters = dict(module.named_parameters())
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    inputs = generate_random_batch(model.io, 8, seed=3)
    truth = model.wrapper.random_truth(8, 3)
    given = {name: torch.from_numpy(array) for name, array in inputs.items()}
    targets = {name: torch.from_numpy(array) for name, array in truth.items()}
    module.drop.p = 0.0  # random numbers drawn in another order are others
    traced = model.get_training_graph().native
    loss, gradients, _ = traced(
        {name: p.detach() for name, p in parameters.items()}, buffers, given, targets
    )
    module.train()
    expected = model.wrapper.loss(tuple(module(*given.values())), targets)
    torch.testing.assert_close(loss, expected)
    expected.backward()
    for mine, (name, parameter) in zip(gradients, parameters.items(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, msg=name)
    module.eval()
    assert len(graph.outputs) == 1 + len(parameters) + len(buffers)
    assert graph.inputs == ("image", "number", "label")
    assert {"head.weight", "first.1.running_mean"} <= set(graph.tensors)


def test_the_backward_pass_belongs_to_the_layers_it_undoes() -> None:
    graph = TangledWrapper().open().get_training_graph()
    layers = {operation.kind: operation.layer for operation in graph.operations}
    assert layers["aten.convolution.default"] == "first.0"
    assert layers["aten.convolution_backward.default"] == "first.0"
    assert layers["aten.native_batch_norm_backward.default"] == "first.1"
    assert layers["aten.threshold_backward.default"] == "first.2"
    assert layers["aten.embedding_dense_backward.default"] == "embedding"
    assert layers["aten.nll_loss_backward.default"] == ""
    assert layers["aten.tanh_backward.default"] == ""  # of no layer of its own


def test_a_traced_training_leaves_the_model_alone() -> None:
    model = TangledWrapper().open()
    before = model.get_weights()
    model.get_training_graph()
    same(model.get_weights(), before, atol=0)
    assert not model.native.training
    assert all(parameter.grad is None for parameter in model.native.parameters())
    assert not model.native.first[0]._forward_hooks


def test_the_operations_of_an_inference_take_no_longer_than_the_inference() -> None:
    profile = TangledWrapper().open().profile_inference(5)
    assert 0 < sum(timing.total_ns for timing in profile.timings) <= profile.wall_ns


def test_the_profile_of_a_training_shows_forward_backward_and_optimiser() -> None:
    profile = TangledWrapper().open().profile_training(3)
    operations = {timing.operation for timing in profile.timings}
    assert {
        "aten::convolution_backward",
        "aten::embedding",
        "aten::native_batch_norm",
    } <= operations
    assert sum(timing.total_ns for timing in profile.timings) <= profile.wall_ns


# -- sessions -------------------------------------------------------------------------------------


def test_threads_are_as_asked_for_and_then_as_before() -> None:
    before = torch.get_num_threads()
    model = PlainWrapper(num_threads=before + 1).open()
    with model.session() as session:
        session.infer(generate_random_batch(model.io, 1))
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_inputs_are_taken_without_a_copy() -> None:
    batch = generate_random_batch(PlainWrapper().io, 2)
    with PlainWrapper().open().session() as session:
        session.infer(batch)
        session.put(batch)
        batch["image"][...] = 0  # which one must not do
        session.run()
        zeros = session.get()
        same(zeros, session.infer(batch), atol=0)


def test_a_missing_gpu_is_an_error_of_one_line() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ConfigError, match="use --device cpu") as caught:
        _ = PlainWrapper(device="cuda").open().native
    assert "\n" not in str(caught.value)


def test_fresh_weights_leave_the_random_numbers_of_others_alone() -> None:
    state = torch.get_rng_state()
    _ = PlainWrapper().open().native
    PlainWrapper().open().run_training(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_saved_file_is_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    model = TangledWrapper().open()
    path = model.save(tmp_path / "model.safetensors").path
    same(load_file(path), model.get_weights(), atol=0)
    assert dict(Artifact.read(path).frameworks)["torch"] == torch.__version__


def test_a_model_of_the_base_trains_nothing_but_a_classifier() -> None:
    assert math.isclose(
        float(PlainWrapper().loss((torch.zeros(3, 4),), {"label": torch.tensor([0, 1, 2])})),
        math.log(4),
        rel_tol=1e-6,
    )
    score = PlainWrapper().score((torch.eye(4),), {"label": torch.tensor([0, 1, 2, 0])})
    assert float(score) == 0.75


def test_shared_weights_stay_shared(tmp_path: Path) -> None:
    model = TiedWrapper().open()
    model.set_weights({"3.weight": np.ones((4, 8), np.float32)})
    assert (model.get_weights()["5.weight"] == 1).all()
    model.run_training(1)
    path = model.save(tmp_path / "model.safetensors").path
    other = TiedWrapper().open()
    other.load(path)
    same(other.get_weights(), model.get_weights(), atol=0)
    assert other.native[5].weight is other.native[3].weight
    batch = generate_random_batch(model.io, 2)
    same(outputs_of(other, batch), outputs_of(model, batch), atol=0)


def test_damaged_weights_do_not_reach_a_session(tmp_path: Path) -> None:
    path = TangledWrapper().open().save(tmp_path / "model.safetensors").path
    with pytest.raises(ArtifactError, match="weights of another model"):
        PlainWrapper().open().load(path)
