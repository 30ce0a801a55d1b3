"""What the parts of the contract of model wrappers share."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.component import overridden
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch


def needs(wrapper: ModelWrapper, *methods: str) -> None:
    """Skip a test unless the wrapper offers these optional methods."""
    for method in methods:
        if not overridden(wrapper, method, ModelWrapper):
            pytest.skip(f"{type(wrapper).__name__} does not offer {method}")


def twin(wrapper: ModelWrapper) -> ModelWrapper:
    """Make a wrapper with equal arguments and a model of its own."""
    return type(wrapper).from_json(wrapper.to_json())


def outputs_of(wrapper: ModelWrapper, batch: Batch) -> dict[str, np.ndarray]:
    """Run a batch in a session that is opened for it."""
    with wrapper.session() as session:
        return session.infer(batch)


def unsettle(wrapper: ModelWrapper) -> None:
    """Move the weights away from where a fresh model has them; skip the test if the wrapper offers no way to."""
    if not unsettled(wrapper):
        pytest.skip(f"{type(wrapper).__name__} offers no way to change its weights")


def unsettled(wrapper: ModelWrapper) -> bool:
    """Move the weights by whatever means the wrapper offers; say whether there is one."""
    if overridden(wrapper, "set_weights", ModelWrapper) and overridden(wrapper, "get_weights", ModelWrapper):
        weights = wrapper.get_weights()
        real = {name: array for name, array in weights.items() if array.dtype.kind == "f"}
        # Stays above zero where it was: variances are weights too.
        wrapper.set_weights({name: array * array.dtype.type(1.25) for name, array in real.items()})
        return True
    if overridden(wrapper, "run_training", ModelWrapper):
        wrapper.run_training(1)
        return True
    return False


def assert_batches_equal(found: Batch, expected: Batch) -> None:
    """Fail unless both hold the same arrays, to the last bit."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name, strict=True)
