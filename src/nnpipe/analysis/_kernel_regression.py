"""How long kernels take that were not measured, by trees that are fitted to those that were.

Extremely randomised trees (P. Geurts, D. Ernst, L. Wehenkel, Machine Learning 63 (2006), 3-42) are fitted to the
logarithm of the times relative to a rough figure from arithmetic and traffic.  They know nothing of kernels that are
larger or smaller than all that were measured; those are told apart here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.kernels import SIZES, FusedKernel
from nnpipe.core.errors import MissingDependency

Floats = npt.NDArray[np.float64]

PER_MAC = 0.02
"""A rough time in nanoseconds, which only has to be of the right order for any kernel."""

_PER_BYTE, _EACH = 0.02, 500.0
_TREES, _FEW, _BEYOND = 300, 3, 1.5
_LEAST_NS = 50.0
_BOUNDED = tuple(SIZES.index(name) for name in ("macs", "read", "written", "positions", "inside", "outside", "window"))
_WORDS = {
    "macs": "multiply-accumulates", "read": "bytes read", "written": "bytes written", "positions": "positions",
    "inside": "channels in", "outside": "channels out", "window": "values in a window",
}  # fmt: skip


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
        found: Floats = np.exp(rough(kernels) + self._trees.predict(self._described(kernels)))
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

    def _described(self, kernels: Sequence[FusedKernel]) -> Floats:
        sizes = np.log1p(np.array([each.sizes for each in kernels]))
        kinds = np.array([each.kind for each in kernels])[:, None] == np.array(self._kinds)[None, :]
        return np.hstack([sizes, kinds])

    @cached_property
    def _trees(self) -> Any:
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError as error:
            raise MissingDependency(
                f"predicting times needs scikit-learn, which cannot be imported ({error}): pip install 'nnpipe[data]'"
            ) from None
        ns = np.maximum(self._ns, _LEAST_NS)
        trees = ExtraTreesRegressor(_TREES, max_features=0.5, random_state=0)
        # What takes long matters to a network; by the square root, nothing short is forgotten.
        return trees.fit(self._described(self._kernels), np.log(ns) - rough(self._kernels), sample_weight=np.sqrt(ns))

    @cached_property
    def _seen(self) -> Mapping[str, tuple[Floats, Floats, int]]:
        found = {}
        for kind in self._kinds:
            sizes = np.array([each.sizes for each in self._kernels if each.kind == kind])
            found[kind] = sizes.min(axis=0), sizes.max(axis=0), len(sizes)
        return found


def rough(kernels: Sequence[FusedKernel]) -> Floats:
    """Return the logarithm of a rough time of each kernel in nanoseconds."""
    macs, traffic = (np.array([getattr(each, name) for each in kernels]) for name in ("macs", "traffic"))
    found: Floats = np.log(PER_MAC * macs + _PER_BYTE * traffic + _EACH)
    return found
