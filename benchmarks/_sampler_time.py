"""How much of a search's time is spent in the samplers of Optuna, and not in nnpipe."""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "NNPIPE_BENCHMARK_SAMPLER_TIME"
"""The environment variable with the file to which a process of a search writes the seconds at
its end.
"""

_METHODS = (
    "before_trial",
    "infer_relative_search_space",
    "sample_relative",
    "sample_independent",
    "after_trial",
)


class SamplerTime:
    """The processor time in methods of Optuna's samplers from now on; those that call each other
    count once.
    """

    def __init__(self) -> None:
        from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler

        self.seconds = 0.0
        self._depth = 0
        for sampler in (RandomSampler, TPESampler, NSGAIISampler):
            for name in set(_METHODS) & set(vars(sampler)):
                setattr(sampler, name, self._timed(getattr(sampler, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*given: Any, **named: Any) -> Any:
            self._depth += 1
            begin = time.process_time()
            try:
                return method(*given, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - begin

        return timed


def told_at_the_end() -> None:
    """Measure the time in this process if :data:`VARIABLE` names a file, and write it there at
    the end.
    """
    if os.environ.get(VARIABLE):
        found = SamplerTime()
        atexit.register(lambda: Path(os.environ[VARIABLE]).write_text(str(found.seconds), "utf-8"))
