"""Test vectors: models with inputs and exact outputs, as the authors of a format publish them.

Two layouts are known:

- ONNX's backend tests: a folder with ``model.onnx`` and ``test_data_set_N``,
  which hold ``input_I.pb`` and ``output_I.pb``, bound by position;
- layers of TensorFlow Lite: ``NAME.tflite``, ``NAME_inputI_DTYPE.csv`` and
  ``NAME_golden_DTYPE.csv``, numbers in row-major order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, DatasetError
from nnpipe.core.messages import format_one_line
from nnpipe.core.tensors import show_shape

_LARGEST = 64 << 20  # bytes of one tensor's file
_CSV = re.compile(r"_(?:input(\d+)|golden)_(u?int\d+|float\d+)\.csv$")
_NUMBER = re.compile(r"(\d+)")

Array = npt.NDArray[Any]
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Case:
    """A model with its expected outputs.

    Parameters
    ----------
    format
        ``"onnx"`` or ``"tflite"``.
    name
        The name of the case.
    model
        The model's file.
    sets
        Files of inputs and of outputs, in order, for each run.
    """

    format: str
    name: str
    model: Path
    sets: tuple[tuple[tuple[Path, ...], tuple[Path, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the case as JSON can hold it."""
        return {
            "format": self.format,
            "name": self.name,
            "model": str(self.model),
            "sets": [[list(map(str, side)) for side in sides] for sides in self.sets],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """Return the case that :meth:`to_json` described."""
        sets = tuple(
            (tuple(map(Path, given)), tuple(map(Path, expected)))
            for given, expected in data["sets"]
        )
        return cls(data["format"], data["name"], Path(data["model"]), sets)


def find_cases(folder: Path) -> list[Case]:
    """Return all cases below a folder, sorted by name.

    Raises
    ------
    DatasetError
        If there is none.
    """
    found = [
        _read_onnx_case(path)
        for path in folder.rglob("model.onnx")
        if any(path.parent.glob("test_data_set_*"))
    ]
    found += [case for path in folder.rglob("*.tflite") if (case := _read_tflite_case(path))]
    if not found:
        raise DatasetError(
            f"{folder}: no test vectors below it; expected folders with model.onnx and "
            f"test_data_set_0, "
            "or NAME.tflite with NAME_golden_DTYPE.csv"
        )
    return sorted(found, key=lambda case: (case.format, _make_sort_key(case.name)))


def _make_sort_key(name: str) -> list[Any]:
    """Return a sort key that puts test_9 before test_10."""
    return [int(part) if part.isdigit() else part for part in _NUMBER.split(name)]


def _read_onnx_case(model: Path) -> Case:
    sets = []
    for folder in sorted(
        model.parent.glob("test_data_set_*"), key=lambda path: _make_sort_key(path.name)
    ):
        sides = [
            sorted(folder.glob(f"{side}_*.pb"), key=lambda path: _make_sort_key(path.name))
            for side in ("input", "output")
        ]
        sets.append((tuple(sides[0]), tuple(sides[1])))
    return Case("onnx", model.parent.name, model, tuple(sets))


def _read_tflite_case(model: Path) -> Case | None:
    inputs: dict[int, Path] = {}
    golden = []
    for path in model.parent.glob(f"{model.stem}_*.csv"):
        matched = _CSV.fullmatch(path.name[len(model.stem) :])
        if matched and matched[1] is not None:
            inputs[int(matched[1])] = path
        elif matched:
            golden.append(path)
    if not golden:
        return None
    return Case(
        "tflite", model.stem, model, ((tuple(inputs[i] for i in sorted(inputs)), tuple(golden)),)
    )


def read_side(
    files: Sequence[Path], names: Sequence[str], shapes: Mapping[str, Shape]
) -> dict[str, Array]:
    """Return the inputs or outputs of a case by the names of the model's tensors, in the order of
    its file.

    Raises
    ------
    ArtifactError
        If a file is damaged, or there are more files than tensors.
    """
    if len(files) > len(names):
        raise ArtifactError(
            f"{len(files)} tensors in {files[0].parent}, the model has {len(names)}"
        )
    found = {}
    for name, path in zip(names, files, strict=False):
        if path.stat().st_size > _LARGEST:
            raise ArtifactError(f"{path}: too large for a test vector")
        try:
            found[name] = (
                _read_csv(path, shapes[name]) if path.suffix == ".csv" else _read_tensor(path)
            )
        except ArtifactError:
            raise
        # errors of protocol buffers have no common base class but Exception
        except Exception as error:
            raise ArtifactError(f"{path}: not a tensor: {format_one_line(error, 200)}") from None
    return found


def _read_tensor(path: Path) -> Array:
    import onnx

    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    if tensor.external_data:
        raise ArtifactError(f"{path}: its data lie in another file; refused")
    array: Array = np.asarray(onnx.numpy_helper.to_array(tensor))
    if array.dtype.kind == "O":  # text, as bytes
        texts = [
            text.decode("utf-8") if isinstance(text, bytes) else text for text in array.ravel()
        ]
        array = np.array(texts, dtype=object).reshape(array.shape)
    return array


def _read_csv(path: Path, shape: tuple[int | None, ...]) -> Array:
    matched = _CSV.search(path.name)
    assert matched is not None  # that is how it was found
    numbers = [
        number for number in path.read_text("ascii").replace("\n", ",").split(",") if number.strip()
    ]
    dtype = np.dtype(matched[2])
    flat = np.array([float(n) if dtype.kind == "f" else int(n) for n in numbers], dtype)
    return flat.reshape([-1 if length is None else length for length in shape])


def describe_difference(expected: Array, found: Array, rtol: float, atol: float) -> str:
    """Return how outputs differ from the expected ones, as text; empty if they do not.

    Element type and shape must be equal, and so must each integer, Boolean and string.
    Floats must be equal if NaN or infinite; others may differ by
    ``atol + rtol * |expected|``.
    """
    if expected.dtype != found.dtype and not (_is_text(expected) and _is_text(found)):
        return f"gives {found.dtype} elements, not {expected.dtype}"
    if expected.shape != found.shape:
        return f"gives shape {show_shape(found.shape)}, not {show_shape(expected.shape)}"
    if expected.dtype.kind in "fc" or expected.dtype.name == "bfloat16":
        a, b = (
            array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
            for array in (expected, found)
        )
        wrong = ~np.isclose(b, a, rtol=rtol, atol=atol, equal_nan=True)
    elif _is_text(expected):
        a, b = expected.astype(np.str_), found.astype(np.str_)
        wrong = a != b
    else:
        a, b = expected, found
        wrong = a != b
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    place = tuple(map(int, np.argwhere(np.atleast_1d(wrong))[0]))
    one, two = np.atleast_1d(a)[place], np.atleast_1d(b)[place]
    return f"{count} of {wrong.size} elements are wrong; the first, at {place}, is {two}, not {one}"


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OUST"
