"""Functions that the parts of the contract of model wrappers share."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import numpy as np
import pytest

from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch


def needs(model: LiveModel, *methods: str) -> None:
    """Skip a test unless the wrapper offers these optional methods."""
    for method in methods:
        if not model.wrapper.offers(method):
            pytest.skip(f"{type(model.wrapper).__name__} does not offer {method}")


def twin(model: LiveModel) -> LiveModel:
    """Return a second model, of a wrapper with equal arguments."""
    return type(model.wrapper).from_json(model.wrapper.to_json()).open()


def outputs_of(model: LiveModel, batch: Batch) -> dict[str, np.ndarray]:
    """Return the outputs of a batch, run in a new session, without those that vary from run to run."""
    with model.session() as session:
        found = session.infer(batch)
        return {name: array for name, array in found.items() if name not in session.varying}


def unsettle(model: LiveModel) -> None:
    """Change the weights of a new model; skip the test if the wrapper offers no method for this."""
    if not unsettled(model):
        pytest.skip(f"{type(model.wrapper).__name__} offers no way to change its weights")


def unsettled(model: LiveModel) -> bool:
    """Change the weights by any method that the wrapper offers; return whether there is one."""
    if model.wrapper.offers("get_weights", "set_weights"):
        weights = model.get_weights()
        real = {name: array for name, array in weights.items() if array.dtype.kind == "f"}
        # Positive weights stay positive: they may be variances.
        model.set_weights({name: array * array.dtype.type(1.25) for name, array in real.items()})
        return True
    if model.wrapper.offers("run_training"):
        model.run_training(1)
        return True
    return False


def assert_batches_equal(found: Batch, expected: Batch) -> None:
    """Fail unless both hold bit-identical arrays."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name, strict=True)


def reachable(held: object) -> set[int]:
    """Return the ids of all objects reachable from one, except through modules, classes and functions."""
    found, pending = set(), [held]
    while pending:
        each = pending.pop()
        if id(each) not in found and not isinstance(each, (ModuleType, type, FunctionType)):
            found.add(id(each))
            pending += gc.get_referents(each)
    return found
