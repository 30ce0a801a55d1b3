"""The meaning of inputs and outputs in the description beside a model file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nnpipe.core.arguments import arguments_of
from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.errors import NNPipeError
from nnpipe.core.meaning import Meaning
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import registered


@dataclass(frozen=True)
class Known:
    """Facts about a model from sources other than the user's options.

    Parameters
    ----------
    meaning
        The meaning of inputs and outputs, if it is known as data.
    maker
        The wrapper whose code prepares samples and reads outputs, if the meaning is not known as data.
    by
        The source of these facts, or the reason why they are not known.
    """

    meaning: Meaning | None = None
    maker: ModelWrapper | None = None
    by: str = ""


def known_of(artifact: Artifact | None) -> Known:
    """Return the facts about a model from its description.

    An older description without a meaning still names the wrapper that made the
    model.  The class is searched among those of nnpipe and its plugins only,
    because a description is not trusted.
    """
    if artifact is None:
        return Known()
    by = str(sidecar_of(artifact.path))
    said = artifact.meaning
    if said is not None and said.code is None:
        return Known(said, by=by)
    code = artifact.exported.producer if said is None else said.code
    maker = _made(code or {})
    if maker is None:
        name = str((code or {}).get("class", ""))[:200]
        return Known(by=f"it was made by {name}, which is not installed here" if name and said is not None else "")
    if maker.meaning is not None:
        return Known(maker.meaning, by=by)
    return Known(said and Meaning(outputs=said.outputs, code=said.code), maker, f"{by}: {maker.dotted_path()}")


def _made(code: Any) -> ModelWrapper | None:
    try:
        cls = registered(str(code.get("class", "")), ModelWrapper)
        # A wrapper around a file would read whatever file the description names.
        if any(
            declared.name in ("model_path", "network", "model_folder", "architecture") for declared in arguments_of(cls)
        ):
            return None
        return cls.from_json(code.get("arguments", {}))
    except (NNPipeError, ImportError, TypeError, AttributeError):
        return None
