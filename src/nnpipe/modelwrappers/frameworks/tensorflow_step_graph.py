"""The graph of a training step as TensorFlow traces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnpipe.core.graph import Graph, Operation
from nnpipe.core.tensors import DTYPES, TensorSpec
from nnpipe.frameworks.keras import import_keras
from nnpipe.modelwrappers.frameworks.tensorflow_graph import LayerGraph, Step
from nnpipe.modelwrappers.frameworks.tensorflow_names import named_weights
from nnpipe.modelwrappers.frameworks.tensorflow_training import TrainingStep

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.tensorflow_base import TensorFlowBase


class ScopedCall:
    """Runs a layer graph so that each TensorFlow operation is named after the layer's call it belongs to."""

    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self.steps: dict[str, Step] = {}

    def __call__(self, tensors: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Compute the model's outputs from its inputs."""
        tensorflow, _ = import_keras()

        def scoped(step: Step, compute: Callable[[], list[Any]]) -> list[Any]:
            text = "".join(c if c.isalnum() or c in "._/-" else "." for c in step.operation.name)
            with tensorflow.name_scope(text) as scope:  # made unique, with a slash at the end
                self.steps[scope] = step
                return compute()

        values = self._graph.run(tensors, training, scoped)
        return {name: values[tensor] for name, tensor in self._graph.output_names.items()}

    def layer_of(self, operation: str) -> Step | None:
        """Give the step that a TensorFlow operation of this name belongs to, forwards or backwards."""
        name = operation.removeprefix("gradient_tape/")
        return next((step for scope, step in self.steps.items() if name.startswith(scope)), None)


def training_graph(wrapper: TensorFlowBase, graph: LayerGraph, truth: Sequence[TensorSpec]) -> Graph:
    """Trace a training step; see :meth:`TensorFlowWrapper.get_training_graph`."""
    call = ScopedCall(graph)
    step = TrainingStep(wrapper, truth, 0.001, call)
    function = step.train.get_concrete_function()
    traced = function.graph
    names: dict[str, str] = {}
    tensors: dict[str, TensorSpec] = {}
    variables = {variable.handle.ref(): name for name, variable in _variables(step).items()}
    for captured, placeholder in traced.captures:
        if captured.ref() in variables:
            names[placeholder.name] = variables[captured.ref()]
    for name, variable in _variables(step).items():
        tensors[name] = TensorSpec(name, tuple(variable.shape), variable.dtype.name)
    inputs = []
    for specs in function.structured_input_signature[0]:
        for spec in specs.values():
            inputs.append(spec.name)
            tensors[spec.name] = TensorSpec(spec.name, tuple(spec.shape), spec.dtype.name)
            names[f"{spec.name}:0"] = spec.name
    placeholders = {tensor.op.name for tensor in traced.inputs}
    operations = []
    for operation in traced.get_operations():
        if operation.name in placeholders:
            continue
        outputs = [tensor for tensor in operation.outputs if _is_numbers(tensor)]
        for tensor in outputs:
            tensors[tensor.name] = TensorSpec(tensor.name, tuple(tensor.shape), tensor.dtype.name)
        taken = (names.get(tensor.name, tensor.name) for tensor in operation.inputs)
        layer = call.layer_of(operation.name)
        operations.append(
            Operation(
                operation.name,
                operation.type,
                tuple(name for name in taken if name in tensors),
                tuple(tensor.name for tensor in outputs),
                layer.operation.layer if layer else "",
                operation,
            )
        )
    results = tuple(function.structured_outputs[name].name for name in ("loss", "score"))
    return Graph(tuple(operations), tensors, tuple(inputs), results, traced)


def _variables(step: TrainingStep) -> dict[str, Any]:
    """Give all variables of a step, those of the optimiser included, as TensorFlow's own by name."""
    found = dict(named_weights(step.model))
    weights = {id(variable) for variable in found.values()}
    # Keras calls a moment of "conv/kernel" "conv_kernel_momentum"; of two names that fit, the longer is meant.
    by_weight = sorted(((v.path.replace("/", "_"), name) for name, v in found.items()), key=lambda item: -len(item[0]))
    for number, variable in enumerate(v for v in step.model.variables if id(v) not in weights):
        found[f"generator/{number}"] = variable
    for variable in step.optimizer.variables:
        kind = variable.name
        for path, weight in by_weight:
            if kind.startswith(path + "_"):
                kind = f"{weight}/{kind.removeprefix(path + '_')}"
                break
        name = f"optimizer/{kind}"
        found[name if name not in found else f"{name}_{len(found)}"] = variable
    return {name: variable.value for name, variable in found.items()}


def _is_numbers(tensor: Any) -> bool:
    # Handles of variables and of lists are no tensors of numbers and have no shape of their own.
    return tensor.dtype.name in DTYPES and tensor.shape.rank is not None
