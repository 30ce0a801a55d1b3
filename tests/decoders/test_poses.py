"""Key points are read from numbers and from heat maps."""

from __future__ import annotations

import numpy as np
import pytest
from installed import needs
from shared_data import shared_data

from nnpipe.core.errors import ConfigError
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.datasets import KeypointsTableDataset
from nnpipe.decoders import HeatMapDecoder, MoveNetDecoder
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.modelwrappers import TFLiteModel

SPEC = DatasetSpec("pose", (), (), ("head", "hand", "foot"))
POINTS = np.random.default_rng(0).random((2, 4, 3, 3)).astype(np.float32)


def decoded(output: np.ndarray, decoder: OutputDecoder) -> dict[str, np.ndarray]:
    outputs = (TensorSpec("out", (None, *output.shape[1:]), "float32"),)
    io = IOSpec((TensorSpec("in", (None, 40, 80, 3), "float32"),), outputs)
    decoder.check(io, (), SPEC)
    return dict(decoder.decode({"out": output.astype(np.float32)}, io))


def test_the_most_certain_person_comes_first() -> None:
    found = decoded(POINTS, MoveNetDecoder(score_threshold=0.5))
    scores = POINTS[..., 2].mean(axis=2)
    np.testing.assert_allclose(found["scores"], -np.sort(-scores, axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        found["points"][0, 0, 1], POINTS[0, scores[0].argmax(), 1, [1, 0, 2]], rtol=1e-6
    )
    assert found["count"].tolist() == (scores >= 0.5).sum(axis=1).tolist()


def test_persons_may_have_boxes_and_scores_of_their_own() -> None:
    boxes = np.zeros((2, 4, 5), np.float32)
    boxes[..., 4] = (0.1, 0.9, 0.3, 0.2)
    found = decoded(np.concatenate([POINTS.reshape(2, 4, 9), boxes], axis=2), MoveNetDecoder())
    np.testing.assert_allclose(found["scores"][1], [0.9, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(found["points"][1, 0], POINTS[1, 1][:, [1, 0, 2]])


def test_points_may_be_pixels() -> None:
    pixels = POINTS[:, 0] * (80, 40, 1)
    found = decoded(pixels, MoveNetDecoder(order="xy", coordinates="pixels"))
    np.testing.assert_allclose(found["points"][:, 0], POINTS[:, 0], rtol=1e-6)


@pytest.mark.parametrize("maps", ["last", "first"])
def test_a_point_is_where_its_heat_map_is_greatest(maps: str) -> None:
    heat = np.zeros((2, 3, 10, 20), np.float32)
    heat[0, 1, 4, 7], heat[0, 1, 4, 8], heat[0, 1, 3, 7] = 0.9, 0.5, 0.2
    heat[1, 2, 0, 19] = 0.4
    given = heat.transpose(0, 2, 3, 1) if maps == "last" else heat
    found = decoded(given, HeatMapDecoder(maps=maps))["points"]
    np.testing.assert_allclose(found[0, 0, 1], [7.75 / 20, 4.25 / 10, 0.9], rtol=1e-6)
    np.testing.assert_allclose(found[1, 0, 2], [19.5 / 20, 0.5 / 10, 0.4], rtol=1e-6)
    plain = decoded(given, HeatMapDecoder(maps=maps, refine=False))["points"]
    np.testing.assert_allclose(plain[0, 0, 1], [7.5 / 20, 4.5 / 10, 0.9], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "decoder", "told"),
    [
        ((1, 1, 17, 3), MoveNetDecoder(), "gives 17 key points, and the data set has 3"),
        ((1, 17), MoveNetDecoder(), "reads one output"),
        ((1, 8, 9, 17), HeatMapDecoder(), "17 heat maps"),
        ((1, 3, 8, 9), HeatMapDecoder(), "maps=first"),
    ],
)
def test_models_that_do_not_fit_are_refused(
    shape: tuple[int, ...], decoder: OutputDecoder, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        decoded(np.zeros(shape), decoder)


@pytest.mark.slow
def test_corals_movenet_finds_the_reference() -> None:
    needs("ai_edge_litert", "PIL")
    root = shared_data("models/coral")
    dataset = KeypointsTableDataset(
        table=root / "movenet_single_pose_lightning_ptq_reference.csv", image=root / "squat.bmp"
    )
    dataset.prepare()
    model = root / "movenet_single_pose_lightning_ptq.tflite"
    wrapper = TFLiteModel(model_path=model, fit="squeeze", decoder="MoveNetDecoder").for_dataset(
        dataset.spec
    )
    with wrapper.open() as live, live.session() as session:
        route = SampleRoute(dataset, wrapper, wrapper.io, session.io, 1)
        (item,) = route.items(np.array([0]))
        session.put(item.inputs)
        session.run()
        (found,) = route.evaluate([item], [session.get()])
    # Kernels of LiteRT move points by up to 0.02.
    assert dataset.task.metric("point_distance").compute(found) == pytest.approx(0.0145, abs=0.01)
    assert dataset.task.metric("greatest_point_distance").compute(found) < 0.05
