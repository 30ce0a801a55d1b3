"""Running one or two models on pictures or prompts, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_range
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import check_writable, replace_folder_atomically
from nnpipe.core.runtime import Runtime
from nnpipe.report.task_section import find_task_pictures
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.isolation.subprocess_worker import Worker
from nnpipe.workflows.testrun import prompt_run
from nnpipe.workflows.testrun.picture_run import TASK
from nnpipe.workflows.testrun.prompt_run import can_answer_prompts
from nnpipe.workflows.testrun.run import StepOutcome, build_candidate
from nnpipe.workflows.testrun.testrun import (
    TestrunResult,
    check_free,
    describe_testrun,
    write_folder,
)
from nnpipe.workflows.user_inputs.inputs import create_working_folder, import_model

_LARGEST = 1 << 20  # letters of a list of classes


def run_on_pictures(
    models: Sequence[Any],
    source: str | Path,
    output: str | Path,
    *,
    task: str | None = None,
    class_list: Path | None = None,
    most: int = 200,
    every: int = 1,
    runtime: Runtime | None = None,
    deployment: Deployment | None = None,
    title: str = "",
    time_limit: float = 3600.0,
    command: Sequence[str] = (),
) -> TestrunResult:
    """Run one model or two on pictures, and write a page of the pictures with what the models say.

    Models that generate text are run on prompts, and the page has a table of their answers.

    Parameters
    ----------
    models
        One or two models, as :func:`~nnpipe.workflows.testrun.testrun.testrun` takes them.  Of two,
        pictures show both side by side, those first in which they differ most.
    source
        An image file, a folder of them, a video file, or ``camera``; a file of prompts (.txt,
        .jsonl or .csv) for models that generate text.
    output
        The folder to write.  Only an earlier testrun there is replaced.
    task
        The task, which knows how to draw; by default that of the model's decoder, or
        classification.
    class_list
        A text file with the names of the classes, one a line.
    most
        The greatest number of pictures.
    every
        1 for all pictures of the source, 2 for every second one, and so on.
    runtime, deployment, title, time_limit, command
        As for :func:`~nnpipe.workflows.testrun.testrun.testrun`.

    Raises
    ------
    NNPipeError
        If the models cannot run, the pictures cannot be read, or the task does not draw; the folder
        is unchanged.
    """
    check_range("testrun: most", most, 1)
    check_range("testrun: every", every, 1)
    if not 1 <= len(models) <= 2:
        raise ConfigError(f"a testrun shows one model, or two side by side, not {len(models)}")
    output = check_writable(output, folder=True)
    check_free(output)
    if task is not None:
        find_task_pictures(task)
    names = () if class_list is None else _read_names(class_list)
    try:
        with ExitStack() as stack:
            working = stack.enter_context(create_working_folder())
            folders = [working / str(number) for number in range(len(models))]
            for own in folders:
                own.mkdir()
            opened = [
                import_model(model, own, None, None)[0]
                for model, own in zip(models, folders, strict=True)
            ]
            candidates = [
                build_candidate(wrapper, path, runtime, deployment) for wrapper, path in opened
            ]
            folder = stack.enter_context(replace_folder_atomically(output))
            titles = [str(path) for _, path in opened]
            request = {
                "candidates": [each.to_json() for each in candidates],
                "titles": titles,
                "data": str(source),
                "folder": str(folder),
                "task": task,
                "class_names": list(names),
                "most": most,
                "every": every,
                "as_is": False,
                "batch_size": 1,
            }
            texts = [can_answer_prompts(wrapper) for wrapper, _ in opened]
            if any(texts) != all(texts):
                raise ConfigError(
                    "one model answers prompts, and the other does not: both are to be given the "
                    "same data"
                )
            task_of = prompt_run.TASK if all(texts) else TASK
            with Worker(task_of, shown=True) as worker:
                told = f"testing {' and '.join(titles)}"
                steps = tuple(
                    StepOutcome(**found) for found in worker.attempt(told, request, time_limit)
                )
            facts = {
                f"{name}{f' ({number})' if len(candidates) > 1 else ''}": fact
                for number, candidate in enumerate(candidates, 1)
                for name, fact in describe_testrun(candidate, {}, source).items()
            }
            files = write_folder(
                folder, title or f"Test of {', '.join(titles)}", facts, steps, command
            )
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror or error}") from None
    return TestrunResult(output, steps, facts, files)


def _read_names(path: Path) -> tuple[str, ...]:
    """Return the lines of a text file; raise :class:`ConfigError` if it is none."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_LARGEST + 1)
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > _LARGEST:
        raise ConfigError(f"{path}: not a text file with one class name a line")
    return tuple(line.strip() for line in text.splitlines())
