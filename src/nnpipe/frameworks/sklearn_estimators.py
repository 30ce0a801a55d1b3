"""Estimators of scikit-learn: reading them from skops files, running them, and writing them as
ONNX.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, ConversionError, MissingDependency
from nnpipe.core.messages import format_one_line
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.formats.file_types import check_there, describe_file_type

_EXPANSION_LIMIT, _SLACK = 200, 64 << 20
_ZIP_MAGIC = b"PK"
_PICKLE_MAGIC = b"\x80"


class EstimatorSession(InferenceSession):
    """Runs an estimator of scikit-learn that was read from a file or fitted."""

    def __init__(self, estimator: Any, io: IOSpec, path: Path) -> None:
        self.io = io
        self._path = path
        self._predict = getattr(estimator, _choose_method(estimator))
        self._dtype = io.outputs[0].dtype
        self._shape = io.outputs[0].shape[1:]
        self._features = np.empty(0)
        self._output = np.empty(0)

    def _put(self, batch: Batch) -> None:
        self._features = np.array(batch["features"])

    def _run(self) -> None:
        try:
            found = np.asarray(self._predict(self._features))
        except Exception as error:  # estimators may raise any exception
            raise ArtifactError(
                f"{self._path}: scikit-learn cannot run it: {format_one_line(error)}"
            ) from None
        # decision function of a classifier of two classes
        if self._shape == (2,) and found.ndim == 1:
            found = np.stack([-found, found], axis=1)
        self._output = found.astype(self._dtype)

    def _get(self) -> dict[str, np.ndarray]:
        return {self.io.outputs[0].name: self._output.copy()}


def read_estimator(path: Path, trusted: tuple[str, ...]) -> Any:
    """Return the fitted estimator in a skops file that holds no types but trusted ones.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, a pickle, holds other types, or no fitted estimator.
    """
    check_there(path)
    with open(path, "rb") as handle:
        start = handle.read(2)
    if start != _ZIP_MAGIC:
        if start.startswith(_PICKLE_MAGIC) or path.suffix in (".pkl", ".pickle", ".joblib"):
            raise ArtifactError(
                f"{path}: a pickle, which could run code and is not loaded; "
                "save the estimator with skops.io.dump, or convert it to ONNX"
            )
        raise ArtifactError(f"{path}: not a skops file{describe_file_type(path, 'SklearnModel')}")
    from skops.io import get_untrusted_types, load

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > path.stat().st_size * _EXPANSION_LIMIT + _SLACK:
            raise ArtifactError(
                f"{path}: would unpack to {size:,} bytes, far more than the file can hold"
            )
        strange = [name for name in map(str, get_untrusted_types(file=path)) if name not in trusted]
        if strange:
            raise ArtifactError(
                f"{path}: holds {', '.join(strange[:3])}, which skops does not trust by itself; "
                f"if you trust who made the file, add --trusted-types {' '.join(strange)}"
            )
        estimator = load(path, trusted=list(trusted))
    except ArtifactError:
        raise
    except Exception as error:  # damaged files fail in every way there is
        raise ArtifactError(
            f"{path}: damaged, or not a skops file: "
            f"{format_one_line(error)}{describe_file_type(path, 'SklearnModel')}"
        ) from None
    if not hasattr(estimator, "predict") or not hasattr(estimator, "n_features_in_"):
        raise ArtifactError(
            f"{path}: holds a {type(estimator).__name__}, not an estimator that has been fitted"
        )
    return estimator


def _choose_method(estimator: Any) -> str:
    if not hasattr(estimator, "classes_"):
        return "predict"
    return next(
        name
        for name in ("predict_proba", "decision_function", "predict")
        if hasattr(estimator, name)
    )


def find_estimator_io(estimator: Any, path: Path) -> IOSpec:
    """Return the inputs and outputs of an estimator, which is run for this; ``path`` is for
    messages.
    """
    count = int(estimator.n_features_in_)
    method = _choose_method(estimator)
    try:
        probe = np.asarray(getattr(estimator, method)(np.zeros((2, count), np.float32)))
    except Exception as error:  # estimators may raise any exception
        raise ArtifactError(
            f"{path}: scikit-learn cannot run it: {format_one_line(error)}"
        ) from None
    features = TensorSpec("features", (None, count), "float32")
    shape: tuple[int | None, ...] = (None, *probe.shape[1:])
    if method == "predict":
        if probe.dtype.kind not in "iuf":
            raise ArtifactError(
                f"{path}: gives {probe.dtype}, not numbers; fit it on numbers of classes"
            )
        dtype = "int64" if probe.dtype.kind in "iu" else "float32"
        return IOSpec((features,), (TensorSpec("value", shape, dtype),))
    classes = len(estimator.classes_)
    if probe.shape[1:] not in ((classes,), ()) or (probe.ndim == 1 and classes != 2):
        raise ArtifactError(f"{path}: gives {probe.shape[1:]} numbers for {classes} classes")
    return IOSpec((features,), (TensorSpec("scores", (None, classes), "float32"),))


def convert_estimator_to_onnx(estimator: Any, io: IOSpec, name: str) -> bytes:
    """Return an estimator as an ONNX model with these inputs and outputs; ``name`` is for messages.

    Raises
    ------
    ConversionError
        If skl2onnx cannot convert it.
    """
    try:
        import onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise MissingDependency(
            f"exporting {name} as onnx needs {error.name}, which is not installed: pip install "
            f"'nnpipe[sklearn]'"
        ) from None
    taken, given = io.inputs[0], io.outputs[0]
    try:
        model = _convert_estimator(
            estimator, [(taken.name, FloatTensorType([None, taken.shape[1]]))]
        )
    except Exception as error:  # its errors share no base but Exception
        raise ConversionError(
            f"{name} cannot be exported as onnx: {format_one_line(error)}"
        ) from None
    # A classifier gives the label first and its scores after it.
    last = model.graph.output[-1].name
    kind = onnx.TensorProto.INT64 if given.dtype == "int64" else onnx.TensorProto.FLOAT
    shape = ["batch", *given.shape[1:]]
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, used in enumerate(names):
                if used == given.name:
                    names[index] = used + "/inner"
    last = last + "/inner" if last == given.name else last
    if given.shape[1:]:
        node = onnx.helper.make_node("Identity", [last], [given.name])
    else:  # skl2onnx gives values as a column
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array([-1], np.int64), "flat_shape")
        )
        node = onnx.helper.make_node("Reshape", [last, "flat_shape"], [given.name])
    model.graph.node.append(node)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(given.name, kind, shape))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _convert_estimator(estimator: Any, initial_types: list[Any]) -> Any:
    """Convert with options for scores as a tensor, equal to those of the session.

    The options differ between estimators, and skl2onnx rejects those that an
    estimator does not have.
    """
    from skl2onnx import convert_sklearn

    raw = {"raw_scores": True} if _choose_method(estimator) == "decision_function" else {}
    asked: list[dict[str, bool]] = (
        [{"zipmap": False, **raw}, raw, {}] if hasattr(estimator, "classes_") else [{}]
    )
    for options in asked:
        try:
            return convert_sklearn(
                estimator,
                initial_types=initial_types,
                options={id(estimator): options},
                target_opset=18,
            )
        except NameError as error:
            if not str(error).startswith("Option "):
                raise
    raise ValueError("none of the usual options is known to its converter")
