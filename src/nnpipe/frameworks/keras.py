"""Import of TensorFlow and Keras, and binding of a Keras model's tensors by name."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import to_snake_case
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape

# Messages that TensorFlow prints at every start, before its libraries read the log level.
_CHATTER = re.compile(
    "WARNING: All log messages before absl::InitializeLog|oneDNN custom operations are "
    "on|cpu_feature_guard|"
    "^To enable the following instructions"
)
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def import_keras(num_threads: int = 0) -> tuple[ModuleType, ModuleType]:
    """Import TensorFlow and Keras and return both modules.

    The first import is quiet unless the user has set ``TF_CPP_MIN_LOG_LEVEL``.

    Parameters
    ----------
    num_threads
        Threads that one operation may use; 0 leaves it to TensorFlow.  The
        number applies to the whole process and cannot change after TensorFlow
        has computed; :func:`get_thread_count` returns the number in effect.

    Raises
    ------
    ConfigError
        If Keras uses another backend.
    """
    if "keras" not in sys.modules:
        _check_backend(os.environ.get("KERAS_BACKEND", "tensorflow"))
    with _suppress_start_messages():
        import tensorflow
    import keras

    _check_backend(keras.backend.backend())
    if num_threads:
        with contextlib.suppress(RuntimeError):  # TensorFlow has computed something already
            tensorflow.config.threading.set_intra_op_parallelism_threads(num_threads)
            tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    return tensorflow, keras


def get_thread_count() -> int:
    """Return the number of threads that one operation of TensorFlow may use in this process."""
    import tensorflow

    chosen = int(tensorflow.config.threading.get_intra_op_parallelism_threads())
    said = os.environ.get("TF_NUM_INTRAOP_THREADS", "")  # used if no number was set
    return chosen or (int(said) if said.isdecimal() else 0) or _count_cores()


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_backend(name: str) -> None:
    if name != "tensorflow":
        raise ConfigError(
            f"Keras computes with {name} here; set the environment variable KERAS_BACKEND to "
            f"tensorflow, "
            "or clear it, before Python starts"
        )


@contextmanager
def _suppress_start_messages() -> Iterator[None]:
    """Suppress TensorFlow's usual start messages, and nothing else, while it is imported."""
    if "tensorflow" in sys.modules or _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = "2"  # read while the libraries are loaded, and kept by them
    try:
        with _suppress_chatter():
            yield
    finally:
        del os.environ[_LEVEL]


@contextmanager
def _suppress_chatter() -> Iterator[None]:
    said = ""
    try:
        with capture_native_output() as held:
            try:
                yield
            finally:
                said = held()
    finally:
        for line in said.splitlines(keepends=True):
            if not _CHATTER.search(line):
                sys.stderr.write(line)


@contextmanager
def suppress_copy_warning() -> Iterator[None]:
    """Suppress NumPy's warning when Keras converts variables to arrays.

    Keras (3.15) uses an interface that is deprecated in NumPy 2; users cannot act
    on the warning.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "__array__ implementation doesn't accept a copy keyword", DeprecationWarning
        )
        yield


def read_keras_io(model: Any) -> IOSpec:
    """Return the inputs and outputs of a functional or sequential Keras model, as it states
    them.
    """
    inputs = tuple(
        _make_spec(name, tensor)
        for name, tensor in zip(_get_input_names(model), model.inputs, strict=True)
    )
    outputs = tuple(
        _make_spec(name, tensor)
        for name, tensor in zip(_get_output_names(model), model.outputs, strict=True)
    )
    return IOSpec(inputs, outputs)


def resolve_keras_io(model: Any, io: IOSpec) -> IOSpec:
    """Return :func:`read_keras_io`, with the name in ``io`` for a single input or output that was
    given no name.

    Keras numbers layers without a given name, so that their automatic names carry no meaning.
    """
    import keras

    found = read_keras_io(model)
    inputs, outputs = found.inputs, found.outputs
    if len(inputs) == len(io.inputs) == 1 and re.fullmatch(
        r"(input_layer|keras_tensor)(_\d+)?", inputs[0].name
    ):
        inputs = (replace(inputs[0], name=io.inputs[0].name),)
    named = not isinstance(model, keras.Sequential) and isinstance(model.output, dict)
    if (
        len(outputs) == len(io.outputs) == 1
        and not named
        and is_automatic(model.outputs[0]._keras_history.operation)
    ):
        outputs = (replace(outputs[0], name=io.outputs[0].name),)
    return IOSpec(inputs, outputs)


def is_automatic(operation: Any) -> bool:
    """Return whether the name of a layer or operation is automatic."""
    return (
        re.fullmatch(rf"{re.escape(make_automatic_name(operation))}(_\d+)?", operation.name)
        is not None
    )


def make_automatic_name(operation: Any) -> str:
    """Return the automatic name of the first layer of this class."""
    return to_snake_case(type(operation).__name__)


def check_io(model: Any, io: IOSpec, who: str) -> None:
    """Raise :class:`ConfigError` unless the model has the inputs and outputs in ``io``."""
    found = resolve_keras_io(model, io)
    for side, have, want in (
        ("inputs", found.inputs, io.inputs),
        ("outputs", found.outputs, io.outputs),
    ):
        by_name = {spec.name: spec for spec in have}
        if by_name.keys() != {spec.name for spec in want}:
            names = ", ".join(by_name)
            raise ConfigError(
                f"{who}: the model has the {side} {names}; io says "
                f"{', '.join(s.name for s in want)}"
            )
        for spec in want:
            actual = by_name[spec.name]
            if (actual.shape, actual.dtype) != (spec.shape, spec.dtype):
                raise ConfigError(
                    f"{who}: tensor {spec.name!r} of the model is {actual.dtype} "
                    f"{show_shape(actual.shape)}; io says {spec.dtype} {show_shape(spec.shape)}"
                )


def make_named_call(model: Any, io: IOSpec) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a model on tensors by name and returns its outputs by name.

    The function takes a mapping of tensors and, like Keras, ``training``.
    """
    import keras

    names = resolve_keras_io(model, io)
    order = [spec.name for spec in names.inputs]
    sequential = isinstance(model, keras.Sequential)

    def call(tensors: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        flat = [tensors[name] for name in order]
        outputs = model(
            flat[0] if sequential else keras.tree.pack_sequence_as(model.input, flat),
            training=training,
        )
        by_name = dict(
            zip((spec.name for spec in names.outputs), keras.tree.flatten(outputs), strict=True)
        )
        return {spec.name: by_name[spec.name] for spec in io.outputs}

    return call


def _get_input_names(model: Any) -> list[str]:
    return [tensor.name for tensor in model.inputs]


def _get_output_names(model: Any) -> list[str]:
    import keras

    if not isinstance(model, keras.Sequential) and isinstance(model.output, dict):
        return ["/".join(map(str, path)) for path, _ in keras.tree.flatten_with_path(model.output)]
    names = [tensor._keras_history.operation.name for tensor in model.outputs]
    # Both outputs of a layer with two outputs or two calls have the same name.
    return [
        name if names.count(name) == 1 else f"{name}_{names[:i].count(name)}"
        for i, name in enumerate(names)
    ]


def _make_spec(name: str, tensor: Any) -> TensorSpec:
    return TensorSpec(name, tuple(tensor.shape), str(tensor.dtype))


# Names of layers and weights that are the same in every model of a class.
#
# Keras numbers layers without a given name across the whole process: the first model's ``conv2d``
# is the second model's ``conv2d_1``.  Here, such names are numbered within the model.


def get_inner_graph(operation: Any) -> Any:
    """Return the graph of operations inside a model, or ``None`` for other operations.

    A user's class that overrides ``call`` has no graph, as only its code defines
    its computation.
    """
    import keras

    if not isinstance(operation, keras.Model) or not type(operation).call.__module__.startswith(
        "keras.src.models"
    ):
        return None
    inner = (
        getattr(operation, "_functional", None)
        if isinstance(operation, keras.Sequential)
        else operation
    )
    return inner if hasattr(inner, "operations") else None


def map_layer_paths(model: Any) -> dict[int, str]:
    """Return the stable path of each operation by its ``id``, including operations in nested
    models.

    An operation shared by several nested models has its path in the first.
    """
    found: dict[int, str] = {}

    def walk(graph: Any, prefix: str) -> None:
        names = _number_names(graph.operations)
        for operation in graph.operations:
            path = found.setdefault(id(operation), prefix + names[operation.name])
            if (inner := get_inner_graph(operation)) is not None:
                walk(inner, path + "/")

    walk(get_inner_graph(model), "")
    return found


def map_named_weights(model: Any) -> dict[str, Any]:
    """Return the weights of a model (Keras variables) by stable name: the layer's path and the
    name in the layer.
    """
    paths = map_layer_paths(model)
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def add(name: str, variable: Any) -> None:
        if id(variable) not in seen:
            seen.add(id(variable))
            found[make_free_name(name, found)] = variable

    def walk(graph: Any) -> None:
        for operation in graph.operations:
            if (inner := get_inner_graph(operation)) is not None:
                walk(inner)
            for name, variable in _iter_own_weights(operation):
                add(f"{paths[id(operation)]}/{name}", variable)

    walk(get_inner_graph(model))
    for variable in model.weights:  # a user's model class may hold weights outside its layers
        add(variable.name, variable)
    return found


def map_inner_names(operation: Any) -> dict[str, str]:
    """Return the stable names of the layers that a layer creates inside, by their names in
    Keras.
    """
    layers = getattr(operation, "_flatten_layers", None)
    return {} if layers is None else _number_names(layers(include_self=False))


def _iter_own_weights(operation: Any) -> Iterable[tuple[str, Any]]:
    """Yield a layer's weights with their names below the layer."""
    weights = getattr(operation, "weights", ())
    if not weights:
        return
    stable = map_inner_names(operation)
    for variable in weights:
        parts = variable.path.split("/")
        start = parts.index(operation.name) + 1 if operation.name in parts[:-1] else len(parts) - 1
        yield "/".join(stable.get(part, part) for part in parts[start:]), variable


def _number_names(operations: Iterable[Any]) -> dict[str, str]:
    """Return new names for these operations: automatic names are numbered from the start, given
    names stay.
    """
    automatic: dict[str, str] = {}
    names: dict[str, str] = {}
    for operation in operations:
        if is_automatic(operation):
            automatic[operation.name] = make_automatic_name(operation)
        else:
            names[operation.name] = operation.name
    taken = dict.fromkeys(names.values())
    for name, stem in automatic.items():
        names[name] = stable = make_free_name(stem, taken)
        taken[stable] = None
    return names


def make_free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return ``name``, with a number if it is taken."""
    count = 0
    found = name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
