"""Read the load and memory of NVIDIA GPUs through the driver's library.

This needs ``nvidia-ml-py`` (``pip install nnpipe[gpu]``).  Without it, or without
a driver, nothing is recorded.
"""

from __future__ import annotations

import contextlib
import importlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class GPUs:
    """The machine's GPUs, to be used in a ``with`` block.

    Attributes
    ----------
    columns
        The names of the values that :meth:`read` returns: ``gpu_percent``, the
        load of the busiest GPU, and ``gpu_bytes``, the memory in use on all of
        them.  Either may be missing; without a GPU, both are.
    """

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self._library: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        try:
            self._library = importlib.import_module("pynvml")
        except ImportError:
            return self
        try:
            self._library.nvmlInit()
        except self._library.NVMLError:  # no driver, or one that does not match the library
            self._library = None
            return self
        with contextlib.suppress(self._library.NVMLError):
            count = self._library.nvmlDeviceGetCount()
            self._handles = [self._library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        if self._handles:
            # A partitioned GPU (MIG) reports no load; one with unified memory reports no memory of its own.
            self.columns = tuple(
                name for name, query in (("gpu_percent", self._percent), ("gpu_bytes", self._bytes)) if self._can(query)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
        self._library, self._handles, self.columns = None, [], ()

    def read(self) -> tuple[float, ...]:
        """Return the present values of ``columns``."""
        queries = {"gpu_percent": self._percent, "gpu_bytes": self._bytes}
        return tuple(queries[name]() for name in self.columns)

    def facts(self) -> list[dict[str, Any]]:
        """Return the ``name``, ``memory_bytes`` and ``driver`` of each GPU."""
        found = []
        for handle in self._handles:
            fact: dict[str, Any] = {}
            for name, query in (
                ("name", lambda handle: _text(self._library.nvmlDeviceGetName(handle))),
                ("memory_bytes", lambda handle: int(self._library.nvmlDeviceGetMemoryInfo(handle).total)),
                ("driver", lambda _: _text(self._library.nvmlSystemGetDriverVersion())),
            ):
                with contextlib.suppress(self._library.NVMLError):
                    fact[name] = query(handle)
            found.append(fact)
        return found

    def _percent(self) -> float:
        return float(max(self._library.nvmlDeviceGetUtilizationRates(handle).gpu for handle in self._handles))

    def _bytes(self) -> float:
        return float(sum(self._library.nvmlDeviceGetMemoryInfo(handle).used for handle in self._handles))

    def _can(self, query: Any) -> bool:
        try:
            query()
        except self._library.NVMLError:
            return False
        return True


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
