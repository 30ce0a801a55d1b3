"""Parts of an ONNX graph as models of their own, fed with the values that the whole graph
computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line
from nnpipe.formats.onnx import read_onnx

Array = npt.NDArray[Any]

_SHAPE_LIKE = 64  # elements of an integer vector that is rather a shape than data
_LARGEST = 1 << 30  # bytes of a file, beyond which weights lie beside it


class TensorValues:
    """What every tensor of a graph holds for some samples, in files of a folder.

    Parameters
    ----------
    folder
        The folder; each array is one ``.npy`` file.
    names
        The tensors, whose places name the files.
    samples
        The number of samples.
    """

    def __init__(self, folder: Path, names: Sequence[str], samples: int) -> None:
        self.folder, self.names, self.samples = folder, list(names), samples
        self._places = {name: place for place, name in enumerate(names)}

    def path(self, name: str, sample: int) -> Path:
        """Return the file of a tensor's value."""
        return self.folder / f"{self._places[name]}.{sample}.npy"

    def write(self, name: str, sample: int, array: Array) -> None:
        """Write a value."""
        np.save(self.path(name, sample), array, allow_pickle=False)

    def read(self, name: str, sample: int) -> Array:
        """Return a value, which stays on the disk until it is needed."""
        path = self.path(name, sample)
        found: Array = np.load(
            path, mmap_mode="r" if path.stat().st_size > 1 << 20 else None, allow_pickle=False
        )
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._places and all(
            self.path(name, sample).is_file() for sample in range(self.samples)
        )


@dataclass(frozen=True)
class ONNXPart:
    """Some nodes of a graph as a model.

    Parameters
    ----------
    model
        The ``onnx.ModelProto``.
    inputs, outputs
        Names of its inputs and outputs.
    """

    model: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the model; weights of more than 1 GiB lie in a file beside it."""
        import onnx

        size = sum(len(tensor.raw_data) for tensor in self.model.graph.initializer)
        if size < _LARGEST:
            onnx.save_model(self.model, str(path))
            return
        onnx.save_model(
            self.model,
            str(path),
            save_as_external_data=True,
            location=f"{path.name}.data",
            convert_attribute=False,
        )


class DivisibleGraph:
    """A graph that can be cut.

    Constants are not counted as nodes; functions of the model are inlined.

    Parameters
    ----------
    path
        The ONNX file.

    Raises
    ------
    ArtifactError
        If the file is damaged, or refers to weights outside its folder.
    """

    def __init__(self, path: Path) -> None:
        import onnx

        read_onnx(path).check_external()
        try:
            model = onnx.load_model(str(path))
            if model.functions:
                model = onnx.inliner.inline_local_functions(model)
        # errors of protocol buffers have no common base class but Exception
        except Exception as error:
            raise ArtifactError(
                f"{path}: not a usable ONNX model: {format_one_line(error)}"
            ) from None
        self._proto = model
        graph = model.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.nodes = [node for node in graph.node if not self._is_constant(node)]
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.outputs = [value.name for value in graph.output]
        self._stated = {value.name: value for value in (*graph.input, *graph.output)}
        self._needs = [_list_needed_tensors(node) for node in self.nodes]
        self._maker = {
            name: place for place, node in enumerate(self.nodes) for name in node.output if name
        }
        self._used = {name for names in self._needs for name in names} | set(self.outputs)
        self._fixed = self._find_fixed_tensors()

    @property
    def tensors(self) -> list[str]:
        """Names of the tensors that nodes compute and anything needs."""
        return [name for name in self._maker if name in self._used]

    @property
    def names(self) -> set[str]:
        """Names of all nodes and tensors."""
        return (
            {node.name for node in self.nodes}
            | set(self._maker)
            | set(self.inputs)
            | set(self.constants)
        )

    @property
    def operators(self) -> set[str]:
        """Types of the operators."""
        return {node.op_type for node in self.nodes}

    def with_all_outputs(self) -> Any:
        """Return a copy of the model whose outputs are all tensors that :attr:`tensors` names."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._proto)
        present = set(self.outputs)
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in self.tensors if name not in present
        )
        return model

    def part(
        self, places: Iterable[int], values: TensorValues, free: bool = False
    ) -> ONNXPart | None:
        """Return some nodes as a model whose inputs and outputs are tensors with known values.

        A node is added where the value that it computes is not known, such as a sequence.

        Parameters
        ----------
        places
            Which nodes, by their places in :attr:`nodes`.
        values
            The values of tensors.
        free
            Whether the graph's own inputs and outputs keep axes of free length; all others have the
            shapes of the values.

        Returns
        -------
        ONNXPart or None
            ``None`` if no output of these nodes has a known value.
        """
        import onnx

        chosen = self._find_closure(set(places), values)
        if chosen is None:
            return None
        made = {name for place in chosen for name in self.nodes[place].output if name}
        needed = dict.fromkeys(name for place in chosen for name in self._needs[place])
        inputs, constants = [], []
        for name in needed:
            if name in self.constants:
                constants.append(self.constants[name])
            elif name not in made:
                if self._as_constant(name, values):
                    constants.append(
                        onnx.numpy_helper.from_array(np.array(values.read(name, 0)), name)
                    )
                else:
                    inputs.append(name)
        outputs = [
            name
            for place in chosen
            for name in self.nodes[place].output
            if name in self._used
            and name in values
            and (name not in needed or name in self.outputs)
        ]
        if not outputs:
            return None

        def describe_tensor(name: str) -> Any:
            return (
                self._stated[name]
                if free and name in self._stated
                else _make_value_info(name, values)
            )

        graph = onnx.helper.make_graph(
            [self.nodes[place] for place in chosen],
            "reduced",
            list(map(describe_tensor, inputs)),
            list(map(describe_tensor, outputs)),
            constants,
        )
        model = onnx.helper.make_model(
            graph, opset_imports=self._proto.opset_import, ir_version=max(self._proto.ir_version, 4)
        )
        return ONNXPart(model, tuple(inputs), tuple(outputs))

    def _find_closure(self, chosen: set[int], values: TensorValues) -> list[int] | None:
        waiting = list(chosen)
        while waiting:
            for name in self._needs[waiting.pop()]:
                maker = self._maker.get(name)
                if maker is not None and maker not in chosen and name not in values:
                    chosen.add(maker)
                    waiting.append(maker)
        return sorted(chosen) or None

    def _as_constant(self, name: str, values: TensorValues) -> bool:
        """Return whether a tensor is the same for every sample: computed from constants, or a
        shape.
        """
        if name in self._fixed:
            return True
        first = values.read(name, 0)
        if (
            name in self.inputs
            or first.dtype.kind not in "iu"
            or first.ndim > 1
            or first.size > _SHAPE_LIKE
        ):
            return False
        return all(
            np.array_equal(first, values.read(name, sample)) for sample in range(1, values.samples)
        )

    def _find_fixed_tensors(self) -> set[str]:
        fixed = set(self.constants)
        for node, needs in zip(self.nodes, self._needs, strict=True):
            if not node.op_type.startswith("Random") and all(name in fixed for name in needs):
                fixed |= {name for name in node.output if name}
        return fixed

    def _is_constant(self, node: Any) -> bool:
        """Keep the value of a ``Constant`` node, and return whether there is one."""
        import onnx

        if (
            node.op_type != "Constant"
            or node.domain not in ("", "ai.onnx")
            or len(node.attribute) != 1
        ):
            return False
        value = onnx.helper.get_attribute_value(node.attribute[0])
        kind = node.attribute[0].name
        if kind == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
        elif kind in ("value_int", "value_ints", "value_float", "value_floats"):
            dtype = np.int64 if "int" in kind else np.float32
            tensor = onnx.numpy_helper.from_array(np.array(value, dtype), node.output[0])
        else:
            return False
        self.constants[node.output[0]] = tensor
        return True


def _make_value_info(name: str, values: TensorValues) -> Any:
    import onnx

    arrays = [values.read(name, sample) for sample in range(values.samples)]
    shapes = {array.shape for array in arrays}
    shape: list[int | str] = list(arrays[0].shape)
    if len(shapes) > 1:  # of one rank, since a graph's tensors have one
        shape = [
            n if len({s[axis] for s in shapes}) == 1 else f"{name}_{axis}"
            for axis, n in enumerate(shape)
        ]
    dtype = onnx.helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, shape)


def _list_needed_tensors(node: Any) -> tuple[str, ...]:
    """Return the tensors that a node takes from the graph, those of graphs within it included."""
    found = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                found |= dict.fromkeys(
                    name for name in _list_needed_tensors(inner) if name not in own
                )
                own |= set(inner.output)
            found |= dict.fromkeys(value.name for value in graph.output if value.name not in own)
    return tuple(found)


def stack_values(names: Sequence[str], values: TensorValues) -> Mapping[str, Array]:
    """Return the values of tensors with a new first axis for samples, as far as these have the
    first one's shapes.
    """
    alike = [
        sample
        for sample in range(values.samples)
        if all(values.read(name, sample).shape == values.read(name, 0).shape for name in names)
    ]
    return {name: np.stack([values.read(name, sample) for sample in alike]) for name in names}
