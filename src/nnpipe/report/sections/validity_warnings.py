"""Warnings about what may have distorted the measurements or makes them incomparable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.measuring.validity_warning import OF_QUALITY
from nnpipe.report.document import Block, Paragraph, Table, Tone
from nnpipe.report.formatting import clean
from nnpipe.report.inputs.candidate import Candidate, describe_sample_differences

MOST_OPEN = 2
"""Greatest number of candidates whose sections are not folded."""

_FEW = 2  # greatest number of candidates with a paragraph each
_SHORT = 4  # greatest number of rows of a table that is not folded


def group_reasons(
    found: Sequence[tuple[str, str]], alone: Callable[[str], str], together: str, tone: Tone
) -> list[Block]:
    """Return a paragraph for each of a few candidates, or one paragraph for all with a table of the
    reasons.

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


# Facts that must be the same for times to be comparable: their paths in the host's facts, and their
# names.
_FACTS = {
    ("cpu", "model"): "CPU",
    ("cpu", "governor"): "CPU governor",
    ("cpu", "affinity"): "CPU cores allowed",
    ("cpu", "turbo"): "turbo mode",
    ("system", "machine"): "architecture",
    ("environment",): "environment variables",
    ("limits",): "limits of the container",
}
_CHANGING = ("powersave", "ondemand", "conservative", "schedutil")


def build_warning_blocks(candidates: Sequence[Candidate]) -> list[Block]:
    """Return warnings that say why figures may be wrong or not comparable; an empty list if
    there is no reason.
    """
    found = [
        _describe_time_differences(candidates),
        _describe_host_differences(candidates),
        _describe_sample_differences(candidates),
        _describe_cpu_governors(candidates),
    ]
    return [
        *(Paragraph(text, "warning") for text in found if text),
        *_build_distrust_blocks(candidates),
    ]


def _describe_host_differences(candidates: Sequence[Candidate]) -> str:
    names = [
        name
        for path, name in _FACTS.items()
        if len({clean(_get_nested(c.run.host, path)) for c in candidates}) > 1
    ]
    if not names:
        return ""
    return (
        f"The candidates were not measured under the same conditions ({', '.join(names)} differ), "
        "so their times differ for more reasons than the candidates themselves."
    )


def _describe_time_differences(candidates: Sequence[Candidate]) -> str:
    kinds = dict.fromkeys(c.timed.title for c in candidates if c.latency is not None)
    if len(kinds) < 2:
        return ""
    return f"Times do not count alike for all ({', '.join(kinds)}), so they cannot be compared."


def _describe_sample_differences(candidates: Sequence[Candidate]) -> str:
    return describe_sample_differences([(c.name, c.quality) for c in candidates])


def _build_distrust_blocks(candidates: Sequence[Candidate]) -> list[Block]:
    return [
        *_build_distrust_blocks_for(candidates, "predictions", True),
        *_build_distrust_blocks_for(candidates, "times", False),
    ]


def _build_distrust_blocks_for(
    candidates: Sequence[Candidate], what: str, of_quality: bool
) -> list[Block]:
    reasons = []
    kinds: Counter[str] = Counter()
    for candidate in candidates:
        doubts = [doubt for doubt in candidate.doubts if (doubt.kind in OF_QUALITY) == of_quality]
        text = "; ".join(f"{doubt.kind}: {clean(doubt.reason, 600)}" for doubt in doubts)
        if text:
            reasons.append((candidate.name, text[0].upper() + text[1:]))
        kinds.update({doubt.kind for doubt in doubts})
    counted = ", ".join(f"{kind} ({number:,})" for kind, number in kinds.most_common())
    several = len(candidates) > 1
    return group_reasons(
        reasons,
        lambda name: (
            f"There is reason to distrust "
            f"{f'the {what} of {name}' if several else f'these {what}'}. "
        ),
        f"of {len(candidates):,} candidates have {what} that there is reason to distrust: "
        f"{counted}.",
        "warning",
    )


def _describe_cpu_governors(candidates: Sequence[Candidate]) -> str:
    governors = [_get_nested(c.run.host, ("cpu", "governor")) for c in candidates]
    names = sorted({g for g in governors if isinstance(g, str) and g in _CHANGING})
    if not names:
        return ""
    return (
        f"The CPU governor was {' or '.join(names)}, which changes the clock rate as it sees fit; "
        "with 'performance' times scatter less."
    )


def _get_nested(host: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = host
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
