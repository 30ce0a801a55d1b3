"""Cutting a model that a chain fails on down to the few nodes that it still fails on, in one
call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable
from nnpipe.core.foreign_text import show_text
from nnpipe.core.plan import Plan
from nnpipe.core.progress import Progress
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.recipes import PlannedRecipe, Recipe
from nnpipe.workflows.reduction.onnx_parts import DivisibleGraph, ONNXPart, TensorValues
from nnpipe.workflows.reduction.subprocess_tasks import match_recipe
from nnpipe.workflows.reduction.symptom import Symptom
from nnpipe.workflows.reduction.trying import Trying, TryOutcome, minimize_items
from nnpipe.workflows.reduction.writing import write_reproducer
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_inputs


@dataclass(frozen=True)
class ReduceResult:
    """The few nodes of a model that still show what is wrong with it.

    Parameters
    ----------
    path
        The folder with the reproducer.
    symptom
        What is wrong.
    nodes
        The types of the nodes that are left, in order.
    nodes_before
        The number of nodes of the whole model.
    tries
        How many parts were tried.
    seconds
        How long it took.
    ended
        What ended the search early; empty if no node can be left out any more.

    Examples
    --------
    >>> symptom = Symptom("crash", "loading", "SIGSEGV")
    >>> print(ReduceResult(Path("reduced"), symptom, ("Conv", "Relu"), 120, tries=34, seconds=21.4))
    2 of 120 nodes are left: Conv, Relu
    symptom: the process crashed (SIGSEGV) while loading
    34 tries in 21 s
    reproducer: reduced (issue.md says how to report it)
    """

    path: Path
    symptom: Symptom
    nodes: tuple[str, ...]
    nodes_before: int
    tries: int
    seconds: float
    ended: str = ""

    def __str__(self) -> str:
        kinds = ", ".join(
            name if n == 1 else f"{n} {name}" for name, n in Counter(self.nodes).most_common(8)
        )
        more = ", ..." if len(set(self.nodes)) > 8 else ""
        early = f"\nended early by {self.ended}: fewer nodes may do" if self.ended else ""
        return (
            f"{len(self.nodes)} of {self.nodes_before} nodes are left: {kinds}{more}\n"
            f"symptom: {self.symptom}\n"
            f"{self.tries} tries in {self.seconds:.0f} s{early}\n"
            f"reproducer: {self.path} (issue.md says how to report it)"
        )

    def show(self) -> None:
        """Print the result."""
        show_text(str(self))


_LEAST_SECONDS, _TIMES_LONGER = 5.0, 20.0
# after so many tries that ended, parts hang that take so often the longest
_ENOUGH_TRIES, _TIMES_LONGEST = 3, 8.0
_LEAST_IN_A_NEW_PROCESS = 30.0  # seconds
_PREPARING = 3600.0  # seconds for exporting and for computing the reference


def reduce(
    model: Any,
    way: str | Recipe,
    *,
    to: str | Path = "reduced",
    data: Any = None,
    samples: int = 4,
    preparation: Mapping[str, Any] | None = None,
    tolerances: Tolerances | None = None,
    hang_after: float = 120.0,
    time_limit: float = 600.0,
    progress: Progress = show_progress,
) -> ReduceResult:
    """Cut a model whose compiled form fails, crashes, hangs or differs down to the few nodes that
    still do.

    The model is exported to ONNX and run once by ONNX Runtime without optimisations,
    which records what every tensor holds.  Then parts of the graph are fed with these
    values and tried with the chain, each in a process of its own: halves and smaller
    parts alone, and then without one node after the other.

    Parameters
    ----------
    model
        The path of a model file, an ``nn.Module`` of PyTorch, a model of Keras, or ``(wrapper,
        path)``; anything that can be exported to ONNX.
    way
        A short name of :func:`~nnpipe.workflows.recipes.recipes`, or a
        :class:`~nnpipe.workflows.recipes.Recipe`.
    to
        The folder to write, which must not exist: ``model.onnx``, ``inputs.npz``, ``expected.npz``,
        ``reproduce.py`` and ``issue.md``.
    data
        Samples, as for :func:`~nnpipe.workflows.verification.verify.verify`; random ones by
        default.
    samples
        Number of samples to run; quantisers observe them, too.
    preparation
        The preprocessing that the model expects, as options of its wrapper.
    tolerances
        How far outputs may differ, as ``verify`` judges it.
    hang_after
        Seconds after which the whole model hangs.  For its parts, 8 times as long as the longest of
        three or more that do not hang is enough, or 20 times as long as that of fewer.
    time_limit
        Seconds to search at most; then the smallest part so far is written.
    progress
        Shows the number of tries.

    Returns
    -------
    ReduceResult
        The nodes that are left, the symptom, and the folder.

    Raises
    ------
    ConfigError
        If the model cannot be exported to ONNX, the chain does not take ONNX, or nothing is wrong.
    NNPipeError
        If the reference cannot be computed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nnpipe.core.errors import ConfigError
    >>> from nnpipe.core.progress import silent
    >>> from nnpipe.testing.model_files import write_onnx_network
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_network(Path(folder, "model.onnx")).path
    ...     try:
    ...         reduce(model, "onnx", to=Path(folder, "reduced"), progress=silent)
    ...     except ConfigError as error:
    ...         print(str(error).partition(": ")[2][:37])
    nothing is wrong with it on 4 samples
    """
    check_call(reduce, locals())
    check_range("reduce: samples", samples, 1)
    check_range("reduce: hang_after", hang_after, 1)
    check_range("reduce: time_limit", time_limit, 1)
    start = time.monotonic()
    to = Path(to)
    if to.exists():
        raise ConfigError(f"{to}: is there already; name another folder")
    check_writable(to, folder=True)
    with create_working_folder() as folder:
        taken = import_inputs(
            model, data, folder, preparation=preparation, calibration_samples=0, progress=progress
        )
        wrapper, source = taken.models[0]
        onnx_file = source
        if wrapper.weights_format != "onnx":
            if "onnx" not in wrapper.exports:
                raise ConfigError(
                    f"{source}: {type(wrapper).__name__} cannot be exported to ONNX, which reduce "
                    f"works on"
                )
            with ModelProcess(wrapper, None, source) as process:
                process.compile(Plan("onnx", ()), (), folder / "exported.onnx", 0, _PREPARING)
            onnx_file = folder / "exported.onnx"
        chosen = _select_chain(way, onnx_file, folder)
        whole = DivisibleGraph(onnx_file)
        chain = _describe_chain(chosen, tolerances or Tolerances())
        candidate = None
        if taken.dataset is not None:
            dataset = prepare_dataset(taken.dataset)
            candidate = CandidateSpec(
                source.name, wrapper, source, dataset=dataset, judged=False
            ).to_json()
        with Trying(chain, folder) as trying:
            (folder / "values").mkdir()
            found = trying.task(
                "record",
                _PREPARING,
                model=str(onnx_file),
                values=str(folder / "values"),
                samples=samples,
                candidate=candidate,
            )
            values = TensorValues(folder / "values", found["names"], found["samples"])
            search = _Search(trying, whole, values, str(source), hang_after)
            search.begin()
            try:
                for _ in progress(search.iter_tries(), f"reducing {len(whole.nodes)} nodes"):
                    if time.monotonic() - start > time_limit:
                        search.ended = "the time limit"
                        break
            except KeyboardInterrupt:
                search.ended = "Ctrl-C"
            if not search.ended:
                search.confirm()
            part, symptom = search.part(), search.symptom
            write_reproducer(to, part, values, chosen, chain, symptom, found["by"], search.limit)
            return ReduceResult(
                path=to,
                symptom=symptom,
                nodes=tuple(node.op_type for node in part.model.graph.node),
                nodes_before=len(whole.nodes),
                tries=trying.count,
                seconds=time.monotonic() - start,
                ended=search.ended,
            )


def _select_chain(way: str | Recipe, path: Path, folder: Path) -> PlannedRecipe:
    chosen = match_recipe(way, path, folder)
    if chosen.plan is None or chosen.runtime is None:
        raise ConfigError(
            f"{chosen.title!r} compiles nothing: name a way such as 'onnx' or 'openvino-int8'"
        )
    return chosen


def _describe_chain(chosen: PlannedRecipe, tolerances: Tolerances) -> dict[str, Any]:
    assert chosen.plan is not None
    assert chosen.runtime is not None
    return {
        "compilers": [compiler.describe() for compiler in chosen.compilers],
        "runtime": chosen.runtime.describe(),
        "export": chosen.plan.export,
        "tolerances": tolerances.to_json(),
    }


@dataclass
class _Search:
    """The state of one reduction: which nodes are left, and how a try is made."""

    trying: Trying
    whole: DivisibleGraph
    values: TensorValues
    title: str
    hang_after: float
    ended: str = ""
    free: bool = False
    warm: bool = False
    seconds: list[float] = field(default_factory=list)
    """Of tries in forks that ended."""

    def begin(self) -> None:
        """Find out what is wrong with the whole model, and how its parts are best tried.

        Raises
        ------
        ConfigError
            If nothing is wrong, or only now and then.
        """
        self.limit = self.hang_after
        self.left: list[int] = list(range(len(self.whole.nodes)))
        self.accepted: list[list[int]] = [self.left]
        first = self._attempt(self.left)
        if first is None or first.symptom is None:
            self.free = True  # the fault may need axes of free length
            first = self._attempt(self.left)
        if first is None or first.symptom is None:
            raise ConfigError(
                f"{self.title}: nothing is wrong with it on {self.values.samples} samples; give "
                f"those that show the "
                "fault with --dataset, or lower --same-tolerance and --close-tolerance"
            )
        self.symptom = first.symptom
        self.names, self.operators = self.whole.names, self.whole.operators
        # Forks of a process that has imported the frameworks are fast, if the fault is the same
        # there.
        self.warm = True
        if self.symptom.kind == "hang":
            self.limit = self._measure_first_limit()
            return
        self.limit = min(self.hang_after, max(_LEAST_SECONDS, _TIMES_LONGER * first.seconds))
        if not self._is_same_symptom(self._attempt(self.left)):
            self.warm, self.limit = False, self.hang_after
            if not self._is_same_symptom(self._attempt(self.left)):
                raise ConfigError(
                    f"{self.title}: what is wrong shows only now and then: {self.symptom}"
                )

    def iter_tries(self) -> Iterator[list[int]]:
        """Yield what is left after each try."""
        for left in minimize_items(self.left, self._check_symptom):
            if left is not self.left and len(left) < len(self.left):
                self.left = list(left)
                self.accepted.append(self.left)
            yield left

    def confirm(self) -> None:
        """Return to the smallest part that shows the fault in a new process, too."""
        # A new process also imports the frameworks.
        self.warm, self.limit = (
            False,
            min(self.hang_after, max(_LEAST_IN_A_NEW_PROCESS, 4 * self.limit)),
        )
        for left in self.accepted[::-1]:
            found = self._attempt(left)
            if found is not None and self._is_same_symptom(found):
                assert found.symptom is not None
                self.left, self.symptom = left, found.symptom
                return

    def part(self) -> ONNXPart:
        """Return the model of the nodes that are left."""
        made = self.whole.part(self.left, self.values, self.free)
        assert made is not None
        return made

    def _attempt(self, places: Sequence[int]) -> TryOutcome | None:
        tried = self.trying.attempt(
            self.whole, self.values, places, self.free, self.limit, self.warm
        )
        if (
            self.warm
            and tried is not None
            and (tried.symptom is None or tried.symptom.kind != "hang")
        ):
            self.seconds.append(tried.seconds)
        return tried

    def _is_same_symptom(self, tried: TryOutcome | None) -> bool:
        return tried is not None and self.symptom.is_shown_by(
            tried.symptom, self.names, self.operators
        )

    def _check_symptom(self, places: Sequence[int]) -> bool:
        if self.symptom.kind == "hang":  # a new process confirms the last part, with more time
            self.limit = self._compute_limit()
        if not self._is_same_symptom(self._attempt(places)):
            return False
        # A fault that comes and goes, or a part that is no model by itself, would lead astray.
        if self.symptom.kind != "hang" and not self._is_same_symptom(self._attempt(places)):
            return False
        return self.trying.is_valid(
            self.whole, self.values, places, self.free, self.hang_after, self.warm
        )

    def _measure_first_limit(self) -> float:
        """Return after how many seconds a part hangs, from a few single nodes that do not."""
        last = len(self.left) - 1
        for place in dict.fromkeys((0, last, last // 2, last // 4, 3 * last // 4)):
            if len(self.seconds) < _ENOUGH_TRIES:
                self._attempt([place])
        return self._compute_limit()

    def _compute_limit(self) -> float:
        """Return the limit that follows from the tries that ended; a single slow one must not
        make each hang long.
        """
        if not self.seconds:
            return self.hang_after
        times = _TIMES_LONGEST if len(self.seconds) >= _ENOUGH_TRIES else _TIMES_LONGER
        return min(self.hang_after, max(_LEAST_SECONDS, times * max(self.seconds)))
