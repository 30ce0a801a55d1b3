"""Carrying out an experiment: built from a configuration, recorded, and resumed automatically."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from time import monotonic
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.history import History, Statistics
from nnpipe.experiment.module import Module, Stateful
from nnpipe.experiment.provenance import describe_environment, find_origins
from nnpipe.experiment.triggers import Callbacks


@contextmanager
def seed_generators(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and, if it is imported, PyTorch; restore them at the
    end of the block.
    """
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    layers = torch.get_rng_state() if torch is not None else None
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch is not None:
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(layers)


log = logging.getLogger("nnpipe")

STATE = "session"
"""The artifact from which a run is resumed."""

HISTORY = "steps"
"""The history of the steps' figures."""

_WORK_PER_SAVING = 9.0
"""Seconds of work for each second of saving, where no number of steps is given."""


class Session(Module):
    """A run of an experiment.

    One part of the configuration, by default ``experiment``, is called with the
    session repeatedly until it returns ``None``.  Each call returns numbers by name,
    which become a row of the history::

        class Descent(Module):
            def __init__(self, rate, steps):
                self.rate, self.steps = rate, steps
                self.state = State(position=1.0, step=0)

            def __len__(self):  # optional: for the progress
                return self.steps

            def __call__(self, session):
                if self.state.step == self.steps:
                    session.statistics.add("position", self.state.position)
                    return None
                self.state.step += 1
                self.state.position *= 1 - self.rate
                return {"step": self.state.step, "position": self.state.position}

    Before parts are built, the generators of Python, numpy and PyTorch are seeded
    with ``seed`` of the configuration (by default 0), so that initial weights are
    the same each time.

    All parts with a state (modules, layers, optimisers, ...), the history, the
    statistics and the callbacks are saved together, so a killed run continues from
    the last save as if it had not been interrupted.  A part may save the states of
    other parts itself; then its method ``keeps()`` returns these.  The triggers of
    ``callbacks`` are ``start``, ``step``, ``save`` and ``end``; each passes the session.

    Parameters
    ----------
    configuration
        The configuration to build.
    experiment
        The experiment's name in the database; an unfinished run of this name is continued.
    database
        The database that records the run.
    main
        The name of the part to call.
    save_every
        Save every so many steps, and after the last one; by default so often that saving takes a
        tenth of the time.
    parents
        Runs on which a new run is based.
    progress
        Shows the progress of parts that report it.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        experiment: str,
        database: RunDatabase,
        main: str = "experiment",
        save_every: int | None = None,
        parents: tuple[str, ...] = (),
        progress: Progress = silent,
    ) -> None:
        check_call(Session, locals())
        if save_every is not None and save_every < 1:
            raise ConfigError(f"save_every must be at least 1, not {save_every}")
        self.configuration = configuration
        self.experiment = experiment
        self.database = database
        self.main = main
        self.save_every = save_every
        self.parents = parents
        self.progress = progress
        self.run_id = ""
        self.parts: dict[str, Any] = {}
        self.history = History()
        self.statistics = Statistics()
        self.callbacks = Callbacks("start", "step", "save", "end")
        self._saved_rows = 0
        self._save_at = 0.0  # on the monotonic clock

    def run(self, *, take_over: bool = False) -> RunRecord:
        """Carry out or continue the experiment, and return its run; a completed run is returned
        unchanged.

        Parameters
        ----------
        take_over
            Whether to continue even if another process seems to own the run, for example after a
            machine failure.

        Returns
        -------
        RunRecord
            The completed run.

        Raises
        ------
        ConfigError
            If the configuration cannot be built, differs from the one that the run was
            begun with, or another process owns the run.
        Exception
            Any error of a part.  The run is then recorded as failed and can be
            continued.  After Ctrl-C it is recorded as cancelled.
        """
        before = self.database.runs.find_or_create(
            self.experiment,
            self.configuration,
            parents=self.parents,
            environment=describe_environment,
            take_over=take_over,
        )
        self.run_id = before.id
        if before.status == "completed":
            log.info("%s is completed (run %s)", self.experiment, before.id[:12])
            return before
        try:
            self._execute()
        except BaseException as error:
            failed = isinstance(error, Exception)
            reason = f"{type(error).__name__}: {error}" if failed else "stopped"
            self.database.runs.enter(self.run_id, "failed" if failed else "cancelled", reason)
            raise
        self.database.runs.enter(self.run_id, "completed")
        return self.database.runs.get(self.run_id)

    def save_after_step(self) -> None:
        """Save if ``save_every`` asks for it after this step."""
        asked = self.save_every is not None and len(self.history) % self.save_every == 0
        if asked or (self.save_every is None and monotonic() >= self._save_at):
            self.save()

    def save(self) -> None:
        """Save state, history, statistics and progress now."""
        begun = monotonic()
        self.callbacks.trigger("save", self)
        # The state last: a resumed run starts from it and replaces later rows.
        stored = self.database.figures.histories(self.run_id).get(HISTORY, 0)
        rows = list(self.history.rows())
        begin = min(stored, self._saved_rows)
        part = self.parts[self.main]
        total = len(part) if isinstance(part, Sized) else 0
        with self.database.together():
            self.database.figures.put_history(self.run_id, HISTORY, rows[begin:], at=begin)
            self.database.figures.put_statistics(self.run_id, self.statistics)
            self.database.runs.advance(self.run_id, len(rows), total)
        self.database.artifacts.put_state(self.run_id, STATE, self.state_dict())
        self._saved_rows = len(rows)
        now = monotonic()
        self._save_at = now + _WORK_PER_SAVING * (now - begun)

    def _execute(self) -> None:
        self.database.put_origins(self.run_id, find_origins(self.configuration))
        seed = self.configuration.tree.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise ConfigError(
                f"seed: expected a whole number from 0 to below 2 to the power of 63, found "
                f"{seed!r}"
            )
        with seed_generators(seed):
            self.parts = self.configuration.build()
        part: Any = self.parts.get(self.main)
        stateful = isinstance(part, Stateful)
        if not stateful or not callable(part):
            hint = (
                suggest_name(self.main, self.parts)
                or f"; it has {', '.join(self.parts) or 'nothing'}"
            )
            raise ConfigError(f"the configuration has no module {self.main!r} to call{hint}")
        if any(artifact.name == STATE for artifact in self.database.artifacts.list(self.run_id)):
            self.load_state_dict(self.database.artifacts.get_state(self.run_id, STATE))
            log.info(
                "going on with %s after %d steps (run %s)",
                self.experiment,
                len(self.history),
                self.run_id[:12],
            )
        self._saved_rows = len(self.history)
        self.callbacks.trigger("start", self)
        while True:
            figures = part(self)
            if figures is None:
                break
            if not isinstance(figures, Mapping):
                raise ConfigError(
                    f"{self.main}: a step gives numbers by name or None, not "
                    f"{type(figures).__name__}"
                )
            self.history.append(**figures)
            self.callbacks.trigger("step", self)
            self.save_after_step()
        self.callbacks.trigger("end", self)
        self.save()

    def children(self) -> Any:
        """Yield the parts that have a state, the history, the statistics and the callbacks."""
        main: Any = self.parts.get(self.main)
        kept = {id(part) for part in main.keeps()} if hasattr(main, "keeps") else set()
        for name, child in super().children():
            if name != "database" and not _is_kept(child, kept):
                yield name, child


def _is_kept(part: Any, kept: set[int]) -> bool:
    if id(part) in kept:
        return True
    children = [child for _, child in part.children()] if kept and isinstance(part, Module) else []
    return bool(children) and all(_is_kept(child, kept) for child in children)
