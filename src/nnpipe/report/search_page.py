"""The page on a search, as data."""

from __future__ import annotations

from nnpipe.report.document import Document, Section
from nnpipe.report.formatting import clean, count
from nnpipe.report.inputs.search_file import SearchFile, SearchView
from nnpipe.report.sections.search_outcome import search_method, search_outcome, search_trials
from nnpipe.report.sections.search_places import search_importance, search_places


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
        search_outcome(view),
        search_importance(found),
        search_places(view),
        search_trials(view),
        search_method(view),
    ]
    ways = ", ".join(f"{name} to {way}" for name, way in found.objectives.items())
    subtitle = (
        f"Search of {count(len(found.axes))} parameters in {count(len(found.trials))} trials: "
        f"{clean(ways, 200)}"
    )
    return Document(
        clean(title, 200) or found.title or "Search",
        tuple(each for each in sections if each is not None),
        subtitle,
    )
