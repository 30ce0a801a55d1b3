"""Find reasons to distrust a model's quality metrics: unsuitable samples, or predictions without
information.

Doubts change nothing: each describes an observation.  What a task finds in its predictions comes
from :meth:`nnpipe.core.task.Task.doubts`; the limits of the others are defined below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from nnpipe.core.task import task_of
from nnpipe.measuring.doubt import Doubt, Kind

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

CLIPPED = 0.01
"""The share of numbers that may lie outside the range of an input."""

UNUSED = 0.125
"""The share of the model's expected range that samples must fill."""

SPREAD, SHIFT = 8.0, 2.0
"""The largest ratio of the variances of observed and training data at the first normalisation, or
its inverse, and the largest distance of the means in standard deviations.
"""

SCALED = (0.125, 32.0)
"""The accepted distance of the least and greatest number after a model's own rescaling of its
input.
"""


def quality_doubts(run: Run) -> tuple[Doubt, ...]:
    """Return the reasons to distrust the predictions of a run; empty if none is found."""
    return (
        *_of_preparation(run.preparation),
        *_of_saturation(run),
        *_of_predictions(run),
        *_of_agreement(run),
    )


def prepared_unknown(run: Run) -> bool:
    """Return whether it is unknown how samples are to be prepared."""
    return run.preparation.get("source") == "unknown"


def _of_preparation(preparation: Mapping[str, Any]) -> Iterator[Doubt]:
    if preparation.get("source") == "unknown":
        arrived = [
            _pair(_mapping(each).get("sample_range"))
            for each in _mapping(preparation.get("arrived")).values()
        ]
        ends = f" ({_range(arrived[0])})" if len(arrived) == 1 and arrived[0] else ""
        yield Doubt(
            "preprocessing",
            f"preprocessing not known: nothing says what the model wants of samples, which went in "
            f"as they are{ends}; "
            "say it with --scale, --mean and --deviation (--scale 1: as they are)",
        )
    overridden = _mapping(preparation.get("overridden"))
    if overridden:
        told = "; ".join(
            f"{str(name)[:40]}: {_shown(pair)}" for name, pair in list(overridden.items())[:8]
        )
        yield Doubt("overridden", f"other than the model's description says ({told})")
    meaning = _mapping(preparation.get("meaning"))
    listed = meaning.get("inputs")
    said = (
        {each.get("name"): each for each in listed if isinstance(each, Mapping)}
        if isinstance(listed, list)
        else {}
    )
    for name, arrived in _mapping(preparation.get("arrived")).items():
        yield from _of_input(str(name)[:60], _mapping(arrived), _mapping(said.get(name)))
    yield from _of_normalisation(_mapping(preparation.get("first_normalisation")))
    yield from _of_rescaling(_mapping(preparation.get("first_rescaling")))


def _of_input(name: str, arrived: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[Doubt]:
    beyond, used, holds = (
        _number(arrived.get("beyond")),
        _number(arrived.get("used")),
        _pair(arrived.get("holds")),
    )
    numbers, samples = _pair(arrived.get("numbers")), _pair(arrived.get("sample_range"))
    if holds and beyond is not None and beyond > CLIPPED:
        yield Doubt(
            "range",
            f"{100 * beyond:.3g} % of what arrives at {name!r} is beyond {_range(holds)}, which it "
            f"can hold",
        )
    elif holds and used is not None and used < UNUSED and said.get("quantised", "auto") == "auto":
        yield Doubt(
            "range",
            f"what arrives at {name!r} fills {100 * used:.2g} % of {_range(holds)}, which it was "
            f"quantised for",
        )
    else:
        yield from _misfit(name, samples, _pair(said.get("sample_range")), "samples for", "made")
        yield from _misfit(
            name, numbers, _pair(said.get("observed_range")), "what arrives at", "calibrated"
        )
    twice = (
        arrived.get("sample_dtype") in ("int8", "int16") and said.get("quantised", "auto") == "auto"
    )
    if twice and (holds or arrived.get("taken_dtype")):
        yield Doubt(
            "quantised twice",
            f"{arrived['sample_dtype']} samples are quantised once more for {name!r}: if they are "
            f"quantised already, "
            "--quantised-input already says so",
        )


def _of_normalisation(found: Mapping[str, Any]) -> Iterator[Doubt]:
    spread, shift = _number(found.get("spread")), _number(found.get("shift"))
    if spread is None or shift is None or (1 / SPREAD <= spread <= SPREAD and shift <= SHIFT):
        return
    yield Doubt(
        "range",
        f"what arrives at the first normalisation ({str(found.get('name'))[:60]!r}) has "
        f"{spread:.3g} times the variance of what the model was trained on, and means that lie "
        f"{shift:.2g} standard deviations away",
    )


def _of_rescaling(found: Mapping[str, Any]) -> Iterator[Doubt]:
    arrived, scaled = _pair(found.get("arrived")), _pair(found.get("scaled"))
    if arrived is None or scaled is None or SCALED[0] <= scaled[1] - scaled[0] <= SCALED[1]:
        return
    how = "scaled already" if scaled[1] - scaled[0] < SCALED[0] else "larger than it is made for"
    yield Doubt(
        "range",
        f"the model scales its input itself ({str(found.get('name'))[:60]!r}) and makes "
        f"{_range(scaled)} of what arrives, which goes from {_range(arrived)}: it looks {how}",
    )


def _misfit(
    name: str,
    have: tuple[float, float] | None,
    made: tuple[float, float] | None,
    what: str,
    how: str,
) -> Iterator[Doubt]:
    if have is None or made is None or made[0] == made[1]:
        return
    width = made[1] - made[0]
    beyond = max(made[0] - have[0], have[1] - made[1])
    if beyond > width or (have[1] - have[0]) < UNUSED * width:
        yield Doubt(
            "range",
            f"{what} {name!r} go from {_range(have)}, the model was {how} for {_range(made)}",
        )


def _of_saturation(run: Run) -> Iterator[Doubt]:
    if _mapping(run.timing.get("session")).get("saturating_integers") is True and _has_full_weights(
        run.artifact
    ):
        yield Doubt(
            "saturation",
            "sums of 8-bit products may saturate in the kernels used on this processor; weights of "
            "7 bits avoid that (--reduce-range of the quantisers for ONNX, --overflow-fix enable "
            "of OpenVINOCompiler)",
        )


def _has_full_weights(artifact: Any) -> bool:
    """Return whether a model, or one that it was made from, was quantised to 8-bit integers, and
    not to 7 bits.
    """
    while isinstance(artifact, Mapping):
        claims, bits = artifact.get("claims"), _mapping(artifact.get("outcome")).get("weight_bits")
        if bits == 8 or (bits is None and isinstance(claims, list | tuple) and "int8" in claims):
            return True
        artifact = artifact.get("parent")
    return False


def _of_predictions(run: Run) -> Iterator[Doubt]:
    task = None if run.evaluation is None else task_of(run.evaluation)
    if task is None or run.evaluation is None:
        return
    if clause := run.evaluation.not_finite_words():
        yield Doubt("not finite", f"{clause}, and count as the worst answer")
    for kind, reason in task.doubts(run.evaluation):
        yield Doubt(cast("Kind", kind), reason)


def _of_agreement(run: Run) -> Iterator[Doubt]:
    if run.verification.get("verdict") == "different":
        reason = str(run.verification.get("reason", ""))[:300]
        yield Doubt(
            "different", f"its outputs are not those of the model that it was made from: {reason}"
        )


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def _shown(pair: Any) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return "changed"
    said, used = (
        " ".join(map(str, each[:8])) if isinstance(each, (list, tuple)) else str(each)[:60]
        for each in pair
    )
    return f"{used} instead of {said or 'nothing'}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    low, high = map(_number, value)
    return None if low is None or high is None else (low, high)
