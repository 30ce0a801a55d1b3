"""The components that take part in a run: their frameworks, their handicaps, their descriptions."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError
from nnpipe.core.native_output import native_output_held
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime


def handicaps(parties: Mapping[str, Component | Sequence[Component]], artifact: Artifact | None) -> list[str]:
    """Return what keeps those who take part, and those who made the model, from the speed that they are made for."""
    found: dict[str, None] = {}
    for party in parties.values():
        for component in [party] if isinstance(party, Component) else party:
            found |= dict.fromkeys(component.handicaps())
    while artifact is not None:
        found |= dict.fromkeys(artifact.handicaps())
        with contextlib.suppress(NNPipeError, KeyError):  # whoever made the file may not be known here
            maker = find(artifact.producer["class"], Component)
            found |= dict.fromkeys(maker.from_json(artifact.producer["arguments"]).handicaps())
        artifact = artifact.parent
    return list(found)


def described(party: Component | Sequence[Component]) -> Any:
    """Return the description of a component, or a list of descriptions of several."""
    return party.describe() if isinstance(party, Component) else [each.describe() for each in party]


def import_frameworks(party: Component | Sequence[Component]) -> None:
    """Import the packages that a component needs and its framework; what is missing is left to the component to say."""
    for need in party.requires if isinstance(party, Component) else ():
        for name in need.split("|"):
            try:
                with native_output_held():  # frameworks greet the terminal from C++
                    importlib.import_module(name)
            except ModuleNotFoundError:  # open_session says better what is missing
                continue
            break
    if isinstance(party, Runtime):
        with contextlib.suppress(ImportError), native_output_held():
            party.import_framework()
