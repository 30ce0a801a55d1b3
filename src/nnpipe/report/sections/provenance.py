"""The provenance section: machine, packages, commands, components and model files, for repeating
the measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nnpipe.report.document import Block, CommandLine, Paragraph, Section, Table
from nnpipe.report.formatting import NOTHING, clean, format_size, shorten
from nnpipe.report.inputs.candidate import Candidate, get_class_name, list_role_components
from nnpipe.report.sections.validity_warnings import MOST_OPEN

_DEPTH, _FACTS, _LENGTH = 4, 200, 300
_ANCESTORS = 20
_BESIDE = 12  # greatest number of candidates with a column each


def build_provenance_section(candidates: Sequence[Candidate]) -> Section:
    """Return the section: first what all candidates share, then each candidate."""
    blocks: list[Block] = [
        *_build_fact_tables(
            "Machine", [dict(flatten_facts(c.run.host)) for c in candidates], candidates
        ),
        *_build_fact_tables(
            "Packages", [dict(flatten_facts(c.run.frameworks)) for c in candidates], candidates
        ),
    ]
    if len(candidates) == 1:
        return Section("Provenance", (*_build_origin_blocks(candidates[0]), *blocks))
    folded = len(candidates) > MOST_OPEN
    own = _build_own_fact_tables(candidates) if len(candidates) > _BESIDE else {}
    parts = (
        Section(c.name, (*_build_origin_blocks(c), *own.get(c.number, ())), folded, c.made_of)
        for c in candidates
    )
    return Section("Provenance", (*blocks, *parts))


def _build_origin_blocks(candidate: Candidate) -> Iterator[Block]:
    run = candidate.run
    yield Paragraph(f"Measured {clean(run.created, 60) or 'at an unknown time'} by this command:")
    yield CommandLine(" ".join(_quote_shell_word(word) for word in run.command) or NOTHING)
    if read := [
        clean(note, 600)
        for note in islice(list_role_components(run.preparation.get("read")), _BESIDE)
    ]:
        yield Paragraph(f"The data were read so: {'; '.join(read)}.")
    rows = [
        (
            clean(role, 40),
            get_class_name(part),
            _format_arguments(part),
            clean(part.get("class", "")) if isinstance(part, Mapping) else "",
        )
        for role, parts in run.components.items()
        for part in list_role_components(parts)
    ]
    if rows:
        yield Table(
            ("Role", "Component", "Arguments", "Class"),
            tuple(rows),
            caption="Components",
            folded=True,
        )
    ancestry = tuple(_iter_ancestors(run.artifact))
    if ancestry:
        header = ("Model file", "Format", "Target", "Made by", "SHA-256")
        yield Table(
            header, ancestry, caption="Where the model comes from, newest first", folded=True
        )
    else:
        yield Paragraph("No model file was recorded.", "note")


def _format_arguments(part: Any) -> str:
    arguments = part.get("arguments") if isinstance(part, Mapping) else None
    if not isinstance(arguments, Mapping):
        return ""
    return clean(", ".join(f"{name}={value}" for name, value in flatten_facts(arguments)), 2000)


def _iter_ancestors(artifact: Any) -> Iterator[tuple[str, ...]]:
    for _ in range(_ANCESTORS):
        if not isinstance(artifact, Mapping) or not artifact:
            return
        producer = artifact.get("producer")
        maker = get_class_name(producer) if isinstance(producer, Mapping) and producer else NOTHING
        yield (
            clean(artifact.get("path", NOTHING), 200),
            clean(artifact.get("format", NOTHING), 40),
            clean(artifact.get("target", NOTHING), 60),
            maker,
            clean(artifact.get("sha256", NOTHING), 64),
        )
        parents = list_role_components(artifact.get("parent") or artifact.get("parents"))
        artifact = parents[0] if parents else None


def _build_fact_tables(
    what: str, facts: Sequence[Mapping[str, str]], candidates: Sequence[Candidate]
) -> Iterator[Block]:
    """Yield a table of the facts that are the same for all candidates, and a table of those that
    differ.
    """
    names = list(dict.fromkeys(name for found in facts for name in found))
    same = [name for name in names if len({found.get(name) for found in facts}) == 1]
    differing = [name for name in names if name not in same]
    if same:
        caption = what if len(candidates) == 1 else f"{what}, the same for all candidates"
        yield Table(
            ("Fact", "Value"),
            tuple((name, facts[0][name]) for name in same),
            caption=caption,
            folded=True,
        )
    if differing and len(candidates) > _BESIDE:
        yield Paragraph(
            f"{what}, where the candidates differ: {', '.join(differing)}; told of each below.",
            "note",
        )
    elif differing:
        rows = tuple((name, *(found.get(name, NOTHING) for found in facts)) for name in differing)
        header = ("Fact", *(c.name for c in candidates))
        yield Table(header, rows, caption=f"{what}, where the candidates differ", folded=True)
    if not names:
        yield Paragraph(f"{what}: nothing was recorded.", "note")


def _build_own_fact_tables(candidates: Sequence[Candidate]) -> dict[int, list[Block]]:
    """Return a table for each candidate number with the facts in which the candidates differ.

    It is used if there are too many candidates for a column each.
    """
    facts = [
        dict(flatten_facts({"machine": c.run.host, "packages": c.run.frameworks}))
        for c in candidates
    ]
    names = list(dict.fromkeys(name for found in facts for name in found))
    differing = [name for name in names if len({found.get(name) for found in facts}) > 1]
    if not differing:
        return {}
    caption = "Machine and packages, where the candidates differ"
    return {
        c.number: [
            Table(
                ("Fact", "Value"),
                tuple((n, own.get(n, NOTHING)) for n in differing),
                caption=caption,
                folded=True,
            )
        ]
        for c, own in zip(candidates, facts, strict=True)
    }


def flatten_facts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as ``outer.inner`` and text; number, depth and length
    are limited.
    """
    return islice(_iter_leaves(value, "", _DEPTH), _FACTS)


def _iter_leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            yield from _iter_leaves(
                inner, f"{name}.{clean(key, 60)}" if name else clean(key, 60), depth - 1
            )
    elif isinstance(value, (list, tuple)):
        yield (
            name,
            clean(", ".join(clean(part, _LENGTH) for part in value[:_FACTS]), _LENGTH) or NOTHING,
        )
    elif name.endswith("_bytes") and type(value) is int and 0 <= value < 1 << 63:
        yield name, format_size(value)
    else:
        yield name, _format_word(value)


def _format_word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NOTHING if value is None else clean(value, _LENGTH) or NOTHING


def _quote_shell_word(word: str) -> str:
    """Return a word quoted for a shell; words of plain characters stay unquoted."""
    word = shorten(clean(word, _LENGTH), _LENGTH)
    if word and all(c.isalnum() or c in "@%+=:,./-_" for c in word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
