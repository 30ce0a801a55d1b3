"""The base of wrappers that are made from a model file."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ArtifactError, ConfigError, NotSupported
from nnpipe.core.files import replace_atomically, write_bytes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import Samples
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, generate_random_batch, show_shape
from nnpipe.modelwrappers.files._input_options import ModelFacts, read_model_facts
from nnpipe.modelwrappers.files._preprocessing import Preprocessing


class SelfContainedModel(Preprocessing):
    """A model that is saved as a file with its structure.

    A subclass writes :meth:`read_io`, which reads inputs and outputs from a file, and
    :meth:`read_model`, which loads the framework's model.
    """

    @abstractmethod
    def read_io(self, path: Path) -> IOSpec:
        """Return the inputs and outputs of the model in a file.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, or of another format; the message names it.
        """

    @abstractmethod
    def read_model(self, path: Path) -> Any:
        """Return the framework's model from a file that :meth:`read_io` could read."""

    @abstractmethod
    def _get_content(self, native: Any) -> bytes | Path:
        raise NotImplementedError

    @abstractmethod
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the packages that made or read the model, with their versions."""

    def content(self, live: LiveModel) -> bytes | Path:
        """Return the present model: the path of its file if it is unchanged, otherwise the
        content to write.
        """
        return self._get_content(live.native)

    def _read_io(self, path: Path) -> IOSpec:
        return self.read_io(path)

    def fresh(self, seed: int = 0) -> Any:
        """Return the model with the weights in the file; the seed has no effect."""
        self.check_installed()
        return self.build()

    def load(self, live: LiveModel, path: str | Path) -> None:
        """Read the model, or another one with the same inputs and outputs.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged, differs from its description, or has other inputs or
            outputs.
        """
        self.check_installed()
        path = Path(path)
        if path.is_file() and get_sidecar_path(path).is_file():
            Artifact.read(path)
        network = self.read_model(path)
        found = self._read_io(path)
        for mine, its in zip(
            (self.io.inputs, self.io.outputs), (found.inputs, found.outputs), strict=True
        ):
            if mine != its:
                here, there = (
                    ", ".join(f"{s.name} {s.dtype} {show_shape(s.shape)}" for s in side)
                    for side in (mine, its)
                )
                raise ArtifactError(
                    f"{path}: another model than {self._name}: {there} instead of {here}"
                )
        live.native = network

    def save(self, live: LiveModel, path: str | Path) -> Artifact:
        """Write the model in the format of its file."""
        return live.export(path, self.weights_format)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model in the format of its file, unchanged unless weights have been set."""
        if format != self.weights_format:
            raise NotSupported(
                f"{type(self).__name__} cannot be exported as {format}; it can as "
                f"{' or '.join(self.exports)}"
            )
        content = self.content(live)
        if isinstance(content, bytes):
            write_bytes(path, content)
        else:
            with replace_atomically(path) as temporary:
                shutil.copyfile(content, temporary)
        return self.artifact_of(path, format, self.versions())

    def run_inference(
        self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Run some batches and return the outputs of each."""
        with live.session() as session:
            return [session.infer(batch) for batch in self._list_batches(n_steps, samples)]

    def _list_batches(self, n_steps: int, samples: Samples | None) -> list[Batch]:
        if samples is None:
            return [generate_random_batch(self.io, 1, seed) for seed in range(n_steps)]
        return [inputs for inputs, _ in islice(samples, n_steps)]

    def _require_batches(self, n_steps: int, samples: Samples | None) -> list[Batch]:
        batches = self._list_batches(n_steps, samples)
        if not batches:
            raise ConfigError(
                f"{type(self).__name__}: there is no step to profile; give samples and at least "
                f"one step"
            )
        for batch in batches:
            self.io.check_inputs(batch)
        return batches


_BFLOAT16 = "bfloat16"


class FileModel(SelfContainedModel):
    """A model from a file that holds its structure; ``io`` is read from the file."""

    model_path: Path = argument(help="the model file", metavar="PATH")

    def content(self, live: LiveModel) -> bytes | Path:
        """Return the present model: the path of its file if it is unchanged, otherwise the
        content to write.
        """
        return self._get_content(live.native) if live.is_built else self.model_path

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs, as stated in the file."""
        return self.read_io(self.model_path)

    @property
    def bytes_in_all(self) -> int:
        """Return the size of the file and of its external weight files, in bytes."""
        return self.model_path.stat().st_size

    def read_facts(self) -> ModelFacts:
        """Return the facts in the description beside the file; loading checks that it belongs to
        the file.
        """
        described = get_sidecar_path(self.model_path).is_file()
        return read_model_facts(Artifact.read(self.model_path, check=False) if described else None)

    def check_takers(
        self, takers: Sequence[type[ModelCompiler] | type[Runtime]], remote: bool = False
    ) -> None:
        """Raise :class:`ConfigError`, before anything slow, if the file cannot be given to these.

        Parameters
        ----------
        takers
            The compilers in order, and the runtime.
        remote
            Whether the runtime is on another machine.
        """
        return

    def _check_bfloat16(
        self, takers: Sequence[type[ModelCompiler] | type[Runtime]], inside: bool, remedy: str
    ) -> None:
        """Raise :class:`ConfigError` if these cannot work with the model's bfloat16; ``inside``
        says if it has any.
        """
        at_ends = [spec.name for spec in self.io if spec.dtype == _BFLOAT16]
        for taker in takers:
            if (inside or at_ends) and _BFLOAT16 in taker.unsupported_types:
                raise ConfigError(
                    f"{self.model_path}: has bfloat16 weights or values, with which "
                    f"{taker.__name__} does not work; {remedy}"
                )
            if at_ends and issubclass(taker, Runtime) and _BFLOAT16 in taker.unsupported_io:
                raise ConfigError(
                    f"{self.model_path}: tensor {at_ends[0]!r} is bfloat16, which {taker.__name__} "
                    f"can neither take nor give; {remedy}"
                )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return remarks on how the file was read; usually none."""
        return ()

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} ({self.model_path})"

    def build(self) -> Any:
        """Return the model with the weights in the file."""
        return self.read_model(self.model_path)

    def _read_io(self, path: Path) -> IOSpec:
        return self.io if path == self.model_path else self.read_io(path)
