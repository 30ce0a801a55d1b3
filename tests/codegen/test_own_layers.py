"""Layers of other packages in scripts: written out where that is possible, and imported
otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.layers.keras.slopes import Slopes

from nnpipe.codegen import check_script, generate
from nnpipe.core.errors import ConfigError
from nnpipe.layers import from_description, initial_weights, to_torch
from nnpipe.layers.torch.network_module import torch_layer
from nnpipe.layers.vocabulary.layer import Shape, TorchParts

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Watched(Slopes):
    """Slopes, in code that cannot be written into a script."""

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        parts = super()._build_torch(*shapes)

        def call(module: Any, x: Any) -> Any:
            with torch.enable_grad():
                return parts.call(module, x)

        return TorchParts(call, parts.core)


def described(cls: type[Slopes], framework: str, name: str = "tried") -> dict[str, Any]:
    own = {"class": cls.get_dotted_path(), "most": 2.0, "name": "own"}
    network = [{"class": "Input", "shape": [4], "name": "row"}, {"class": "Dense", "units": 3}, own]
    steps = [
        {"task": "load_model", "network": "small", "model": "net"},
        {"task": "save", "model": "net", "path": "rows"},
    ]
    return {
        "script": name,
        "framework": framework,
        "networks": {"small": network},
        "variables": {"net": "network"},
        "tasks": steps,
    }


def script_of(cls: type[Slopes], framework: str) -> tuple[str, dict[str, Any]]:
    """Return a generated script, and what it defines."""
    checked = check_script(described(cls, framework))
    assert checked.problems == ()
    assert checked.graph is not None
    text = generate(checked.graph).text
    found: dict[str, Any] = {"__name__": "tried"}
    exec(compile(text, "tried.py", "exec"), found)
    return text, found


@pytest.mark.parametrize("cls", [Slopes, Watched])
def test_a_script_for_pytorch_computes_what_the_layer_does(cls: type[Slopes]) -> None:
    text, found = script_of(cls, "pytorch")
    imported = cls is Watched
    assert ("import torch_layer" in text) == (f"import {cls.__name__}" in text) == imported
    assert ("but not nnpipe" in text) != imported
    graph = from_description({"layers": described(cls, "pytorch")["networks"]["small"]}).graph
    assert graph is not None
    module, rows = to_torch(graph, initial_weights(graph)), torch.randn(5, 4)
    mine = found["Small"]()
    weights = dict(zip(mine.state_dict(), module.state_dict().values(), strict=True))
    mine.load_state_dict(weights)
    torch.testing.assert_close(mine(rows), module(rows))


@pytest.mark.slow
def test_a_script_for_keras_imports_the_layer() -> None:
    pytest.importorskip("keras", reason="Keras is not installed")
    text, found = script_of(Slopes, "keras")
    assert "It needs Keras, TensorFlow, nnpipe and tests." in text
    model = found["build_small"]()
    layer = model.get_layer("own")
    assert [weight.name for weight in layer.weights] == ["slope", "offset"]
    assert np.asarray(layer.weights[0]).min() >= 0.5
    assert model(np.ones((2, 4), np.float32)).shape == (2, 3)


def test_a_script_does_not_hide_what_it_imports() -> None:
    checked = check_script(described(Watched, "pytorch", "tests"))
    assert checked.graph is not None
    with pytest.raises(ConfigError, match="the script would hide the module"):
        generate(checked.graph)


def test_a_class_that_nothing_can_import_is_told() -> None:
    class Local(Watched):
        """Is in a function."""

    (problem,) = check_script(described(Local, "pytorch")).problems
    assert "Local is not at the top of a module that a script could import" in problem.message


def test_a_layer_is_a_module_by_itself() -> None:
    module = torch_layer(Slopes(()), (None, 3))
    assert set(module.state_dict()) == {"core.slope", "core.offset"}
