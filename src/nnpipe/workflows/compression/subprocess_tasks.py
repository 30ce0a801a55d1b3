"""What a search for compressed models does in a process of its own: making files, and judging
them beside floats.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nnpipe.compilers.layer_forms import LayerForm, assign_forms
from nnpipe.compilers.onnx_compression import Compression, ONNXCompressor, load_folded_model
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.tensors import Batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.journal import compute_digest
from nnpipe.workflows.mixing.subprocess_tasks import Trials


class CompressionTrials(Trials):
    """Carries out the requests of a search for compressed models, one after the other.

    Of each source, samples are observed once, and each layer is rounded once for each form.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[str, Compression] = {}

    def __call__(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request: ``layers``, ``forms``, ``make``, ``open`` or ``try``."""
        spec = CandidateSpec.from_json(request["candidate"])
        if request["do"] == "layers":
            return self._load_compression(spec, request).sizes
        if request["do"] == "forms":
            return self._compute_forms(spec, request)
        if request["do"] == "make":
            return self._make(spec, request)
        return super().__call__(request)

    def _load_compression(self, spec: CandidateSpec, request: Mapping[str, Any]) -> Compression:
        source = str(request["source"])
        if source not in self._sources:
            fitted = spec.fit_wrapper()

            def load_samples() -> Iterable[Batch]:
                assert fitted.dataset is not None
                return map(
                    fitted.wrapper.preprocess,
                    fitted.dataset.calibration(request["calibration_samples"]),
                )

            self._sources[source] = Compression(load_folded_model(Path(source)), load_samples)
        return self._sources[source]

    def _compute_forms(
        self, spec: CandidateSpec, request: Mapping[str, Any]
    ) -> dict[str, dict[str, list[float]]]:
        """Return the bytes and the noise of each form of each layer."""
        compression = self._load_compression(spec, request)
        return {
            layer: {form: list(compression.cost(layer, LayerForm.parse(form))) for form in forms}
            for layer, forms in request["forms"].items()
        }

    def _make(self, spec: CandidateSpec, request: Mapping[str, Any]) -> None:
        """Write the compressed model unless it is there, from this source."""
        source, to = Artifact.read(request["source"]), Path(request["to"])
        compiler = ONNXCompressor(layers=tuple(request["layers"]))
        with contextlib.suppress(ArtifactError):  # an earlier attempt's, or one of another search
            there = Artifact.read(to)
            alike = compute_digest(there.producer) == compute_digest(
                hide_settings_secrets(compiler.describe())
            )
            if alike and there.parent is not None and there.parent.sha256 == source.sha256:
                return
        compression = self._load_compression(spec, request)
        compression.write(assign_forms(compiler.layers, compression.names), to)
        Artifact.create(
            to,
            "onnx",
            read_onnx(to).io(source.io),
            producer=compiler.describe(),
            parent=source,
            claims=compiler.claims(),
        )
