"""Searching for fast schedules with TVM's MetaSchedule."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.errors import CompileError

# A worker imports TVM before it builds or measures anything, which alone may take more than the default of 30 s.
_TIMEOUT_S = 90
_WORKERS = 2
_AT_ONCE = 64
_POPULATION, _LEAST_POPULATION = 512, 64
_LOGGER = "tvm.s_tir.meta_schedule"


def build(module: Any, target: Any, params: Any) -> Any:
    """Build one candidate in a worker, importing no more than that takes."""
    from tvm.driver import build as tvm_build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm_build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def tuned(module: Any, target: Any, trials: int, seed: int, folder: Path) -> Any:
    """Compile a module of fixed shapes with the best schedules found.

    Parameters
    ----------
    module
        A Relax module.
    target
        The processor here.
    trials
        Schedules to try in all; each operation gets at least one.
    seed
        Where the search starts.
    folder
        A place for records.

    Raises
    ------
    CompileError
        If not one candidate ran.
    """
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.relax_integration import compile_relax, extract_tasks, tune_relax

    with target:
        lowered = relax.get_pipeline("zero")(module)
    tasks = extract_tasks(lowered, target)
    if not tasks:
        raise CompileError("there is nothing to tune in it; compile it with --tune-trials 0")
    # Each operation first gets one round, which left to itself would use up all trials for the first few;
    # what remains goes where it helps most.
    per_round = max(1, min(_AT_ONCE, trials // (2 * len(tasks))))
    with _loggers_put_back():
        database = tune_relax(
            lowered,
            {},
            target,
            str(folder),
            max_trials_global=max(trials, len(tasks)),
            num_trials_per_iter=per_round,
            builder=ms.builder.LocalBuilder(f_build=build, timeout_sec=_TIMEOUT_S, max_workers=_WORKERS),
            runner=ms.runner.LocalRunner(timeout_sec=_TIMEOUT_S),
            cost_model=_cost_model(),
            strategy=ms.search_strategy.EvolutionarySearch(population_size=_population(per_round)),
            seed=seed,
        )
    if not len(database):
        raise CompileError(f"not one of {trials} candidates could be built and run; see that g++ works")
    return compile_relax(database, module, target, {})


def _population(per_round: int) -> int:
    """Say among how many schedules each round searches: TVM's number is for rounds of 64, and takes longer than those
    few trials of a small round themselves."""
    return max(_LEAST_POPULATION, min(_POPULATION, 32 * per_round))


@contextmanager
def _loggers_put_back() -> Iterator[None]:
    """Undo what a search does to its loggers: it writes files into its folder for good, and trips over handlers."""
    main = logging.getLogger(_LOGGER)
    before = main.handlers, main.level, main.propagate
    main.handlers = []
    try:
        yield
    finally:
        names = [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGER)]
        for logger in map(logging.getLogger, names):
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()
        main.handlers, main.level, main.propagate = before


def _cost_model() -> str:
    """Name the model that predicts which candidates are worth a trial."""
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return "random"
    return "xgb"
