"""Running a model on a plugin's test data, in one call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from nnpipe import __version__
from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable, compute_sha256, replace_folder_atomically, write_text
from nnpipe.core.foreign_text import show_text
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.plugins.plugin import LOAD_TEST_DATA, OUTPUT, PROCESS_MODEL_OUTPUT, read_checked_source
from nnpipe.report.inputs.plugin_files import ReadBudget, read_output_files
from nnpipe.report.writers.plugin_page import OutputSection, write_output_page
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.testrun.run import TASKS, StepOutcome, build_candidate
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_model

PAGE = "index.html"
_RECORD, _KIND = "testrun.json", "nnpipe testrun"


def check_free(folder: Path) -> None:
    """Check that writing a folder replaces only an earlier testrun.

    Raises
    ------
    ConfigError
        If the folder holds other files.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return
    try:
        with open(folder / _RECORD, encoding="utf-8") as handle:
            if parse_json(handle.read(1 << 26))["kind"] == _KIND and not folder.is_symlink():
                return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ConfigError(
        f"{folder} holds something else than an earlier testrun, which would be replaced: give a "
        f"new folder"
    )


def write_folder(
    folder: Path,
    title: str,
    facts: Mapping[str, str],
    tried: Sequence[StepOutcome],
    command: Sequence[str],
) -> int:
    """Write the page and the record beside the plugin's files, and return the number of these
    files.
    """
    budget = ReadBudget()
    sections = [_build_section(folder, each, budget) for each in tried]
    write_output_page(folder / PAGE, title, dict(facts), sections, _list_warnings(tried))
    record: dict[str, Any] = {
        "kind": _KIND,
        "schema": 1,
        "command": list(command),
        "facts": dict(facts),
        "steps": [each.to_json() for each in tried],
    }
    write_text(folder / _RECORD, json.dumps(record, indent=2) + "\n")
    return sum(len(section.files) + section.more for section in sections)


def _build_section(folder: Path, tried: StepOutcome, budget: ReadBudget) -> OutputSection:
    place = folder / tried.folder
    files, more = read_output_files(place, budget) if place.is_dir() else ([], 0)
    return OutputSection(tried.title.capitalize(), files, tried.folder, more, tried.failure)


def _list_warnings(tried: Sequence[StepOutcome]) -> list[str]:
    lost = list(dict.fromkeys(name for each in tried for name in each.lost))
    return [f"Written beside {OUTPUT}/, and not kept: {', '.join(lost[:20])}"] if lost else []


_Plugins = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class TestrunResult:
    """The result of a testrun.

    Parameters
    ----------
    folder
        The folder with the plugin's files, and a page that shows them.
    steps
        The steps, with errors of the failed ones.
    facts
        The model, the plugins and the runtime, by their titles on the page.
    files
        Number of files that the plugin wrote.

    Examples
    --------
    Of the example of :func:`nnpipe.testrun`:


    >>> found.failed_steps, found.files
    ((), 1)
    >>> found.page.name
    'index.html'
    """

    __test__: ClassVar[bool] = False  # pytest collects classes whose names begin with Test

    folder: Path
    steps: tuple[StepOutcome, ...]
    facts: Mapping[str, str]
    files: int

    @property
    def page(self) -> Path:
        """The path of the page that shows the plugin's files."""
        return self.folder / PAGE

    @property
    def failed_steps(self) -> tuple[StepOutcome, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.failure)

    def show(self) -> None:
        """Print the number of failed steps and the path of the page."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the number of failed steps and the path of the page."""
        failed = (
            f"failed: {len(self.failed_steps)} of {len(self.steps)} steps\n"
            if self.failed_steps
            else ""
        )
        return f"{failed}page: {self.page} ({self.files:,} files)"


def testrun(
    model: Any,
    data: str | Path,
    output: str | Path,
    *,
    plugin: str | Path,
    output_plugin: str | Path | None = None,
    runtime: str | Runtime | None = None,
    deployment: Deployment | None = None,
    preparation: Mapping[str, Any] | None = None,
    as_is: bool = False,
    batch_size: int = 32,
    keep_going: bool = False,
    title: str = "",
    time_limit: float = 3600.0,
    command: Sequence[str] = (),
) -> TestrunResult:
    """Run a model on test data that a plugin loads, and write a page with the files that a plugin
    makes of the outputs.

    A plugin is code.  It runs in a subprocess, with all your permissions.

    Parameters
    ----------
    model
        The path of a model file, a Keras model, a :class:`~nnpipe.core.live_model.LiveModel`, or
        ``(wrapper, path)``. Export an ``nn.Module`` of PyTorch to a file first.
    data
        The argument of the plugin's ``load_test_data``.
    output
        The folder to write.  Only an earlier testrun there is replaced.
    plugin
        A Python file with ``load_test_data`` and ``process_model_output``, or the name of an
        installed plugin.
    output_plugin
        Another plugin with ``process_model_output``.
    runtime
        The runtime, or its name; by default the model's own framework, or a runtime for its file's
        format.
    deployment
        The target to run it on, if not this machine.
    preparation
        The preprocessing that the model expects, as options of its wrapper: ``{"scale": 255}``.
    as_is
        Whether to omit the wrapper's preprocessing and postprocessing.
    batch_size
        Number of samples in one call of a model that takes any number.
    keep_going
        Whether to continue after a failed step, and show the failure on the page.
    title
        The title of the page.
    time_limit
        The greatest time of the test in seconds, after which its process is ended; 0 for no limit.
    command
        The command line, for the record.

    Returns
    -------
    TestrunResult
        The folder, its page, and the outcome of each step.

    Raises
    ------
    ConfigError
        If the folder holds other files, or the plugin lacks a required function.
    NNPipeError
        If a step fails and ``keep_going`` is not set; the folder is then unchanged.

    Examples
    --------
    Of a model in ONNX, with a plugin that writes one file:

    >>> found = testrun("model.onnx", "scans.npy", "tried", plugin="scans_plugin.py", as_is=True)
    >>> print(found)
    page: tried/index.html (1 files)
    """
    check_call(testrun, locals())
    check_range("testrun: batch_size", batch_size, 1)
    check_range("testrun: time_limit", time_limit, 0)
    output = check_writable(output, folder=True)
    check_free(output)
    plugins = _check_plugins(str(plugin), None if output_plugin is None else str(output_plugin))
    made = find(runtime, Runtime)() if isinstance(runtime, str) else runtime
    try:
        with ExitStack() as stack:
            wrapper, path = import_model(
                model, stack.enter_context(create_working_folder()), None, preparation
            )[0]
            candidate = build_candidate(wrapper, path, made, deployment)
            folder = stack.enter_context(replace_folder_atomically(output))
            request = {
                "candidate": candidate.to_json(),
                "data": str(data),
                "plugins": plugins,
                "folder": str(folder),
                "keep_going": keep_going,
                "as_is": as_is,
                "batch_size": batch_size,
            }
            with Worker(f"{TASKS}:run_testrun_request", shown=True) as worker:
                steps = tuple(
                    StepOutcome(**found)
                    for found in worker.attempt(f"testing {path}", request, time_limit)
                )
            # The subprocess and all that it started have ended, so the files do not change any
            # more.
            facts = describe_testrun(candidate, plugins, data)
            files = write_folder(folder, title or f"Test of {path.name}", facts, steps, command)
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror or error}") from None
    return TestrunResult(output, steps, facts, files)


def _check_plugins(plugin: str, output_plugin: str | None) -> _Plugins:
    """Check the plugins without running them, and return exactly the files to load."""
    other = output_plugin if output_plugin != plugin else None
    parts = {
        "plugin": (plugin, (LOAD_TEST_DATA,) if other else (LOAD_TEST_DATA, PROCESS_MODEL_OUTPUT))
    }
    if other:
        parts["output plugin"] = (other, (PROCESS_MODEL_OUTPUT,))
    found = {}
    for what, (name, needed) in parts.items():
        _, source = read_checked_source(name, needed)
        found[what] = {"name": name, "needed": needed, "sha256": hashlib.sha256(source).hexdigest()}
    return found


def describe_testrun(
    candidate: CandidateSpec, plugins: _Plugins, data: str | Path
) -> dict[str, str]:
    """Return the facts about a candidate, its data and the plugins, by their titles on the page."""
    return {
        "model": f"{type(candidate.wrapper).__name__} ({candidate.model_path})",
        "SHA-256": compute_sha256(candidate.model_path),
        "run by": candidate.run_by,
        "test data": str(data),
        **{
            what: f"{plugin['name']} (SHA-256 {plugin['sha256'][:16]})"
            for what, plugin in plugins.items()
        },
        "tested": datetime.now(timezone.utc).isoformat(" ", "seconds"),
        "by": f"nnpipe {__version__}",
    }
