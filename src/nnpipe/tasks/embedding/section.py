"""The embedding section: the metrics, and the queries that found what they should last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table
from nnpipe.report.formatting import NOTHING, clean
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.validity_warnings import MOST_OPEN
from nnpipe.report.task_section import TaskSection, build_metrics_section
from nnpipe.tasks.embedding.metrics import DEPTH, GALLERY, QUERY
from nnpipe.tasks.embedding.task import EmbeddingSearch

_WORST = 20


class EmbeddingSection(TaskSection):
    """Shows recall and precision, and the worst queries of each candidate."""

    task = EmbeddingSearch.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged embeddings have no table of queries."""
        table = build_metrics_section(EmbeddingSearch(), candidates)
        judged = [
            (c, c.quality.evaluation)
            for c in candidates
            if c.quality and c.quality.task.name == self.task
        ]
        parts: list[Block] = list(table.blocks)
        if judged:
            parts.append(_describe_queries(judged[0][1]))
        if len(judged) == 1:
            parts.append(_build_worst_table(judged[0][1]))
        else:
            folded = len(judged) > MOST_OPEN
            parts += [
                Section(c.name, (_build_worst_table(evaluation),), folded)
                for c, evaluation in judged
            ]
        return Section(table.title, tuple(parts))


def _describe_queries(found: Evaluation) -> Paragraph:
    role, relevant = found.arrays["role"], found.arrays["relevant"]
    queries = role != GALLERY
    lost = int((queries & (relevant == 0)).sum())
    distance = found.settings.get("distance", "cosine")
    text = (
        f"{int(queries.sum()):,} queries search a gallery of {int((role != QUERY).sum()):,} "
        f"samples by {distance} "
        "distance; a sample of another class at the same distance is ranked first."
    )
    if lost:
        text += f" {lost:,} queries have no sample of their class in the gallery and do not count."
    return Paragraph(text)


def _build_worst_table(found: Evaluation) -> Block:
    rows = found.ragged["ranks"]
    first = np.full(len(found), DEPTH + 1)
    there = np.flatnonzero(rows.counts > 0)
    first[there] = rows.values[(np.cumsum(rows.counts) - rows.counts)[there]]
    asked = (found.arrays["role"] != GALLERY) & (found.arrays["relevant"] > 0) & (first > 1)
    missing = np.zeros(len(found))
    margin = np.nan_to_num(found.arrays.get("margin", missing).astype(np.float64))
    chosen = np.flatnonzero(asked)
    chosen = chosen[np.lexsort((chosen, margin[chosen], -first[chosen]))][:_WORST]
    if not len(chosen):
        return Paragraph("Every query finds a sample of its class first.")
    wrong, mistaken = (
        found.arrays.get(name, np.full(len(found), -1)) for name in ("wrong", "mistaken")
    )
    lines = tuple(
        (
            Cell(f"{place:,}", float(place)),
            _format_class_name(found, int(found.arrays["truth"][place])),
            Cell(
                f"{first[place]:,}" if first[place] <= DEPTH else f"beyond {DEPTH}",
                float(first[place]),
            ),
            Cell(f"{wrong[place]:,}", float(wrong[place])) if wrong[place] >= 0 else Cell(NOTHING),
            _format_class_name(found, int(mistaken[place])) if wrong[place] >= 0 else NOTHING,
            Cell(f"{-margin[place]:.4g}", float(-margin[place])),
        )
        for place in chosen
    )
    header = (
        "Query",
        "Class",
        "Rank of the first of its class",
        "Nearest of another class",
        "Its class",
        "Nearer by",
    )
    caption = (
        f"The {len(chosen)} worst of {int(asked.sum()):,} queries that find another class first. "
        f"Queries and samples "
        "are numbered from 0 in the order in which they were measured; nearer by: how much more "
        "similar the sample of another class is"
    )
    return Table(header, lines, sortable=True, caption=caption)


def _format_class_name(found: Evaluation, number: int) -> str:
    names = found.class_names
    return clean(names[number], 80) if 0 <= number < len(names) else f"class {number}"
