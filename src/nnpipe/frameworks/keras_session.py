"""A Keras model, loaded and ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.keras import import_keras, named_call, threads_in_use


class KerasSession(InferenceSession):
    """Runs a Keras model as a TensorFlow graph that is traced once.

    Any number of samples runs through the one graph, so that no batch pays
    for tracing; the model's weights are used as they are at each run.

    Parameters
    ----------
    model
        A functional or sequential model.
    io
        Its inputs and outputs by name.
    """

    def __init__(self, model: Any, io: IOSpec) -> None:
        tensorflow, _ = import_keras()
        self.io = io
        self._tensorflow = tensorflow
        self._synchronises = bool(tensorflow.config.list_logical_devices("GPU"))
        self._function = inference_function(model, io)
        self._inputs: list[Any] = []
        self._outputs: dict[str, Any] = {}

    def _put(self, batch: Batch) -> None:
        self._inputs = [self._tensorflow.convert_to_tensor(batch[spec.name]) for spec in self.io.inputs]

    def _run(self) -> None:
        self._outputs = self._function(*self._inputs)
        if self._synchronises:  # a GPU computes on after the call; a CPU has finished
            self._tensorflow.test.experimental.sync_devices()

    def _get(self) -> dict[str, np.ndarray]:
        # numpy() shows TensorFlow's own memory; the caller gets its own.
        return {spec.name: np.array(self._outputs[spec.name].numpy()) for spec in self.io.outputs}

    def stats(self) -> Mapping[str, Any]:
        """Say how many threads an operation may use, which the process's first user of TensorFlow decides."""
        return {"num_threads": threads_in_use()}

    def _close(self) -> None:
        self._inputs, self._outputs = [], {}
        del self._function


def inference_function(model: Any, io: IOSpec) -> Any:
    """Trace a Keras model as a concrete function of its inputs in the order of ``io``.

    It gives a dictionary of outputs; the names in its signature are those of
    ``io``, which is what converters go by.
    """
    tensorflow, _ = import_keras()
    call = named_call(model, io)

    def infer(*tensors: Any) -> dict[str, Any]:
        outputs = call({spec.name: tensor for spec, tensor in zip(io.inputs, tensors, strict=True)}, training=False)
        return {name: tensorflow.identity(tensor, name=name) for name, tensor in outputs.items()}

    signature = [tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in io.inputs]
    return tensorflow.function(infer, autograph=False).get_concrete_function(*signature)
