"""A trained model in a subprocess, which loads it once, then exports, compiles and runs it.

If a framework crashes or hangs there, only the current step fails.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import check_apart
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.plan import Plan
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.workflows.candidates.model_files import read_class_names
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix
from nnpipe.workflows.isolation.subprocess_worker import Worker, WorkerDied
from nnpipe.workflows.verification.claims import infer_number_format
from nnpipe.workflows.verification.compare_outputs import Reference, prepare_samples

log = logging.getLogger("nnpipe")


class LimitOptions(Component):
    """The time limit of work in subprocesses."""

    time_limit: float = argument(
        3600.0,
        help="seconds that each step may take (exporting, each compiler, running the source, "
        "measuring, verifying) before its process is ended; 0 for no limit",
        minimum=0.0,
    )


class ModelProcess(Closing):
    """A trained model in a subprocess; used in a ``with`` block by one thread.

    Each step raises :class:`~nnpipe.core.errors.NNPipeError` if the framework
    refuses it, crashes, raises an unexpected error, or does not finish in
    ``seconds`` (0: no limit).

    Parameters
    ----------
    wrapper, path
        The model and its weights.
    dataset
        The model's data; without it the model can be exported and compiled, but not calibrated or
        run.
    judged
        Whether predictions will be judged, so that truth and classes have to fit.
    """

    def __init__(
        self, wrapper: ModelWrapper, dataset: Dataset | None, path: Path, judged: bool = True
    ) -> None:
        self._name = f"{type(wrapper).__name__} ({path})"
        self._path = path
        self._spec = CandidateSpec(
            path.name, wrapper, path, dataset=dataset, judged=judged
        ).to_json()
        self._worker = Worker(f"{__name__}:ModelRequestHandler", shown=True)
        # by the format of the export and the compilers
        self._made: dict[tuple[str, ...], Path] = {}
        self._refused: dict[tuple[str, ...], NNPipeError] = {}

    def load(self, seconds: float) -> None:
        """Load the weights; otherwise the first step loads them."""
        self._send_request(f"loading {self._name}", seconds, do="load")

    def compile(
        self,
        way: Plan,
        compilers: Sequence[ModelCompiler],
        path: Path,
        calibration_samples: int,
        seconds: float,
    ) -> Artifact:
        """Export the model, run the compilers, and return the last result, which is written to
        ``path``.

        Intermediate files are kept beside it, so that every step can be inspected.  Each export,
        and each step that several chains begin with, is carried out once; the descriptions of later
        results name the file that was used.
        """
        steps = self.list_destinations(way, compilers, path)
        what = f"exporting {self._name} as {way.export}"
        recipe: tuple[str, ...] = (way.export,)
        made = self._run_once(
            recipe, what, steps[0], seconds, not compilers, True, do="export", format=way.export
        )
        for compiler, to in zip(compilers, steps[1:], strict=True):
            what = f"compiling with {type(compiler).__name__}: {compiler.variant()}"
            described = compiler.describe()
            recipe = (*recipe, json.dumps([described, calibration_samples], sort_keys=True))
            made = self._run_once(
                recipe,
                what,
                to,
                seconds,
                to is path,
                isinstance(compiler, WritingCompiler),
                do="compile",
                compiler=described,
                artifact=str(made),
                samples=calibration_samples,
            )
        return Artifact.read(made)

    def list_destinations(
        self, way: Plan, compilers: Sequence[ModelCompiler], path: Path
    ) -> list[Path]:
        """Return the files that :meth:`compile` writes for the same arguments, the last one at
        ``path``.

        Raises
        ------
        ConfigError
            If one of them would replace the model.
        """
        endings = [get_file_suffix(way, compilers[:n]) for n in range(len(compilers))]
        steps = [path.with_name(f"{path.stem}.step{n}{end}") for n, end in enumerate(endings)]
        for step in (*steps, path):
            check_apart(step, [self._path])
        return [*steps, path]

    def _run_once(
        self,
        recipe: tuple[str, ...],
        what: str,
        to: Path,
        seconds: float,
        last: bool,
        one_file: bool,
        **request: Any,
    ) -> Path:
        """Carry out a step unless it has been, and return the path of its result: ``to`` if it is a
        chain's last.

        What makes more than one file is not given a second name.  A step that was refused is not
        tried again; one that crashed or took too long is.
        """
        if (refused := self._refused.get(recipe)) is not None:
            raise refused
        known = self._made.get(recipe)
        if known is not None and known.is_file():
            if not last:
                return known
            if one_file and known.parent == to.parent:
                return Artifact.read(known).link(to).path
        log.info("%s", what)
        try:
            made = Path(self._send_request(what, seconds, to=str(to), **request))
        except WorkerDied:
            raise
        except NNPipeError as error:
            self._refused[recipe] = error
            raise
        self._made[recipe] = made
        return made

    def load_result(self, made: CandidateSpec, seconds: float) -> None:
        """Load a compiled model once, with its runtime; the model that it was made from is closed
        before.

        Raises
        ------
        CompileError
            If the runtime refuses it.
        """
        assert made.artifact is not None
        what = f"loading {made.artifact.path} with {made.run_by}"
        log.info("%s", what)
        self._send_request(what, seconds, do="load-result", result=made.to_json())

    def run(self, samples: int, path: Path, seconds: float, runtime: Runtime | None = None) -> None:
        """Run the model on ``samples`` test samples, in its own framework or ``runtime``; write
        inputs and outputs.
        """
        described = None if runtime is None else runtime.describe()
        self._send_request(
            f"running {self._name}",
            seconds,
            do="run",
            samples=samples,
            to=str(path),
            runtime=described,
        )

    def close(self) -> None:
        """End the process; closing twice does no harm."""
        self._worker.close()

    def _send_request(self, what: str, seconds: float, **request: Any) -> Any:
        return self._worker.attempt(what, {"candidate": self._spec, **request}, seconds)


class ModelRequestHandler:
    """Carries out the requests of :class:`ModelProcess`, in this process."""

    def __init__(self) -> None:
        self._spec: CandidateSpec | None = None
        self._model: LiveModel | None = None

    def __call__(self, request: Mapping[str, Any]) -> str | None:
        """Carry out one step, and return the path of the file that it wrote."""
        if request["do"] == "load-result":
            self._close()  # both models may not fit into memory
            CandidateSpec.from_json(request["result"]).open().close()
            return None
        if self._spec is None or self._model is None:
            spec = CandidateSpec.from_json(request["candidate"])
            self._model = spec.load_model()
            self._spec = replace(spec, wrapper=self._model.wrapper)
        steps: dict[str, Callable[[CandidateSpec, LiveModel, Mapping[str, Any]], str | None]] = {
            "load": lambda *_: None,
            "export": _export,
            "compile": _compile,
            "run": _run,
        }
        return steps[request["do"]](self._spec, self._model, request)

    def _close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None


def _export(spec: CandidateSpec, model: LiveModel, request: Mapping[str, Any]) -> str:
    made = model.export(Path(request["to"]), request["format"])
    meaning = made.meaning or spec.wrapper.meaning_of_files()
    if meaning is not None:  # of wrappers that describe their files themselves, too
        made.update_meaning(meaning.with_class_names(read_class_names(spec.model_path)))
    return str(made.path)


def _compile(spec: CandidateSpec, model: LiveModel, request: Mapping[str, Any]) -> str:
    compiler = create_component(request["compiler"], ModelCompiler)
    dataset = spec.dataset

    def load_calibration() -> Iterable[Batch]:
        assert dataset is not None
        return map(spec.wrapper.preprocess, dataset.calibration(request["samples"]))

    observed = None if dataset is None else load_calibration
    return str(
        compiler.compile(Artifact.read(request["artifact"]), Path(request["to"]), observed).path
    )


def _run(spec: CandidateSpec, model: LiveModel, request: Mapping[str, Any]) -> str:
    wrapper = spec.wrapper
    assert spec.dataset is not None
    preparation = wrapper.preparation()
    if not spec.judged and not preparation.known:  # otherwise measuring reports it
        log.warning(
            "%s: preprocessing not known: samples go in as they are; say with --scale, --mean and "
            "--deviation what the model wants (--scale 1: as they are)",
            spec.model_path,
        )
    samples = prepare_samples(wrapper, spec.dataset, request["samples"])
    with _open_session(spec, model, request["runtime"]) as session:
        # A file states its number format; other models would have to be traced, and compute in
        # floats.
        numbers = infer_number_format(model) if isinstance(wrapper, FileModel) else "float"
        classes = spec.dataset.spec.task == "classification"
        Reference.from_session(session, wrapper.io, samples, numbers, classes).write(
            Path(request["to"])
        )
    return str(request["to"])


def _open_session(
    spec: CandidateSpec, model: LiveModel, runtime: Mapping[str, Any] | None
) -> InferenceSession:
    if runtime is None:  # the model is loaded already
        return model.session()
    return replace(spec, runtime=create_component(runtime, Runtime)).open()
