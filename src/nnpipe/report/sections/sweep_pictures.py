"""The pictures of a sweep: quality against cost, one point a candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity, quantity
from nnpipe.report import document
from nnpipe.report.charts import ChartPoint as Place
from nnpipe.report.charts import Scatter
from nnpipe.report.formatting import Scale, share
from nnpipe.report.inputs.sweep_file import Found
from nnpipe.report.quantity_text import ranged

# The scale of a column by the kind of its metric, and what a value is multiplied by to be in the unit of the scale.
SCALES = {"time": (1e9, Scale.of_times), "bytes": (1.0, Scale.of_sizes), "energy": (1.0, Scale.of_energies)}
_DECADE = 8.0  # from this ratio on the axis is logarithmic, so that small values stay apart


def named(metric: Quantity) -> str:
    """Return the title of a metric for use inside a sentence."""
    title = metric.title
    return title if title[:1].islower() or title[1:2].isupper() else title[0].lower() + title[1:]


def sweep_pictures(found: Found) -> Iterator[document.Plot]:
    """Yield plots of a quality objective against up to two cost objectives."""
    costs = [m for m in found.objectives if m.less_is_better and not m.metric]
    gains = [m for m in found.objectives if m.metric or not m.less_is_better]
    for gain in gains[:1]:
        for cost in costs[:2]:
            figure = _picture(found, cost, gain)
            if figure is not None:
                yield figure


def _picture(found: Found, cost: Quantity, gain: Quantity) -> document.Plot | None:
    known = [(n, p, p.figures.get(cost.name), p.figures.get(gain.name)) for n, p in enumerate(found.points)]
    both = [(n, p, x, y) for n, p, x, y in known if x is not None and y is not None and None not in (x.value, y.value)]
    # If all are equally good, there is nothing to choose between and no picture.
    if len(both) < 2 or len({y.value for _, _, _, y in both}) == 1:
        return None
    values = [x.value for _, _, x, _ in both if x.value is not None]
    to_x, x_unit = _scaled(cost, values)
    to_y, y_label = _upward(gain)
    places = tuple(
        Place(
            point.title,
            to_x * (x.value or 0.0),
            to_y * (y.value or 0.0),
            _ends(x, to_x),
            _ends(y, to_y),
            number,
            point.on_front,
            f"{point.title}: {named(cost)} {ranged(cost, x)}, {named(gain)} {ranged(gain, y)}; "
            + (
                f"stopped at {share(point.share, 0)}"
                if point.stopped
                else f"on the front in {share(point.front_share, 0)} of draws"
            ),
        )
        for number, point, x, y in both
    )
    least = min(values)
    best = ", ".join(place.label for place in places if place.on_front)
    return document.Plot(
        Scatter(f"{named(cost)}, {x_unit}", y_label, places, least > 0 and max(values) / least > _DECADE, front=True),
        f"sweep-{gain.name}-against-{cost.name}".replace("_", "-").replace(".", "-"),
        f"{gain.title} against {named(cost)}; up and to the left is better. Bars are intervals, the broken line is "
        "what no candidate is beyond; pale ones are off the front of all objectives together",
        f"{gain.title} against {named(cost)} of {len(places):,} candidates. On the front: {best}.",
    )


def _scaled(metric: Quantity, values: Sequence[float]) -> tuple[float, str]:
    factor, scale_of = SCALES.get(metric.kind, SCALES["bytes"])
    scale = scale_of([factor * value for value in values])
    return factor / scale.divisor, scale.unit


def _upward(metric: Quantity) -> tuple[float, str]:
    sign, label = (-1.0, f"−{named(metric)}") if metric.less_is_better else (1.0, named(metric))
    if metric.compared:
        label = f"change of {named(quantity(metric.metric))}"
    if metric.kind == "share":
        return 100 * sign, f"{label}, {'points' if metric.compared else '%'}"
    return sign, f"{label}, /s" if metric.kind == "rate" else label


def _ends(known: Figure, factor: float) -> tuple[float, float]:
    value = known.value or 0.0
    low, high = (end if math.isfinite(end) else value for end in (known.low, known.high))
    return min(factor * low, factor * high), max(factor * low, factor * high)
