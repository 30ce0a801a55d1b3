"""Find reasons to distrust a model's quality metrics: unsuitable samples, or predictions without information.

Doubts change nothing: each describes an observation.  A statistical test decides
whether predictions are better than chance; the other limits are defined below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnpipe.measuring.doubt import Doubt

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

CLIPPED = 0.01
"""The share of numbers that may lie outside the range of an input."""

UNUSED = 0.125
"""The share of the model's expected range that samples must fill."""

SPREAD, SHIFT = 8.0, 2.0
"""The largest ratio of the variances of observed and training data at the first normalisation, or its inverse, and
the largest distance of the means in standard deviations."""

SCALED = (0.125, 32.0)
"""The accepted distance of the least and greatest number after a model's own rescaling of its input."""

SIGNIFICANCE = 0.01
"""The significance level of the test whether predictions are better than chance."""

CONSTANT = 0.9
"""The share of predictions of a single class from which a doubt is raised."""

_FEWEST = 20  # samples


def quality_doubts(run: Run) -> tuple[Doubt, ...]:
    """Return the reasons to distrust the predictions of a run; empty if none is found."""
    return (*_of_preparation(run.preparation), *_of_saturation(run), *_of_predictions(run))


def prepared_unknown(run: Run) -> bool:
    """Return whether it is unknown how samples are to be prepared."""
    return run.preparation.get("source") == "unknown"


def _of_preparation(preparation: Mapping[str, Any]) -> Iterator[Doubt]:
    if preparation.get("source") == "unknown":
        arrived = [_pair(_mapping(each).get("sample_range")) for each in _mapping(preparation.get("arrived")).values()]
        ends = f" ({_range(arrived[0])})" if len(arrived) == 1 and arrived[0] else ""
        yield Doubt(
            "preprocessing",
            f"preprocessing not known: nothing says what the model wants of samples, which went in as they are{ends}; "
            "say it with --scale, --mean and --deviation (--scale 1: as they are)",
        )
    overridden = _mapping(preparation.get("overridden"))
    if overridden:
        told = "; ".join(f"{str(name)[:40]}: {_shown(pair)}" for name, pair in list(overridden.items())[:8])
        yield Doubt("overridden", f"other than the model's description says ({told})")
    meaning = _mapping(preparation.get("meaning"))
    listed = meaning.get("inputs")
    said = {each.get("name"): each for each in listed if isinstance(each, Mapping)} if isinstance(listed, list) else {}
    for name, arrived in _mapping(preparation.get("arrived")).items():
        yield from _of_input(str(name)[:60], _mapping(arrived), _mapping(said.get(name)))
    yield from _of_normalisation(_mapping(preparation.get("first_normalisation")))
    yield from _of_rescaling(_mapping(preparation.get("first_rescaling")))


def _of_input(name: str, arrived: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[Doubt]:
    beyond, used, holds = _number(arrived.get("beyond")), _number(arrived.get("used")), _pair(arrived.get("holds"))
    numbers, samples = _pair(arrived.get("numbers")), _pair(arrived.get("sample_range"))
    if holds and beyond is not None and beyond > CLIPPED:
        yield Doubt(
            "range", f"{100 * beyond:.3g} % of what arrives at {name!r} is beyond {_range(holds)}, which it can hold"
        )
    elif holds and used is not None and used < UNUSED and said.get("quantised", "auto") == "auto":
        yield Doubt(
            "range", f"what arrives at {name!r} fills {100 * used:.2g} % of {_range(holds)}, which it was quantised for"
        )
    else:
        yield from _misfit(name, samples, _pair(said.get("sample_range")), "samples for", "made")
        yield from _misfit(name, numbers, _pair(said.get("observed_range")), "what arrives at", "calibrated")
    twice = arrived.get("sample_dtype") in ("int8", "int16") and said.get("quantised", "auto") == "auto"
    if twice and (holds or arrived.get("taken_dtype")):
        yield Doubt(
            "quantised twice",
            f"{arrived['sample_dtype']} samples are quantised once more for {name!r}: if they are quantised already, "
            "--quantised-input already says so",
        )


def _of_normalisation(found: Mapping[str, Any]) -> Iterator[Doubt]:
    spread, shift = _number(found.get("spread")), _number(found.get("shift"))
    if spread is None or shift is None or (1 / SPREAD <= spread <= SPREAD and shift <= SHIFT):
        return
    yield Doubt(
        "range",
        f"what arrives at the first normalisation ({str(found.get('name'))[:60]!r}) has {spread:.3g} times the "
        f"variance of what the model was trained on, and means that lie {shift:.2g} standard deviations away",
    )


def _of_rescaling(found: Mapping[str, Any]) -> Iterator[Doubt]:
    arrived, scaled = _pair(found.get("arrived")), _pair(found.get("scaled"))
    if arrived is None or scaled is None or SCALED[0] <= scaled[1] - scaled[0] <= SCALED[1]:
        return
    how = "scaled already" if scaled[1] - scaled[0] < SCALED[0] else "larger than it is made for"
    yield Doubt(
        "range",
        f"the model scales its input itself ({str(found.get('name'))[:60]!r}) and makes {_range(scaled)} of what "
        f"arrives, which goes from {_range(arrived)}: it looks {how}",
    )


def _misfit(
    name: str, have: tuple[float, float] | None, made: tuple[float, float] | None, what: str, how: str
) -> Iterator[Doubt]:
    if have is None or made is None or made[0] == made[1]:
        return
    width = made[1] - made[0]
    beyond = max(made[0] - have[0], have[1] - made[1])
    if beyond > width or (have[1] - have[0]) < UNUSED * width:
        yield Doubt("range", f"{what} {name!r} go from {_range(have)}, the model was {how} for {_range(made)}")


def _of_saturation(run: Run) -> Iterator[Doubt]:
    if _mapping(run.timing.get("session")).get("saturating_integers") is True and _has_full_weights(run.artifact):
        yield Doubt(
            "saturation",
            "sums of 8-bit products may saturate in the kernels used on this processor; weights of 7 bits avoid that "
            "(--reduce-range of the quantisers for ONNX, --overflow-fix enable of OpenVINOCompiler)",
        )


def _has_full_weights(artifact: Any) -> bool:
    """Return whether a model, or one that it was made from, was quantised to 8-bit integers, and not to 7 bits."""
    while isinstance(artifact, Mapping):
        claims, bits = artifact.get("claims"), _mapping(artifact.get("outcome")).get("weight_bits")
        if bits == 8 or (bits is None and isinstance(claims, list | tuple) and "int8" in claims):
            return True
        artifact = artifact.get("parent")
    return False


def _of_predictions(run: Run) -> Iterator[Doubt]:
    evaluation = run.evaluation
    if evaluation is None or evaluation.task != "classification" or len(evaluation) < _FEWEST:
        return
    truth, predicted = evaluation.arrays.get("truth"), evaluation.arrays.get("predicted")
    if truth is None or predicted is None or truth.shape != predicted.shape or truth.ndim != 1:
        return
    classes, numbers = np.unique(np.concatenate([truth, predicted]), return_inverse=True)
    true, told = (np.bincount(half, minlength=len(classes)) for half in np.split(numbers.reshape(-1), 2))
    chance = chance_p_value(true, told, int(np.count_nonzero(truth == predicted)))
    if chance is not None and chance > SIGNIFICANCE:
        share = 100 * float(np.mean(truth == predicted))
        yield Doubt(
            "chance", f"{share:.2f} % right is no better than chance (p = {chance:.2g}, {len(truth):,} samples)"
        )
    most = int(np.argmax(told))
    part, there = told[most] / len(truth), true[most] / len(truth)
    spread = math.sqrt(max(there * (1 - there), 1 / len(truth)) / len(truth))
    if part >= CONSTANT and part - there > 4 * spread:
        yield Doubt(
            "constant", f"{100 * part:.3g} % of the predictions are one class, which {100 * there:.3g} % of samples are"
        )


def chance_p_value(truth: npt.NDArray[Any], told: npt.NDArray[Any], right: int) -> float | None:
    """Return the probability of at least this many right predictions if they are independent of the truth.

    The same predictions are thought of as assigned to the samples in random
    order.  The mean and variance of the number of right ones are known (a sum of
    hypergeometric variables), and its distribution is approximated as normal.

    Parameters
    ----------
    truth, told
        The numbers of samples and of predictions of each class; ``(classes,)``.
    right
        The number of right predictions.

    Returns
    -------
    float or None
        ``None`` if there is only one class.
    """
    count = float(truth.sum())
    a, b = truth.astype(np.float64), told.astype(np.float64)
    if count < 2:
        return None
    products = a * b
    mean = float(products.sum()) / count
    own = float((products * (count - a) * (count - b)).sum())
    pairs = float(products.sum() ** 2 - (products**2).sum())
    variance = (own + pairs) / (count * count * (count - 1))
    if np.count_nonzero(truth) < 2:
        return None
    if variance <= 0:  # a constant prediction is right equally often in any order
        return 1.0
    return 1 - NormalDist().cdf((right - 0.5 - mean) / math.sqrt(variance))


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def _shown(pair: Any) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return "changed"
    said, used = (" ".join(map(str, each[:8])) if isinstance(each, (list, tuple)) else str(each)[:60] for each in pair)
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
