"""Models that are folders: their files, and those of onnxruntime-genai and of Hugging Face
transformers.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import iter_entries, parse_json, read_object
from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.files import compute_sha256, write_text
from nnpipe.core.generation import TOKENS, build_generation_io
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx

LISTING = "model-folder"
"""The format of such a list, as artifacts name it."""

TRANSFORMERS = "transformers-folder"
"""The format of a list of the files of a folder of transformers, from which compilers make other
models.
"""

_LARGEST, _MOST_FILES = 1 << 20, 4096


def write_listing(files: Sequence[Path], path: Path) -> None:
    """Write the names, sizes and checksums of files."""
    found = {
        str(file.resolve()): {"size": file.stat().st_size, "sha256": compute_sha256(file)}
        for file in files
    }
    write_text(path, json.dumps(found, indent=1) + "\n")


def check_listing(files: Sequence[Path], path: Path) -> None:
    """Check that files are those of a list.

    Raises
    ------
    ArtifactError
        If the list cannot be read, or a file is not as it was.
    """
    listed = _read(path)
    for file in files:
        entry = listed.get(str(file.resolve()))
        if (
            entry is None
            or entry["size"] != file.stat().st_size
            or entry["sha256"] != compute_sha256(file)
        ):
            raise ArtifactError(
                f"{path}: {file} is another file, or has changed since this list was written"
            )


def find_listed_folder(path: Path, name: str) -> Path:
    """Return the folder with the file of this name in a list, after a check of all files of the
    list.

    Raises
    ------
    ArtifactError
        If the list cannot be read, has no such file, or a file is not as it was.
    """
    files = [Path(each) for each in _read(path)]
    if missing := [each for each in files if not each.is_file()]:
        raise ArtifactError(f"{path}: {missing[0]} is gone")
    check_listing(files, path)
    for each in files:
        if each.name == name:
            return each.parent
    raise ArtifactError(f"{path}: lists no {name}")


def compute_listed_size(path: Path) -> int:
    """Return the size of all files of a list, in bytes; raise :class:`ArtifactError` if it
    cannot be read.
    """
    return sum(entry["size"] for entry in _read(path).values())


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST:,} bytes")
        found = parse_json(path.read_text("utf-8"))
        if not isinstance(found, dict) or len(found) > _MOST_FILES:
            raise ValueError("it names no files")
        for entry in found.values():
            if not (isinstance(entry["size"], int) and isinstance(entry["sha256"], str)):
                raise ValueError("a file has no size or checksum")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ArtifactError(f"{path}: no list of a model's files: {error}") from None
    return found


CONFIGURATION = "genai_config.json"
_HARMLESS = frozenset(
    {"log_id", "provider_options", "intra_op_num_threads", "graph_optimization_level"}
)
_LONGEST_CONTEXT = 1 << 24


@dataclass(frozen=True)
class GenAIFolder:
    """What a folder of onnxruntime-genai holds.

    Parameters
    ----------
    path
        The folder.
    config
        The content of ``genai_config.json``.
    files
        The files of the network and its weights.
    context_length
        The greatest number of tokens of a prompt and its answer together.
    vocabulary_size
        The number of different tokens.
    end_tokens
        The tokens that end an answer.
    """

    path: Path
    config: Mapping[str, Any]
    files: tuple[Path, ...]
    context_length: int
    vocabulary_size: int
    end_tokens: tuple[int, ...]


def read_genai_folder(folder: Path) -> GenAIFolder:
    """Return what the configuration of a folder says, after a check of what it would load.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged or too large, if it is no decoder of text, or if the
        configuration names libraries or files elsewhere.
    """
    where = folder / CONFIGURATION
    if not where.is_file():
        raise ArtifactError(
            f"{folder}: no folder of onnxruntime-genai's model builder; it has no {CONFIGURATION}"
        )
    config = read_object(where)
    model = config.get("model")
    decoder = model.get("decoder") if isinstance(model, dict) else None
    if (
        not isinstance(model, dict)
        or not isinstance(decoder, dict)
        or not isinstance(decoder.get("filename"), str)
    ):
        raise ArtifactError(f"{where}: describes no decoder of text")
    for name, value in iter_entries(config):
        if (
            name == "session_options"
            and isinstance(value, dict)
            and (more := sorted(value.keys() - _HARMLESS))
        ):
            raise ArtifactError(
                f"{where}: session option {more[0][:60]!r} may load other code or files; not loaded"
            )
        if name == "provider_options" and value not in ([], {}, "[]"):
            raise ArtifactError(
                f"{where}: made for a provider other than the CPU; build the model with -e cpu"
            )
        if "library" in name:
            raise ArtifactError(f"{where}: {name[:60]} names code to load; not loaded")
        if name.endswith("filename") and value != decoder["filename"]:
            raise ArtifactError(f"{where}: has networks beside the decoder, which are not loaded")
    network = folder / decoder["filename"]
    if network.resolve().parent != folder.resolve() or not network.is_file():
        raise ArtifactError(f"{where}: its network is no file in this folder")
    read_onnx(network).check_external()  # refuses weights outside the folder
    files = sorted(each for each in folder.iterdir() if each.name.startswith(network.name))
    ends = model.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    return GenAIFolder(
        folder,
        config,
        tuple(files),
        _get_integer(where, model, "context_length", _LONGEST_CONTEXT),
        _get_integer(where, model, "vocab_size", 1 << 24),
        tuple(each for each in ends if isinstance(each, int)),
    )


def _get_integer(where: Path, model: Mapping[str, Any], name: str, most: int) -> int:
    value = model.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise ArtifactError(f"{where}: {name} should be a number from 1 to {most:,}")
    return value


# A fixed date, so that equal models give equal files.
_DATE = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20

ZIP_ERRORS = (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
"""What :mod:`zipfile` raises if an archive is damaged."""


def write_stored(path: Path, parts: Mapping[str, bytes | Path]) -> None:
    """Write an archive of parts by name; those that are files are copied in blocks."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            info = zipfile.ZipInfo(name, _DATE)
            if isinstance(part, bytes):
                archive.writestr(info, part)
                continue
            info.file_size = part.stat().st_size  # otherwise zipfile rejects more than 2 GB
            with open(part, "rb") as source, archive.open(info, "w") as handle:
                shutil.copyfileobj(source, handle, _BLOCK)


def check_stored(path: Path, archive: zipfile.ZipFile, what: str) -> None:
    """Check that nothing is compressed or encrypted, so that the parts cannot be larger than the
    file.

    Raises
    ------
    ArtifactError
        If this is not so; ``what`` names the models that the archive should hold.
    """
    infos = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
        raise ArtifactError(f"{path}: compressed or encrypted, which {what} written here never are")
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise ArtifactError(f"{path}: damaged: its parts are larger than the whole")


# Models of onnxruntime-genai in one file, so that network, weights, configuration and tokenizer
# stay together.
#
# The model builder of onnxruntime-genai writes a folder.  nnpipe stores its files uncompressed in
# one ZIP archive, with the inputs and outputs of a session that generates with them.

GENAI = "genai"
"""The format of such an archive, as artifacts name it."""

_IO = "io.json"
_LARGEST_IO = 1 << 20


def write_genai_archive(path: Path, folder: Path, io: IOSpec) -> None:
    """Write the files of a folder, without those of its own folders, to one archive."""
    files = {each.name: each for each in sorted(folder.iterdir()) if each.is_file()}
    write_stored(path, {_IO: json.dumps(io.to_json()).encode(), **files})


def read_genai_io(path: Path) -> IOSpec:
    """Return the inputs and outputs that an archive states.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    return _read_genai_archive(path, None)


def unpack_genai_archive(path: Path, folder: Path) -> IOSpec:
    """Write the files of an archive to an empty folder, and return the inputs and outputs that it
    states.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or of another format; the message names it.
    """
    return _read_genai_archive(path, folder)


def _read_genai_archive(path: Path, folder: Path | None) -> IOSpec:
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    try:
        with zipfile.ZipFile(path) as archive:
            check_stored(path, archive, "models of onnxruntime-genai")
            infos = {info.filename: info for info in archive.infolist()}
            if _IO not in infos or len(infos) > _MOST_FILES or infos[_IO].file_size > _LARGEST_IO:
                raise ArtifactError(
                    f"{path}: an archive, but not of a model of onnxruntime-genai; build it with "
                    f"nnpipe"
                )
            io = IOSpec.from_json(parse_json(archive.read(_IO)))
            tokens = next(
                (spec.shape[-1] for spec in io.outputs if spec.name == TOKENS and spec.shape), None
            )
            if tokens is None or io != build_generation_io(tokens):
                raise ArtifactError(
                    f"{path}: does not state the inputs and outputs of a model that generates text"
                )
            for name in infos if folder is not None else ():
                if Path(name).name != name or "\\" in name or name in (".", ".."):
                    raise ArtifactError(
                        f"{path}: its entry {name[:60]!r} is no file of a flat folder"
                    )
                assert folder is not None
                with archive.open(name) as source, open(folder / name, "xb") as to:
                    shutil.copyfileobj(source, to, _BLOCK)
            return io
    except (SpecMismatch, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{path}: its description of inputs and outputs is damaged: {error}"
        ) from None
    except ZIP_ERRORS as error:
        cause = error or type(error).__name__
        raise ArtifactError(f"{path}: damaged, or no model of onnxruntime-genai: {cause}") from None


TRANSFORMERS_CONFIGURATION = "config.json"
_MOST_LAYERS, _GREATEST = 1024, 1 << 31
_WHOLE = 384  # pixels; images of this size and above are not cropped
_COUNTS = ("layer", "depth", "block", "stage")


@dataclass(frozen=True)
class TransformersFolder:
    """The configuration, the image preprocessing and the weight files of a folder."""

    path: Path
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any]
    weights: tuple[Path, ...]

    @property
    def size(self) -> int:
        """The size of all weight files together, in bytes."""
        return sum(path.stat().st_size for path in self.weights)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the images, by the configuration or the preprocessing; ``None`` if
        neither says them.
        """
        cropped = (
            self.preprocessor.get("crop_size") if self.preprocessor.get("do_center_crop") else None
        )
        said = (
            _parse_size(value)
            for value in (self.config.get("image_size"), cropped, self.preprocessor.get("size"))
        )
        return next((sides for sides in said if sides), None)

    @property
    def shortest_edge(self) -> int | None:
        """The shorter side that images get before their centre is cut out, in pixels; ``None``
        if nothing is cut.
        """
        size, share = self.preprocessor.get("size"), self.preprocessor.get("crop_pct")
        edge = size.get("shortest_edge") if isinstance(size, dict) else None
        if not isinstance(edge, int) or not _is_side(edge):
            return None
        if self.preprocessor.get("do_center_crop"):
            return edge
        # as ConvNextImageProcessor does
        if isinstance(share, float) and 0 < share <= 1 and edge < _WHOLE:
            return int(edge / share)
        return None


def _is_side(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 14


def _parse_size(value: Any) -> tuple[int, int] | None:
    """Return height and width from a number, a pair, or a mapping as image processors of
    transformers write it.
    """
    if isinstance(value, dict):
        value = value.get("shortest_edge") or [value.get("height"), value.get("width")]
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    return (pair[0], pair[1]) if all(map(_is_side, pair)) else None


def read_folder(folder: Path) -> TransformersFolder:
    """Return the content of the JSON files in a folder and the paths of its weight files.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged or too large, or if the model needs its own code.
    """
    if not (folder / TRANSFORMERS_CONFIGURATION).is_file():
        raise ArtifactError(
            f"{folder}: not a folder that save_pretrained wrote; it has no "
            f"{TRANSFORMERS_CONFIGURATION}"
        )
    config = read_object(folder / TRANSFORMERS_CONFIGURATION)
    for name, value in iter_entries(config):
        if name in ("auto_map", "quantization_config", "trust_remote_code"):
            raise ArtifactError(
                f"{folder / TRANSFORMERS_CONFIGURATION}: {name} asks for additional code or "
                f"packages; not loaded"
            )
        if isinstance(value, int) and not isinstance(value, bool):
            most = _MOST_LAYERS if any(word in name for word in _COUNTS) else _GREATEST
            if abs(value) > most:
                raise ArtifactError(
                    f"{folder / TRANSFORMERS_CONFIGURATION}: {name[:60]} is {value}, more than "
                    f"{most}"
                )
    weights = tuple(sorted(folder.glob("*.safetensors")))
    if not weights:
        raise ArtifactError(
            f"{folder}: has no *.safetensors; pickled weights are not loaded, save them with "
            f"safe_serialization"
        )
    other = folder / "preprocessor_config.json"
    return TransformersFolder(
        folder, config, read_object(other) if other.is_file() else {}, weights
    )
