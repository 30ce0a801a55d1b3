"""Image classifiers of torchvision and timm by name; most tests use small packages of the same
form.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from installed import needs
from repeated import RULES_OF_SESSIONS, SAME_IN_A_FRAMEWORK
from torchvision_for_cpu import torchvision

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import generate_random_batch
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.files.torch_hub import TorchHubModel
from nnpipe.testing.modelwrapper import ModelWrapperContract

needs("torch", "safetensors")

TIMM = """
from types import SimpleNamespace

import torch

CONFIG = SimpleNamespace(
    url="https://example.com/small.pth", hf_hub_id=None, file=None, tag="in10", input_size=(3, 16, 16), num_classes=10,
    mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), interpolation="bicubic", crop_pct=0.9, crop_mode="center",
    fixed_input_size=False,
)


def is_model(name):
    return name.partition(".")[0] == "small"


def list_models(pretrained=False):
    return ["small.in10"] if pretrained else ["small"]


def get_pretrained_cfg(name):
    if name not in ("small", "small.in10"):
        raise RuntimeError("invalid tag")
    return CONFIG


def create_model(name, pretrained=False, num_classes=10):
    if pretrained:
        raise OSError("no route to host")
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, num_classes),
    )
"""
BROKEN = 'raise RuntimeError("operator torchvision::nms does not exist")\n'


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, **sources: str) -> None:
    """Put modules of these sources before all others, until the test ends."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("timm", "torchvision"):
        for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)


@pytest.fixture
def small(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TorchHubModel]:
    installed(tmp_path_factory.mktemp("packages"), monkeypatch, timm=TIMM, torchvision="")
    yield TorchHubModel(architecture="timm:small")
    for name in ("timm", "torchvision"):
        sys.modules.pop(name, None)


class TestTorchHubModel(ModelWrapperContract):
    repeats = SAME_IN_A_FRAMEWORK | RULES_OF_SESSIONS

    @pytest.fixture
    def wrapper(self, small: TorchHubModel) -> ModelWrapper:
        return TorchHubModel(
            architecture=small.architecture, colours="convert", class_count=10, num_threads=2
        )

    @pytest.fixture
    def dataset(self) -> Dataset:
        return DigitsDataset(test_fraction=0.7)


def test_preprocessing_is_that_of_the_published_weights(small: TorchHubModel) -> None:
    assert [spec.shape for spec in small.io] == [(None, 3, 16, 16), (None, 10)]
    known = small.read_facts()
    assert known.by == "timm small in10"
    assert known.meaning is not None
    (pixels,) = known.meaning.inputs
    assert (pixels.scale, pixels.mean, pixels.deviation) == (255, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    # timm.data.create_transform: floor(16 / 0.9)
    assert (pixels.resize, pixels.shortest_edge, pixels.layout) == ("bicubic", 17, "nchw")
    image = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    expected = ((image / 255 - pixels.mean) / pixels.deviation).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(
        small.preprocess({"image": image})["image"], expected, rtol=1e-5, atol=1e-5
    )
    larger = TorchHubModel(architecture="timm:small", input_size=(32, 32), num_classes=7)
    assert [spec.shape for spec in larger.io] == [(None, 3, 32, 32), (None, 7)]
    assert larger.read_facts().meaning.inputs[0].shortest_edge == 34  # type: ignore[union-attr]


def test_random_weights_are_said_to_be_untrained_and_follow_the_seed(
    small: TorchHubModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batch = generate_random_batch(small.io, 2)
    with caplog.at_level(logging.WARNING, "nnpipe"):
        with small.open() as model, model.session() as session:
            expected = session.infer(batch)["logits"]
            model.save(tmp_path / "w.safetensors")
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "timm:small: random weights, untrained"
    ]
    caplog.clear()
    with small.open() as model, model.session() as session:
        np.testing.assert_array_equal(session.infer(batch)["logits"], expected)
    caplog.clear()
    given = TorchHubModel(architecture="timm:small", pretrained_weights=tmp_path / "w.safetensors")
    with given.open() as model, model.session() as session:
        np.testing.assert_array_equal(session.infer(batch)["logits"], expected)
    with small.open(tmp_path / "w.safetensors") as model, model.session() as session:
        np.testing.assert_array_equal(session.infer(batch)["logits"], expected)
    assert not caplog.records


@pytest.mark.slow
def test_it_is_exported_and_classifies(small: TorchHubModel, tmp_path: Path) -> None:
    needs("onnx", "onnxruntime", "onnxscript")
    from nnpipe.modelwrappers.files.torch_export import TorchExportModel
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    spec = DigitsDataset().spec
    wrapper = TorchHubModel(architecture="timm:small", colours="convert").for_dataset(spec)
    batch = generate_random_batch(wrapper.io, 3)
    with wrapper.open() as model, model.session() as session:
        expected = session.infer(batch)
        program = model.export(tmp_path / "m.pt2", "torch-export")
        onnx = model.export(tmp_path / "m.onnx", "onnx")
    assert wrapper.postprocess(expected)["scores"].shape == (3, 10)
    with TorchExportModel(model_path=program.path).open().session() as session:
        np.testing.assert_allclose(
            session.infer(batch)["logits"], expected["logits"], rtol=1e-5, atol=1e-6
        )
    assert program.meaning == onnx.meaning
    assert onnx.meaning is not None
    assert onnx.meaning.inputs[0].shortest_edge == 17
    with ONNXRuntime().load(onnx) as session:
        np.testing.assert_allclose(
            session.infer(batch)["logits"], expected["logits"], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        (
            "timm:smal",
            r"timm .* has no image classifier 'smal'; did you mean small\? \(2 are known\)",
        ),
        ("timm:small.in20", r"has no image classifier 'small\.in20'; did you mean small"),
        ("resnet50", r"--architecture takes torchvision:NAME or timm:NAME, not 'resnet50'"),
        ("timm:hf-hub:own/model", "--architecture takes"),
        ("timm:local-dir:/tmp/own", "--architecture takes"),
    ],
)
def test_unknown_names_are_answered_with_near_ones(
    small: TorchHubModel, architecture: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        _ = TorchHubModel(architecture=architecture).io
    assert "\n" not in str(caught.value)


def test_weights_that_do_not_fit_are_named(small: TorchHubModel, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    path = tmp_path / "other.safetensors"
    save_file({"0.weight": torch.zeros(4, 3, 5, 5), "head.weight": torch.zeros(2)}, path)
    with pytest.raises(
        ArtifactError,
        match=r"it lacks 0\.bias, .*; the model has no head\.weight; 0\.weight has shape",
    ):
        TorchHubModel(architecture="timm:small", pretrained_weights=path).open().session()
    torch.save(SimpleNamespace(a=1), tmp_path / "pickled.pth")
    with pytest.raises(ArtifactError, match=r"asks for .* to be called"):
        small.open(tmp_path / "pickled.pth")


def test_what_contradicts_itself_or_cannot_be_fetched_is_said(
    small: TorchHubModel, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="--pretrained-weights and --pretrained contradict"):
        TorchHubModel(architecture="timm:small", pretrained_weights=tmp_path, pretrained=True)
    with pytest.raises(ConfigError, match="published weights classify 10, not 7"):
        TorchHubModel(architecture="timm:small", pretrained=True, num_classes=7).open().session()
    with pytest.raises(
        Exception, match="timm:small: cannot fetch its published weights: no route to host"
    ):
        TorchHubModel(architecture="timm:small", pretrained=True).open().session()


def test_packages_that_do_not_fit_pytorch_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, timm="import torchvision\n", torchvision=BROKEN)
    for architecture in ("torchvision:resnet18", "timm:resnet18"):
        with pytest.raises(
            MissingDependency, match=r"torchvision .* does not fit PyTorch .*nms.*pip install"
        ) as caught:
            _ = TorchHubModel(architecture=architecture).io
        assert "\n" not in str(caught.value)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, torchvision="", timm="import gone_with_the_wind\n")
    with pytest.raises(
        MissingDependency, match=r"timm models need gone_with_the_wind, .* pip install gone_with"
    ):
        _ = TorchHubModel(architecture="timm:resnet18").io
    monkeypatch.setattr(TorchHubModel, "missing", classmethod(lambda cls: ("torchvision",)))
    with pytest.raises(
        MissingDependency, match="from the same index as PyTorch: pip install torchvision"
    ):
        TorchHubModel.check_installed()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "size"),
    [
        ("torchvision:resnet18", (64, 64)),
        ("timm:vit_tiny_patch16_224", None),
        ("timm:efficientnet_b0", (64, 64)),
    ],
)
def test_networks_of_the_real_packages_compute_the_same_as_programs(
    architecture: str, size: Any, tmp_path: Path
) -> None:
    torchvision()
    pytest.importorskip(architecture.partition(":")[0], reason="timm is not installed")
    from nnpipe.runtimes.pytorch import PyTorchRuntime

    wrapper = TorchHubModel(architecture=architecture, input_size=size, num_classes=5)
    batch = generate_random_batch(wrapper.io, 3)
    with wrapper.open() as model, model.session() as session:
        expected = session.infer(batch)["logits"]
        made = model.export(tmp_path / "m.pt2", "torch-export")
    assert expected.shape == (3, 5)
    with PyTorchRuntime().load(made) as session:
        np.testing.assert_allclose(session.infer(batch)["logits"], expected, rtol=1e-4, atol=1e-5)


def test_torchvisions_transforms_are_read_from_its_weights() -> None:
    models = torchvision().models
    found = TorchHubModel(architecture="torchvision:efficientnet_b0").read_facts().meaning
    said = models.EfficientNet_B0_Weights.DEFAULT
    assert found is not None
    assert found.inputs[0].shortest_edge == said.transforms().resize_size[0]
    assert found.inputs[0].resize == said.transforms().interpolation.value
    assert list(found.outputs[0].class_names) == said.meta["categories"]
