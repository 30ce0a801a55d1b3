"""scikit-learn estimators from files."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.files import write_bytes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.sklearn_estimators import (
    EstimatorSession,
    convert_estimator_to_onnx,
    find_estimator_io,
    read_estimator,
)
from nnpipe.modelwrappers.files.file_model import FileModel


class SklearnModel(FileModel):
    """A scikit-learn estimator from a skops file.

    Pickles, scikit-learn's usual files, can run any code and are not read: save the
    estimator with ``skops.io.dump(estimator, "model.skops")``, or convert it to ONNX
    and use ONNXModel.  A skops file is loaded only if it holds no types but those
    that skops trusts by default and those in ``trusted_types``.  Decision trees need
    ``sklearn.tree._tree.Tree`` there; skops does not trust it because a damaged tree
    can crash the process.

    The input ``"features"`` is ``(n, features)`` float32.  The output of a classifier
    is ``"scores"``, ``(n, classes)`` in the order of its ``classes_``: probabilities,
    or the values of its decision function.  The output of a regressor is ``"value"``.
    """

    framework: ClassVar[str] = "scikit-learn"
    weights_format: ClassVar[str] = "skops"
    exports: ClassVar[tuple[str, ...]] = ("onnx", "skops")
    requires: ClassVar[tuple[str, ...]] = ("sklearn", "skops")
    install: ClassVar[str] = "nnpipe[sklearn]"

    trusted_types: tuple[str, ...] = argument(
        (),
        help=(
            "types that the file may hold beside those that skops trusts by default, such as "
            "sklearn.tree._tree.Tree"
        ),
    )

    def import_framework(self) -> None:
        """Import the modules that read estimators."""
        import skops.io  # noqa: F401

    def read_io(self, path: Path) -> IOSpec:
        """Return inputs and outputs; the estimator is loaded for this."""
        return find_estimator_io(read_estimator(path, self.trusted_types), path)

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs, as the estimator states them."""
        self.check_installed()
        return self.read_io(self.model_path)

    def read_model(self, path: Path) -> Any:
        """Return the estimator."""
        estimator = read_estimator(path, self.trusted_types)
        # avoids loading it again for its inputs and outputs
        if path == self.model_path and "io" not in vars(self):
            vars(self)["io"] = find_estimator_io(estimator, path)
        return estimator

    def _get_content(self, native: Any) -> bytes | Path:
        from skops.io import dumps

        return bytes(dumps(native))

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions of scikit-learn and skops."""
        return (("scikit-learn", version("scikit-learn")), ("skops", version("skops")))

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the estimator."""
        return EstimatorSession(live.native, self.io, self.model_path)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the estimator as ``"skops"`` or ``"onnx"``.

        Raises
        ------
        ConversionError
            If skl2onnx cannot convert it.
        """
        if format != "onnx":
            return super().export(live, path, format)
        write_bytes(path, convert_estimator_to_onnx(live.native, self.io, self._name))
        frameworks = (*self.versions(), ("skl2onnx", version("skl2onnx")))
        return self.artifact_of(path, format, frameworks)
