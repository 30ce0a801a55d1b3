"""Exported PyTorch programs in 8 bits stay close to their source and smaller than it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from network_contracts import TorchNetworkContract

from nnpipe.compilers.torch_quantizer import TorchPT2EQuantizer
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError, MissingDependency
from nnpipe.core.tensors import generate_random_batch
from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
from nnpipe.runtimes.pytorch import PyTorchRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import (
    NETWORK_IO,
    create_torch_network,
    run_network,
    write_torch_network,
)
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("torchao")

SAMPLES = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(60)]


def needs_executorch() -> None:
    pytest.importorskip("executorch", reason="ExecuTorch is not installed")


class QuantizerContract(TorchNetworkContract):
    """Compiling takes long: what comes out is made once for all tests of an argument set."""

    samples = SAMPLES

    made_with: TorchPT2EQuantizer
    tolerance = 0.5  # of outputs between -8 and 8
    agreement = 0.9

    @pytest.fixture
    def compiler(self) -> TorchPT2EQuantizer:
        return self.made_with

    @pytest.fixture(scope="class")
    @classmethod
    def compiled(cls, source: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        return cls.made_with.compile(
            source, tmp_path_factory.mktemp("compiled") / "made.pt2", lambda: SAMPLES
        )


@pytest.mark.slow
class TestX86(QuantizerContract):
    made_with = TorchPT2EQuantizer(reduce_range=True)

    def test_the_number_of_samples_stays_free(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO
        with PyTorchRuntime().load(compiled) as session:
            assert session.infer(generate_random_batch(NETWORK_IO, 7))["scores"].shape == (7, 5)


@pytest.mark.slow
class TestXNNPACK(QuantizerContract):
    made_with = TorchPT2EQuantizer(quantizer="xnnpack", per_channel=False)

    @pytest.fixture(autouse=True)
    @classmethod
    def _installed(cls) -> None:
        needs_executorch()


@pytest.mark.slow
def test_integers_stay_close_and_make_the_weights_small(tmp_path: Path) -> None:
    source = write_torch_network(
        tmp_path / "network.pt2", network := create_torch_network(channels=64)
    )
    made = TorchPT2EQuantizer().compile(source, tmp_path / "made.pt2", lambda: SAMPLES)
    assert made.io == NETWORK_IO
    loaded = torch.export.load(made.path)
    dtypes = {tensor.dtype for tensor in loaded.state_dict.values() if tensor.ndim > 1}
    assert dtypes == {torch.int8}
    found = run_compiled(PyTorchRuntime(), made, NETWORK_IO, SAMPLES)
    for one, batch in zip(found, SAMPLES, strict=True):
        np.testing.assert_allclose(
            one["scores"], run_network(network, batch)["scores"], rtol=0, atol=1
        )


class Lifted(torch.nn.Module):
    """A program as others may write it: positional, with a length that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 3)

    def forward(self, left: Any, right: Any) -> Any:
        return self.dense(torch.cat([left, right]))


def test_names_of_a_positional_program_are_kept(tmp_path: Path) -> None:
    dim = torch.export.Dim
    example = (torch.zeros(2, 4), torch.zeros(3, 4))
    program = torch.export.export(Lifted(), example, dynamic_shapes=({0: dim("n")}, {0: dim("m")}))
    program.example_inputs = None
    torch.export.save(program, tmp_path / "foreign.pt2")
    io = PyTorchRuntime().io_of(tmp_path / "foreign.pt2")
    assert [spec.name for spec in io] == ["left", "right", "linear"]
    source = Artifact.create(tmp_path / "foreign.pt2", "torch-export", io)
    made = TorchPT2EQuantizer().compile(
        source, tmp_path / "made.pt2", lambda: [generate_random_batch(io, 5)]
    )
    assert made.io == io


def test_a_quantised_program_is_not_quantised_again(source: Artifact, tmp_path: Path) -> None:
    made = TorchPT2EQuantizer().compile(source, tmp_path / "made.pt2", lambda: SAMPLES[:2])
    with pytest.raises(CompileError, match=r"made\.pt2: it is quantised already") as caught:
        TorchPT2EQuantizer().compile(made, tmp_path / "again.pt2", lambda: SAMPLES[:2])
    assert_one_line(caught.value)


def test_a_program_without_anything_to_quantise_is_refused(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def forward(self, given: Any) -> Any:
            return {
                "scores": given["image"].flatten(1)[:, :5].erf(),
                "total": given["extra"][:, :1].sin(),
            }

    source = write_torch_network(tmp_path / "plain.pt2", Plain())
    with pytest.raises(
        CompileError, match="the x86 quantiser knows none of its operators"
    ) as caught:
        TorchPT2EQuantizer().compile(source, tmp_path / "made.pt2", lambda: SAMPLES[:2])
    assert_one_line(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"per_channel": False}, "--no-per-channel needs --quantizer xnnpack"),
        ({"quantizer": "xnnpack", "reduce_range": True}, "--reduce-range needs --quantizer x86"),
    ],
)
def test_arguments_that_a_quantiser_does_not_know_are_refused(
    arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        TorchPT2EQuantizer.from_json(arguments)


def test_a_missing_executorch_is_named(
    source: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "executorch.backends.xnnpack.quantizer", None)
    with pytest.raises(MissingDependency, match=r"needs executorch .*pip install") as caught:
        TorchPT2EQuantizer(quantizer="xnnpack").compile(
            source, tmp_path / "made.pt2", lambda: SAMPLES
        )
    assert_one_line(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", ["x86", "xnnpack"])
def test_a_trained_network_keeps_its_accuracy_in_integers(
    quantizer: Any, tmp_path: Path, shared_data: Path
) -> None:
    if quantizer == "xnnpack":
        needs_executorch()
    model = PyTorchCIFARResNet().open(
        shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
    )
    source, io = model.export(tmp_path / "resnet.pt2", "torch-export"), model.io
    records = np.frombuffer(
        gzip.decompress((shared_data / "cifar10" / "test_000-499.bin.gz").read_bytes()), "uint8"
    )
    labels, pixels = np.split(records.reshape(-1, 3073), [1], axis=1)
    labels = labels[:, 0]
    images = model.wrapper.preprocess(
        {"image": pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)}
    )["image"]
    calibration = [{"image": image[None]} for image in images[-60:]]
    made = TorchPT2EQuantizer(quantizer=quantizer).compile(
        source, tmp_path / "made.pt2", lambda: calibration
    )
    batches = [{"image": part} for part in np.split(images[:400], 4)]
    exact = np.concatenate(
        [b["scores"] for b in run_compiled(PyTorchRuntime(), source, io, batches)]
    ).argmax(1)
    found = np.concatenate(
        [b["scores"] for b in run_compiled(PyTorchRuntime(), made, io, batches)]
    ).argmax(1)
    assert np.mean(exact == labels[:400]) > 0.89
    assert np.mean(found == exact) >= 0.95
    assert np.mean(found == labels[:400]) >= np.mean(exact == labels[:400]) - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", ["x86", "xnnpack"])
def test_tensors_kept_in_floats_are_not_rounded(tmp_path: Path, quantizer: Any) -> None:
    if quantizer == "xnnpack":
        needs_executorch()
    source = write_torch_network(tmp_path / "network.pt2")

    def rounded(**arguments: Any) -> set[str]:
        made = TorchPT2EQuantizer(quantizer=quantizer, **arguments).compile(
            source, tmp_path / "m.pt2", lambda: SAMPLES
        )
        nodes = torch.export.load(made.path).graph.nodes
        return {node.args[0].name for node in nodes if ".quantize_per_tensor" in str(node.target)}

    plain, mixed = rounded(), rounded(keep_float=("hardtanh_1",))
    assert "hardtanh_1" in plain
    assert mixed < plain
    assert mixed.isdisjoint(("hardtanh_1", "conv2d_1"))
    # folded into the convolution that is clipped
    assert rounded(keep_float=("batch_norm_1",)) == mixed
    # the name of the input in the graph, and outside
    assert "given_image" in plain - rounded(keep_float=("image",))
    with pytest.raises(
        ConfigError, match="'hardtan' is no tensor of the model; near it are 'hardtanh'"
    ):
        rounded(keep_float=("hardtan",))


def write_uneven_network(folder: Path) -> Artifact:
    """Write a network one of whose channels is so large that all values of the others round to
    0.
    """
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torch.no_grad():
        network[0].weight[3] *= 200
        network[0].bias[3] *= 200
        network[2].weight[:, 3] /= 200
    program = torch.export.export(
        network, (torch.zeros(2, 6),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    torch.export.save(program, folder / "network.pt2")
    return Artifact.create(
        folder / "network.pt2", "torch-export", PyTorchRuntime().io_of(folder / "network.pt2")
    )


def trained(
    source: Artifact, folder: Path, steps: int, rate: float, quantizer: Any
) -> tuple[Artifact, float]:
    """Return the network in 8 bits after some steps, and its error for samples that it has not
    seen.
    """
    samples = [generate_random_batch(source.io, 1, seed) for seed in range(256)]
    unseen = [generate_random_batch(source.io, 64, 1000)]
    compiler = TorchPT2EQuantizer(
        quantizer=quantizer, fine_tuning_steps=steps, fine_tuning_rate=rate
    )
    made = compiler.compile(source, folder / f"made{steps}.pt2", lambda: samples)
    found, wanted = (
        run_compiled(PyTorchRuntime(), each, source.io, unseen)[0] for each in (made, source)
    )
    return made, float(np.mean([np.square(found[name] - wanted[name]).mean() for name in wanted]))


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", ["x86", "xnnpack"])
def test_training_with_rounded_numbers_restores_what_rounding_loses(
    tmp_path: Path, quantizer: Any
) -> None:
    if quantizer == "xnnpack":
        needs_executorch()
    source = write_uneven_network(tmp_path)
    errors = {}
    for steps in (0, 300):
        made, errors[steps] = trained(source, tmp_path, steps, 0.01, quantizer)
        assert made.claims == (("int8", "fine-tuned") if steps else ("int8",))
        weights = torch.export.load(made.path).state_dict.values()
        assert {tensor.dtype for tensor in weights if tensor.ndim > 1} == {torch.int8}
    assert errors[300] < errors[0] / 2


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.3, 0.003])
def test_training_with_rounded_numbers_does_no_harm(rate: float, tmp_path: Path) -> None:
    source = write_uneven_network(tmp_path)
    (_, before), (_, after) = (trained(source, tmp_path, steps, rate, "x86") for steps in (0, 16))
    assert after < 1.02 * before  # of samples that it has not seen


@pytest.mark.slow
def test_training_that_only_harms_leaves_the_weights_as_they_were(tmp_path: Path) -> None:
    source = write_uneven_network(tmp_path)
    states = [
        torch.export.load(trained(source, tmp_path, steps, 1e4, "x86")[0].path).state_dict
        for steps in (0, 1)
    ]
    (plain, tuned) = (
        {key: value for key, value in state.items() if value.ndim > 1} for state in states
    )
    assert plain
    for one, other in zip(plain.values(), tuned.values(), strict=True):
        assert torch.equal(one, other)
