"""Running a model on a plugin's test data, in a subprocess, and keeping the files that its
output plugin writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.model import ModelWrapper
from nnpipe.core.runtime import Runtime
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.plugins.plugin import OUTPUT, PROCESS_MODEL_OUTPUT, Plugin, load_plugin
from nnpipe.plugins.steps import PluginStep, iterate_steps
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.model_files import find_runtime
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import check_plan
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.testrun.predictor import Predictor

TASKS = __name__
"""The module of the function that the subprocess calls."""


def build_candidate(
    wrapper: ModelWrapper, path: Path, runtime: Runtime | None, deployment: Deployment | None
) -> CandidateSpec:
    """Return the candidate that runs a model, as it is or exported.

    Raises
    ------
    NNPipeError
        If the runtime cannot run it, or a required package is not installed.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    weights = wrapper.weights_format
    try:
        format = format_of(path)
    except ArtifactError:
        format = weights  # the wrapper will report what is wrong with the file
    remote = deployment is not None
    if runtime is None and (not remote and format != weights):
        runtime = find_runtime(path, format)
    if runtime is None and not remote:
        wrapper.check_installed()
        return CandidateSpec(path.name, wrapper, path)
    if runtime is None and format == weights and format not in wrapper.exports:
        raise ConfigError(
            f"{path} has the weights alone: name with --runtime what the target runs, to have it "
            f"exported"
        )
    if runtime is None or format in runtime.accepts:
        if runtime is not None and not remote:
            runtime.check_installed()
        return CandidateSpec(
            path.name, wrapper, path, runtime=runtime, format=format, deployment=deployment
        )
    if format != weights:
        raise ConfigError(
            f"{path} is {format}; {type(runtime).__name__} takes {' or '.join(runtime.accepts)}"
        )
    plan = check_plan(wrapper, [], runtime, remote=remote)
    return CandidateSpec(
        path.name, wrapper, path, runtime=runtime, export=plan.export, deployment=deployment
    )


@dataclass
class StepOutcome:
    """The outcome of one step.

    Parameters
    ----------
    title
        The step's title, with its samples.
    folder
        The folder of its files, relative to the testrun's folder.
    failure
        The error message, if it failed.
    lost
        Files that the plugin wrote outside ``output/``.
    """

    title: str
    folder: str
    failure: str = ""
    lost: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON can hold it."""
        return asdict(self)


# -- in the subprocess -----------------------------------------------------------------------------


def run_testrun_request(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Load the data, run the model, and let the plugin write into subfolders of the given
    folder.
    """
    plugins = request["plugins"]
    loader = load_plugin(**plugins["plugin"])
    writer = load_plugin(**plugins["output plugin"]) if "output plugin" in plugins else loader
    test = loader.load_test_data(Path(request["data"]))
    folder, found = Path(request["folder"]), []
    with open_predictor(request["candidate"], request) as predictor:
        for step in show_progress(iterate_steps(test, loader.name), "testing", test.steps):
            width = len(str(test.steps))
            tried = StepOutcome(
                step.title, OUTPUT if test.steps == 1 else f"{OUTPUT}/step-{step.number:0{width}}"
            )
            try:
                _try(step, predictor, writer, folder, tried)
            except NNPipeError as error:
                if not request["keep_going"]:
                    raise type(error)(f"{step.title}: {error}") from None
                tried.failure = str(error)
            found.append(tried.to_json())
    return found


def _try(
    step: PluginStep, predictor: Predictor, writer: Plugin, folder: Path, tried: StepOutcome
) -> None:
    output = predictor.predict(step.data)
    with tempfile.TemporaryDirectory(
        prefix=".work-", dir=folder, ignore_cleanup_errors=True
    ) as work:
        try:
            writer.process_model_output(step.data, output, step.expected, folder=Path(work))
        finally:
            kept = _move_output(Path(work), folder / tried.folder)
            tried.lost = sorted(path.name for path in Path(work).glob("*"))
        if not kept:
            raise ConfigError(
                f"{writer.name}: {PROCESS_MODEL_OUTPUT} removed {OUTPUT}/, or put something else "
                f"there"
            )


def _move_output(work: Path, destination: Path) -> bool:
    written = work / OUTPUT
    if written.is_symlink() or not written.is_dir():
        return False
    destination.parent.mkdir(parents=True, exist_ok=True)
    written.rename(destination)
    return True


@contextmanager
def open_predictor(candidate: Any, request: Mapping[str, Any]) -> Iterator[Predictor]:
    """Open a candidate, given in its JSON form, with the settings of a request."""
    spec = CandidateSpec.from_json(candidate)
    with ExitStack() as stack:
        folder = stack.enter_context(create_temporary_folder())
        session = stack.enter_context(spec.export_model(folder).open())
        yield Predictor(session, spec.wrapper, not request["as_is"], request["batch_size"])
