"""The base of wrappers that are made from a model file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import IOSpec
from nnpipe.modelwrappers.files._model_description import Known, known_of
from nnpipe.modelwrappers.files.self_contained_model import SelfContainedModel

_BFLOAT16 = "bfloat16"


class FileModel(SelfContainedModel):
    """A model from a file that holds its structure; ``io`` is read from the file."""

    model_path: Path = argument(help="the model file", metavar="PATH")

    def content(self, live: LiveModel) -> bytes | Path:
        """Return the present model: the path of its file if it is unchanged, otherwise the content to write."""
        return self._content_of(live.native) if live.is_built else self.model_path

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs, as stated in the file."""
        return self.read_io(self.model_path)

    @property
    def bytes_in_all(self) -> int:
        """Return the size of the file and of its external weight files, in bytes."""
        return self.model_path.stat().st_size

    def known(self) -> Known:
        """Return the facts in the description beside the file; loading checks that it belongs to the file."""
        described = sidecar_of(self.model_path).is_file()
        return known_of(Artifact.read(self.model_path, check=False) if described else None)

    def check_takers(self, takers: Sequence[type[ModelCompiler] | type[Runtime]], remote: bool = False) -> None:
        """Raise :class:`ConfigError`, before anything slow, if the file cannot be given to these.

        Parameters
        ----------
        takers
            The compilers in order, and the runtime.
        remote
            Whether the runtime is on another machine.
        """
        return

    def _check_bfloat16(self, takers: Sequence[type[ModelCompiler] | type[Runtime]], inside: bool, remedy: str) -> None:
        """Raise :class:`ConfigError` if these cannot work with the model's bfloat16; ``inside`` says if it has any."""
        at_ends = [spec.name for spec in self.io if spec.dtype == _BFLOAT16]
        for taker in takers:
            if (inside or at_ends) and _BFLOAT16 in taker.unsupported_types:
                raise ConfigError(
                    f"{self.model_path}: has bfloat16 weights or values, with which {taker.__name__} does not work; "
                    f"{remedy}"
                )
            if at_ends and issubclass(taker, Runtime) and _BFLOAT16 in taker.unsupported_io:
                raise ConfigError(
                    f"{self.model_path}: tensor {at_ends[0]!r} is bfloat16, which {taker.__name__} can neither take "
                    f"nor give; {remedy}"
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

    def _io_in(self, path: Path) -> IOSpec:
        return self.io if path == self.model_path else self.read_io(path)
