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
from nnpipe.core.secret import shown_settings


def handicaps(parties: Mapping[str, Component | Sequence[Component]], artifact: Artifact | None) -> list[str]:
    """Return the handicaps of the components of a run and of the components that made its model."""
    found: dict[str, None] = {}
    for party in parties.values():
        for component in [party] if isinstance(party, Component) else party:
            found |= dict.fromkeys(component.handicaps())
    while artifact is not None:
        found |= dict.fromkeys(artifact.handicaps())
        with contextlib.suppress(NNPipeError, KeyError):  # the component that made the file may not be installed here
            maker = find(artifact.producer["class"], Component)
            found |= dict.fromkeys(maker.from_json(artifact.producer["arguments"]).handicaps())
        artifact = artifact.parent
    return list(found)


def described(party: Component | Sequence[Component]) -> Any:
    """Return the description of a component, or a list of descriptions of several, without their secrets."""
    found = party.describe() if isinstance(party, Component) else [each.describe() for each in party]
    return shown_settings(found)


def import_frameworks(party: Component | Sequence[Component]) -> None:
    """Import the packages and the framework of a component; a missing package is ignored here."""
    for need in party.requires if isinstance(party, Component) else ():
        for name in need.split("|"):
            try:
                with native_output_held():  # frameworks print notices from C++ when imported
                    importlib.import_module(name)
            except ModuleNotFoundError:  # open_session gives a better message about a missing package
                continue
            break
    if isinstance(party, Component):
        with contextlib.suppress(ImportError), native_output_held():
            party.import_framework()
