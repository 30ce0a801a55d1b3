"""Anomaly maps are read from outputs."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import DatasetSpec, IOSpec, TensorSpec
from nnpipe.decoders import AnomalyMapDecoder

SPEC = DatasetSpec("anomaly_map", (), ())


def io_of(taken: tuple[int, ...], **outputs: tuple[int, ...]) -> IOSpec:
    given = tuple(TensorSpec(name, (None, *shape), "float32") for name, shape in outputs.items())
    return IOSpec((TensorSpec("x", (None, *taken), "float32"),), given)


def test_maps_and_scores_are_found_by_shape_and_name() -> None:
    io = io_of(
        (8, 8, 3), anomaly_map=(1, 4, 4), pred_mask=(1, 4, 4), pred_label=(1,), pred_score=(1,)
    )
    outputs = {
        spec.name: np.full((2, *spec.shape[1:]), number) for number, spec in enumerate(io.outputs)
    }
    found = AnomalyMapDecoder().decode(outputs, io)
    assert found["map"].shape == (2, 4, 4)
    assert found["map"].max() == 0
    assert found["score"].tolist() == [3, 3]
    other = AnomalyMapDecoder(map_output="pred_mask", score_output="pred_label").decode(outputs, io)
    assert (other["map"].max(), other["score"].tolist()) == (1, [2, 2])
    assert "score" not in AnomalyMapDecoder().decode(
        {"out": np.zeros((2, 4, 4))}, io_of((8, 8, 3), out=(4, 4))
    )
    for wrong in ({"a": (4, 4), "b": (4, 4)}, {"a": (4, 4, 4)}):
        with pytest.raises(ConfigError, match="map_output=NAME"):
            AnomalyMapDecoder().check(io_of((8, 8, 3), **wrong), (), SPEC)
