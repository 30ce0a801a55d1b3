"""The verdict on several candidates: the best ones by how much, and whether the difference is more than noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnpipe.report.document import Block, Paragraph, Tile, Tiles
from nnpipe.report.formatting import count, digits, duration, share, size
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.comparability import on_the_same_samples, pairing
from nnpipe.report.inputs.pareto_front import Standing
from nnpipe.report.sections.grouping import grouped_reasons

_LEVEL = 1.05  # sizes up to this ratio count as equal


def verdict(candidates: Sequence[Candidate], standings: Mapping[int, Standing]) -> list[Block]:
    """Return tiles of the best candidates, and a paragraph that names those on the Pareto front.

    The tiles name the fastest and the most accurate candidate, the smallest one, and the one with the least memory.
    ``standings`` is the result of :func:`~nnpipe.report.inputs.pareto_front.standings`.
    """
    same = on_the_same_samples(candidates)
    most_accurate = _most_accurate(candidates) if same else None
    tiles = [_fastest(candidates), most_accurate, _smallest(candidates), _thriftiest(candidates)]
    found = tuple(tile for tile in tiles if tile is not None)
    blocks: list[Block] = [Tiles(found)] if found else []
    choice = _choice([c.name for c in candidates if c.number in standings and standings[c.number].on_front], standings)
    return [*blocks, Paragraph(choice)] if choice else blocks


def _fastest(candidates: Sequence[Candidate]) -> Tile | None:
    timed = sorted(((c, c.latency) for c in candidates if c.latency is not None), key=lambda pair: pair[1].median)
    if len(timed) < 2 or len({c.timed.name for c, _ in timed}) > 1:
        return None
    (best, latency), (second, runner_up) = timed[:2]
    mine, theirs = latency.percentile(0.5).interval, runner_up.percentile(0.5).interval
    note = f"median {duration(latency.median)}"
    slowest, slow = timed[-1]
    if mine is None or theirs is None or mine[1] >= theirs[0]:
        note += f", not clearly ahead of {second.name}"
    elif latency.median > 0:
        note += f", {digits(slow.median / latency.median, 2)} times as fast as {slowest.name}"
    return Tile("Fastest", best.name, note)


def _most_accurate(candidates: Sequence[Candidate]) -> Tile | None:
    judged = sorted(((c, c.quality) for c in candidates if c.quality is not None), key=lambda pair: -pair[1].accuracy)
    if len(judged) < 2:
        return None
    best, quality = judged[0]
    if judged[-1][1].accuracy == quality.accuracy:
        return Tile("Most accurate", "all alike", f"{share(quality.accuracy)} each")
    note = share(quality.accuracy)
    level = [c for c, other in judged[1:] if _no_clear_difference(best, c)]
    if len(level) == len(judged) - 1:
        note += ", but all others may be as good"
    elif level:
        note += f", but {level[0].name if len(level) == 1 else f'{len(level)} others'} may be as good"
    return Tile("Most accurate", best.name, note)


def _no_clear_difference(one: Candidate, two: Candidate) -> bool:
    pair = pairing(one, two)
    return pair is None or pair.low <= 0 <= pair.high


def _smallest(candidates: Sequence[Candidate]) -> Tile | None:
    return _least("Smallest", [(c, c.size) for c in candidates], "model file")


def _thriftiest(candidates: Sequence[Candidate]) -> Tile | None:
    return _least("Least memory", [(c, c.peak_memory) for c in candidates], "process at its peak")


def _least(label: str, given: Sequence[tuple[Candidate, float | None]], what: str) -> Tile | None:
    known = sorted(((c, value) for c, value in given if value is not None), key=lambda pair: pair[1])
    if len(known) < 2:
        return None
    (best, value), (_, greatest) = known[0], known[-1]
    if greatest <= _LEVEL * value:
        return None
    times = f", the largest takes {digits(greatest / value, 2)} times as much" if value > 0 else ""
    return Tile(label, best.name, f"{what} {size(value)}{times}")


def _choice(front: Sequence[str], standings: Mapping[int, Standing]) -> str:
    """Return a sentence that names the candidates on the front; the empty string if there is no front."""
    if not front:
        return ""
    if len(front) == 1:
        return f"{front[0]} is the fastest, and none is more accurate."
    if len(front) == len(standings):
        return "Each candidate has its point: none is beaten by another in both median time and accuracy."
    names = ", ".join(front[:-1]) + f" and {front[-1]}"
    return f"The choice is between {names}: every other is beaten by one of these in both median time and accuracy."


def as_source(candidate: Candidate) -> str:
    """Return how many samples agree with the model that a candidate was made from; empty if none were compared."""
    if candidate.verified_samples is None:
        return ""
    samples = f"{count(int(candidate.verified_samples))} samples"
    if candidate.same_class is None:
        return f"on {samples}"
    return f"{count(int(candidate.same_class))} of {samples}"


def departures(candidates: Sequence[Candidate]) -> list[Block]:
    """Return paragraphs about candidates whose outputs differ from their source's, or could not be compared with it."""

    def called(name: str) -> str:
        return name if len(candidates) > 1 else "This model"

    return [
        *grouped_reasons(
            [(c.name, c.verdict_reason) for c in candidates if c.verdict == "different"],
            lambda name: f"{called(name)} does not give what the model that it was made from gives: ",
            f"of {len(candidates):,} candidates do not give what the models that they were made from give.",
            "warning",
        ),
        *grouped_reasons(
            [(c.name, c.verdict_reason) for c in candidates if c.verdict == "unknown"],
            lambda name: f"{called(name)} could not be held against the model that it was made from: ",
            f"of {len(candidates):,} candidates could not be held against the models that they were made from.",
            "note",
        ),
    ]
