"""PyTorch programs become TensorFlow Lite files that compute the same, in floats and nearly so
in integers.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from network_contracts import TorchNetworkContract

from nnpipe.compilers._torch_tf.program import UNTRANSLATED, build_operator_table
from nnpipe.compilers.tflite import TorchToTFLite
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import CompileError, ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec, generate_random_batch
from nnpipe.modelwrappers.classification.pytorch_cifar_resnet import PyTorchCIFARResNet
from nnpipe.modelwrappers.classification.small_cnn import PyTorchMNISTCNN
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.compiler import run_compiled
from nnpipe.testing.model_files import NETWORK_IO, create_torch_network, run_network
from nnpipe.testing.session import assert_one_line

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs("tensorflow")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
nn = torch.nn
F = nn.functional

SAMPLES = [generate_random_batch(NETWORK_IO, 1, seed) for seed in range(60)]


class TFLiteContract(TorchNetworkContract):
    """Compiling takes long: what comes out is made once for all tests of a target."""

    samples = SAMPLES

    made_with: TorchToTFLite

    @pytest.fixture
    def compiler(self) -> TorchToTFLite:
        return self.made_with

    @pytest.fixture
    def runtime(self) -> LiteRTRuntime:
        return LiteRTRuntime()

    @pytest.fixture(scope="class")
    @classmethod
    def compiled(cls, source: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        return cls.made_with.compile(
            source, tmp_path_factory.mktemp("compiled") / "made.tflite", lambda: SAMPLES
        )


class TestFloat32(TFLiteContract):
    made_with = TorchToTFLite()
    tolerance = 1e-5

    def test_the_number_of_samples_stays_free(self, compiled: Artifact) -> None:
        assert compiled.io == NETWORK_IO
        batch = generate_random_batch(NETWORK_IO, 7)
        (found,) = run_compiled(LiteRTRuntime(), compiled, NETWORK_IO, [batch])
        np.testing.assert_allclose(
            found["scores"], run_network(create_torch_network(), batch)["scores"], atol=1e-5
        )


@pytest.mark.slow
class TestInt8(TFLiteContract):
    made_with = TorchToTFLite(
        target="int8", inference_input_type="int8", inference_output_type="uint8", fixed_batch=1
    )
    tolerance = 1.0  # of outputs between -8 and 8
    agreement = 0.9


def translated(network: Any, io: IOSpec, path: Path) -> Artifact:
    """Compile a module that takes and gives tensors in order."""
    shapes = {spec.name: spec.shape for spec in io.inputs}
    batch = torch.export.Dim("batch", min=1)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            found = self.network(*(given[name] for name in shapes))
            return {io.outputs[0].name: found}

    example = {
        name: torch.zeros([2 if n is None else n for n in shape]) for name, shape in shapes.items()
    }
    axes = {name: {0: batch} if shape[0] is None else {} for name, shape in shapes.items()}
    program = torch.export.export(Named().eval(), (example,), dynamic_shapes=(axes,))
    program.example_inputs = None
    torch.export.save(program, path)
    return TorchToTFLite().compile(
        Artifact.create(path, "torch-export", io), path.with_suffix(".tflite")
    )


class Pieces(nn.Module):
    """Applies a function to an image that has been through a convolution, so that channels lie
    last inside.
    """

    def __init__(self, function: Any, channels: int = 4) -> None:
        super().__init__()
        self.before = nn.Conv2d(2, channels, 3, padding=1)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.before(x))


def shifted_sum(x: Any) -> Any:
    return x + x.mean((2, 3), keepdim=True) * torch.arange(4.0).view(1, 4, 1, 1) - 0.5


PIECES = {
    "strided and padded": nn.Conv2d(4, 6, 3, 2, 1),
    "dilated": nn.Conv2d(4, 6, 3, padding=2, dilation=2),
    "depthwise, two for each": nn.Conv2d(4, 8, 3, 2, 1, groups=4),
    "in groups": nn.Conv2d(4, 6, (3, 1), padding=(1, 0), groups=2),
    "padding same": nn.Conv2d(4, 6, (3, 5), padding="same"),
    "uneven strides": nn.Conv2d(4, 4, 3, (1, 2), (0, 1), groups=4),
    "normalised": nn.Sequential(nn.BatchNorm2d(4), nn.Hardswish(), nn.Dropout2d(0.3)),
    "pooled over negative numbers": nn.MaxPool2d(3, 2, 1),
    "pooled over positive numbers": nn.Sequential(nn.ReLU(), nn.MaxPool2d((3, 2), (2, 1), (1, 0))),
    "means with padding": nn.AvgPool2d(3, 2, 1),
    "means without padding": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "a mean of a window far larger than the image": nn.AvgPool2d(2000, ceil_mode=True),
    "adaptive": nn.AdaptiveAvgPool2d((3, 2)),
    "one mean": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3), nn.Tanh()),
    "flattened": nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.Sigmoid()),
    "viewed": lambda x: x.view(x.size(0), -1),
    "reshaped": lambda x: x.reshape(-1, 2, 2, 6, 8).permute(0, 2, 1, 4, 3),
    "softmax over channels": lambda x: x.softmax(1),
    "log of means of rows": lambda x: x.abs().mean(2).add(1).log(),
    "sum of channels": lambda x: x.sum(1) / 3,
    "greatest of columns": lambda x: x.amax(-1),
    "broadcast": shifted_sum,
    "a vector along columns": lambda x: x * torch.arange(8.0),
    "joined": lambda x: torch.cat([x, x.relu(), 2 * x], 1),
    "joined in rows": lambda x: torch.cat([x, x.exp()], -2),
    "cut and padded": lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)),
    "padded in columns": lambda x: F.pad(x, (1, 2), value=0.5),
    "clipped": nn.Sequential(nn.Hardtanh(-0.3, 0.4), nn.LeakyReLU(0.1), nn.GELU(), nn.SiLU()),
    "with scale": lambda x: (
        torch.add(x, x.transpose(2, 3).transpose(2, 3), alpha=2) - torch.sub(1, x, alpha=3)
    ),
    "squeezed": lambda x: x.mean(1, keepdim=True).squeeze(1).unsqueeze(2)[:, 1],
    "as a sequence": nn.Sequential(
        nn.Flatten(2), nn.Conv1d(4, 3, 3, 2, 1), nn.BatchNorm1d(3), nn.Linear(24, 5)
    ),
    "upsampled": nn.Sequential(
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.UpsamplingNearest2d(scale_factor=2)
    ),
    "upsampled to corners": nn.Upsample((9, 5), mode="bilinear", align_corners=True),
    "upsampled by cubes": nn.Upsample((9, 5), mode="bicubic"),
    "transposed convolutions": nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), nn.ConvTranspose2d(6, 4, 2, groups=2)
    ),
    "pooled with a last part": nn.Sequential(
        nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2, 2, ceil_mode=True)
    ),
    "adaptive, parts of unequal size": nn.AdaptiveAvgPool2d((4, 3)),
    "groups normalised": nn.GroupNorm(2, 4),
    "layers normalised": nn.LayerNorm(8),
    "local responses": nn.LocalResponseNorm(3),
    "padded with its own": lambda x: F.pad(
        F.pad(x, (1, 2, 0, 0), mode="circular"), (1, 1, 2, 1), mode="reflect"
    ),
    "cut in parts": lambda x: (
        torch.stack([x.chunk(2, 1)[1], x.split([1, 2, 1], 1)[1]], 1) + x.unbind(1)[3][:, None, None]
    ),
    "rolled and flipped": lambda x: x.roll((1, -2), (2, 3)).flip(1, 3),
    "picked": lambda x: x.index_select(3, torch.tensor([3, 0])) + x[:, :, :, [1, -1]],
    "gathered": lambda x: x.gather(3, x.argsort(3)[..., :3]),
    "the largest": lambda x: torch.cat(
        [x.topk(2)[0], x.max(-1, keepdim=True)[0], x.std(-1, keepdim=True)], -1
    ),
    "the first of the largest whole numbers": lambda x: (
        (x * 2).long().argmax(2) + (x * 2).to("cpu", torch.int32).argmin()
    ),
    "made whole on a device": lambda x: (x * 4).to("cpu", torch.int64),
    "sums up to here": lambda x: x.cumsum(1),
    "truth values": lambda x: torch.where(
        torch.logical_and(x > 0, ~(x > 1).any(1, keepdim=True)), x, torch.full_like(x, 2)
    ),
    "masked": lambda x: x.masked_fill(torch.arange(8) == 3, 0.5).tril(),
    "whole numbers": lambda x: (
        torch.div(x * 4, 1.5, rounding_mode="floor") + torch.arange(x.shape[3]).expand(6, 8)
    ),
    "activations": lambda x: F.mish(
        F.elu(x) + F.softplus(x) + F.log_softmax(x, 2) + torch.erf(x) + x.abs().pow(1.5)
    ),
    "slices overwritten": lambda x: torch.slice_scatter(x, x[:, :, ::2] * 2, 2, 1, 6, 2),
    "windows": lambda x: F.unfold(x, 2).unflatten(1, (4, 4)).unfold(3, 3, 2),
    "summed as Einstein does": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    "shuffled in pixels": nn.Sequential(
        nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2), nn.PReLU(4)
    ),
    "shuffled": lambda x: x.view(-1, 2, 2, 6, 8).transpose(1, 2).flatten(1, 2),
}


def randomised(network: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                tensor.uniform_(
                    0.5, 1.5, generator=generator
                ) if "running_var" in name else tensor.normal_(0, 0.4, generator=generator)
    return network.eval()


def check(names: Sequence[str], folder: Path) -> None:
    """Translate pieces all at once, because starting the converter takes longer than what it
    does.
    """

    class Together(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(Pieces(PIECES[name]) for name in names)

        def forward(self, x: Any) -> Any:
            return torch.cat([part(x).flatten(1) for part in self.parts], 1)

    network = randomised(Together())
    image = np.random.default_rng(0).standard_normal((3, 2, 6, 8)).astype(np.float32)
    with torch.no_grad():
        parts = [part(torch.from_numpy(image)).flatten(1).numpy() for part in network.parts]
    wanted = np.concatenate(parts, 1)
    io = IOSpec(
        (TensorSpec("x", (None, 2, 6, 8), "float32"),),
        (TensorSpec("y", (None, wanted.shape[1]), "float32"),),
    )
    made = translated(network, io, folder / "pieces.pt2")
    (found,) = run_compiled(LiteRTRuntime(), made, io, [{"x": image}])
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    for name, one, other in zip(names, np.split(found["y"], ends, 1), parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_all_operators_compute_what_pytorch_computes(tmp_path: Path) -> None:
    check(list(PIECES), tmp_path)


class Text(nn.Module):
    """Reads sequences with recurrent layers and attention; shows embeddings, masks and states,
    too.
    """

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.recurrent = kind(8, 6, 2, batch_first=True, bidirectional=True)
        self.attention = nn.TransformerEncoderLayer(12, 2, 16, batch_first=True, activation="gelu")

    def forward(self, x: Any) -> Any:
        found, states = self.recurrent(self.embedding(x.to(torch.int64)))
        last = states[0] if isinstance(states, tuple) else states
        q = self.attention(found).unflatten(2, (2, 6)).transpose(1, 2)
        seen = (x > 1)[:, None, None]
        scores = F.scaled_dot_product_attention(
            q, q, q, attn_mask=seen
        ) + F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return torch.cat([scores.flatten(1), last[-1]], 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_and_attention_are_the_same(kind: Any, tmp_path: Path) -> None:
    network = randomised(Text(kind))
    tokens = np.random.default_rng(0).integers(0, 10, (3, 7)).astype(np.float32)
    tokens[:, 0] = 5  # no sequence is hidden as a whole
    with torch.no_grad():
        wanted = network(torch.from_numpy(tokens)).numpy()
    io = IOSpec(
        (TensorSpec("x", (None, 7), "float32"),),
        (TensorSpec("y", (None, wanted.shape[1]), "float32"),),
    )
    (found,) = run_compiled(
        LiteRTRuntime(), translated(network, io, tmp_path / "text.pt2"), io, [{"x": tokens}]
    )
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)


def test_operators_that_write_into_their_operand_change_it_for_others_too(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        x.flatten(1).relu_()
        x.add_(1)
        return x * 2

    network = randomised(Pieces(function))
    image = generate_random_batch(
        io := IOSpec(
            (TensorSpec("x", (None, 2, 6, 8), "float32"),),
            (TensorSpec("y", (None, 4, 6, 8), "float32"),),
        ),
        3,
    )
    made = translated(network, io, tmp_path / "writing.pt2")
    (found,) = run_compiled(LiteRTRuntime(), made, io, [image])
    with torch.no_grad():
        np.testing.assert_allclose(
            found["y"], network(torch.from_numpy(image["x"])).numpy(), atol=1e-5
        )


def test_a_program_of_few_operators_is_the_same(source: Artifact, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, of its own
        program = torch.export.load(source.path).run_decompositions()
    assert {"aten.convolution.default", "aten.addmm.default"} <= {
        str(node.target) for node in program.graph.nodes
    }
    program.example_inputs = None
    torch.export.save(program, tmp_path / "core.pt2")
    core = Artifact.create(tmp_path / "core.pt2", "torch-export", NETWORK_IO)
    made = TorchToTFLite().compile(core, tmp_path / "core.tflite")
    batch = generate_random_batch(NETWORK_IO, 5)
    (found,) = run_compiled(LiteRTRuntime(), made, NETWORK_IO, [batch])
    for name, array in run_network(create_torch_network(), batch).items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)


class Spectrum(nn.Module):
    """A layer that cannot be translated, inside a network."""

    def forward(self, x: Any) -> Any:
        return torch.view_as_real(torch.fft.fft(x)).flatten(1)


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (
            nn.Sequential(nn.Conv2d(2, 2, 1), Spectrum()),
            r"PyTorch's aten\._fft_r2c\.default.*, .* cannot be translated to TensorFlow",
        ),
        (
            nn.MaxPool2d(3, 2, dilation=2),
            r"aten\.max_pool2d\.default.* cannot be translated as it is used: max_pool2d with "
            r"dilation",
        ),
    ],
)
def test_what_cannot_be_translated_is_named(network: Any, told: str, tmp_path: Path) -> None:
    io = IOSpec(
        (TensorSpec("x", (None, 2, 6, 8), "float32"),), (TensorSpec("y", (None, 1), "float32"),)
    )
    wrapped = network if isinstance(network, nn.Module) else Pieces(network)
    with pytest.raises(CompileError, match=told) as caught:
        translated(wrapped, io, tmp_path / "odd.pt2")
    assert_one_line(caught.value)


class Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(3))

    def forward(self, x: Any) -> Any:
        weights = self.places.float().cumprod(0)  # of weights alone, so it is computed beforehand
        return torch.fft.rfft(x * weights).abs() + x.median(1, keepdim=True).values


def test_known_refusals_are_those_that_are_translated_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "refused.pt2"
    torch.export.save(torch.export.export(Refused(), (torch.ones(2, 3),)), path)
    (cause,) = TorchToTFLite().refusals(path)
    assert "PyTorch's aten.fft_rfft.default, aten.median.dim cannot" in cause
    assert not {name.split(".")[0] for name in build_operator_table()} & UNTRANSLATED
    assert all(hasattr(torch.ops.aten, name) for name in UNTRANSLATED)


def test_nothing_is_known_against_what_is_translated(tmp_path: Path) -> None:
    path = tmp_path / "fine.pt2"
    torch.export.save(
        torch.export.export(nn.Sequential(nn.Linear(3, 2), nn.GELU()), (torch.ones(2, 3),)), path
    )
    assert TorchToTFLite().refusals(path) == ()


@pytest.mark.slow
def test_a_cnn_of_ours_is_the_same(tmp_path: Path) -> None:
    model = PyTorchMNISTCNN().open()
    source = model.export(tmp_path / "cnn.pt2", "torch-export")
    batch = generate_random_batch(model.io, 3)
    made = TorchToTFLite().compile(source, tmp_path / "cnn.tflite")
    (found,) = run_compiled(LiteRTRuntime(), made, model.io, [batch])
    with model.session() as session:
        np.testing.assert_allclose(found["scores"], session.infer(batch)["scores"], atol=1e-5)


def test_integers_need_an_integer_target() -> None:
    with pytest.raises(
        ConfigError, match="--inference-input-type uint8 needs --precision int8 or edgetpu"
    ):
        TorchToTFLite(inference_input_type="uint8")


@pytest.mark.slow
def test_a_trained_network_keeps_its_accuracy(tmp_path: Path, shared_data: Path) -> None:
    model = PyTorchCIFARResNet().open(
        shared_data / "models" / "torch_resnet" / "resnet20-12fca82f.th"
    )
    source, io = model.export(tmp_path / "resnet.pt2", "torch-export"), model.io
    records = np.frombuffer(
        gzip.decompress((shared_data / "cifar10" / "test_000-499.bin.gz").read_bytes()), "uint8"
    )
    labels, pixels = np.split(records.reshape(-1, 3073), [1], axis=1)
    images = model.wrapper.preprocess(
        {"image": pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)}
    )["image"]
    unseen, truth = [{"image": image[None]} for image in images[:400]], labels[:400, 0]
    with model.session() as session:
        wanted = np.concatenate([session.infer(batch)["scores"] for batch in unseen])
    exact = TorchToTFLite().compile(source, tmp_path / "exact.tflite")
    found = np.concatenate(
        [batch["scores"] for batch in run_compiled(LiteRTRuntime(), exact, io, unseen)]
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    compiler = TorchToTFLite(target="int8")
    made = compiler.compile(
        source, tmp_path / "int8.tflite", lambda: [{"image": i[None]} for i in images[-60:]]
    )
    assert made.size < 0.4 * exact.size
    integers = np.concatenate(
        [batch["scores"] for batch in run_compiled(LiteRTRuntime(), made, io, unseen)]
    )
    assert np.mean(integers.argmax(1) == wanted.argmax(1)) >= 0.95
    assert np.mean(integers.argmax(1) == truth) >= np.mean(wanted.argmax(1) == truth) - 0.02


@pytest.mark.slow
def test_a_result_that_its_input_dwarfs_has_a_scale_that_xnnpack_loads(tmp_path: Path) -> None:
    """Little is left but the bias: the weight of the large channel is rounded to 0, and so is
    the small channel.
    """
    network = nn.Sequential(nn.Linear(2, 1), nn.Flatten())
    network[0].weight.data, network[0].bias.data = torch.tensor([[1e-6, 1.0]]), torch.tensor([20.0])
    io, random = (
        IOSpec((TensorSpec("x", (1, 2), "float32"),), (TensorSpec("y", (1, 1), "float32"),)),
        np.random,
    )
    source = tmp_path / "m.pt2"
    translated(network, io, source)
    data = [
        {"x": (random.default_rng(n).random((1, 2)) * [1e6, 1]).astype(np.float32)}
        for n in range(20)
    ]
    compiler = TorchToTFLite(target="int8")
    made = compiler.compile(
        Artifact.create(source, "torch-export", io), tmp_path / "int8.tflite", lambda: data
    )
    for outputs in run_compiled(LiteRTRuntime(), made, io, data):
        # sums have steps of 1e6 / 255 / 127
        assert outputs["y"][0, 0] == pytest.approx(20, abs=31 / 2)
