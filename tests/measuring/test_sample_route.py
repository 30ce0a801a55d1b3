from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.measuring.sample_route import Item, SampleRoute, iter_chunks


def session_io(batch: int | None = None, dtype: str = "float32", **quantisation: Any) -> IOSpec:
    return IOSpec(
        (TensorSpec("x", (batch, 4), dtype, **quantisation),),
        (TensorSpec("y", (batch, 4), dtype, **quantisation),),
    )


@pytest.fixture
def pipeline(dataset: Any, wrapper: Any, request: pytest.FixtureRequest) -> SampleRoute:
    return SampleRoute(dataset, wrapper, wrapper.io, *getattr(request, "param", (session_io(), 3)))


def echoes(items: list[Item]) -> list[Batch]:
    return [{"y": item.inputs["x"]} for item in items]


def test_a_free_batch_axis_gets_a_smaller_last_batch(pipeline: SampleRoute) -> None:
    items = list(pipeline.items(np.arange(7)))
    assert [item.samples for item in items] == [3, 3, 1]
    assert [item.inputs["x"].shape for item in items] == [(3, 4), (3, 4), (1, 4)]


@pytest.mark.parametrize("pipeline", [(session_io(3), 3)], indirect=True)
def test_a_fixed_batch_axis_gets_copies_of_the_last_sample(pipeline: SampleRoute) -> None:
    items = list(pipeline.items(np.arange(7)))
    assert [item.samples for item in items] == [3, 3, 1]
    assert items[2].inputs["x"][:, 0].tolist() == [6, 6, 6]
    assert len(items[2].truth["value"]) == 1


@pytest.mark.parametrize(
    "pipeline", [(session_io(), 3), (session_io(3), 3), (session_io(1), 1)], indirect=True
)
def test_every_sample_is_judged_once_and_copies_are_not(pipeline: SampleRoute) -> None:
    items = list(pipeline.items(np.arange(10, 17)))
    parts = pipeline.evaluate(items, echoes(items))
    assert len(parts) == 1  # outputs of one shape are judged at once
    assert parts[0].arrays["truth"].tolist() == list(range(10, 17))
    assert parts[0].arrays["predicted"].tolist() == list(range(10, 17))


INT8 = session_io(None, "int8", scale=0.5, zero_point=-20)


@pytest.mark.parametrize("pipeline", [(INT8, 4)], indirect=True)
def test_a_quantised_session_gets_and_gives_integers(pipeline: SampleRoute) -> None:
    items = list(pipeline.items(np.arange(6)))
    assert items[0].inputs["x"].dtype == np.int8
    assert items[0].inputs["x"][:, 0].tolist() == [-20, -18, -16, -14]
    assert pipeline.evaluate(items, echoes(items))[0].arrays["predicted"].tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_outputs_that_cannot_be_joined_are_judged_one_by_one(pipeline: SampleRoute) -> None:
    items = list(pipeline.items(np.arange(6)))
    ragged = [{"y": items[0].inputs["x"]}, {"y": np.pad(items[1].inputs["x"], ((0, 0), (0, 5)))}]
    parts = pipeline.evaluate(items, ragged)
    assert [part.arrays["predicted"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("batch", "size"), [(1, 2), (4, 1), (8, 32)])
def test_another_fixed_batch_size_is_refused_with_the_right_one(
    dataset: Any, wrapper: Any, batch: int, size: int
) -> None:
    with pytest.raises(ConfigError, match=f"--inference-batch-size {batch}$"):
        SampleRoute(dataset, wrapper, wrapper.io, session_io(batch), size)


def test_tensors_of_other_names_are_refused(dataset: Any, wrapper: Any) -> None:
    io = IOSpec((TensorSpec("z", (None, 4), "float32"),), wrapper.io.outputs)
    with pytest.raises(SpecMismatch, match="z"):
        next(SampleRoute(dataset, wrapper, wrapper.io, io, 2).items(np.arange(4)))


@given(st.lists(st.integers(0, 50)), st.integers(1, 200), st.integers(0, 30), st.integers(1, 10))
def test_goes_keep_order_and_bounds(
    sizes: list[int], most_bytes: int, output_bytes: int, most_calls: int
) -> None:
    items = [Item({"x": np.zeros(size, np.uint8)}, {}, 1) for size in sizes]
    found = list(iter_chunks(iter(items), most_bytes, output_bytes, most_calls))
    assert [item for chunk in found for item in chunk] == items
    for chunk in found:
        assert 1 <= len(chunk) <= most_calls
        # only the last one may exceed it
        assert sum(item.nbytes + output_bytes for item in chunk[:-1]) < most_bytes


def test_goes_are_made_when_asked_for() -> None:
    made = []

    def items() -> Any:
        for i in range(10):
            made.append(i)
            yield Item({"x": np.zeros(1)}, {}, 1)

    bundles = iter_chunks(items(), 1 << 20, 0, 3)
    next(bundles)
    assert len(made) == 3
