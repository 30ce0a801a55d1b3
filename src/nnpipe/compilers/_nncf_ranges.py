"""Ranges of weights that NNCF rounds to integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LEAST = 1e-30  # of weights that are not 0: in single precision their scale is not 0 either


@contextmanager
def own_ranges() -> Iterator[None]:
    """Let NNCF give every channel of weights that are not all 0 the range of its own values.

    It gives a channel at least 1 % of the range of the largest (``fix_zero_filters_symmetric`` in NNCF 3.4), so that
    a channel of weights a hundred times smaller becomes 0, although each has a scale.  It has no option for this.
    A version without this function is left as it is.
    """
    import nncf.quantization.fake_quantize as fake_quantize
    from nncf.tensor import functions

    name = "fix_zero_filters_symmetric"
    original = getattr(fake_quantize, name, None)
    if original is None:
        yield
        return

    def range_of(greatest: Any) -> Any:
        return functions.where(greatest > _LEAST, greatest, original(greatest))

    setattr(fake_quantize, name, range_of)
    try:
        yield
    finally:
        setattr(fake_quantize, name, original)
