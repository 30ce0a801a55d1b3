"""A model on the disk, with a JSON file beside it that says what it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.files import sha256_of, write_text
from nnpipe.core.tensors import IOSpec

_SIDECAR_LIMIT = 64 << 20


@dataclass(frozen=True)
class Artifact:
    """A trained or compiled model as a file.

    Parameters
    ----------
    path
        The model file.
    format
        What kind of file: ``"onnx"``, ``"tflite"``, ``"keras"``, ``"torch-export"``, ...
    io
        Its inputs and outputs.
    frameworks
        ``(name, version)`` of what made it.
    target
        What it was made for: ``"cpu"``, ``"edgetpu"``, a triple, ...
    sha256
        Of the file's content.
    producer
        The component that made it: ``{"class": ..., "arguments": ...}``.
    parent
        The artifact it was made from, so that its origin can be followed back.
    """

    path: Path
    format: str
    io: IOSpec
    sha256: str
    frameworks: tuple[tuple[str, str], ...] = ()
    target: str = "cpu"
    producer: Mapping[str, Any] = field(default_factory=dict)
    parent: Artifact | None = None

    @classmethod
    def of(
        cls,
        path: str | Path,
        format: str,
        io: IOSpec,
        *,
        frameworks: tuple[tuple[str, str], ...] = (),
        target: str = "cpu",
        producer: Mapping[str, Any] | None = None,
        parent: Artifact | None = None,
    ) -> Artifact:
        """Describe a model file that has just been written, and write the description beside it."""
        path = Path(path)
        artifact = cls(path, format, io, sha256_of(path), frameworks, target, producer or {}, parent)
        write_text(sidecar_of(path), json.dumps(artifact.to_json(), indent=2) + "\n")
        return artifact

    @classmethod
    def read(cls, path: str | Path) -> Artifact:
        """Read the description beside a model file and check the file against it.

        Raises
        ------
        ArtifactError
            If the file or its description is missing, damaged, or they do not belong together.
        """
        path = Path(path)
        if not path.is_file():
            raise ArtifactError(f"{path}: no such model file")
        description = sidecar_of(path)
        if not description.is_file():
            raise ArtifactError(f"{path}: nothing beside it says what it is ({description.name} is missing)")
        if description.stat().st_size > _SIDECAR_LIMIT:
            raise ArtifactError(f"{description}: too large for a model's description")
        try:
            artifact = cls.from_json(json.loads(description.read_text("utf-8")), path)
        except (ValueError, KeyError, TypeError, AttributeError, SpecMismatch) as error:
            raise ArtifactError(f"{description}: not a model's description ({error}); make the model anew") from None
        artifact.verify()
        return artifact

    def verify(self) -> None:
        """Raise :class:`ArtifactError` unless the file still has the recorded content."""
        if not self.path.is_file():
            raise ArtifactError(f"{self.path}: no such model file")
        if sha256_of(self.path) != self.sha256:
            raise ArtifactError(
                f"{self.path}: the content is not what {sidecar_of(self.path).name} records; "
                "the file is damaged or was replaced, make the model anew"
            )

    @property
    def size(self) -> int:
        """Size of the model file in bytes."""
        return self.path.stat().st_size

    def to_json(self) -> dict[str, Any]:
        """Give the description as JSON can hold it."""
        return {
            "schema": 1,
            "path": str(self.path),
            "format": self.format,
            "io": self.io.to_json(),
            "sha256": self.sha256,
            "frameworks": [list(pair) for pair in self.frameworks],
            "target": self.target,
            "producer": dict(self.producer),
            "parent": self.parent.to_json() if self.parent else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: Path | None = None) -> Artifact:
        """Read what :meth:`to_json` gave; ``path`` says where the file lies now."""
        if data.get("schema") != 1:
            raise ValueError(f"schema {data.get('schema')!r} is unknown, this version reads 1")
        parent = data["parent"]
        return cls(
            path or Path(data["path"]),
            str(data["format"]),
            IOSpec.from_json(data["io"]),
            str(data["sha256"]),
            tuple((str(name), str(version)) for name, version in data["frameworks"]),
            str(data["target"]),
            dict(data["producer"]),
            cls.from_json(parent) if parent else None,
        )


def sidecar_of(path: Path) -> Path:
    """Name of the description beside a model file."""
    return path.with_name(path.name + ".json")
