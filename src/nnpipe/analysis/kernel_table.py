"""The kernels that were measured in a runtime on a machine, and how long networks take that were
not.

What estimates the times of other kernels is fitted anew from a table, so that a file holds numbers
and no code. Networks that were measured as a whole tell what a call adds and how far off sums are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.kernels import SIZES, FusedKernel, FusionPattern
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ArtifactError, MissingDependency
from nnpipe.core.files import write_text

# How long kernels take that were not measured, by trees that are fitted to those that were.
#
# Extremely randomised trees (P. Geurts, D. Ernst, L. Wehenkel, Machine Learning 63 (2006), 3-42)
# are fitted to the logarithm of the times relative to a rough figure from arithmetic and traffic.
# They know nothing of kernels that are larger or smaller than all that were measured; those are
# told apart here.

Floats = npt.NDArray[np.float64]

PER_MAC = 0.02
"""A rough time in nanoseconds, which only has to be of the right order for any kernel."""

_PER_BYTE, _EACH = 0.02, 500.0
_TREES, _FEW, _BEYOND = 300, 3, 1.5
_LEAST_NS = 50.0
_BOUNDED = tuple(
    SIZES.index(name)
    for name in ("macs", "read", "written", "positions", "inside", "outside", "window")
)
_WORDS = {
    "macs": "multiply-accumulates",
    "read": "bytes read",
    "written": "bytes written",
    "positions": "positions",
    "inside": "channels in",
    "outside": "channels out",
    "window": "values in a window",
}


class KernelRegression:
    """The times of kernels that were not measured; the trees are fitted when they are first needed.

    Parameters
    ----------
    kernels
        The kernels that were measured.
    ns
        The time of each, in nanoseconds.
    """

    def __init__(self, kernels: Sequence[FusedKernel], ns: Sequence[float]) -> None:
        self._kernels, self._ns = kernels, ns

    def times(self, kernels: Sequence[FusedKernel]) -> Floats:
        """Return how long each kernel takes, in nanoseconds, ``(n,)``.

        Raises
        ------
        MissingDependency
            If scikit-learn is not installed.
        """
        found: Floats = np.exp(
            compute_rough_log_times(kernels) + self._trees.predict(self._encode_features(kernels))
        )
        return found

    def outside(self, kernel: FusedKernel) -> str:
        """Return why a kernel is outside of what was measured; empty if it is not."""
        if not kernel.kind:
            return "not known here"
        seen = self._seen.get(kernel.kind)
        if seen is None:
            return "none of its kind was measured"
        low, high, number = seen
        if number < _FEW and kernel.kind != "view":  # all views are alike
            return f"only {number} of its kind {'was' if number == 1 else 'were'} measured"
        for place in _BOUNDED:
            value = kernel.sizes[place]
            if value > _BEYOND * high[place]:
                return f"more {_WORDS[SIZES[place]]} than any that was measured"
            if value < low[place] / _BEYOND:
                return f"fewer {_WORDS[SIZES[place]]} than any that was measured"
        return ""

    @cached_property
    def _kinds(self) -> list[str]:
        return sorted({each.kind for each in self._kernels})

    def _encode_features(self, kernels: Sequence[FusedKernel]) -> Floats:
        sizes = np.log1p(np.array([each.sizes for each in kernels]))
        kinds = np.array([each.kind for each in kernels])[:, None] == np.array(self._kinds)[None, :]
        return np.hstack([sizes, kinds])

    @cached_property
    def _trees(self) -> Any:
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError as error:
            raise MissingDependency(
                f"predicting times needs scikit-learn, which cannot be imported ({error}): pip "
                f"install 'nnpipe[data]'"
            ) from None
        ns = np.maximum(self._ns, _LEAST_NS)
        trees = ExtraTreesRegressor(_TREES, max_features=0.5, random_state=0)
        # What takes long matters to a network; by the square root, nothing short is forgotten.
        return trees.fit(
            self._encode_features(self._kernels),
            np.log(ns) - compute_rough_log_times(self._kernels),
            sample_weight=np.sqrt(ns),
        )

    @cached_property
    def _seen(self) -> Mapping[str, tuple[Floats, Floats, int]]:
        found = {}
        for kind in self._kinds:
            sizes = np.array([each.sizes for each in self._kernels if each.kind == kind])
            found[kind] = sizes.min(axis=0), sizes.max(axis=0), len(sizes)
        return found


def compute_rough_log_times(kernels: Sequence[FusedKernel]) -> Floats:
    """Return the logarithm of a rough time of each kernel in nanoseconds."""
    macs, traffic = (
        np.array([getattr(each, name) for each in kernels]) for name in ("macs", "traffic")
    )
    found: Floats = np.log(PER_MAC * macs + _PER_BYTE * traffic + _EACH)
    return found


MOST_KERNELS, MOST_NETWORKS, MOST_PATTERNS = 20_000, 2_000, 2_000
"""Greater files are refused."""
_KIND, _SCHEMA = "nnpipe kernels", 1
_COMMON = 0.4


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network that was measured as a whole.

    Parameters
    ----------
    kernels
        The places of its kernels in the table.
    ns
        The time of a run in nanoseconds.
    error
        The logarithm of that time relative to what was predicted by the kernels of other networks
        alone.
    """

    kernels: tuple[int, ...]
    ns: float
    error: float = 0.0


@dataclass(frozen=True)
class KernelTable:
    """What was learnt of one runtime on one machine, by :func:`nnpipe.learn_kernels`.

    Parameters
    ----------
    machine
        The processor.
    runtime
        The name of the runtime's class.
    version
        The version of what runs the models.
    precision
        The type of the numbers in the networks.
    threads
        The threads of an inference; 0 for as many as the runtime takes.
    created
        When it was measured.
    kernels
        Different kernels.
    ns
        The time of each, in nanoseconds.
    patterns
        What the runtime fuses.
    call_ns
        What a run takes besides its kernels.
    networks
        The networks that had the kernels.
    kernel_errors
        By kind, and under ``""`` for all kinds, the 5 % and 95 % quantiles of the logarithm of a
        kernel's time relative to what was predicted by the kernels of other networks alone.
    doubts
        Reasons why the times may be wrong.

    Examples
    --------
    Of the example of :func:`nnpipe.learn_kernels`:

    >>> found.runtime, found.precision
    ('ONNXRuntime', 'float32')
    """

    machine: str
    runtime: str
    version: str
    precision: str
    threads: int
    created: str
    kernels: tuple[FusedKernel, ...] = field(repr=False)
    ns: tuple[float, ...] = field(repr=False)
    patterns: tuple[FusionPattern, ...] = field(repr=False)
    call_ns: float
    networks: tuple[MeasuredNetwork, ...] = field(repr=False, default=())
    kernel_errors: Mapping[str, tuple[float, float]] = field(repr=False, default_factory=dict)
    doubts: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return what it is about."""
        threads = f"{self.threads or 'all'} thread{'' if self.threads == 1 else 's'}"
        return (
            f"{self.runtime} {self.version} on {self.machine}, {threads}, {self.precision}".replace(
                "  ", " "
            )
        )

    def times(self, kernels: Sequence[FusedKernel]) -> Floats:
        """Return how long each kernel takes, in nanoseconds, ``(n,)``.

        Raises
        ------
        MissingDependency
            If scikit-learn is not installed.
        """
        return self._regression.times(kernels) if kernels else np.zeros(0)

    @cached_property
    def scale(self) -> float:
        """Return by how much sums of kernels should be multiplied: what a network takes beside
        them, as conversions.
        """
        errors = [each.error for each in self.networks]
        return math.exp(float(np.median(errors))) if errors else 1.0

    def compute_network_interval(
        self, ns: npt.ArrayLike, confidence: float = 0.9
    ) -> tuple[float, float]:
        """Return factors of a predicted time between which the real one lies, by the networks that
        were measured.

        Errors of different kernels partly cancel, so they matter less the more kernels share the
        time; those of equal ones do not.  By how much the interval is wider than that tells is a
        quantile over the networks, each predicted without its own kernels: it covers a further
        network of the same sorts (split conformal prediction: J. Lei and others, Journal of the
        American Statistical Association 113 (2018), 1094-1111).

        Parameters
        ----------
        ns
            The time that each of the network's different kernels takes in all.
        confidence
            How often the interval is to hold the real time.
        """
        scores = self._scores
        rank = math.ceil(confidence * (len(scores) + 1)) - 1
        widest = 1.0 if not len(scores) else float(scores[min(rank, len(scores) - 1)])
        reach = widest * _compute_uncertainty(np.asarray(ns, np.float64))
        return math.exp(-reach), math.exp(reach)

    @cached_property
    def _scores(self) -> Floats:
        times = np.array(self.ns)
        found = []
        for each in self.networks:
            places = np.array(each.kernels, np.int64)
            reach = _compute_uncertainty(np.bincount(places, times[places]).astype(np.float64))
            found.append(abs(each.error - math.log(self.scale)) / reach)
        return np.sort(np.array(found))

    @property
    def usual_errors(self) -> tuple[float, float]:
        """Return between which factors the times of nine in ten networks lay, without their own
        kernels.
        """
        errors = [each.error - math.log(self.scale) for each in self.networks] or [0.0]
        return math.exp(float(np.quantile(errors, 0.05))), math.exp(
            float(np.quantile(errors, 0.95))
        )

    def get_kernel_interval(self, kind: str) -> tuple[float, float]:
        """Return the factors of a predicted time between which that of a kernel of a kind lies,
        nine times in ten.
        """
        low, high = self.kernel_errors.get(kind, self.kernel_errors.get("", (-0.7, 0.7)))
        return math.exp(min(low, 0.0)), math.exp(max(high, 0.0))

    def outside(self, kernel: FusedKernel) -> str:
        """Return why a kernel is outside of what was measured; empty if it is not."""
        return self._regression.outside(kernel)

    def predict_from_macs(self, macs: float) -> float:
        """Return what a network takes in nanoseconds if its multiply-accumulates alone are
        known: a straight line.
        """
        fixed, each = self._line
        return fixed + each * macs

    # -- files
    # --------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "kind": _KIND,
            "schema": _SCHEMA,
            "machine": self.machine,
            "runtime": self.runtime,
            "version": self.version,
            "precision": self.precision,
            "threads": self.threads,
            "created": self.created,
            "call_ns": self.call_ns,
            "sizes": list(SIZES),
            "kernels": [
                [*each.to_json(), ns] for each, ns in zip(self.kernels, self.ns, strict=True)
            ],
            "patterns": [each.to_json() for each in self.patterns],
            "networks": [[list(each.kernels), each.ns, each.error] for each in self.networks],
            "kernel_errors": {kind: list(pair) for kind, pair in self.kernel_errors.items()},
            "doubts": list(self.doubts),
        }

    def save(self, path: str | Path) -> None:
        """Write everything to a file that :func:`nnpipe.read_kernels` reads on any machine.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        check_call(KernelTable.save, locals())
        write_text(path, json.dumps(self.to_json(), allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, data: Any) -> KernelTable:
        """Make the object from the output of :meth:`to_json`.

        Raises
        ------
        ArtifactError
            If it is malformed.
        """
        if (
            not isinstance(data, Mapping)
            or data.get("kind") != _KIND
            or data.get("schema") != _SCHEMA
        ):
            raise ArtifactError("not a file of measured kernels, or one of another version")
        try:
            for name, most in (
                ("kernels", MOST_KERNELS),
                ("networks", MOST_NETWORKS),
                ("patterns", MOST_PATTERNS),
            ):
                if not isinstance(data[name], list) or len(data[name]) > most:
                    raise ArtifactError(f"more than {most:,} {name}")
            if data["sizes"] != list(SIZES) or len(data["kernels"]) < 2:
                raise ArtifactError("its kernels are described by other numbers, or there are none")
            count = len(data["kernels"])
            errors = {
                str(kind): (_validate_number(pair[0]), _validate_number(pair[1]))
                for kind, pair in data["kernel_errors"].items()
            }
            return cls(
                str(data["machine"])[:200],
                str(data["runtime"])[:200],
                str(data["version"])[:200],
                str(data["precision"])[:200],
                int(data["threads"]),
                str(data["created"])[:60],
                tuple(FusedKernel.from_json(each[:3]) for each in data["kernels"]),
                tuple(_validate_number(each[3], least=1.0) for each in data["kernels"]),
                tuple(FusionPattern.from_json(each) for each in data["patterns"]),
                _validate_number(data["call_ns"], least=0.0),
                tuple(_parse_network(each, count) for each in data["networks"]),
                errors,
                tuple(str(each)[:300] for each in data["doubts"])[:20],
            )
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise ArtifactError(f"not a table of kernels: {type(error).__name__} in it") from None

    # -- fitting
    # ------------------------------------------------------------------------------------

    @cached_property
    def _regression(self) -> KernelRegression:
        return KernelRegression(self.kernels, self.ns)

    @cached_property
    def _line(self) -> tuple[float, float]:
        macs = np.array(
            [sum(self.kernels[place].macs for place in each.kernels) for each in self.networks]
        )
        ns = np.array([each.ns for each in self.networks])
        if len(ns) < 2:
            return self.call_ns, PER_MAC
        fixed, slope = np.linalg.lstsq(
            np.stack([1 / ns, macs / ns], axis=1), np.ones(len(ns)), rcond=None
        )[0]
        return float(max(fixed, 0.0)), float(slope)


def _compute_uncertainty(ns: Floats) -> float:
    """Return what the error of a sum is about proportional to: the root of the squared shares,
    and a common part.
    """
    shares = ns / ns.sum() if len(ns) and ns.sum() > 0 else np.ones(1)
    return math.sqrt(float((shares**2).sum()) + _COMMON**2)


def _validate_number(value: Any, least: float = -math.inf) -> float:
    found = float(value)
    if not least <= found < math.inf:
        raise ValueError("a number out of its range")
    return found


def _parse_network(data: Any, count: int) -> MeasuredNetwork:
    places = tuple(int(place) for place in data[0])
    if len(places) > MOST_KERNELS or not all(0 <= place < count for place in places):
        raise ValueError("a kernel that is not there")
    return MeasuredNetwork(places, _validate_number(data[1], least=1.0), _validate_number(data[2]))
