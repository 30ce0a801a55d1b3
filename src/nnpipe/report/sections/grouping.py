"""Grouping of candidates with the same kind of remark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnpipe.report.document import Block, Paragraph, Table, Tone

MOST_OPEN = 2
"""Greatest number of candidates whose sections are not folded."""

_FEW = 2  # greatest number of candidates with a paragraph each
_SHORT = 4  # greatest number of rows of a table that is not folded


def grouped_reasons(
    found: Sequence[tuple[str, str]], alone: Callable[[str], str], together: str, tone: Tone
) -> list[Block]:
    """Return a paragraph for each of a few candidates, or one paragraph for all with a table of the reasons.

    Parameters
    ----------
    found
        The name of each candidate and its reason, a clause without a full stop.
    alone
        Returns the beginning of the sentence about a candidate; the reason follows it.
    together
        The end of the sentence about all candidates; it follows their number.
    tone
        The tone of the paragraphs.
    """
    if len(found) <= _FEW:
        return [Paragraph(f"{alone(name)}{reason}.", tone) for name, reason in found]
    return [
        Paragraph(f"{len(found):,} {together}", tone),
        Table(
            ("Candidate", "Reason"),
            tuple(found),
            sortable=True,
            caption=f"The reasons, for each of the {len(found):,}",
            folded=len(found) > _SHORT,
        ),
    ]
