"""Arbitrary states."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DTYPES = st.sampled_from(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 "
    "complex128 "
    "datetime64[s] timedelta64[ms] S3 U2 >i4 >f8 >c8 S0".split()
).map(np.dtype)
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.binary(max_size=8)
    | ARRAYS
    | ARRAYS.filter(lambda a: a.size and a.dtype.itemsize).map(lambda a: a.reshape(-1)[0])
)
KEYS = TEXTS | st.integers() | st.booleans() | st.none() | st.tuples(TEXTS, st.integers())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXTS | st.just("$"), inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)
STATES = st.dictionaries(TEXTS | st.just("$"), VALUES, max_size=4)


def same(one: object, other: object) -> bool:
    """Return whether two states are alike to the bit, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        # keys in order: 1 and True are one key to a dictionary, but not to us
        return len(one) == len(other) and all(
            same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, (np.ndarray, np.generic)) and isinstance(other, (np.ndarray, np.generic)):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return (
            alike and np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
        )
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    return one == other
