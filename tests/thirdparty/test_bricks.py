"""A package outside nnpipe with one class of each kind passes every suite as it is."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bricks.announce import Announce
from bricks.balance import Balance
from bricks.packer import BricksPacker
from bricks.rings import RingsDataset
from bricks.runtime import BricksRuntime
from bricks.swish import SteepSwish

from nnpipe.codegen.script_task import ScriptTask
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.layers import Layer
from nnpipe.testing.callback import CallbackContract
from nnpipe.testing.compiler import ModelCompilerContract
from nnpipe.testing.dataset import DatasetContract
from nnpipe.testing.layer import LayerContract
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.script_task import ScriptTaskContract
from nnpipe.training.callbacks import Callback

PACKAGE = Path(__file__).parent / "bricks"
IO = IOSpec((TensorSpec("x", (None, 3), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
WEIGHTS = np.array([[1, 0.5], [-2, 0.25], [0, 3]], np.float32)


class TestRingsDataset(DatasetContract):
    needs_files = False

    @pytest.fixture
    def dataset(self) -> Dataset:
        return RingsDataset(num_samples=60, noise=0.2, split_seed=1)


@pytest.fixture
def source(tmp_path: Path) -> Artifact:
    path = tmp_path / "source" / "model.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"weights": WEIGHTS.tolist()}), "utf-8")
    return Artifact.create(path, "bricks-json", IO)


class TestBricksPacker(ModelCompilerContract):
    @pytest.fixture
    def compiler(self) -> ModelCompiler:
        return BricksPacker()

    @pytest.fixture
    def artifact(self, source: Artifact) -> Artifact:
        return source

    @pytest.fixture
    def runtime(self) -> Runtime:
        return BricksRuntime()

    @pytest.fixture
    def batches(self) -> list[Batch]:
        return [
            {"x": row[None]}
            for row in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
        ]

    @pytest.fixture
    def expected(self, batches: list[Batch]) -> list[Batch]:
        return [{"y": batch["x"] @ WEIGHTS} for batch in batches]


class TestBricksRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return BricksRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, source: Artifact, tmp_path: Path) -> Artifact:
        return BricksPacker().compile(source, tmp_path / "packed" / "model.bricks")

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return {"y": batch["x"] @ WEIGHTS}


class TestBalance(CallbackContract):
    @pytest.fixture
    def callback(self) -> Callback:
        return Balance(feature="label")


class TestSteepSwish(LayerContract):
    @pytest.fixture
    def layer(self) -> Layer:
        return SteepSwish((), beta=2.0)

    @pytest.fixture
    def shapes(self) -> Sequence[tuple[int, ...]]:
        return [(4,)]


class TestAnnounce(ScriptTaskContract):
    @pytest.fixture
    def task(self) -> type[ScriptTask]:
        return Announce

    @pytest.fixture
    def script(self) -> Mapping[str, Any]:
        network = [{"class": "Input", "shape": [4]}, {"class": "Dense", "units": 3}]
        steps = [
            {"task": "load_model", "network": "small", "model": "net"},
            {"task": "announce", "line": "built", "after": ["load_model"]},
        ]
        return {
            "script": "tried",
            "networks": {"small": network},
            "variables": {"net": "network"},
            "tasks": steps,
        }


def test_a_module_of_the_package_has_fewer_than_nineteen_statements_on_average() -> None:
    modules = sorted((PACKAGE / "src").rglob("*.py"))
    assert len(modules) == 8
    statements = [
        node
        for path in modules
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.stmt)
    ]
    assert len(statements) < 19 * len(modules)
