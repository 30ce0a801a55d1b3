"""The reader of folders that the model builder of onnxruntime-genai writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import entries, read_object
from nnpipe.core.errors import ArtifactError
from nnpipe.formats.onnx import read_onnx

CONFIGURATION = "genai_config.json"
_HARMLESS = frozenset({"log_id", "provider_options", "intra_op_num_threads", "graph_optimization_level"})
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
        If a file is missing, damaged or too large, if it is no decoder of text, or if the configuration names libraries
        or files elsewhere.
    """
    where = folder / CONFIGURATION
    if not where.is_file():
        raise ArtifactError(f"{folder}: no folder of onnxruntime-genai's model builder; it has no {CONFIGURATION}")
    config = read_object(where)
    model = config.get("model")
    decoder = model.get("decoder") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(decoder, dict) or not isinstance(decoder.get("filename"), str):
        raise ArtifactError(f"{where}: describes no decoder of text")
    for name, value in entries(config):
        if name == "session_options" and isinstance(value, dict) and (more := sorted(value.keys() - _HARMLESS)):
            raise ArtifactError(f"{where}: session option {more[0][:60]!r} may load other code or files; not loaded")
        if name == "provider_options" and value not in ([], {}, "[]"):
            raise ArtifactError(f"{where}: made for a provider other than the CPU; build the model with -e cpu")
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
        folder, config, tuple(files), _whole(where, model, "context_length", _LONGEST_CONTEXT),
        _whole(where, model, "vocab_size", 1 << 24), tuple(each for each in ends if isinstance(each, int)),
    )  # fmt: skip


def _whole(where: Path, model: Mapping[str, Any], name: str, most: int) -> int:
    value = model.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise ArtifactError(f"{where}: {name} should be a number from 1 to {most:,}")
    return value
