"""A model on the disk, with a JSON file beside it that describes it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from nnpipe.core.argument_checks import check_call
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, ConfigError, SpecMismatch
from nnpipe.core.files import compute_sha256, replace_atomically, write_text
from nnpipe.core.messages import suggest_name
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.tensors import IOSpec, TensorSpec, show_shape

# What a conversion claims about its result: the same precision, a lower one, or weights changed on
# purpose.
#
# A compiler declares it (:meth:`nnpipe.core.compiler.ModelCompiler.claims`), the artifact's
# description carries it, and whoever holds the artifact against its source judges by it.

Claim = Literal[
    "float",
    "float16",
    "bfloat16",
    "int8-weights",
    "int8",
    "int4-weights",
    "pruned",
    "clustered",
    "fine-tuned",
]

NUMBERS: tuple[Claim, ...] = (
    "float",
    "float16",
    "bfloat16",
    "int8-weights",
    "int8",
    "int4-weights",
)
"""Claims about the number format that a model computes with, from the most precise to the least."""

INTEGERS: tuple[Claim, ...] = ("int8-weights", "int8", "int4-weights")
"""Those of them by which weights are integers with a scale."""

WEIGHTS_ONLY: tuple[Claim, ...] = ("int8-weights", "int4-weights")
"""Those of them by which nothing but products with weights is computed with integers."""

CHANGES: tuple[Claim, ...] = ("pruned", "clustered", "fine-tuned")
"""Claims about weights that were changed on purpose."""


def normalize_claims(words: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims in order, without repetitions; ``"float"`` only if no lower precision is
    claimed.

    Raises
    ------
    ConfigError
        If a word is not a claim.
    """
    given, known = set(), get_args(Claim)
    for word in words:
        if word not in known:
            raise ConfigError(
                f"{word!r} is no claim: there are {', '.join(known)}{suggest_name(word, known)}"
            )
        given.add(word)
    numbers = [claim for claim in NUMBERS if claim in given]
    return (*(numbers[-1:] or ["float"]), *(claim for claim in CHANGES if claim in given))


def get_lowest_precision(claims: Iterable[Claim]) -> Claim:
    """Return the lowest precision that is claimed."""
    return normalize_claims(claims)[0]


def select_weight_changes(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return the claims about weights that were changed on purpose."""
    return normalize_claims(claims)[1:]


# Limits on what is read from a file, so that no file can exhaust the reader's memory.
# bytes; holds scales of large layers and long lists of classes, those of all parents, too
_SIDECAR_LIMIT = 64 << 20
_NODE_LIMIT = 1 << 22  # JSON values
_DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    ConfigError,
    SpecMismatch,
)


BUILT_BYTES = "built_bytes"
"""The name of the bytes of code and constants in what sessions of built models tell of
themselves.
"""

SLOW_PARTS = "slow_parts"
"""Facts that became known while a file was made: short texts about what takes long in the model."""


@dataclass(frozen=True)
class Artifact:
    """A trained or compiled model as a file.

    Parameters
    ----------
    path
        The model file.
    format
        The kind of file: ``"onnx"``, ``"tflite"``, ``"keras"``, ``"torch-export"``, ...
    io
        The model's inputs and outputs.
    frameworks
        ``(name, version)`` of each framework that made the file.
    target
        The target of the compiler: ``"cpu"``, ``"edgetpu"``, a target triple, ...
    sha256
        The hash of the file's content, as 64 hexadecimal digits.
    producer
        The component that made the file: ``{"class": ..., "arguments": ...}``.
    parent
        The artifact from which this one was made.
    meaning
        How samples are prepared for the inputs, and what the outputs mean; ``None`` if this is
        unknown.
    claims
        Which properties of its parent the model keeps, see :mod:`nnpipe.core.artifact`; empty
        if this is unknown.
    trained
        For trained weights: which weights of the training these are, and their metrics.
    outcome
        Facts that became known while the file was made, such as the time spent on tuning, or the
        ``"weight_bits"`` of 8-bit quantisation, 7 or 8.  Under ``"handicaps"``, short texts say why
        the model is slower than it could be; under :data:`SLOW_PARTS`, what takes long in it, and
        no setting would change that.

    Examples
    --------
    >>> from nnpipe import IOSpec, TensorSpec
    >>> io = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    >>> _ = Path("model.onnx").write_bytes(b"...")
    >>> written = Artifact.create("model.onnx", "onnx", io)
    >>> Artifact.read("model.onnx") == written
    True
    """

    path: Path
    format: str
    io: IOSpec
    sha256: str
    frameworks: tuple[tuple[str, str], ...] = ()
    target: str = "cpu"
    producer: Mapping[str, Any] = field(default_factory=dict)
    parent: Artifact | None = None
    meaning: ModelMetadata | None = None
    claims: tuple[Claim, ...] = ()
    trained: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.claims:
            object.__setattr__(self, "claims", normalize_claims(self.claims))

    @classmethod
    def create(
        cls,
        path: str | Path,
        format: str,
        io: IOSpec,
        *,
        frameworks: tuple[tuple[str, str], ...] = (),
        target: str = "cpu",
        producer: Mapping[str, Any] | None = None,
        parent: Artifact | None = None,
        meaning: ModelMetadata | None = None,
        claims: tuple[Claim, ...] = (),
        outcome: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Describe a model file that has just been written, and write the description beside it.

        The meaning is taken from the parent, unless ``meaning`` is given.
        """
        path = Path(path)
        if meaning is None and parent is not None:
            meaning = parent.meaning
        artifact = cls(
            path,
            format,
            io,
            compute_sha256(path),
            frameworks,
            target,
            producer or {},
            parent,
            meaning,
            claims,
            outcome=outcome or {},
        )
        artifact._write()
        return artifact

    def update_meaning(self, meaning: ModelMetadata) -> Artifact:
        """Return the artifact with another meaning, and update the description beside the file."""
        if meaning == self.meaning:
            return self
        found = replace(self, meaning=meaning)
        found._write()
        return found

    def _write(self) -> None:
        origin = self.parent and self.parent._map_paths(
            lambda path: _to_relative_path(path, self.path.parent)
        )
        write_text(
            get_sidecar_path(self.path),
            json.dumps(replace(self, parent=origin).to_json(), indent=2) + "\n",
        )

    def _map_paths(self, place: Callable[[Path], Path]) -> Artifact:
        """Return the artifact with its path, and those that it was made from with theirs,
        changed by a function.
        """
        return replace(
            self, path=place(self.path), parent=self.parent and self.parent._map_paths(place)
        )

    @classmethod
    def read(cls, path: str | Path, check: bool = True) -> Artifact:
        """Read the description beside a model file and check the file against it.

        Parameters
        ----------
        path
            The model file.
        check
            Whether to compare the file's content with the recorded hash.  Loading the model does
            this, too.

        Raises
        ------
        ArtifactError
            If the file or its description is missing or damaged, or the two do not belong together.
        """
        path = Path(path)
        if not path.is_file():
            raise ArtifactError(f"{path}: no such model file")
        description = get_sidecar_path(path)
        if not description.is_file():
            raise ArtifactError(
                f"{path}: nothing beside it says what it is ({description.name} is missing)"
            )
        if description.stat().st_size > _SIDECAR_LIMIT:
            raise ArtifactError(f"{description}: too large for a model's description")
        try:
            artifact = cls.from_json(_parse_description(description.read_bytes()), path)
            # A recorded path is absolute, or begins at the description's folder, whatever the
            # current folder is.
            origin = artifact.parent and artifact.parent._map_paths(path.parent.joinpath)
            artifact = replace(artifact, parent=origin)
        except RecursionError:
            raise ArtifactError(
                f"{description}: not a model's description: nested too deeply"
            ) from None
        except _DAMAGED as error:
            raise ArtifactError(
                f"{description}: not a model's description ({error}); make the model anew"
            ) from None
        if check:
            artifact.verify()
        return artifact

    def update_trained(self, trained: Mapping[str, Any]) -> Artifact:
        """Return the artifact with the ``trained`` given, and update the description beside the
        file.
        """
        noted = replace(self, trained=dict(trained))
        noted._write()
        return noted

    def link(self, path: str | Path) -> Artifact:
        """Link the file under a second name, write a description beside it, and return that
        artifact.

        Where the file system has no hard links, the file is copied.
        """
        path = Path(path)
        with replace_atomically(path) as temporary:
            try:
                os.link(self.path, temporary)
            except OSError:
                shutil.copyfile(self.path, temporary)
        found = replace(self, path=path)
        found._write()
        return found

    def verify(self) -> None:
        """Raise :class:`ArtifactError` unless the file still has the recorded content."""
        if not self.path.is_file():
            raise ArtifactError(f"{self.path}: no such model file")
        if compute_sha256(self.path) != self.sha256:
            raise ArtifactError(
                f"{self.path}: the content is not what {get_sidecar_path(self.path).name} records; "
                "the file is damaged or was replaced, make the model anew"
            )

    @property
    def size(self) -> int:
        """Size of the model file in bytes."""
        return self.path.stat().st_size

    @property
    def exported(self) -> Artifact:
        """The artifact with which a chain of compilers began; itself if no compiler made it."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def performance_caveats(self) -> tuple[str, ...]:
        """Return the reasons, in short texts, why the model is slower than it could be."""
        told = self.outcome.get("handicaps")
        return (
            tuple(" ".join(str(each).split())[:200] for each in told)
            if isinstance(told, list | tuple)
            else ()
        )

    def to_json(self) -> dict[str, Any]:
        """Return the description in its JSON form."""
        found = {
            "schema": 1,
            "path": str(self.path),
            "format": self.format,
            "io": self.io.to_json(),
            "sha256": self.sha256,
            "frameworks": [list(pair) for pair in self.frameworks],
            "target": self.target,
            "producer": hide_settings_secrets(self.producer),
            "parent": self.parent.to_json() if self.parent else None,
        }
        if self.claims:
            found["claims"] = list(self.claims)
        if self.meaning is not None:
            found["meaning"] = self.meaning.to_json()
        if self.trained:
            found["trained"] = hide_settings_secrets(self.trained)
        if self.outcome:
            found["outcome"] = dict(self.outcome)
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any], path: Path | None = None) -> Artifact:
        """Make an artifact from the output of :meth:`to_json`; ``path`` is the file's present
        path.
        """
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
            # Files of earlier versions have no such entry.
            ModelMetadata.from_json(data["meaning"]) if data.get("meaning") is not None else None,
            normalize_claims(data["claims"]) if data.get("claims") else (),
            dict(data.get("trained") or {}),
            dict(data.get("outcome") or {}),
        )


def get_sidecar_path(path: Path) -> Path:
    """Return the path of the description beside a model file."""
    check_call(get_sidecar_path, locals())
    return path.with_name(path.name + ".json")


def _to_relative_path(path: Path, folder: Path) -> Path:
    """Return a path that begins at a folder if it is below it, so that the two can be moved
    together; else absolute.
    """
    path, folder = path.absolute(), folder.absolute()
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _parse_description(content: bytes) -> Any:
    # Each JSON value but the first follows one of these characters.  A small file of many empty
    # lists would otherwise fill the memory.
    if sum(map(content.count, (b",", b":", b"[", b"{"))) > _NODE_LIMIT:
        raise ValueError("too many values")
    return parse_json(content.decode("utf-8"))


def verify_io(artifact: Artifact, found: IOSpec) -> IOSpec:
    """Return the artifact's inputs and outputs after checking them against the file.

    The description may fix what the file leaves open (a free axis, a
    quantisation that the format does not record).  It may not contradict the file.

    Parameters
    ----------
    artifact
        The model and its description.
    found
        What the file itself states.

    Returns
    -------
    IOSpec
        ``artifact.io``, with the file's quantisation where the description has none.

    Raises
    ------
    ArtifactError
        If the two contradict each other; the message names the file and the first tensor that
        differs.
    """
    sides = []
    for side, described, stated in (
        ("inputs", artifact.io.inputs, found.inputs),
        ("outputs", artifact.io.outputs, found.outputs),
    ):
        by_name = {spec.name: spec for spec in stated}
        if by_name.keys() != {spec.name for spec in described}:
            raise ArtifactError(
                f"{artifact.path}: the file has the {side} {_format_names(stated)}, its "
                f"description says {_format_names(described)}"
            )
        sides.append(
            tuple(_verify_tensor(artifact, spec, by_name[spec.name]) for spec in described)
        )
    return IOSpec(*sides)


def _verify_tensor(artifact: Artifact, described: TensorSpec, stated: TensorSpec) -> TensorSpec:
    start = f"{artifact.path}: tensor {described.name!r}"
    if described.dtype != stated.dtype:
        raise ArtifactError(
            f"{start} has {stated.dtype} elements, its description says {described.dtype}"
        )
    same_rank = len(described.shape) == len(stated.shape)
    if not same_rank or any(
        have is not None and have != want
        for have, want in zip(stated.shape, described.shape, strict=True)
    ):
        raise ArtifactError(
            f"{start} has shape {show_shape(stated.shape)}, its description says "
            f"{show_shape(described.shape)}"
        )
    if stated.scale is None:
        return described
    if described.scale is not None and _get_quantization(described) != _get_quantization(stated):
        raise ArtifactError(
            f"{start} has scale {stated.scale} and zero point {stated.zero_point}, "
            f"its description says {described.scale} and {described.zero_point}"
        )
    # The file's own numbers are the ones it computes with.
    return TensorSpec(
        described.name,
        described.shape,
        described.dtype,
        stated.scale,
        stated.zero_point,
        stated.axis,
    )


def _get_quantization(spec: TensorSpec) -> tuple[object, ...]:
    return spec.scale, spec.zero_point, spec.axis


def _format_names(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(spec.name for spec in specs) or "(none)"
