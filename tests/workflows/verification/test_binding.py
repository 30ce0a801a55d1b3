"""Which tensors of two models go together, by name and else as told."""

from __future__ import annotations

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.workflows.verification.binding import match_tensors


def io(*, a: str = "a", b: str = "b") -> IOSpec:
    inputs = (TensorSpec(a, (None, 3), "float32"), TensorSpec(b, (None, 3), "float32"))
    return IOSpec(inputs, (TensorSpec("y", (None, 3), "float32"),))


def test_tensors_go_together_by_name_and_else_as_told() -> None:
    other = io(a="p", b="q")
    with pytest.raises(ConfigError, match=r"inputs 'a', 'b', the other 'p', 'q': .* --match"):
        match_tensors(io(), other, {})
    assert match_tensors(io(), other, {"a": "q"}).names == {"a": "q", "b": "p"}
    assert match_tensors(io(), io(), {}).names == {}
