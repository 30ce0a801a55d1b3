"""Curves that TensorBoard shows, written without importing TensorBoard or TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nnpipe.core.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    from typing_extensions import Self


class Curves:
    """Event files in a folder for each curve of one name: ``LOGDIR/train``, ``LOGDIR/validation``.

    TensorBoard draws curves of one name from several folders into one chart.
    Nothing is written where ``logdir`` is None.
    """

    def __init__(self, logdir: Path | None) -> None:
        self._logdir = logdir
        self._writers: dict[str, Any] = {}
        if logdir is not None:
            try:
                import tensorboardX  # noqa: F401
            except ImportError:
                raise MissingDependency(
                    "--logdir needs tensorboardX, which is not installed: pip install 'nnpipe[torch]'"
                ) from None
            if logdir.exists() and not logdir.is_dir():
                raise ConfigError(f"--logdir {logdir} is a file; it must be a folder, or not exist")

    def add(self, curve: str, epoch: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve of a folder, and make it visible at once."""
        if self._logdir is None:
            return
        if curve not in self._writers:
            from tensorboardX import SummaryWriter

            self._writers[curve] = SummaryWriter(str(self._logdir / curve))
        writer = self._writers[curve]
        for name, value in values.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
