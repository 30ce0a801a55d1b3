"""A live model owns its network, and the wrapper that it was opened from stays as it was."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, NNPipeError, NotSupported
from nnpipe.core.graph import Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.synthetic import SyntheticVectorsDataset
from nnpipe.testing.fakes import ECHO_IO, FakeSession


class Network:
    """A factor that is multiplied with."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Multiplying(ModelWrapper):
    """Multiplies by a number, which is its weight."""

    framework: ClassVar[str] = "none"
    weights_format: ClassVar[str] = "number"

    factor: float = argument(2.0, help="the number that a fresh network has")

    @property
    def io(self) -> IOSpec:
        return ECHO_IO

    def build(self) -> Network:
        return Network(self.factor)

    def load(self, live: LiveModel, path: str | Path) -> None:
        try:
            live.native.factor = float(Path(path).read_text("utf-8"))
        except (OSError, ValueError):
            raise ArtifactError(f"{path}: no number") from None

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        Path(path).write_text(str(live.native.factor), "utf-8")
        return self.artifact_of(path, self.weights_format)

    def session(self, live: LiveModel) -> InferenceSession:
        network = live.native
        return FakeSession(self.io, function=lambda array: array * np.float32(network.factor))


def answer(model: LiveModel) -> float:
    with model.session() as session:
        return float(session.infer({"x": np.ones((1, 4), np.float32)})["y"][0, 0])


def test_a_network_is_built_once_and_when_first_asked_for() -> None:
    with Multiplying().open() as model:
        assert not model.is_built
        network = model.native
        assert model.is_built
        assert model.native is network
        assert model.io == ECHO_IO


def test_weights_are_loaded_where_a_path_is_given(tmp_path: Path) -> None:
    path = tmp_path / "w.number"
    with Multiplying().open() as model:
        model.native.factor = 7.0
        model.save(path)
    with Multiplying().open(path) as model:
        assert answer(model) == 7.0
    with pytest.raises(ArtifactError, match="no such"):
        Multiplying().open(tmp_path / "no such.number")


def test_a_session_outlives_the_model_that_it_was_opened_from() -> None:
    with Multiplying().open() as model:
        session = model.session()
    with session:
        assert session.infer({"x": np.ones((1, 4), np.float32)})["y"].max() == 2.0


def test_a_wrapper_is_equal_and_pickled_alike_whatever_its_models_learned() -> None:
    wrapper = Multiplying(factor=3.0)
    packed, hashed, held = pickle.dumps(wrapper), hash(wrapper), dict(vars(wrapper))
    with wrapper.open() as model:
        model.native.factor = 5.0
        assert answer(model) == 5.0
        assert vars(wrapper) == held
        assert pickle.dumps(wrapper) == packed
        assert hash(wrapper) == hashed
        assert wrapper == Multiplying(factor=3.0) == copy.deepcopy(wrapper)
    with wrapper.open() as another:
        assert answer(another) == 3.0


def test_a_network_is_collected_once_its_model_is_closed() -> None:
    wrapper = Multiplying()
    model = wrapper.open()
    network = weakref.ref(model.native)
    model.close()
    gc.collect()
    assert network() is None
    assert wrapper.io == ECHO_IO


USES: dict[str, Any] = {
    "native": lambda model, path: model.native,
    "set native": lambda model, path: setattr(model, "native", Network(1.0)),
    "load": lambda model, path: model.load(path),
    "save": lambda model, path: model.save(path),
    "export": lambda model, path: model.export(path, "number"),
    "start": lambda model, path: model.start(TrainingOptions()),
    "train": lambda model, path: model.train(
        SyntheticVectorsDataset(num_samples=20), TrainingOptions()
    ),
    "session": lambda model, path: model.session(),
    "training graph": lambda model, path: model.get_training_graph(),
    "inference graph": lambda model, path: model.get_inference_graph(),
    "weights": lambda model, path: model.get_weights(),
    "set weights": lambda model, path: model.set_weights({}),
    "training steps": lambda model, path: model.run_training(),
    "inference steps": lambda model, path: model.run_inference(),
    "profile of training": lambda model, path: model.profile_training(),
    "profile of inference": lambda model, path: model.profile_inference(),
    "intermediates": lambda model, path: model.get_intermediates(Selector(tensor="x")),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_model_says_so_whatever_is_asked_of_it(use: str, tmp_path: Path) -> None:
    model = Multiplying().open()
    model.close()
    with pytest.raises(NNPipeError, match="Multiplying is closed: open it again") as caught:
        USES[use](model, tmp_path / "w.number")
    assert not isinstance(caught.value, (ArtifactError, NotSupported))
    assert list(tmp_path.iterdir()) == []
    model.close()
