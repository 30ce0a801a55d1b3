from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import InferenceSessionContract, OpenSession

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def model() -> LiveModel:
    model = PyTorchDigitsCNN().open()
    weights = model.get_weights()
    rng = np.random.default_rng(0)
    model.set_weights(
        {name: (array * rng.uniform(0.5, 2)).astype(array.dtype) for name, array in weights.items()}
    )
    return model


@pytest.fixture(scope="module")
def exported(model: LiveModel, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return model.export(tmp_path_factory.mktemp("model") / "model.pt2", "torch-export")


class TestPyTorchRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return PyTorchRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, exported: Artifact) -> Artifact:
        return exported

    @pytest.fixture
    def expected(self, model: LiveModel, batch: Batch) -> Batch:
        with model.session() as session:
            return session.infer(batch)


class Foreign(torch.nn.Module):
    """A program as others may write it: positional, two inputs, a tuple of outputs one of which
    is an input.
    """

    def forward(self, image: Any, weight: Any) -> Any:
        return (
            image * weight.sum(),
            image.view(image.shape),
            torch.einsum("bij,k->bk", image, weight),
        )


FOREIGN_IO = IOSpec(
    (TensorSpec("weight", (3,), "float64"), TensorSpec("image", (None, 2, 2), "float64")),
    (
        TensorSpec("einsum", (None, 3), "float64"),
        TensorSpec("mul", (None, 2, 2), "float64"),
        TensorSpec("view", (None, 2, 2), "float64"),
    ),
)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    arguments = (torch.ones(2, 2, 2).double(), torch.ones(3).double())
    program = torch.export.export(
        Foreign(), arguments, dynamic_shapes=({0: torch.export.Dim("batch")}, None)
    )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    path = tmp_path_factory.mktemp("foreign") / "foreign.pt2"
    path.write_bytes(buffer.getvalue())
    return Artifact.create(path, "torch-export", FOREIGN_IO)


class TestAForeignProgram(InferenceSessionContract):
    """Its description has the tensors in another order than the file."""

    @pytest.fixture
    def open_session(self, foreign: Artifact) -> OpenSession:
        return lambda: PyTorchRuntime().load(foreign)

    def test_tensors_are_bound_by_name(self, open_session: OpenSession) -> None:
        image = np.random.default_rng(0).standard_normal((4, 2, 2))
        weight = np.array([1.0, 2, 4])
        with open_session() as session:
            found = session.infer({"image": image, "weight": weight})
        np.testing.assert_allclose(found["mul"], image * 7)
        np.testing.assert_allclose(found["view"], image)
        np.testing.assert_allclose(found["einsum"], image.sum((1, 2))[:, None] * weight)

    def test_a_run_that_fails_names_the_file(self, foreign: Artifact) -> None:
        free = tuple(TensorSpec(spec.name, spec.shape, spec.dtype) for spec in FOREIGN_IO.inputs)
        batch = {"weight": np.ones(3), "image": np.ones((2, 2, 2))}
        with PyTorchRuntime().load(foreign) as session:
            session.io = IOSpec(
                (free[0], TensorSpec("image", (None, 2), "float64")), FOREIGN_IO.outputs
            )
            session.put(batch | {"image": np.ones((2, 2))})
            with pytest.raises(ArtifactError, match="cannot run it") as caught:
                session.run()
        assert str(caught.value).startswith(str(foreign.path))


def test_a_bare_file_says_what_it_takes_and_gives(exported: Artifact) -> None:
    assert PyTorchRuntime().io_of(exported.path) == exported.io


def test_threads_are_as_asked_for_and_then_as_before(exported: Artifact) -> None:
    before = torch.get_num_threads()
    batch = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    with PyTorchRuntime(num_threads=before + 1).load(exported) as session:
        session.put(batch)
        assert torch.get_num_threads() == before + 1
        with PyTorchRuntime(num_threads=before + 2).load(exported) as other:
            other.infer(batch)
            assert torch.get_num_threads() == before + 2
            session.run()
            assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_an_error_of_one_line(exported: Artifact) -> None:
    with pytest.raises(ConfigError, match="use --device cpu") as caught:
        PyTorchRuntime(device="cuda").load(exported)
    assert "\n" not in str(caught.value)


def test_what_pytorch_cannot_load_is_named(exported: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "strange.pt2"
    data = exported.path.read_bytes()
    assert b"aten.conv2d.default" in data
    import zipfile

    with zipfile.ZipFile(exported.path) as archive, zipfile.ZipFile(path, "w") as copy:
        for info in archive.infolist():
            content = archive.read(info)
            copy.writestr(
                info.filename, content.replace(b"aten.conv2d.default", b"aten.no_such.default")
            )
    strange = Artifact.create(path, "torch-export", exported.io)
    with pytest.raises(ArtifactError, match="PyTorch cannot load it") as caught:
        PyTorchRuntime().load(strange)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


class Convolving(torch.nn.Module):
    """Convolutions, one of them with a weight that is looked at elsewhere too."""

    def __init__(self, view: bool) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.view = view

    def forward(self, image: Any) -> Any:
        x = self.second(torch.relu(self.first(image)))
        if self.view:  # which memory with channels last does not allow
            x = x.view(x.shape[0], 4, -1)
        return x.sum(-1) + self.first.weight.sum()


def convolving(path: Path, view: bool) -> Artifact:
    torch.manual_seed(0)
    program = torch.export.export(Convolving(view).eval(), (torch.rand(2, 3, 6, 6),))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    path.write_bytes(buffer.getvalue())
    return Artifact.create(path, "torch-export", PyTorchRuntime().io_of(path))


def layouts(session: Any) -> list[bool]:
    """Return of each convolution that runs whether its weight has channels last."""
    seen = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in (torch.ops.aten.convolution.default, torch.ops.aten.conv2d.default):
                seen.append(args[1].is_contiguous(memory_format=torch.channels_last))
            return func(*args, **(kwargs or {}))

    with Watching():
        session.run()
    return seen


@pytest.mark.parametrize("view", [False, True], ids=["layout is free", "layout is fixed"])
def test_convolutions_have_channels_last_where_the_program_allows_it(
    view: bool, tmp_path: Path
) -> None:
    artifact = convolving(tmp_path / "model.pt2", view)
    batch = {
        PyTorchRuntime().io_of(artifact.path).inputs[0].name: np.random.default_rng(0).random(
            (2, 3, 6, 6), "f"
        )
    }
    with PyTorchRuntime(channels_last=False).load(artifact) as session:
        expected = session.infer(batch)
        assert layouts(session) == [False, True]  # of one channel each: all layouts are one
    with PyTorchRuntime().load(artifact) as session:
        found = session.infer(batch)
        assert layouts(session)[0] is not view
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


def test_threads_that_are_set_are_not_set_again(
    exported: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To set their number makes the next run slower, even where it is the same."""
    with PyTorchRuntime(num_threads=1).load(exported) as session:
        batch = {
            spec.name: np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in session.io.inputs
        }
        session.infer(batch)
        setting: list[int] = []
        monkeypatch.setattr(torch, "set_num_threads", setting.append)
        session.infer(batch)
        assert not setting
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        session.infer(batch)
        assert set(setting) == {1}
        monkeypatch.undo()
