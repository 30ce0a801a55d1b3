"""What the description beside a model file says of samples and outputs, and whose code it names."""

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
    """What is known of a model beside the user's options.

    Parameters
    ----------
    meaning
        As data, if it is known as such.
    maker
        The wrapper whose own code prepares samples and reads outputs, where no data say how.
    by
        Who says so; or why it cannot be known.
    """

    meaning: Meaning | None = None
    maker: ModelWrapper | None = None
    by: str = ""


def known_of(artifact: Artifact | None) -> Known:
    """Return what is known of a model from its description.

    One that says nothing, as older ones do, still names the wrapper that made
    the model.  A class is looked for among those of nnpipe and its plugins,
    and nowhere else: a description may come from a stranger.
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
        if any(declared.name in ("model_path", "network") for declared in arguments_of(cls)):
            return None
        return cls.from_json(code.get("arguments", {}))
    except (NNPipeError, ImportError, TypeError, AttributeError):
        return None
