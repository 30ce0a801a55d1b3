"""The file that shows the graph of a compiled model."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.errors import NotSupported
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.modelwrappers.files.file_formats import format_of, wrapper_of
from nnpipe.workflows.verification.claims import described, lineage


def shown_by(path: Path) -> LiveModel:
    """Open the file that shows the graph of a file; used in a ``with`` block.

    Raises
    ------
    NotSupported
        If there is none.
    """
    wrapper, here = wrapper_showing(path)
    return wrapper.open(here)


def wrapper_showing(path: Path) -> tuple[ModelWrapper, Path]:
    """Return what opens a file, or the nearest one that it was made from that shows its graph, and that file.

    Raises
    ------
    NotSupported
        If there is none.
    """
    artifact = described(path)
    formats = (
        [(path, format_of(path))] if artifact is None else [(each.path, each.format) for each in lineage(artifact)]
    )
    for here, format in formats:
        cls = wrapper_of(format)
        if cls is not None and not cls.missing() and cls.offers("get_sized_graph") and here.exists():
            wrapper: ModelWrapper = cls.from_json({"model_path": str(here)})
            return wrapper, here
    raise NotSupported(f"{path}: neither it nor a file that it was made from shows its graph")
