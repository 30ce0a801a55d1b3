"""Trying parts of a graph one by one, each in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core import errors
from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.workflows.isolation.subprocess_worker import Worker, WorkerTimeout
from nnpipe.workflows.reduction.onnx_parts import DivisibleGraph, TensorValues
from nnpipe.workflows.reduction.subprocess_tasks import STAGE, TASKS
from nnpipe.workflows.reduction.symptom import Symptom

_IMPORTING = 600.0  # seconds
_ENDING = 30.0  # seconds for ending a try that hangs


@dataclass(frozen=True)
class TryOutcome:
    """What came of a try: the symptom, or ``None``, and the seconds that it took."""

    symptom: Symptom | None
    seconds: float


class Trying(Closing):
    """Runs tasks in forks of a worker; used in a ``with`` block by one thread.

    Parameters
    ----------
    chain
        The described compilers and runtime, the format to export as, and the tolerances.
    folder
        The folder for files of tries.
    """

    def __init__(self, chain: Mapping[str, Any], folder: Path) -> None:
        self._chain, self._folder = chain, folder
        self._worker = Worker(f"{TASKS}:Tries")
        self._warm = False
        self.count = 0

    def task(self, do: str, seconds: float, **request: Any) -> dict[str, Any]:
        """Return the reply of a task other than a try.

        Raises
        ------
        NNPipeError
            If it fails, crashes, or takes too long.
        """
        reply: dict[str, Any] = self._worker.call(
            {"do": do, "folder": str(self._create_folder()), **request}, seconds
        )
        if "crash" in reply:
            raise NNPipeError(f"its process crashed ({reply['crash']})")
        if "failed" in reply:
            raise getattr(errors, reply["failed"], NNPipeError)(reply["message"])
        return reply

    def attempt(
        self,
        whole: DivisibleGraph,
        values: TensorValues,
        places: Sequence[int],
        free: bool,
        seconds: float,
        warm: bool = True,
    ) -> TryOutcome | None:
        """Try some nodes with the chain; return ``None`` if they make no model.

        Parameters
        ----------
        warm
            Whether to fork a process that has imported the frameworks; a new one otherwise.
        """
        part = whole.part(places, values, free)
        if part is None:
            return None
        self._begin(warm)
        folder = self._create_folder()
        part.write(folder / "model.onnx")
        request = self._build_request(folder, values, part.inputs, part.outputs)
        self.count += 1
        try:
            # The worker outlives a try that hangs: the next one need not import the frameworks
            # again.
            reply = self._worker.call(
                {"do": "try", "within": seconds, **request, **self._chain}, seconds + _ENDING
            )
        except WorkerTimeout:
            self._warm = False  # the worker has ended with the try
            reply = {"hang": True}
        if "hang" in reply:
            return TryOutcome(
                Symptom("hang", _read_stage(folder), message=f"{seconds:.3g} s"), seconds
            )
        if "crash" in reply:
            return TryOutcome(Symptom("crash", _read_stage(folder), reply["crash"]), 0.0)
        if "failed" in reply:
            raise getattr(errors, reply["failed"], NNPipeError)(reply["message"])
        found = reply["symptom"]
        return TryOutcome(None if found is None else Symptom.from_json(found), reply["seconds"])

    def is_valid(
        self,
        whole: DivisibleGraph,
        values: TensorValues,
        places: Sequence[int],
        free: bool,
        seconds: float,
        warm: bool,
    ) -> bool:
        """Return whether the reference computes the recorded values from these nodes alone."""
        part = whole.part(places, values, free)
        assert part is not None
        self._begin(warm)
        folder = self._create_folder()
        part.write(folder / "model.onnx")
        try:
            found = self._worker.call(
                {
                    "do": "reference",
                    **self._build_request(folder, values, part.inputs, part.outputs),
                },
                seconds,
            )
        except WorkerTimeout:
            self._warm = False
            return False
        return bool(found.get("valid"))

    def close(self) -> None:
        """End the processes; closing twice does no harm."""
        self._worker.close()
        self._warm = False

    def _begin(self, warm: bool) -> None:
        """Start a worker, with or without the frameworks imported, unless it runs already."""
        if warm != self._warm:
            self._worker.close()
        if warm and not self._warm:
            self._worker.call({"do": "import", **self._chain}, _IMPORTING)
        self._warm = warm

    def _create_folder(self) -> Path:
        folder = self._folder / "try"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _build_request(
        self, folder: Path, values: TensorValues, inputs: Sequence[str], outputs: Sequence[str]
    ) -> dict[str, Any]:
        return {
            "folder": str(folder),
            "model": str(folder / "model.onnx"),
            "values": str(values.folder),
            "names": values.names,
            "samples": values.samples,
            "inputs": list(inputs),
            "outputs": list(outputs),
        }


def _read_stage(folder: Path) -> str:
    path = folder / STAGE
    return path.read_text("utf-8") if path.is_file() else "starting"


# Delta debugging: find few parts of a whole that still show a fault.
#
# The method is ddmin of Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input"
# (2002): first halves, quarters and so on are tried alone, then they are left out.

T = TypeVar("T")

_MOST_PARTS = 8  # smaller parts are rarely enough alone, and are only left out


def minimize_items(items: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> Iterator[list[T]]:
    """Yield the smallest part that shows the fault, after each try.

    In the end no single item can be left out.

    Parameters
    ----------
    items
        The whole, which shows the fault; items that belong together stand beside each other.
    shows
        Tells whether a part shows the fault.

    Examples
    --------
    >>> list(minimize_items(range(100), lambda part: 13 in part and 77 in part))[-1]
    [13, 77]
    """
    current = list(items)
    parts = 2
    while parts <= _MOST_PARTS and len(current) > 1:
        for part in _iter_windows(current, parts):
            found = shows(part)
            if found:
                current, parts = part, 1
            yield current
            if found:
                break
        parts *= 2
    size = max(1, len(current) // 2)
    while len(current) > 1:
        before, start = len(current), 0
        while start < len(current) > 1:
            rest = current[:start] + current[start + size :]
            if rest and shows(rest):
                current = rest
            else:
                start += size
            yield current
        if size == 1 and len(current) == before:
            return
        size = max(1, min(size // 2, len(current) // 2))


def _iter_windows(items: list[T], parts: int) -> Iterator[list[T]]:
    """Yield equal parts, and then those between them, which hold what stands across a border."""
    size = -(-len(items) // parts)
    for shift in (0, size // 2):
        for start in range(shift, len(items), size):
            part = items[start : start + size]
            if len(part) < len(items) and not (shift and len(part) < size):
                yield part
        if size < 2:
            return
