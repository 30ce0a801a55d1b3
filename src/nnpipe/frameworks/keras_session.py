"""Inference sessions of Keras models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnpipe.core.batching import narrowed, with_batch
from nnpipe.core.errors import ArtifactError, NNPipeError, NotSupported
from nnpipe.core.messages import one_line
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.session import WARMUP_RUNS, InferenceSession, timed_runs
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.keras import import_keras, named_call, threads_in_use

_CHANNELS_LAST_ONLY = "only supports the NHWC tensor format"

log = logging.getLogger("nnpipe")


class KerasSession(InferenceSession):
    """Runs a Keras model as a TensorFlow graph that is traced once.

    Tracing is not part of any run; each run uses the model's present weights.

    Parameters
    ----------
    model
        A functional or sequential model.
    io
        Its inputs and outputs by name.
    freeze
        Whether the present weights become constants of the graph, so that TensorFlow can fold computations on them.
        A graph that cannot be frozen is run unchanged.
    batch
        Fixed batch size of the graph; ``None`` leaves it free, so that the graph computes shapes in every run.
    recording
        Whether TensorFlow's profiler is to see the operations.
    """

    def __init__(
        self, model: Any, io: IOSpec, freeze: bool = False, batch: int | None = None, recording: bool = False
    ) -> None:
        tensorflow, _ = import_keras()
        self._tensorflow = tensorflow
        self._synchronises = bool(tensorflow.config.list_logical_devices("GPU"))
        fixed = with_batch(io, batch)
        function = inference_function(model, fixed)
        self.io = io if batch is None else narrowed(io, IOSpec(fixed.inputs, _outputs_of(function, io)))
        self._traced = function
        # Stateful layers and others that assign to variables.
        changing = [each for each in function.variables if not each.trainable] if _assigns(function) else []
        self._held = [(each, each.numpy()) for each in changing]
        self.keeps_state = bool(self._held)
        ready = _frozen(function) if freeze and not self.keeps_state else function
        names = sorted(spec.name for spec in io.outputs)  # dictionaries are flattened in the order of their keys
        if recording:
            from nnpipe.frameworks.keras_profile import executed  # a target does not need it

            self._function = executed(ready, names)
        else:
            self._function = function if ready is function else _called(ready, names)
        self._again = partial(KerasSession, model, io, freeze, batch, recording=True)
        self._model = model
        self._inputs: list[Any] = []
        self._outputs: dict[str, Any] = {}

    def _put(self, batch: Batch) -> None:
        self._inputs = [self._tensorflow.convert_to_tensor(batch[spec.name]) for spec in self.io.inputs]

    def _run(self) -> None:
        try:
            self._outputs = self._function(*self._inputs)
        except self._tensorflow.errors.OpError as error:
            raise _cannot_run(error) from None
        if self._synchronises:  # a GPU may still compute after the call; a CPU has finished
            self._tensorflow.test.experimental.sync_devices()

    def _reset(self) -> None:
        for variable, value in self._held:
            variable.assign(value)

    def _get(self) -> dict[str, np.ndarray]:
        # numpy() returns a view of TensorFlow's memory; the caller gets a copy.
        return {spec.name: np.array(self._outputs[spec.name].numpy()) for spec in self.io.outputs}

    def stats(self) -> Mapping[str, Any]:
        """Return the number of threads per operation, which TensorFlow's first computation in the process fixes."""
        return {"num_threads": threads_in_use()}

    def _profile(self, batch: Batch, runs: int) -> OperationTimes:
        from nnpipe.frameworks.keras_profile import recorded_operations  # a target does not need it

        if self._synchronises:
            raise NotSupported("times of operations are taken on the processor alone: hide the GPU from TensorFlow")
        with self._again() as session:
            session.put(batch)
            timed_runs(session, WARMUP_RUNS)
            return recorded_operations(session, runs, session._traced, self._model)

    def _close(self) -> None:
        self._inputs, self._outputs = [], {}
        if self.keeps_state:
            self._reset()
        del self._function, self._traced, self._again, self._model, self._held


def _cannot_run(error: Exception) -> NNPipeError:
    if _CHANNELS_LAST_ONLY in str(error):
        return NotSupported(
            "the model has convolutions with channels first, which TensorFlow computes on this processor only with "
            "oneDNN: set the environment variable TF_ENABLE_ONEDNN_OPTS to 1"
        )
    return ArtifactError(f"TensorFlow cannot run the model: {one_line(error)}")


def _assigns(function: Any) -> bool:
    """Return whether a concrete function, or one that it calls, changes variables."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return any(node.op.startswith(("Assign", "ResourceScatter")) for node in nodes)


def _outputs_of(function: Any, io: IOSpec) -> tuple[TensorSpec, ...]:
    """Return the outputs with the shapes found by tracing; without one, a shape stays unchanged."""
    found = {name: tensor.shape for name, tensor in function.structured_outputs.items()}
    return tuple(
        replace(spec, shape=tuple(found[spec.name])) if found[spec.name].rank is not None else spec
        for spec in io.outputs
    )


def _frozen(function: Any) -> Any:
    """Return a concrete function with its variables as constants, or the function itself if this fails."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        return convert_variables_to_constants_v2(function, lower_control_flow=False)
    except Exception as error:  # its errors share no base but Exception
        log.debug("the graph cannot be frozen: %s", error)
        return function


def _called(frozen: Any, names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Return a call of a function without variables; ``names`` are those of its outputs, in order."""
    tensorflow, _ = import_keras()
    types = [tensor.dtype for tensor in frozen.outputs]
    stateful = any(operation.op_def.is_stateful for operation in frozen.graph.get_operations())
    run = tensorflow.raw_ops.StatefulPartitionedCall if stateful else tensorflow.raw_ops.PartitionedCall

    def call(*tensors: Any) -> dict[str, Any]:
        # Bypasses the packing of arguments and results in Python, which takes 0.1 ms (0.8 ms for a frozen function).
        found = run(args=tensors, Tout=types, f=frozen)
        return dict(zip(names, found, strict=True))

    return call


def inference_function(model: Any, io: IOSpec) -> Any:
    """Return a Keras model traced as a concrete function of its inputs in the order of ``io``.

    The function returns a dictionary of outputs; its signature has the names of
    ``io``, which converters use.
    """
    tensorflow, _ = import_keras()
    call = named_call(model, io)

    def infer(*tensors: Any) -> dict[str, Any]:
        outputs = call({spec.name: tensor for spec, tensor in zip(io.inputs, tensors, strict=True)}, training=False)
        return {name: tensorflow.identity(tensor, name=name) for name, tensor in outputs.items()}

    signature = [tensorflow.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in io.inputs]
    return tensorflow.function(infer, autograph=False).get_concrete_function(*signature)
