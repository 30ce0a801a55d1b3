"""The encoding of tables: gaps, numbers and categories."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.category_code import encode_category
from nnpipe.core.errors import ConfigError
from nnpipe.testing.input_transform import InputTransformContract
from nnpipe.transforms.tabular_encoding import TabularEncoding

ENCODING = TabularEncoding(
    fills=(3.0, 0.0, 0.0),
    means=(1.0, 0.0, 0.0),
    deviations=(2.0, 1.0, 1.0),
    categories=("1=a", "1=b=c", "2=x"),
)
ROWS = np.array(
    [
        [np.nan, encode_category("b=c"), encode_category("x")],
        [5.0, np.nan, encode_category("unknown")],
    ]
)


class TestTabularEncoding(InputTransformContract):
    @pytest.fixture
    def transform(self) -> TabularEncoding:
        return ENCODING

    @pytest.fixture
    def samples(self) -> np.ndarray:
        return ROWS


def test_gaps_are_filled_and_unknown_categories_are_zeros() -> None:
    assert ENCODING.apply(ROWS).tolist() == [[1, 0, 1, 1], [2, 0, 0, 0]]


def test_ordinal_categories_are_places() -> None:
    ordinal = TabularEncoding.from_json({**ENCODING.to_json(), "encoding": "ordinal"})
    assert ordinal.apply(ROWS).tolist() == [[1, 1, 0], [2, -1, -1]]
    assert ordinal.shape((3,)) == (3,)


@pytest.mark.parametrize(
    "changes",
    [
        {"fills": (1.0,)},
        {"deviations": (1.0, 0.0, 1.0)},
        {"categories": ("3=a",)},
        {"categories": ("a",)},
        {"categories": ("1=a", "1=a")},
        {"means": (float("nan"), 0.0, 0.0)},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        TabularEncoding.from_json({**ENCODING.to_json(), **changes})
    assert "\n" not in str(caught.value)
