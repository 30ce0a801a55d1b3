"""Candidates that are open side by side, each in a subprocess, and run in turn.

Between its turns a worker waits for the next line on a pipe, which takes no CPU
time.  The runtime's own threads may take some: they may spin for a while after
each call, in case another comes.  So a worker also reports the CPU time that it
took since its last turn.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import NNPipeError, TargetError
from nnpipe.core.session import InferenceSession
from nnpipe.measuring.interleaving import Block, Runner
from nnpipe.measuring.loop import Window
from nnpipe.measuring.sample_route import SampleRoute
from nnpipe.protocols.conversation.frame import ErrorCode
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.isolation.subprocess_worker import Worker

_RING_SAMPLES, _RING_BYTES = 64, 64 << 20  # of the inputs that a worker cycles through
_SETTLING_SHARE, _MOST_SETTLING = 10, 50  # one call in 10, at most 50, before a block is recorded
_ENDING = 10.0  # seconds to end by itself
# seconds to wait for a server that serves another candidate, between two looks
_LONGEST_TURN, _PAUSE = 60.0, 0.02


class CandidatePool:
    """Opens candidates in workers, for :func:`nnpipe.measuring.interleaving.interleave`.

    Parameters
    ----------
    candidates, dataset
        The candidates, and the data set whose test split they run on.
    batch_size
        Samples in one call.
    limit
        The greatest time in seconds for opening, and for a block; 0 for no limit.
    turn
        Returns the turn on the devices of these candidates, which other people may be using, too.
    """

    def __init__(
        self,
        candidates: Sequence[CandidateSpec],
        dataset: Dataset,
        *,
        batch_size: int = 1,
        limit: float = 0.0,
        turn: Callable[[Sequence[CandidateSpec]], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._candidates, self._dataset = candidates, dataset
        self._batch_size, self._limit, self._turn = batch_size, limit, turn

    @contextlib.contextmanager
    def open(self, places: Sequence[int]) -> Iterator[Mapping[int, Runner | NNPipeError]]:
        """Start a worker for each place, all at the same time, and end them with the block."""
        specs = [self._candidates[place] for place in places]
        with self._turn(specs), contextlib.ExitStack() as stack:
            workers = {
                place: stack.enter_context(Worker(f"{__name__}:OpenCandidate")) for place in places
            }
            # A slow start of one does not delay the others.
            with ThreadPoolExecutor(max(1, len(places))) as pool:
                waiting = {
                    place: pool.submit(
                        self._start, stack, place, worker, _has_shared_server(spec, specs)
                    )
                    for (place, worker), spec in zip(workers.items(), specs, strict=True)
                }
            yield {place: started.result() for place, started in waiting.items()}

    def _start(
        self, stack: contextlib.ExitStack, place: int, worker: Worker, shares: bool
    ) -> Runner | NNPipeError:
        candidate = replace(self._candidates[place], dataset=self._dataset)
        try:
            spec = stack.enter_context(candidate.start_server())
            request = {
                "do": "open",
                "candidate": spec.to_json(),
                "batch_size": self._batch_size,
                "shares_server": shares,
            }
            worker.attempt(f"starting {candidate.title}", request, self._limit)
        except NNPipeError as error:
            return error
        if candidate.deployment is not None:
            stack.callback(_end, worker)  # the target learns that it is no longer needed
        return self._make_runner(candidate.title, worker)

    def _make_runner(self, title: str, worker: Worker) -> Runner:
        def run(calls: int) -> Block:
            told = worker.attempt(f"running {title}", {"do": "run", "calls": calls}, self._limit)
            return Block(
                np.array(told["start_ns"], np.int64),
                np.array(told["latency_ns"], np.int64),
                told["idle_cpu_ns"],
                told["idle_ns"],
                {name: np.array(values, np.int64) for name, values in told["parts_ns"].items()},
            )

        return run


def _has_shared_server(spec: CandidateSpec, specs: Sequence[CandidateSpec]) -> bool:
    """Return whether the server of a candidate's device is that of another one, too: it serves
    one at a time.
    """
    own = spec.deployment
    if own is None or own.serve:
        return False
    return (
        sum(
            each.deployment is not None and each.deployment.protocol == own.protocol
            for each in specs
        )
        > 1
    )


def _end(worker: Worker) -> None:
    with contextlib.suppress(NNPipeError):
        worker.attempt("ending", {"do": "end"}, _ENDING)


# -- in the subprocess -----------------------------------------------------------------------------


class OpenCandidate:
    """Carries out the requests of :class:`CandidatePool`: opens a candidate once, then runs blocks
    of calls."""

    def __init__(self) -> None:
        self._session: InferenceSession | None = None
        self._spec: CandidateSpec | None = None
        self._shares_server = False
        self._batches: list[Any] = []
        self._next = 0
        self._has_parts = False
        self._since = (0, 0)

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Carry out one request."""
        tasks: dict[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
            "open": self._open,
            "run": self._run,
            "end": self._end,
        }
        return tasks[request["do"]](request)

    def _open(self, request: Mapping[str, Any]) -> None:
        spec = CandidateSpec.from_json(request["candidate"]).fit_wrapper()
        assert spec.dataset is not None
        self._spec, self._shares_server = spec, request["shares_server"]
        if self._shares_server:
            self._session = self._open_in_turn()
        else:
            self._session = spec.open()
        pipeline = SampleRoute(
            spec.dataset, spec.wrapper, spec.wrapper.io, self._session.io, request["batch_size"]
        )
        indices = spec.dataset.split("test")
        held = 0
        for item in itertools.islice(pipeline.items(indices), _RING_SAMPLES):
            self._batches.append(item.inputs)
            held += item.nbytes
            if held > _RING_BYTES:
                break
        window = Window(self._session)
        window.check(self._batches)
        # the garbage collector ignores all present objects until the process ends
        window.__enter__()
        self._has_parts = bool(self._session.durations(self._session.infer(self._batches[0])))
        if self._shares_server:
            self._session.close()
        self._since = _read_clocks()

    def _open_in_turn(self) -> InferenceSession:
        """Open a session on a server that other candidates use, too, each for a moment."""
        assert self._spec is not None
        end = time.monotonic() + _LONGEST_TURN
        while True:
            try:
                return self._spec.open()
            except TargetError as error:
                if error.code != ErrorCode.BUSY or time.monotonic() > end:
                    raise
            time.sleep(_PAUSE)

    def _run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._shares_server:
            self._session = self._open_in_turn()
        assert self._session is not None
        wall, cpu = (now - then for now, then in zip(_read_clocks(), self._since, strict=True))
        calls = request["calls"]
        window = Window(self._session)
        # Another candidate has used the caches meanwhile.
        settling = min(max(1, calls // _SETTLING_SHARE), _MOST_SETTLING)
        window.warm_up(self._next_batches(settling), settling)
        batches = self._next_batches(calls)
        outputs = window.run_chunk(batches, [1] * calls, keep=self._has_parts)
        parts = list(map(self._session.durations, outputs))
        recorded = window.series()
        starts, latencies = recorded["start_ns"], recorded["latency_ns"]
        begins = starts + window.origin_ns
        # By a target's own clock, without the way there.
        latencies = self._session.split(begins, begins + latencies).get("target_ns", latencies)
        if self._shares_server:
            self._session.close()
        told: dict[str, Any] = {"start_ns": starts.tolist(), "latency_ns": latencies.tolist()}
        told["parts_ns"] = {
            name: [each.get(name, -1) for each in parts]
            for name in dict.fromkeys(name for p in parts for name in p)
        }
        self._since = _read_clocks()
        return {**told, "idle_ns": wall, "idle_cpu_ns": cpu}

    def _next_batches(self, calls: int) -> list[Any]:
        """Return the next ``calls`` batches, cycling through all."""
        number = len(self._batches)
        found = [self._batches[(self._next + i) % number] for i in range(calls)]
        self._next = (self._next + calls) % number
        return found

    def _end(self, request: Mapping[str, Any]) -> None:
        if self._session is not None:
            self._session.close()


def _read_clocks() -> tuple[int, int]:
    return time.perf_counter_ns(), time.process_time_ns()
