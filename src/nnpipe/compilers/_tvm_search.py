"""The subprocess that searches for fast schedules with TVM's MetaSchedule; its parent may kill it
at any time.

It reads a request and exits when all trials are done.  Results are appended to a database beside
the request, trial by trial.  When its standard input is closed, it exits together with all
processes that it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.compilers._tvm_import import import_relax_module
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError
from nnpipe.frameworks.tvm import get_native_target

REQUEST = "request.json"
FAILED, NOTHING = 3, 4
"""Exit statuses: the search failed, with the reason as the last line printed; there is nothing
to tune.
"""

# A worker first imports TVM, which alone may take longer than the default timeout of 30 s.
_TIMEOUT_S = 90
_WORKERS, _USES = 2, 64  # each worker leaks a little memory in every use
_AT_ONCE = 64
_POPULATION, _LEAST_POPULATION = 512, 64
_SECONDS_A_TRIAL = 1.0  # roughly, on two cores
_ENOUGH = 1 << 20
_STDIN = 0


def main() -> int:
    """Run the search of the request in the folder that the command line names; return the exit
    status.
    """
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_whoever_started_it, daemon=True).start()
    request = json.loads((folder / REQUEST).read_text())
    _block_imports(folder, request)
    try:
        return _search(folder, request)
    except NNPipeError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED


def build_candidate(module: Any, target: Any) -> str:
    """Build one candidate in a worker with as few imports as possible; return the path of its
    library.
    """
    from tvm.driver import build
    from tvm.s_tir.meta_schedule.builder.local_builder import default_export
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return str(
        default_export(
            build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)
        )
    )


def _make_builder() -> Any:
    """Return a builder with persistent workers: TVM's builder starts new ones for each round, and
    importing TVM takes them longer than building.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

    # The module is imported under its real name, by which workers find the function.
    from nnpipe.compilers._tvm_search import build_candidate

    pool = PopenPoolExecutor(max_workers=_WORKERS, timeout=_TIMEOUT_S, maximum_process_uses=_USES)

    @derived_object
    class Builder(PyBuilder):  # type: ignore[misc]  # TVM may not be installed for type checking
        def build(self, build_inputs: Any) -> list[Any]:
            asked = [(each.mod, each.target) for each in build_inputs]
            return [
                BuilderResult(found.value, None)
                if found.status == StatusKind.COMPLETE
                else BuilderResult(None, f"not built: {found.value}")
                for found in pool.map_with_error_catching(
                    lambda pair: build_candidate(*pair), asked
                )
            ]

    return Builder()


def _search(folder: Path, request: Mapping[str, Any]) -> int:
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    artifact = Artifact.from_json(request["artifact"], Path(request["artifact"]["path"]))
    module, _ = import_relax_module(artifact, request["batch"])
    target = get_native_target()
    with target:
        lowered = relax.get_pipeline("zero")(module)
    tasks = [
        task
        for task in extract_tasks(lowered, target)
        if not task.mod.attrs.get("tirx.is_scheduled", False)
    ]
    if not tasks:
        return NOTHING
    trials, seconds = request["trials"], request["seconds"]
    # Each operation first gets one round, as the search would otherwise use up all trials for the
    # first few; the remaining trials go where they help most.
    expected = min(count for count in (trials, seconds / _SECONDS_A_TRIAL) if count)
    per_round = max(1, min(_AT_ONCE, int(expected) // (2 * len(tasks))))
    strategy = ms.search_strategy.EvolutionarySearch(population_size=_choose_population(per_round))
    ms.tune_tasks(
        tasks=_create_contexts(tasks, strategy, request["seed"]),
        task_weights=[task.weight for task in tasks],
        work_dir=str(folder),
        database=ms.database.JSONDatabase(work_dir=str(folder)),
        max_trials_global=max(trials or _ENOUGH, len(tasks)),
        num_trials_per_iter=per_round,
        builder=_make_builder(),
        runner=ms.runner.LocalRunner(timeout_sec=_TIMEOUT_S),
        cost_model=_choose_cost_model(),
    )
    return 0


def _block_imports(folder: Path, request: Mapping[str, Any]) -> None:
    """Block optional imports of TVM, which take most of the time until a process can start.

    Builders, and imports of ONNX models, do not need PyTorch.  TVM registers the instructions of
    GPUs by reading about a hundred scripts one by one.
    """
    without = folder / "without"
    without.mkdir()
    (without / "torch.py").write_text(
        "raise ImportError('blocked: builders and runners need no PyTorch')\n"
    )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(without), os.environ.get("PYTHONPATH", "")))
    )
    for name in ("cuda", "rocm", "hexagon"):
        name = f"tvm.s_tir.tensor_intrin.{name}"
        sys.modules[name] = types.ModuleType(name)
    if request["artifact"]["format"] == "onnx":
        sys.modules["torch"] = None  # type: ignore[assignment]  # makes importing it fail
        try:
            import tvm.relax
            import tvm.s_tir.meta_schedule  # noqa: F401
        finally:
            del sys.modules["torch"]


def _end_with_whoever_started_it() -> None:
    # Not with sys.stdin, whose lock Python needs when it exits.
    while os.read(_STDIN, 1):
        pass
    os.killpg(0, signal.SIGKILL) if hasattr(os, "killpg") else os._exit(1)


def _choose_population(per_round: int) -> int:
    """Return the number of schedules among which each round searches.

    TVM's default is for rounds of 64 trials; in a small round, searching would take longer than the
    trials.
    """
    return max(_LEAST_POPULATION, min(_POPULATION, 32 * per_round))


def _create_contexts(tasks: Sequence[Any], strategy: Any, seed: int) -> list[Any]:
    """Return the tuning context of each operation, as TVM's ``tune_relax`` does, but without its
    log files.
    """
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


def _choose_cost_model() -> str:
    """Return the name of the cost model, which predicts the candidates worth a trial."""
    try:
        import xgboost  # noqa: F401
    except ImportError:
        return "random"
    return "xgb"


if __name__ == "__main__":
    sys.exit(main())
