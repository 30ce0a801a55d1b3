"""Find reasons to distrust a model's quality metrics: unsuitable samples, or predictions without
information.

Doubts change nothing: each describes an observation.  What a task finds in its predictions comes
from :meth:`nnpipe.core.task.Task.warnings`; the limits of the others are defined below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from nnpipe.core.task import find_task
from nnpipe.measuring.validity_warning import Kind, ValidityWarning

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


def check_quality(run: Run) -> tuple[ValidityWarning, ...]:
    """Return the reasons to distrust the predictions of a run; empty if none is found."""
    return (
        *_check_preparation(run.preparation),
        *_check_saturation(run),
        *_check_predictions(run),
        *_check_agreement(run),
    )


def is_preparation_unknown(run: Run) -> bool:
    """Return whether it is unknown how samples are to be prepared."""
    return run.preparation.get("source") == "unknown"


def _check_preparation(preparation: Mapping[str, Any]) -> Iterator[ValidityWarning]:
    if preparation.get("source") == "unknown":
        arrived = [
            _to_pair(_to_mapping(each).get("sample_range"))
            for each in _to_mapping(preparation.get("arrived")).values()
        ]
        ends = f" ({_format_range(arrived[0])})" if len(arrived) == 1 and arrived[0] else ""
        yield ValidityWarning(
            "preprocessing",
            f"preprocessing not known: nothing says what the model wants of samples, which went in "
            f"as they are{ends}; "
            "say it with --scale, --mean and --deviation (--scale 1: as they are)",
        )
    overridden = _to_mapping(preparation.get("overridden"))
    if overridden:
        told = "; ".join(
            f"{str(name)[:40]}: {_format_change(pair)}"
            for name, pair in list(overridden.items())[:8]
        )
        yield ValidityWarning("overridden", f"other than the model's description says ({told})")
    meaning = _to_mapping(preparation.get("meaning"))
    listed = meaning.get("inputs")
    said = (
        {each.get("name"): each for each in listed if isinstance(each, Mapping)}
        if isinstance(listed, list)
        else {}
    )
    for name, arrived in _to_mapping(preparation.get("arrived")).items():
        yield from _check_input(str(name)[:60], _to_mapping(arrived), _to_mapping(said.get(name)))
    yield from _check_normalisation(_to_mapping(preparation.get("first_normalisation")))
    yield from _check_rescaling(_to_mapping(preparation.get("first_rescaling")))


def _check_input(
    name: str, arrived: Mapping[str, Any], said: Mapping[str, Any]
) -> Iterator[ValidityWarning]:
    beyond, used, holds = (
        _to_number(arrived.get("beyond")),
        _to_number(arrived.get("used")),
        _to_pair(arrived.get("holds")),
    )
    numbers, samples = _to_pair(arrived.get("numbers")), _to_pair(arrived.get("sample_range"))
    if holds and beyond is not None and beyond > CLIPPED:
        yield ValidityWarning(
            "range",
            f"{100 * beyond:.3g} % of what arrives at {name!r} is beyond {_format_range(holds)}, "
            f"which it can hold",
        )
    elif holds and used is not None and used < UNUSED and said.get("quantised", "auto") == "auto":
        yield ValidityWarning(
            "range",
            f"what arrives at {name!r} fills {100 * used:.2g} % of {_format_range(holds)}, which "
            f"it was quantised for",
        )
    else:
        yield from _check_range(
            name, samples, _to_pair(said.get("sample_range")), "samples for", "made"
        )
        yield from _check_range(
            name, numbers, _to_pair(said.get("observed_range")), "what arrives at", "calibrated"
        )
    twice = (
        arrived.get("sample_dtype") in ("int8", "int16") and said.get("quantised", "auto") == "auto"
    )
    if twice and (holds or arrived.get("taken_dtype")):
        yield ValidityWarning(
            "quantised twice",
            f"{arrived['sample_dtype']} samples are quantised once more for {name!r}: if they are "
            f"quantised already, "
            "--quantised-input already says so",
        )


def _check_normalisation(found: Mapping[str, Any]) -> Iterator[ValidityWarning]:
    spread, shift = _to_number(found.get("spread")), _to_number(found.get("shift"))
    if spread is None or shift is None or (1 / SPREAD <= spread <= SPREAD and shift <= SHIFT):
        return
    yield ValidityWarning(
        "range",
        f"what arrives at the first normalisation ({str(found.get('name'))[:60]!r}) has "
        f"{spread:.3g} times the variance of what the model was trained on, and means that lie "
        f"{shift:.2g} standard deviations away",
    )


def _check_rescaling(found: Mapping[str, Any]) -> Iterator[ValidityWarning]:
    arrived, scaled = _to_pair(found.get("arrived")), _to_pair(found.get("scaled"))
    if arrived is None or scaled is None or SCALED[0] <= scaled[1] - scaled[0] <= SCALED[1]:
        return
    how = "scaled already" if scaled[1] - scaled[0] < SCALED[0] else "larger than it is made for"
    yield ValidityWarning(
        "range",
        f"the model scales its input itself ({str(found.get('name'))[:60]!r}) and makes "
        f"{_format_range(scaled)} of what arrives, which goes from {_format_range(arrived)}: it "
        f"looks {how}",
    )


def _check_range(
    name: str,
    have: tuple[float, float] | None,
    made: tuple[float, float] | None,
    what: str,
    how: str,
) -> Iterator[ValidityWarning]:
    if have is None or made is None or made[0] == made[1]:
        return
    width = made[1] - made[0]
    beyond = max(made[0] - have[0], have[1] - made[1])
    if beyond > width or (have[1] - have[0]) < UNUSED * width:
        yield ValidityWarning(
            "range",
            f"{what} {name!r} go from {_format_range(have)}, the model was {how} for "
            f"{_format_range(made)}",
        )


def _check_saturation(run: Run) -> Iterator[ValidityWarning]:
    if _to_mapping(run.timing.get("session")).get(
        "saturating_integers"
    ) is True and _has_full_weights(run.artifact):
        yield ValidityWarning(
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
        claims, bits = (
            artifact.get("claims"),
            _to_mapping(artifact.get("outcome")).get("weight_bits"),
        )
        if bits == 8 or (bits is None and isinstance(claims, list | tuple) and "int8" in claims):
            return True
        artifact = artifact.get("parent")
    return False


def _check_predictions(run: Run) -> Iterator[ValidityWarning]:
    task = None if run.evaluation is None else find_task(run.evaluation)
    if task is None or run.evaluation is None:
        return
    if clause := run.evaluation.describe_nonfinite():
        yield ValidityWarning("not finite", f"{clause}, and count as the worst answer")
    for kind, reason in task.warnings(run.evaluation):
        yield ValidityWarning(cast("Kind", kind), reason)


def _check_agreement(run: Run) -> Iterator[ValidityWarning]:
    if run.verification.get("verdict") == "different":
        reason = str(run.verification.get("reason", ""))[:300]
        yield ValidityWarning(
            "different", f"its outputs are not those of the model that it was made from: {reason}"
        )


def _format_range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def _format_change(pair: Any) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return "changed"
    said, used = (
        " ".join(map(str, each[:8])) if isinstance(each, (list, tuple)) else str(each)[:60]
        for each in pair
    )
    return f"{used} instead of {said or 'nothing'}"


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _to_number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _to_pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    low, high = map(_to_number, value)
    return None if low is None or high is None else (low, high)
