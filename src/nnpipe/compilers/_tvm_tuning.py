"""Searching for fast schedules with TVM's MetaSchedule."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import CompileError
from nnpipe.core.model import random_batch
from nnpipe.core.tensors import IOSpec

# A worker imports TVM before it builds or measures anything, which alone may take more than the default of 30 s.
_TIMEOUT_S = 90
_WORKERS = 2
_AT_ONCE = 64
_POPULATION, _LEAST_POPULATION = 512, 64
_SECONDS_A_TRIAL = 1.0  # about; on two cores
_ENOUGH = 1 << 20
_REPEATS = 15


def build(module: Any, target: Any, params: Any) -> Any:
    """Build one candidate in a worker, importing no more than that takes."""
    from tvm.driver import build as tvm_build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm_build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def tuned(module: Any, target: Any, trials: int, seconds: float, seed: int) -> Any:
    """Compile a module of fixed shapes with the best schedules found.

    Parameters
    ----------
    module
        A Relax module.
    target
        The processor here.
    trials
        Schedules to try in all, each operation gets at least one; 0 for as many as there is time for.
    seconds
        How long to search; what is being tried then is finished. 0 for no limit.
    seed
        Where the search starts.

    Raises
    ------
    CompileError
        If not one candidate ran.
    """
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.relax_integration import compile_relax, extract_tasks

    with target:
        lowered = relax.get_pipeline("zero")(module)
    tasks = [task for task in extract_tasks(lowered, target) if not task.mod.attrs.get("tirx.is_scheduled", False)]
    if not tasks:
        raise CompileError("there is nothing to tune in it; compile it without --tune-trials and --tune-seconds")
    # Each operation first gets one round, which left to itself would use up all trials for the first few;
    # what remains goes where it helps most.
    expected = min(count for count in (trials, seconds / _SECONDS_A_TRIAL) if count)
    per_round = max(1, min(_AT_ONCE, int(expected) // (2 * len(tasks))))
    strategy = ms.search_strategy.EvolutionarySearch(population_size=_population(per_round))
    database = ms.tune_tasks(
        tasks=_contexts(tasks, strategy, seed),
        task_weights=[task.weight for task in tasks],
        work_dir="",  # for databases on the disk
        database="memory",
        max_trials_global=max(trials or _ENOUGH, len(tasks)),
        num_trials_per_iter=per_round,
        builder=ms.builder.LocalBuilder(f_build=build, timeout_sec=_TIMEOUT_S, max_workers=_WORKERS),
        runner=ms.runner.LocalRunner(timeout_sec=_TIMEOUT_S),
        cost_model=_cost_model(),
        measure_callbacks=[
            *ms.MeasureCallback.create("default"),
            *([_time_limit(len(tasks), seconds)] * bool(seconds)),
        ],
    )
    if not len(database):
        raise CompileError("not one candidate could be built and run; see that g++ works, or search longer")
    return compile_relax(database, module, target, {})


def _time_limit(count: int, seconds: float) -> Any:
    """Return what ends the search of all operations when the time is up; it is asked after every round of one."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    end = time.monotonic() + seconds
    ended: set[int] = set()

    @derived_object
    class TimeLimit(PyMeasureCallback):  # type: ignore[misc]  # TVM may not be there to be checked
        def apply(
            self, task_scheduler: Any, task_id: int, measure_candidates: Any, builder_results: Any, runner_results: Any
        ) -> None:
            for task in range(count) if time.monotonic() >= end else ():
                if task not in ended:
                    ended.add(task)
                    task_scheduler.terminate_task(task)

    return TimeLimit()


def fastest(executables: Mapping[str, Any], io: IOSpec) -> str:
    """Name the executable that ran fastest on random inputs."""
    import tvm
    from tvm import relax

    batch = random_batch(io, 1)
    inputs = [tvm.runtime.tensor(np.ascontiguousarray(batch[spec.name])) for spec in io.inputs]
    times = {}
    for name, executable in executables.items():
        machine = relax.VirtualMachine(executable, tvm.cpu())
        timed = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=_REPEATS)
        times[name] = float(np.median(timed(*inputs).results))
    return min(times, key=lambda name: times[name])


def _population(per_round: int) -> int:
    """Say among how many schedules each round searches: TVM's number is for rounds of 64, and takes longer than those
    few trials of a small round themselves."""
    return max(_LEAST_POPULATION, min(_POPULATION, 32 * per_round))


def _contexts(tasks: Sequence[Any], strategy: Any, seed: int) -> list[Any]:
    """Say how each operation is searched, as TVM's ``tune_relax`` does, but without its log files: to set these up it
    closes all log handlers of the process, and with them the standard error where something else stands for it."""
    from tvm.s_tir.meta_schedule import TuneContext
    from tvm.s_tir.meta_schedule.utils import fork_seed

    return [
        TuneContext(
            mod=task.dispatched[0],
            target=task.target,
            space_generator="post-order-apply",
            search_strategy=strategy,
            task_name=task.task_name,
            rand_state=state,
            num_threads="physical",
        ).clone()
        for task, state in zip(tasks, fork_seed(seed, n=len(tasks)), strict=True)
    ]


def _cost_model() -> str:
    """Name the model that predicts which candidates are worth a trial."""
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return "random"
    return "xgb"
