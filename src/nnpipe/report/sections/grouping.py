"""Group candidates of which the same is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnpipe.report.document import Block, Paragraph, Table, Tone

MOST_OPEN = 2
"""So many candidates at most are told one by one without being asked."""

_FEW = 2  # candidates of whom it is said one by one
_SHORT = 4  # rows of a table that need not be folded


def gathered(found: Sequence[tuple[str, str]], alone: Callable[[str], str], together: str, tone: Tone) -> list[Block]:
    """Say something of each candidate, or of all together with a table of the reasons.

    Parameters
    ----------
    found
        Names of candidates, and for each the reason, a clause without a full stop.
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
