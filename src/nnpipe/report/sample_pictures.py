"""Pictures and curves of the samples with which models did worst, as results keep them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.task import Task
from nnpipe.measuring.sample_pictures import CURVE, LARGEST, PICTURE
from nnpipe.report.charts import BoxedFrame, Line, Lines
from nnpipe.report.document import Block, Paragraph, Plot, Section
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.candidate import Candidate

_MOST = 12  # samples of a candidate
_CANDIDATES = 4
_JPEG = b"\xff\xd8\xff"
_SIDE = 1 << 12  # pixels of a picture that a result may claim


def picture_of(found: Evaluation, number: int) -> bytes:
    """Return the JPEG file of a sample; nothing if the result keeps none, or what it keeps is none."""
    rows = found.ragged.get(PICTURE)
    if rows is None or rows.values.dtype != np.uint8 or rows.values.ndim != 1:
        return b""
    content = rows[number].tobytes() if rows.counts[number] <= LARGEST else b""
    return content if content.startswith(_JPEG) else b""


def worst_samples(task: Task, candidates: Sequence[Candidate]) -> Section | None:
    """Return a section with the worst samples of the first candidates that keep some; ``None`` if none does."""
    parts: list[Block] = []
    for candidate in candidates:
        quality = candidate.quality
        if quality is None or quality.task.name != task.name or len(parts) == _CANDIDATES:
            continue
        if plots := _plots(task, candidate, quality.evaluation):
            parts.append(Section(candidate.name, plots, folded=bool(parts)))
    if not parts:
        return None
    first = Paragraph("The samples with which the model did worst, the worst one first.")
    blocks = parts[0].blocks if len(parts) == 1 and isinstance(parts[0], Section) else tuple(parts)
    return Section("Worst samples", (first, *blocks))


def _plots(task: Task, candidate: Candidate, found: Evaluation) -> tuple[Plot, ...]:
    kept = np.zeros(len(found), bool)
    for name in (PICTURE, CURVE):
        if name in found.ragged:
            kept |= found.ragged[name].counts > 0
    if not kept.any():
        return ()
    errors = task.sample_errors(found)
    places = np.flatnonzero(kept)
    if errors is not None:
        places = places[np.argsort(-np.nan_to_num(errors[places]), kind="stable")]
    plots = []
    for number in places[:_MOST].tolist():
        chart = _chart(found, number)
        if chart is None:
            continue
        told = clean(task.sample_words(found, number), 160)
        what = f"{candidate.name}, sample {number + 1:,}" + (f": {told}" if told else "")
        name, photo = f"{candidate.number + 1}-worst-{number + 1}", isinstance(chart, BoxedFrame)
        plots.append(Plot(chart, name, what, f"{what}.", small=photo))
    return tuple(plots)


def _chart(found: Evaluation, number: int) -> BoxedFrame | Lines | None:
    if content := picture_of(found, number):
        height, width = _size_of(content)
        return BoxedFrame(width, height, (), content) if height else None
    if CURVE not in found.ragged:
        return None
    rows = found.ragged[CURVE][number].astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows) or not np.isfinite(rows).all():
        return None
    middle = rows.mean(axis=1)
    return Lines(
        "part of the sample in %", "value",
        (Line("", np.linspace(0, 100, len(rows)), middle, rows[:, 0], rows[:, 1]),),
    )  # fmt: skip


def _size_of(content: bytes) -> tuple[float, float]:
    """Return height and width that a JPEG file states (ITU-T T.81, B.2.2); 0 if it states none."""
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        kind, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4], "big")
        if 0xC0 <= kind <= 0xC3:
            height, width = (int.from_bytes(content[place + n : place + n + 2], "big") for n in (5, 7))
            return (float(height), float(width)) if 0 < height <= _SIDE and 0 < width <= _SIDE else (0.0, 0.0)
        place += 2 + length
    return 0.0, 0.0
