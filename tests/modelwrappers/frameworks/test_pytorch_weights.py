"""Files of weights: honest ones are read whatever they look like, others are named and change
nothing.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Small(PyTorchWrapper):
    """Two layers and a counter."""

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (TensorSpec("x", (None, 3), "float32"),), (TensorSpec("scores", (None, 2), "float32"),)
        )

    def build(self) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


@pytest.fixture
def state() -> dict[str, Any]:
    """Weights that no fresh model has."""
    return {name: value + 1 for name, value in Small().open().native.state_dict().items()}


def loaded(path: Path) -> dict[str, np.ndarray]:
    model = Small().open()
    model.load(path)
    return model.get_weights()


def check(found: Batch, state: dict[str, Any]) -> None:
    assert found.keys() == state.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, state[name].numpy())


def prefixed(state: dict[str, Any]) -> dict[str, Any]:
    return {f"module.{name}": value for name, value in state.items()}


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.th", "w.safetensors", "w"])
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        prefixed,
        lambda s: {"state_dict": s, "epoch": 3},
        lambda s: {"state_dict": prefixed(s), "best": 1.5},
    ],
    ids=["plain", "parallel", "checkpoint", "both"],
)
def test_what_torch_saves_is_read_by_content(
    state: dict[str, Any],
    tmp_path: Path,
    name: str,
    legacy: bool,
    wrap: Callable[[dict[str, Any]], Any],
) -> None:
    path = tmp_path / name
    torch.save(wrap(state), path, _use_new_zipfile_serialization=not legacy)
    check(loaded(path), state)


def test_safetensors_are_read_under_any_name(state: dict[str, Any], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "weights.pth"
    save_file(state, path)
    check(loaded(path), state)


def test_counters_that_old_files_lack_stay_as_they_are(
    state: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "old.pth"
    torch.save(
        {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")},
        path,
    )
    assert loaded(path)["1.num_batches_tracked"] == 0


def refused(path: Path, match: str) -> None:
    model = Small().open()
    before = model.get_weights()
    with pytest.raises(ArtifactError, match=match) as caught:
        model.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in state.items() if other != name}


MISFITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda s: without(s, "0.weight"), r"another model: it lacks 0\.weight$"),
    "left over": (lambda s: s | {"2.weight": s["0.bias"]}, r"the model has no 2\.weight$"),
    "many": (
        lambda s: s | {f"x{i}": s["0.bias"] for i in range(5)},
        r"has no x0, x1, x2 and 2 more$",
    ),
    "shape": (
        lambda s: s | {"0.weight": torch.ones(3, 2)},
        r"0\.weight has shape \(3, 2\) instead of \(2, 3\)",
    ),
    "kind": (
        lambda s: s | {"0.bias": torch.ones(2, dtype=torch.int64)},
        r"0\.bias holds int64 instead of float32",
    ),
    "no tensor": (lambda s: s | {"0.bias": 3}, "'0.bias' is a int, not a weight"),
    "no names": (lambda s: list(s.values()), "holds a list, not weights by name"),
    "nothing": (lambda s: {}, "holds a dict, not weights by name"),
    "a number": (lambda s: 7, "holds a int"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_weights_that_do_not_fit_say_how(
    state: dict[str, Any], tmp_path: Path, misfit: str
) -> None:
    change, match = MISFITS[misfit]
    path = tmp_path / "weights.pt"
    torch.save(change(state), path)
    refused(path, match)


class Malware:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "boo")


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_file_is_not_run(state: dict[str, Any], tmp_path: Path, legacy: bool) -> None:
    path, trap = tmp_path / "weights.pt", tmp_path / "trap"
    torch.save(state | {"extra": Malware(trap)}, path, _use_new_zipfile_serialization=not legacy)
    refused(path, "asks for .*write_text.* to be called|asks for .*getattr to be called")
    assert not trap.exists()
    torch.load(path, weights_only=False)
    assert trap.exists(), "the file was harmless, the test shows nothing"


def test_compressed_archives_are_refused_before_they_are_unpacked(
    state: dict[str, Any], tmp_path: Path
) -> None:
    buffer = io.BytesIO()
    torch.save({"0.weight": torch.zeros(1 << 20)}, buffer)
    path = tmp_path / "weights.pt"
    with (
        zipfile.ZipFile(buffer) as archive,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for info in archive.infolist():
            bomb.writestr(info.filename, archive.read(info))
    assert path.stat().st_size < 100_000
    refused(path, "compressed")


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_named(
    state: dict[str, Any], tmp_path: Path, keep: float, legacy: bool
) -> None:
    path = tmp_path / "weights.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    refused(path, "damaged, or not what|neither whole safetensors")


def test_a_torchscript_model_is_no_file_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), path)
    refused(path, "not what torch.save writes")


def test_a_folder_is_no_file_of_weights(tmp_path: Path) -> None:
    refused(tmp_path, "no such file")


def test_numbers_of_another_kind_are_refused(state: dict[str, Any]) -> None:
    model = Small().open()
    with pytest.raises(SpecMismatch, match=r"'1\.num_batches_tracked' holds int64, not float32"):
        model.set_weights({"1.num_batches_tracked": np.float32(3)})
    model.set_weights(
        {"0.bias": np.array([1, 2], np.float64), "1.num_batches_tracked": np.int32(3)}
    )
    assert model.get_weights()["0.bias"].dtype == np.float32
    assert model.get_weights()["1.num_batches_tracked"] == 3


class ResNet20(PyTorchWrapper):
    """The residual network of 20 layers for CIFAR-10 (He et al.

    2016), with shortcuts that need no weights.
    """

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (TensorSpec("image", (None, 3, 32, 32), "float32"),),
            (TensorSpec("scores", (None, 10), "float32"),),
        )

    def build(self) -> Any:
        nn, functional = torch.nn, torch.nn.functional

        class Block(nn.Module):
            def __init__(self, before: int, after: int) -> None:
                super().__init__()
                self.step = after // before
                self.conv1 = nn.Conv2d(before, after, 3, self.step, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(after)
                self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
                self.bn2 = nn.BatchNorm2d(after)
                self.pad = (after - before) // 2

            def forward(self, x: Any) -> Any:
                y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
                shortcut = functional.pad(
                    x[:, :, :: self.step, :: self.step], (0, 0, 0, 0, self.pad, self.pad)
                )
                return functional.relu(y + shortcut)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
                self.bn1 = nn.BatchNorm2d(16)
                self.layer1 = nn.Sequential(Block(16, 16), Block(16, 16), Block(16, 16))
                self.layer2 = nn.Sequential(Block(16, 32), Block(32, 32), Block(32, 32))
                self.layer3 = nn.Sequential(Block(32, 64), Block(64, 64), Block(64, 64))
                self.linear = nn.Linear(64, 10)

            def forward(self, x: Any) -> Any:
                x = functional.relu(self.bn1(self.conv1(x)))
                return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))

        return Net()


def test_a_published_file_gives_the_published_accuracy(shared_data: Path) -> None:
    model = ResNet20().open()
    model.load(shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th")
    with gzip.open(shared_data / "cifar10" / "test_000-499.bin.gz") as stream:
        records = np.frombuffer(stream.read(), np.uint8).reshape(-1, 3073)
    mean, deviation = (
        np.array([[[0.485]], [[0.456]], [[0.406]]]),
        np.array([[[0.229]], [[0.224]], [[0.225]]]),
    )
    images = (records[:, 1:].reshape(-1, 3, 32, 32) / 255 - mean) / deviation
    with model.session() as session:
        scores = session.infer({"image": images.astype(np.float32)})["scores"]
    assert (scores.argmax(1) == records[:, 0]).mean() == pytest.approx(0.910, abs=1e-9)


@pytest.mark.parametrize("start", [b"\x80", b"PK"])
def test_a_header_whose_length_begins_as_other_files_do_is_read(
    tmp_path: Path, state: dict[str, Any], start: bytes
) -> None:
    save = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save
    bare = int.from_bytes(save(state, {"more": ""})[:8], "little")
    for length in range(bare, bare + 0x5000, 8):  # headers are padded to whole words
        if length.to_bytes(8, "little").startswith(start):
            content = save(state, {"more": "-" * (length - bare)})
            assert content.startswith(start)
            (tmp_path / "w.safetensors").write_bytes(content)
            check(loaded(tmp_path / "w.safetensors"), state)
            return
    raise AssertionError("no header of this length")
