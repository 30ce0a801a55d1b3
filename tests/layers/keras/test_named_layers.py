"""Layers of other programs in Keras files are computed by the classes that the user names, and
by no others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from keras_copies import changed_copy

from nnpipe.codegen.description import check_script
from nnpipe.codegen.script import generate
from nnpipe.compilers.tflite import TFLiteCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ComponentNotFound, ConfigError
from nnpipe.layers import open_keras, read_keras, to_torch
from nnpipe.layers.imports.network_files import read_network
from nnpipe.layers.keras.named_layers import find_named_layers
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.modelwrappers.files.keras import KerasModel
from nnpipe.runtimes.keras import KerasRuntime

needs("tensorflow")

THEIRS = """
import keras

@keras.saving.register_keras_serializable(package="acme")
class Scaled(keras.layers.Layer):
    def __init__(self, factor=1.0, **more):
        super().__init__(**more)
        self.factor = factor

    def build(self, shape):
        self.slope = self.add_weight(name="slope", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.slope * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}

@keras.saving.register_keras_serializable(package="acme")
class Planted(keras.layers.Layer):
    def __init__(self, **more):
        raise SystemExit("constructed")
"""
OURS = """
from nnpipe.layers.vocabulary.field_table import row
from nnpipe.layers.vocabulary.layer import KerasParts, Layer, LayerVariable, TorchParts
from nnpipe.layers.vocabulary.initialisers import Ones
from nnpipe.layers.vocabulary.normalisation import parameters
from nnpipe.layers.vocabulary.value_kinds import NumberKind

class Scaled(Layer):
    "What acme's layer computes."

    factor: float = row(NumberKind(), default=1.0)

    def _describe_variables(self, shape):
        return (LayerVariable("slope", (shape[-1],), Ones()),)

    def _build_torch(self, shape):
        return TorchParts(lambda module, x: x * module.core["slope"] * self.factor, parameters(self.variables(shape)))

    def _build_keras(self, shape):
        return KerasParts(lambda layer, x: x * layer.core["slope"] * self.factor)
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the user: of layers of Keras, and of those of nnpipe."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "own_theirs.py").write_text(THEIRS, "utf-8")
    (folder / "own_ours.py").write_text(OURS, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    for name in ("own_theirs", "own_ours"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def files(modules: Path) -> dict[str, Path]:
    """The file of a program with a layer of its own, in both formats."""
    import keras
    import own_theirs

    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), own_theirs.Scaled(2.0, name="scaled")]
    )
    model.layers[-1].set_weights([np.array([1, 2, 3, 4], np.float32)])
    found = {suffix: modules / f"theirs{suffix}" for suffix in (".keras", ".h5")}
    for path in found.values():
        model.save(path)
    np.save(modules / "expected.npy", model(np.ones((2, 3), np.float32)))
    forget()
    return found


def forget() -> None:
    """Leave the process as it was before the user's module for Keras was imported."""
    import keras

    sys.modules.pop("own_theirs", None)
    registered = keras.saving.get_custom_objects()
    for name in [name for name in registered if name.startswith("acme>")]:
        del registered[name]


def changed(path: Path, **entries: Any) -> Path:
    """Write a copy of a file in which the last layer's description says something else."""
    return changed_copy(path, lambda layers: layers[-1].update(entries))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_layer_whose_class_is_not_named_is_refused_with_the_way_to_name_it(
    suffix: str, files: dict[str, Path]
) -> None:
    forget()
    with pytest.raises(ArtifactError, match=r"Scaled.*own-layers"):
        open_keras(files[suffix])
    assert "own_theirs" not in sys.modules


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", ["own_theirs.Scaled", "own_ours.Scaled"])
def test_a_layer_is_computed_by_the_class_that_is_named(
    suffix: str, name: str, files: dict[str, Path]
) -> None:
    expected = np.load(files[suffix].with_name("expected.npy"))
    model = open_keras(files[suffix], own_layers=[name])
    np.testing.assert_allclose(model(np.ones((2, 3), np.float32)), expected, atol=1e-6)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_it_is_read_without_keras_and_computed_in_pytorch(
    suffix: str, files: dict[str, Path]
) -> None:
    import torch

    reading = read_network(files[suffix], own_layers=["own_ours.Scaled"])
    assert reading.graph is not None
    module = to_torch(reading.graph, reading.weights).eval()
    expected = np.load(files[suffix].with_name("expected.npy"))
    np.testing.assert_allclose(module(torch.ones(2, 3)).detach(), expected, atol=1e-6)
    with pytest.raises(ConfigError, match="a layer of Keras; this network is built from nnpipe's"):
        read_network(files[suffix], own_layers=["own_theirs.Scaled"])


def test_no_other_class_is_constructed_although_its_module_was_imported(
    files: dict[str, Path],
) -> None:
    for name in ("own_theirs.Scaled", "own_ours.Scaled"):
        find_named_layers([name])
        for other in ("acme>Planted", "nnpipe>own_ours.Hidden"):
            path = changed(
                files[".keras"], class_name=other.rpartition(">")[2], registered_name=other
            )
            with pytest.raises(ArtifactError, match=f"{other}|Hidden|Planted"):
                open_keras(path, own_layers=[name])


def test_an_imported_layer_of_nnpipe_that_is_not_named_stays_unknown(
    files: dict[str, Path],
) -> None:
    from tests.layers.keras.slopes import Slopes

    title = f"nnpipe>{Slopes.get_dotted_path()}"
    path = changed(
        files[".keras"], class_name="Slopes", registered_name=title, config={"name": "x"}
    )
    assert any(
        problem.code == "unknown-layer"
        for problem in read_keras(path, own_layers=["own_ours.Scaled"]).problems
    )
    with pytest.raises(ArtifactError, match="not among the layers that you named: Scaled"):
        open_keras(path, own_layers=["own_ours.Scaled"])


def test_layers_that_hold_code_are_refused_as_ever(files: dict[str, Path]) -> None:
    path = changed(
        files[".keras"], class_name="Lambda", module="keras.layers", registered_name=None
    )
    with pytest.raises(ArtifactError, match="Lambda"):
        open_keras(path, own_layers=["own_theirs.Scaled"])


def test_arguments_that_the_class_lacks_are_told(files: dict[str, Path]) -> None:
    path = changed(files[".keras"], config={"name": "scaled", "factor": 2.0, "power": 3})
    with pytest.raises(ConfigError, match=r"power.*Scaled has no such argument"):
        read_network(path, own_layers=["own_ours.Scaled"])


def test_components_take_the_names_as_an_option(files: dict[str, Path], tmp_path: Path) -> None:
    expected = np.load(files[".keras"].with_name("expected.npy"))
    named = ("own_theirs.Scaled",)
    for component in (KerasModel, KerasRuntime, TFLiteCompiler, DeclaredModel):
        assert "--own-layers CLASS" in component.form_argparse().format_help()
    model = KerasModel(model_path=files[".keras"], own_layers=named)
    artifact = Artifact.create(files[".keras"], "keras", model.io)
    with KerasRuntime(own_layers=named).load(artifact) as session:
        (found,) = session.infer({model.io.inputs[0].name: np.ones((2, 3), np.float32)}).values()
        np.testing.assert_allclose(found, expected, atol=1e-6)
    declared = DeclaredModel(network=files[".keras"], own_layers=("own_ours.Scaled",))
    assert [type(layer).__name__ for layer in declared.graph.layers.values()] == [
        "Input",
        "Dense",
        "Scaled",
    ]


def test_a_script_is_generated_for_a_file_with_it(files: dict[str, Path]) -> None:
    described = {
        "script": "tried",
        "framework": "pytorch",
        "variables": {"net": "network"},
        "tasks": [{"task": "load_model", "network": "small", "model": "net"}],
    }
    file = {"file": str(files[".keras"])}
    (problem,) = check_script({**described, "networks": {"small": file}}).problems
    assert "Scaled is not in the vocabulary; own_layers" in problem.message
    checked = check_script(
        {**described, "networks": {"small": {**file, "own_layers": ["own_ours.Scaled"]}}}
    )
    assert checked.problems == ()
    assert checked.graph is not None
    assert "2.0" in generate(checked.graph).text
    problem, *_ = check_script(
        {**described, "networks": {"small": {**file, "own_layers": "x"}}}
    ).problems
    assert "own_layers must be a list" in problem.message


def test_what_is_no_layer_cannot_be_named(modules: Path) -> None:
    for wrong in ("own_ours.row", "own_ours.Nothing", "nowhere_to_be_found.Scaled", "Sclaed"):
        with pytest.raises(ComponentNotFound, match=wrong):
            find_named_layers([wrong])
    with pytest.raises(
        ComponentNotFound, match=r"own_theirs\.Scald; own_theirs has Scaled, Planted"
    ):
        find_named_layers(["own_theirs.Scald"])
    for faulty in ("own_ours.Scaled", [3], ["own_ours.Scaled", "own_theirs.Scaled"]):
        with pytest.raises(ConfigError, match="own_layers"):
            find_named_layers(faulty)
