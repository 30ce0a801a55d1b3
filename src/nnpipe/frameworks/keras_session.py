"""A Keras model, loaded and ready to run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from nnpipe.core.batching import narrowed, with_batch
from nnpipe.core.errors import ArtifactError, NNPipeError, NotSupported
from nnpipe.core.messages import one_line
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.keras import import_keras, named_call, threads_in_use

_CHANNELS_LAST_ONLY = "only supports the NHWC tensor format"

log = logging.getLogger("nnpipe")


class KerasSession(InferenceSession):
    """Runs a Keras model as a TensorFlow graph that is traced once.

    No batch pays for tracing; the model's weights are used as they are at
    each run.

    Parameters
    ----------
    model
        A functional or sequential model.
    io
        Its inputs and outputs by name.
    freeze
        Whether weights become constants of the graph, as they are now, so that TensorFlow computes beforehand what
        follows from them.  A graph that cannot be frozen is run as it is.
    batch
        Number of samples in a call that the graph is made for; ``None`` leaves it free, and then a graph computes
        shapes in every call.
    """

    def __init__(self, model: Any, io: IOSpec, freeze: bool = False, batch: int | None = None) -> None:
        tensorflow, _ = import_keras()
        self._tensorflow = tensorflow
        self._synchronises = bool(tensorflow.config.list_logical_devices("GPU"))
        fixed = with_batch(io, batch)
        function = inference_function(model, fixed)
        self.io = io if batch is None else narrowed(io, IOSpec(fixed.inputs, _outputs_of(function, io)))
        self._function = _frozen(function, io) if freeze else function
        self._inputs: list[Any] = []
        self._outputs: dict[str, Any] = {}

    def _put(self, batch: Batch) -> None:
        self._inputs = [self._tensorflow.convert_to_tensor(batch[spec.name]) for spec in self.io.inputs]

    def _run(self) -> None:
        try:
            self._outputs = self._function(*self._inputs)
        except self._tensorflow.errors.OpError as error:
            raise _cannot_run(error) from None
        if self._synchronises:  # a GPU computes on after the call; a CPU has finished
            self._tensorflow.test.experimental.sync_devices()

    def _get(self) -> dict[str, np.ndarray]:
        # numpy() shows TensorFlow's own memory; the caller gets its own.
        return {spec.name: np.array(self._outputs[spec.name].numpy()) for spec in self.io.outputs}

    def stats(self) -> Mapping[str, Any]:
        """Return how many threads an operation may use, which the process's first user of TensorFlow decides."""
        return {"num_threads": threads_in_use()}

    def _close(self) -> None:
        self._inputs, self._outputs = [], {}
        del self._function


def _cannot_run(error: Exception) -> NNPipeError:
    if _CHANNELS_LAST_ONLY in str(error):
        return NotSupported(
            "the model has convolutions with channels first, which TensorFlow computes on this processor only with "
            "oneDNN: set the environment variable TF_ENABLE_ONEDNN_OPTS to 1"
        )
    return ArtifactError(f"TensorFlow cannot run the model: {one_line(error)}")


def _outputs_of(function: Any, io: IOSpec) -> tuple[TensorSpec, ...]:
    """Return the outputs with the shapes that tracing found; where it found none, a shape is as it was."""
    found = {name: tensor.shape for name, tensor in function.structured_outputs.items()}
    return tuple(
        replace(spec, shape=tuple(found[spec.name])) if found[spec.name].rank is not None else spec
        for spec in io.outputs
    )


def _frozen(function: Any, io: IOSpec) -> Callable[..., dict[str, Any]]:
    """Return a call of a concrete function with constants for its variables; itself where that is not possible."""
    tensorflow, _ = import_keras()
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    except Exception as error:  # its errors share no base but Exception
        log.debug("the graph cannot be frozen: %s", error)
        return cast("Callable[..., dict[str, Any]]", function)
    names = sorted(spec.name for spec in io.outputs)  # a flattened dictionary is in the order of its names
    types = [tensor.dtype for tensor in frozen.outputs]
    stateful = any(operation.op_def.is_stateful for operation in frozen.graph.get_operations())
    operations = tensorflow.raw_ops
    run = operations.StatefulPartitionedCall if stateful else operations.PartitionedCall

    def call(*tensors: Any) -> dict[str, Any]:
        # Past the packing of arguments and results in Python, which takes 0.1 ms, and for a frozen function 0.8 ms.
        found = run(args=tensors, Tout=types, f=frozen)
        return dict(zip(names, found, strict=True))

    return call


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
