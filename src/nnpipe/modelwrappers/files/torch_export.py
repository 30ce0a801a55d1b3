"""Programs of ``torch.export`` from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ArtifactError, ConversionError, MissingDependency
from nnpipe.core.graph import Graph, Selector, Shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, generate_random_batch
from nnpipe.formats.onnx_network import Contents
from nnpipe.formats.pt2 import read_program
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.torch_onnx import (
    LARGEST,
    find_export_cause,
    mark_whole_pools,
    write_exported,
)
from nnpipe.frameworks.torch_program import import_loader, load_checked, serialize_program
from nnpipe.frameworks.torch_session import TorchSession, check_device
from nnpipe.frameworks.torch_state import make_program_call
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.modelwrappers.files.onnx import check_one_file
from nnpipe.modelwrappers.frameworks.pytorch_export import get_fixed_length
from nnpipe.modelwrappers.frameworks.pytorch_graph import (
    compute_intermediates,
    get_layer_path,
    make_length_function,
    read_graph,
)
from nnpipe.modelwrappers.frameworks.pytorch_weights import get_arrays, set_arrays

_OPSET = 18
_REMEDY = "--dtype float32 converts it (preparation={'dtype': 'float32'} in Python)"


@dataclass
class TorchSource:
    """A loaded program, its path, and whether its weights have been changed since."""

    path: Path
    program: Any
    changed: bool = False


class TorchExportModel(FileModel):
    """A model from a ``.pt2`` file; only a data set is needed to measure it.

    Files are checked before PyTorch loads them, so that an untrusted file can
    only compute on tensors; see :mod:`nnpipe.formats.pt2`.
    """

    framework: ClassVar[str] = "PyTorch"
    weights_format: ClassVar[str] = "torch-export"
    exports: ClassVar[tuple[str, ...]] = ("torch-export", "onnx")
    requires: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "nnpipe[torch]"

    dtype: Literal["auto", "float32"] = argument(
        "auto",
        help=(
            "element type of weights and values: auto is that of the file, float32 converts "
            "bfloat16"
        ),
    )
    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")
    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )

    def import_framework(self) -> None:
        """Import the modules that load exported programs."""
        with suppress_output():
            import_loader()

    def read_io(self, path: Path) -> IOSpec:
        """Return the inputs and outputs of the program in a file."""
        program = read_program(path)
        return program.to_float32().io if self.dtype == "float32" else program.io

    def read_model(self, path: Path) -> TorchSource:
        """Return the program of a file, checked and loaded by PyTorch."""
        check_device(self.device)
        checked = read_program(path)
        used = checked.to_float32() if self.dtype == "float32" else checked
        try:
            return TorchSource(path, load_checked(used), changed=used is not checked)
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{path}: PyTorch cannot load it: {format_one_line(error)}"
            ) from None

    def content(self, live: LiveModel) -> bytes | Path:
        """Return the present program: the path of its file, or its content if weights or numbers
        have changed.
        """
        converted = self.dtype == "float32" and self._has_bfloat16
        return self._get_content(live.native) if converted else super().content(live)

    def _get_content(self, native: TorchSource) -> bytes | Path:
        return serialize_program(native.program) if native.changed else native.path

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the version of PyTorch."""
        import torch

        return (("torch", str(torch.__version__)),)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the program with its present weights."""
        source: TorchSource = live.native
        call, state = make_program_call(source.program, self.io, self.io, self.device, source.path)
        return TorchSession(self.io, call, self.device, self.num_threads, state)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the program as ``"torch-export"`` or ``"onnx"``.

        Raises
        ------
        ConversionError
            If PyTorch cannot export it.
        """
        if format != "onnx":
            return super().export(live, path, format)
        self._write_onnx(live.native, Path(path))
        return self.artifact_of(path, format, self.versions())

    def check_takers(
        self, takers: Sequence[type[ModelCompiler] | type[Runtime]], remote: bool = False
    ) -> None:
        """Raise :class:`ConfigError` for bfloat16 that these do not work with, and a program too
        large for ONNX.
        """
        if not self.model_path.is_file():  # opening it reports this
            return
        if self.dtype == "auto":
            self._check_bfloat16(takers, self._has_bfloat16, _REMEDY)
        if "torch-export" in takers[0].accepts:
            return
        check_one_file(
            self.model_path,
            self.bytes_in_all,
            LARGEST,
            takers,
            remote,
            runtimes="ONNXRuntime and PyTorchRuntime",
            instead="measure it here",
        )

    def _write_onnx(self, source: TorchSource, path: Path) -> None:
        import torch

        try:
            # With gradients, attention takes another way, whose results lie in memory in another
            # order.
            with suppress_output(), torch.no_grad(), mark_whole_pools(source.program):
                found = torch.onnx.export(
                    source.program,
                    (),
                    dynamo=True,
                    opset_version=_OPSET,
                    verbose=False,
                    input_names=[spec.name for spec in self.io.inputs],
                    output_names=[spec.name for spec in self.io.outputs],
                )
        except ImportError as error:
            raise MissingDependency(
                f"exporting to ONNX needs {error.name}, which is not installed: pip install "
                f"'nnpipe[torch]'"
            ) from None
        except Exception as error:  # its errors share no base but Exception
            raise ConversionError(
                f"{source.path}: PyTorch cannot export it to ONNX: {find_export_cause(error)}"
            ) from None
        write_exported(found, path, LARGEST)

    @cached_property
    def _has_bfloat16(self) -> bool:
        return read_program(self.model_path).has_bfloat16

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return a remark on bfloat16, with which many runtimes do not work."""
        left = self.dtype == "auto" and self._has_bfloat16
        return (f"has bfloat16 weights or values; {_REMEDY}",) if left else ()

    def contents(self) -> Contents:
        """Return the counts of the program's parts as they are in the file, without reading any
        weight.
        """
        return read_program(self.model_path).contents()

    # -- analysis ---------------------------------------------------------------------------------

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of parameters and buffers by their names in the program; bfloat16 ones
        become float32.
        """
        return get_arrays(live.native.path, live.native.program.state_dict, keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace parameters and buffers, after a check that all of them fit."""
        set_arrays(live.native.path, live.native.program.state_dict, weights)
        live.native.changed = live.native.changed or bool(weights)

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the program's graph of ATen operators."""
        return self._build_graph(live, None)

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the program's graph with the lengths that follow from those of the inputs."""
        return self._build_graph(live, shapes)

    def _build_graph(self, live: LiveModel, shapes: Shapes | None) -> Graph:
        program = live.native.program
        signature = program.graph_signature
        names: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        inputs = dict(
            zip(signature.user_inputs, (spec.name for spec in self.io.inputs), strict=True)
        )
        length = (
            get_fixed_length
            if shapes is None
            else make_length_function(program.graph, inputs, shapes)
        )
        graph = read_graph(
            program.graph, names | inputs, set(inputs), program, get_layer_path, length
        )
        # Buffers that change come before the program's results.
        return replace(graph, outputs=graph.outputs[len(graph.outputs) - len(self.io.outputs) :])

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch through the graph, node by node, and return the selected values by
        tensor name.
        """
        batch = generate_random_batch(self.io, 1) if inputs is None else inputs
        graph = live.get_inference_graph()
        return compute_intermediates(
            cast(Any, self), live.native.program, graph, selector, batch, given or {}
        )
