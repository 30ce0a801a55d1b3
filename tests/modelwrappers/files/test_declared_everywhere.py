"""A small CNN of which only the input's shape is said, trained by the trainer, through every
compiler there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import MissingDependency
from nnpipe.core.live_model import LiveModel
from nnpipe.core.registry import components
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.experiment.settings import read_settings
from nnpipe.formats.model_folder import TRANSFORMERS
from nnpipe.layers.description.from_description import read_description
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.torch.to_trainer import to_trainer
from nnpipe.layers.vocabulary.input import Input
from nnpipe.modelwrappers.files.declared import DeclaredModel
from nnpipe.training.optimization import SGD
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer
from nnpipe.workflows.pipeline.file import CandidateSettings, Pipeline

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

ROOT = Path(__file__).resolve().parents[3]
NETWORK, WAYS = (
    ROOT / "examples" / "small_cnn.yaml",
    read_settings(ROOT / "examples" / "declared.yaml")["candidates"],
)
# These take a C++ compiler or seconds.
SLOW = (
    "AOTInductor",
    "ExecuTorch",
    "ExecuTorch, int8",
    "IREE",
    "PyTorch, PT2E int8",
    "PyTorch, float16",
    "TVM",
    "PyTorch, a quarter of the channels pruned",
    "PyTorch, half the weights pruned",
)
# Ways that change weights have their own bounds: least agreement with the source, of 100 samples.
CHANGED = {
    "a tenth of the weights pruned → ONNX Runtime": 0.97,
    "PyTorch, half the weights pruned": 0.95,
    "PyTorch, a quarter of the channels pruned": 0.9,
}


@pytest.fixture(scope="module")
def dataset() -> DigitsDataset:
    found = DigitsDataset()
    found.prepare()
    return found


@pytest.fixture(scope="module")
def model(dataset: DigitsDataset) -> LiveModel:
    """The network, trained until it reads digits."""
    made = (
        DeclaredModel(network=NETWORK, scale=16.0, resize=(28, 28)).for_dataset(dataset.spec).open()
    )
    made.train(
        dataset,
        TrainingOptions.from_json({"num_epochs": 8, "batch_size": 32, "learning_rate": 0.003}),
    )
    inputs, truth = samples(model=made, dataset=dataset)
    assert np.mean(answers(made, inputs).argmax(1) == truth) > 0.97
    return made


@pytest.fixture(scope="module")
def exported(model: LiveModel, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Artifact]:
    folder = tmp_path_factory.mktemp("exported")
    return {
        format: model.export(folder / f"small.{format}", format) for format in model.wrapper.exports
    }


def samples(model: LiveModel, dataset: DigitsDataset) -> tuple[dict[str, Any], np.ndarray]:
    inputs, truth = dataset.read(dataset.split("test"))
    return dict(model.wrapper.preprocess(inputs)), truth["label"]


def answers(model: LiveModel, inputs: Mapping[str, Any]) -> np.ndarray:
    with model.session() as session:
        return session.infer(inputs)["digit"]


@cache
def ways() -> Mapping[str, CandidateSettings]:
    settings = read_settings(ROOT / "examples" / "declared.yaml")
    settings["model"]["arguments"]["network"] = str(NETWORK)
    (found,) = Pipeline.from_settings(settings).models
    return {way.title: way for way in found.candidates}


def way_of(title: str) -> CandidateSettings:
    try:
        return ways()[title]
    except MissingDependency as error:
        pytest.skip(str(error))


def test_only_the_input_says_its_shape() -> None:
    graph = read_description(NETWORK)
    assert [layer.shape for layer in graph.layers.values() if isinstance(layer, Input)] == [
        (28, 28, 1)
    ]
    assert not [entry for entry in read_settings(NETWORK)["layers"][1:] if "shape" in str(entry)]
    assert sum(value.size for value in initial_weights(graph).values()) == 397_926


def test_no_compiler_is_forgotten() -> None:
    used = {type(part).__name__ for way in WAYS for part in way_of(way["title"]).compilers}
    # Language models have a way of their own, which examples/tiny_language_model.yaml shows.
    others = {cls for cls in components(ModelCompiler) if cls.accepts == (TRANSFORMERS,)}
    ours = {
        cls.__name__ for cls in components(ModelCompiler) if cls.__module__.startswith("nnpipe.")
    }
    assert used == ours - {cls.__name__ for cls in others}


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(way["title"], marks=[pytest.mark.slow] * (way["title"] in SLOW))
        for way in WAYS
        if "runtime" in way
    ],
)
def test_it_goes_every_way_and_reads_as_well(
    title: str,
    model: LiveModel,
    dataset: DigitsDataset,
    exported: Mapping[str, Artifact],
    tmp_path: Path,
) -> None:
    way = way_of(title)
    assert way.runtime is not None
    assert way.way is not None
    artifact = exported[way.way.export]
    for number, compiler in enumerate(way.compilers):
        check_installed(compiler)
        destination = tmp_path / f"small{number}{compiler.suffix}"
        artifact = compiler.compile(
            artifact, destination, lambda: map(model.wrapper.preprocess, dataset.calibration(64))
        )
    check_installed(way.runtime)
    inputs, truth = samples(model, dataset)
    count = 100
    expected = answers(model, inputs)[:count]
    with way.runtime.load(artifact) as session:
        given = [{name: array[n : n + 1] for name, array in inputs.items()} for n in range(count)]
        found = np.concatenate([session.infer(batch)["digit"] for batch in given])
    agreement = np.mean(found.argmax(1) == expected.argmax(1))
    lost = np.mean(expected.argmax(1) == truth[:count]) - np.mean(found.argmax(1) == truth[:count])
    if title in CHANGED:
        assert agreement >= CHANGED[title]
    elif any(word in title for word in ("int8", "4-bit", "64 values")):
        assert agreement >= 0.97
    else:
        np.testing.assert_allclose(found, expected, atol=2e-3 if "float16" in title else 2e-5)
    assert lost <= 0.05


def check_installed(part: Component) -> None:
    try:
        part.check_installed()
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.mark.slow  # it learns the digits that come with nnpipe for the tests above
def test_it_learns_mnist(shared_data: Path) -> None:
    """As its inventors train it, by gradient descent at a rate of 0.1; what they ask for after
    ten epochs is 0.95.
    """
    from nnpipe.datasets.mnist import MNISTDataset

    mnist = MNISTDataset(dataset_root=shared_data / "mnist")
    mnist.prepare()
    batches: dict[str, ArraySequence] = {}
    for split, count in (("train", 12000), ("test", 2000)):
        inputs, truth = mnist.read(mnist.split(split)[:count])
        images = inputs["image"].astype(np.float32) / 255
        shuffled: dict[str, Any] = (
            {"sampler": RandomSampler(), "seed": 1} if split == "train" else {}
        )
        batches[split] = ArraySequence(
            {"image": images, "label": truth["label"]}, batch=50, **shuffled
        )
    judged = to_trainer(read_description(NETWORK))
    history = Trainer(TrainerOptions.from_json({"num_epochs": 3})).fit(
        judged, {"mnist": batches}, optimiser=SGD(rate=0.1)
    )
    assert history.last["mnist/test/digit/accuracy"] > 0.95
