"""The source files of the classes of models and data sets."""

from __future__ import annotations

import inspect
from pathlib import Path

from nnpipe.core.component import Component


def find_source_files(*components: Component) -> list[Path]:
    """Return the source files of the components' classes, each once; none for classes defined
    without a file.
    """
    found = []
    for component in components:
        try:
            path = Path(inspect.getfile(type(component)))
        except (TypeError, OSError):
            continue
        if path.is_file():
            found.append(path)
    return list(dict.fromkeys(found))
