"""The page on a search, as data."""

from __future__ import annotations

from nnpipe.report.document import Document, Section
from nnpipe.report.formatting import clean, format_count
from nnpipe.report.inputs.search_file import SearchFile, SearchView
from nnpipe.report.sections.search_outcome import (
    build_search_outcome_section,
    search_method,
    search_trials,
)
from nnpipe.report.sections.search_space import build_importance_section, build_search_space_section


def search_page(found: SearchFile, title: str = "") -> Document:
    """Return a report on a search.

    Parameters
    ----------
    found
        The content of the search's file.
    title
        The title of the report; by default that of the search.
    """
    view = SearchView(found)
    sections: list[Section | None] = [
        build_search_outcome_section(view),
        build_importance_section(found),
        build_search_space_section(view),
        search_trials(view),
        search_method(view),
    ]
    ways = ", ".join(f"{name} to {way}" for name, way in found.objectives.items())
    subtitle = (
        f"Search of {format_count(len(found.axes))} parameters in "
        f"{format_count(len(found.trials))} trials: {clean(ways, 200)}"
    )
    return Document(
        clean(title, 200) or found.title or "Search",
        tuple(each for each in sections if each is not None),
        subtitle,
    )
