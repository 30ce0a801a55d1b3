"""The layers of a candidate as a result file holds them: their times, what they cost, and why a
run takes its time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.layer_times import FURTHER, LayerTime, LayerTimes
from nnpipe.analysis.roofline import Ceilings
from nnpipe.core.errors import ArtifactError
from nnpipe.measuring.result_json import pack, unpack
from nnpipe.report.formatting import clean
from nnpipe.report.layer_tables import MemoryUse

MOST_LAYERS = 2000
"""The greatest number of layers that are kept of a candidate: the costliest; the others are one
row together.
"""

_MOST_CHARACTERS = 1 << 20  # of all names together
_MOST_NAMES, _NAME = 64, 120  # names of operations of a layer, and characters of each
_MOST_OPERATIONS = 1 << 17
_MOST_TEXTS, _TEXT = 50, 600
_TEXTS = ("step", "kind", "operator", "kernel", "precision")
_NAMES = ("operations", "converts")
_REALS = ("time_ns", "low_ns", "high_ns", "share")
# -1 where unknown
_COUNTS = ("macs", "others", "bytes_read", "bytes_written", "live_bytes", "values")


@dataclass(frozen=True, eq=False)
class LayerProfile:
    """What a candidate's layers take and cost.

    Parameters
    ----------
    times
        The times of the layers; they add up to a run.
    reasons
        Why a run takes its time, in words; the greatest share first.
    live_bytes
        Bytes of all values that exist while each operation runs, ``(operations,)``; empty if a size
        is not known.
    ceilings
        What the machine can do, if it was measured before.
    memory
        The memory that the runtime takes, if it was measured.
    """

    times: LayerTimes
    reasons: tuple[str, ...] = ()
    live_bytes: tuple[int, ...] = ()
    ceilings: Ceilings | None = None
    memory: MemoryUse | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the profile in its JSON form, in which its size is bounded
        (:data:`MOST_LAYERS`).
        """
        times = _limit_layers(self.times)
        rows = times.rows
        layers: dict[str, Any] = {
            name: "\n".join(_format_name(getattr(row, name)) for row in rows) for name in _TEXTS
        }
        layers |= {
            name: "\n".join(
                "\t".join(map(_format_name, getattr(row, name)[:_MOST_NAMES])) for row in rows
            )
            for name in _NAMES
        }
        layers |= {
            name: pack(np.array([getattr(row, name) for row in rows], np.float64))
            for name in _REALS
        }
        layers |= {
            name: pack(np.array([_encode_count(getattr(row, name)) for row in rows], np.int64))
            for name in _COUNTS
        }
        layers["parameters"] = pack(np.array([row.parameters for row in rows], np.int64))
        live = self.live_bytes if len(self.live_bytes) <= _MOST_OPERATIONS else ()
        return {
            "runtime": times.runtime,
            "run_ns": times.run_ns,
            "plain_ns": times.plain_ns,
            "runs": times.runs,
            "coverage": times.coverage,
            "overhead": times.overhead,
            "doubts": list(times.doubts),
            "reasons": list(self.reasons[:_MOST_TEXTS]),
            "layers": layers,
            "live_bytes": pack(np.array(live, np.int64)),
            "ceilings": None if self.ceilings is None else self.ceilings.to_json(),
            "memory": None if self.memory is None else self.memory.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LayerProfile:
        """Make the profile from the output of :meth:`to_json`, whose source need not be trusted.

        Raises
        ------
        ArtifactError
            If it is malformed.
        """
        try:
            rows = _read_layers(data["layers"])
            times = LayerTimes(
                clean(data["runtime"], _NAME),
                rows[:-1],
                rows[-1],
                _read_number(data["run_ns"]),
                None if data["plain_ns"] is None else _read_number(data["plain_ns"]),
                _read_number(data["coverage"]),
                None if data["overhead"] is None else _read_number(data["overhead"]),
                _read_texts(data["doubts"]),
                int(data["runs"]),
            )
            if times.run_ns <= 0 or times.runs < 1:
                raise ValueError("a run takes some time")
            live = unpack(data["live_bytes"], 8 * _MOST_OPERATIONS)
            if live.ndim != 1 or live.dtype.kind != "i" or (live < 0).any():
                raise ValueError("live memory is a list of numbers of bytes")
            ceilings, memory = data["ceilings"], data["memory"]
            return cls(
                times,
                _read_texts(data["reasons"]),
                tuple(live.tolist()),
                None if ceilings is None else Ceilings.from_json(ceilings),
                None if memory is None else MemoryUse.from_json(memory),
            )
        except KeyError as error:
            raise ArtifactError(
                f"the profile of its layers is damaged: {error} is missing"
            ) from None
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ArtifactError(
                f"the profile of its layers is damaged: {clean(error, 200)}"
            ) from None


def _limit_layers(times: LayerTimes) -> LayerTimes:
    """Return the times with the costliest layers only, if there are too many, and one row for
    all others.
    """
    places = sorted(range(len(times.layers)), key=lambda place: -times.layers[place].time_ns)
    room, kept = _MOST_CHARACTERS, 0
    for place in places[:MOST_LAYERS]:
        room -= _count_characters(times.layers[place])
        if room < 0:
            break
        kept += 1
    if kept == len(times.layers):
        return times
    layers = [times.layers[place] for place in sorted(places[:kept])]
    rest = [times.layers[place] for place in places[kept:]]
    time, low, high, share = (sum(getattr(each, name) for each in rest) for name in _REALS)
    macs = (
        None
        if any(each.macs is None and each.operations for each in rest)
        else sum(each.macs or 0 for each in rest)
    )
    further = LayerTime(
        f"{len(rest):,} further steps", FURTHER, (), "", "", "", time, low, high, share, macs
    )
    return replace(times, layers=(*layers, further))


def _count_characters(layer: LayerTime) -> int:
    names = [
        *layer.operations[:_MOST_NAMES],
        *layer.converts[:_MOST_NAMES],
        *(getattr(layer, n) for n in _TEXTS),
    ]
    return sum(min(len(name), _NAME) + 1 for name in names)


def _format_name(value: Any) -> str:
    return clean(value, _NAME)


def _encode_count(value: int | None) -> int:
    return -1 if value is None or not 0 <= value < 1 << 62 else value


def _read_layers(data: Mapping[str, Any]) -> tuple[LayerTime, ...]:
    columns: dict[str, Sequence[Any]] = {
        name: _split_lines(data[name]) for name in (*_TEXTS, *_NAMES)
    }
    columns |= {
        name: [tuple(filter(None, line.split("\t")[:_MOST_NAMES])) for line in columns[name]]
        for name in _NAMES
    }
    for name in (*_REALS, *_COUNTS, "parameters"):
        array = unpack(data[name], 8 * (MOST_LAYERS + 2))
        if (
            array.ndim != 1
            or array.dtype.kind != ("f" if name in _REALS else "i")
            or not np.isfinite(array).all()
        ):
            raise ValueError(f"{name} is no list of numbers")
        columns[name] = array.tolist()
    columns |= {name: [None if value < 0 else value for value in columns[name]] for name in _COUNTS}
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError("its columns have different lengths")
    fields = [each.name for each in dataclasses.fields(LayerTime) if each.name in columns]
    return tuple(
        LayerTime(**dict(zip(fields, values, strict=True)))
        for values in zip(*(columns[name] for name in fields), strict=True)
    )


def _split_lines(text: Any) -> list[str]:
    if (
        not isinstance(text, str)
        or len(text) > 4 * _MOST_CHARACTERS
        or text.count("\n") > MOST_LAYERS + 1
    ):
        raise ValueError("names are missing, or too long")
    return text.split("\n")


def _read_texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError("texts should be a list")
    return tuple(clean(each, _TEXT) for each in values[:_MOST_TEXTS])


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("a time should be a number")
    return float(value)
