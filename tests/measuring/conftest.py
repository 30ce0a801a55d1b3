"""A data set and a model small enough to know every number."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, TensorSpec


class Numbers(Dataset):
    """Sample ``i`` is four times ``i``, and its truth is ``i``."""

    def _spec(self) -> DatasetSpec:
        return DatasetSpec(
            "regression",
            (TensorSpec("n", (None,), "int64"),),
            (TensorSpec("value", (None,), "int64"),),
        )

    spec = property(_spec)  # type: ignore[assignment]

    def prepare(self) -> None:
        pass

    def __len__(self) -> int:
        return 1000

    def read(self, indices: np.ndarray) -> tuple[Batch, Batch]:
        return {"n": np.asarray(indices)}, {"value": np.asarray(indices)}

    def postprocess(self, predictions: Batch) -> Batch:
        return {"value": predictions["halves"] * 2}

    def evaluate(self, predictions: Batch, truth: Batch) -> Evaluation:
        return Evaluation(
            "regression", {"truth": truth["value"], "predicted": predictions["value"]}
        )


class Model(ModelWrapper):
    """Takes four equal numbers and gives them back; ``postprocess`` halves the first."""

    framework = "none"

    @property
    def io(self) -> IOSpec:
        return IOSpec(
            (TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),)
        )

    def build(self) -> Any:
        raise NotImplementedError

    def load(self, live: LiveModel, path: Any) -> None:
        raise NotImplementedError

    def save(self, live: LiveModel, path: Any) -> Artifact:
        raise NotImplementedError

    def session(self, live: LiveModel) -> InferenceSession:
        raise NotImplementedError

    def preprocess(self, inputs: Batch) -> Batch:
        return {"x": np.repeat(inputs["n"][:, None], 4, axis=1).astype(np.float32)}

    def postprocess(self, outputs: Batch) -> Batch:
        return {"halves": outputs["y"][:, 0] / 2}


@pytest.fixture
def dataset() -> Numbers:
    return Numbers()


@pytest.fixture
def wrapper() -> Model:
    return Model()


@pytest.fixture
def nothing_frozen(
    monkeypatch: pytest.MonkeyPatch, counting_frozen_objects: Callable[[], int]
) -> Iterator[None]:
    """Take back what other tests froze, so that what measuring freezes is seen.

    All that frameworks left is in sight of the garbage collector then: a collection takes a second.
    """
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(gc, "get_freeze_count", counting_frozen_objects)
    gc.unfreeze()
    yield
    gc.freeze()
