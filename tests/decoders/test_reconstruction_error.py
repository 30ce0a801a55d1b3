"""The error of a reconstruction is an anomaly score, and needs the model's input."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import shared_data

from nnpipe.core.errors import ConfigError
from nnpipe.core.output_decoder import with_inputs
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.decoders import ReconstructionErrorDecoder
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers.files.tflite import TFLiteModel

SPEC = DatasetSpec("anomaly", (), ())


def io_of(*shapes: tuple[int, ...]) -> IOSpec:
    tensors = [
        TensorSpec(name, (None, *shape), "float32")
        for name, shape in zip("xy", shapes, strict=True)
    ]
    return IOSpec((tensors[0],), (tensors[1],))


def test_differences_become_one_score_for_each_sample():
    given, found = np.zeros((2, 3), np.float32), np.array([[1, 2, -3], [0, 0, 0.5]], np.float32)
    outputs = {"y": found, "input:x": given}
    for arguments, wanted in (
        ({}, [14 / 3, 0.25 / 3]),
        ({"difference": "absolute"}, [2, 0.5 / 3]),
        ({"reduction": "max"}, [9, 0.25]),
    ):
        score = ReconstructionErrorDecoder(**arguments).decode(outputs, io_of((3,), (3,)))["score"]
        np.testing.assert_allclose(score, wanted)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_of_images_the_difference_at_each_pixel_is_told(layout):
    shape = (3, 4, 8) if layout == "nchw" else (4, 8, 3)
    given, found = np.zeros((1, *shape), np.float32), np.zeros((1, *shape), np.float32)
    np.moveaxis(found, 1 if layout == "nchw" else 3, 1)[0, :2, 3, 6] = 3
    meaning = InputProcessing("x", "image", fit="letterbox")
    decoder = ReconstructionErrorDecoder()
    decoded = decoder.decode({"y": found, "input:x": given}, io_of(shape, shape), (meaning,))
    wanted = np.zeros((1, 4, 8))
    wanted[0, 3, 6] = 6
    np.testing.assert_allclose(decoded["map"], wanted)
    assert decoded["frame"].tolist() == [[4, 8, 1]]
    assert decoder.decode({"y": found, "input:x": given}, io_of(shape, shape)).keys() == {"score"}


def test_models_that_reconstruct_nothing_are_refused():
    decoder = ReconstructionErrorDecoder()
    decoder.check(io_of((4, 4, 1), (16,)), (), SPEC)
    with pytest.raises(ConfigError, match=r"reconstructs \(2\) from \(3\)"):
        decoder.check(io_of((3,), (2,)), (), SPEC)
    two = IOSpec(
        io_of((3,), (3,)).inputs,
        (*io_of((3,), (3,)).outputs, TensorSpec("z", (None, 1), "float32")),
    )
    with pytest.raises(ConfigError, match="has x and y, z"):
        decoder.check(two, (), SPEC)


def test_only_decoders_that_ask_for_inputs_are_given_them():
    io, outputs, inputs = io_of((3,), (3,)), {"y": np.ones(3)}, {"x": np.zeros(3)}
    assert with_inputs(None, outputs, inputs, io, io) is outputs
    assert with_inputs(ReconstructionErrorDecoder(), outputs, inputs, io, io).keys() == {
        "y",
        "input:x",
    }


class Sections(InMemoryDataset):
    """Random frames, two of each clip."""

    spec = DatasetSpec(
        "anomaly",
        (TensorSpec("frame", (None, 640), "float32"),),
        (TensorSpec("anomalous", (None,), "int64"), TensorSpec("clip", (None,), "int64")),
    )

    def load(self) -> Samples:
        random = np.random.default_rng(0)
        kinds = np.repeat([0, 1, 0, 1, 0], 2)
        frames = random.uniform(-20, 0, (10, 640)).astype(np.float32) + 10 * kinds[:, None].astype(
            np.float32
        )
        return Samples({"frame": frames}, {"anomalous": kinds, "clip": np.repeat(np.arange(5), 2)})


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_an_autoencoder_is_judged_by_what_it_was_given(kind):
    """MLPerf Tiny's autoencoder; the int8 one is compared with its quantised input."""
    wrapper = TFLiteModel(
        model_path=shared_data(f"models/mlperf_tiny_ad/ad01_{kind}.tflite"),
        decoder="ReconstructionErrorDecoder",
    )
    dataset = Sections()
    dataset.prepare()
    wrapper = wrapper.for_dataset(dataset.spec)
    with wrapper.open(wrapper.model_path) as live, live.session() as session:
        route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 1)
        items = list(route.items(np.arange(10)))
        outputs = [session.infer(item.inputs) for item in items]
        (found,) = route.evaluate(items, outputs)
        real = [
            wrapper.preprocess_real({"frame": frame[None]})
            for frame in dataset.samples.inputs["frame"]
        ]
        wanted = []
        for sample, output in zip(real, outputs, strict=True):
            given, made = next(iter(sample.values())), next(iter(output.values()))
            spec = session.io.outputs[0]
            if spec.scale is not None:
                made = (made.astype(np.float64) - spec.zero_point) * spec.scale
            wanted.append(np.mean((made - given) ** 2))
    np.testing.assert_allclose(found.arrays["score"], wanted, rtol=1e-4 if kind == "fp32" else 0.05)
    assert found.arrays["clip"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert found.settings["decoder"]["class"].endswith("ReconstructionErrorDecoder")
