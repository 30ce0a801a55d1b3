"""The layout of a storage: one folder for each kind of thing."""

from __future__ import annotations

from dataclasses import dataclass

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Shelf:
    """A top-level folder of a storage: its name, its content, and the size limit of its files in bytes."""

    name: str
    holds: str
    limit: int


SHELVES = (
    Shelf("untrained-models", "models before training, and their descriptions", 64 * _GIB),
    Shelf("training-results", "trained models, figures and reports of finished trainings", 64 * _GIB),
    Shelf("training-progress", "status and checkpoints of trainings that still run", 64 * _GIB),
    Shelf("training-scripts", "scripts that train, written by hand or generated", 16 * _MIB),
    Shelf("datasets", "data to train with", 1024 * _GIB),
    Shelf("test-data", "data to try a model with", 1024 * _GIB),
    Shelf("plugins", "Python files that read data and show results", 16 * _MIB),
)


def shelf_of(name: str) -> Shelf:
    """Return the shelf with this name.

    Raises
    ------
    ConfigError
        If there is none; the message lists the shelves.
    """
    known = {shelf.name: shelf for shelf in SHELVES}
    if name not in known:
        raise ConfigError(f"there is no shelf {name!r}{nearest(name, known) or '; there are ' + ', '.join(known)}")
    return known[name]
