"""What lies in ``examples`` works, and holds every compiler and runtime that there is."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import MissingDependency
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.task import list_installed_tasks
from nnpipe.experiment.settings import read_settings
from nnpipe.report.inputs.quality import Quality
from nnpipe.workflows.pipeline.file import CandidateSettings, Pipeline

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs"))

from measured_tasks import commands_of, runs_of

FOLDER = Path(__file__).resolve().parents[1] / "examples"
BREADTH = FOLDER / "breadth.yaml"
LANGUAGE_MODELS = FOLDER / "tiny_language_model.yaml"
TASKS = sorted((FOLDER / "tasks").glob("*.yaml"))
PIPELINES = (
    sorted(path for path in FOLDER.glob("*.yaml") if "candidates" in read_settings(path)) + TASKS
)


def pipeline_of(path: Path) -> Pipeline:
    try:
        return Pipeline.from_settings(read_settings(path))
    except MissingDependency as error:
        pytest.skip(str(error))


@functools.cache  # to check the schema itself takes a second
def editor() -> Any:
    """Return what finds the faults of a pipeline file by the schema that editors are given."""
    from nnpipe.workflows.pipeline.schema import build_pipeline_schema

    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    kind = jsonschema.validators.validator_for(build_pipeline_schema())
    kind.check_schema(build_pipeline_schema())
    return kind(build_pipeline_schema())


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_an_example_is_a_pipeline_that_editors_find_no_fault_with(path: Path) -> None:
    editor().validate(read_settings(path))
    assert pipeline_of(path).count > 1


def test_the_example_of_a_sweep_is_one_that_editors_find_no_fault_with() -> None:
    from nnpipe.workflows.sweep.schema import build_sweep_schema

    pytest.importorskip("jsonschema", reason="jsonschema is not installed").validate(
        read_settings(FOLDER / "sweep.yaml"), build_sweep_schema()
    )


@pytest.mark.parametrize("network", ["CNN", "MobileNetV2"])
@pytest.mark.parametrize("family", [ModelCompiler, Runtime], ids=["compilers", "runtimes"])
def test_a_small_and_a_large_network_go_through_all_there_are(
    network: str, family: type[Component]
) -> None:
    used = {
        type(part)
        for model in (*pipeline_of(BREADTH).models, *pipeline_of(LANGUAGE_MODELS).models)
        if model.title in (network, f"Keras {network}", "")
        for candidate in model.candidates
        for part in parts_of(candidate)
    }
    ours = {cls for cls in components(family) if cls.__module__.startswith("nnpipe.")}
    # A program from an ONNX file is measured as the one that PyTorch exports;
    # examples/declared.yaml makes one.
    assert {cls.__name__ for cls in ours - used} == {"ONNXToTorch"} & {cls.__name__ for cls in ours}


def parts_of(candidate: CandidateSettings) -> tuple[Component, ...]:
    return (*candidate.compilers, *([candidate.runtime] if candidate.runtime else []))


def test_everything_runs_at_one_thread() -> None:
    """So that times can be compared."""
    for model in pipeline_of(BREADTH).models:
        assert model.wrapper.num_threads == 1  # type: ignore[attr-defined]
        for candidate in model.candidates:
            assert getattr(candidate.runtime, "num_threads", 1) == 1, candidate.title


def test_the_page_of_measurements_has_a_row_for_every_way() -> None:
    page = (BREADTH.parents[1] / "docs" / "breadth.md").read_text("utf-8")
    for model in pipeline_of(BREADTH).models:
        section = page.partition(f"\n### {model.title}\n")[2].partition("\n#")[0]
        rows = [
            line.split(" | ")[0].removeprefix("| ")
            for line in section.splitlines()
            if line.startswith("| ")
        ]
        ways = [candidate.title.removeprefix(f"{model.title}: ") for candidate in model.candidates]
        assert rows[2:] == ways


def test_every_task_has_a_pipeline_and_its_rows_on_the_page_of_measurements() -> None:
    rows = (
        (BREADTH.parents[1] / "docs" / "breadth.md")
        .read_text("utf-8")
        .partition("<!-- tasks -->")[2]
        .splitlines()
    )
    firsts = {row.split(" | ")[0].removeprefix("| ") for row in rows if row.startswith("| ")}
    assert {path.stem.replace("_", " ") for path in TASKS} - firsts == set()
    done = {pipeline_of(path).dataset.spec.task for path in TASKS}
    assert {task.name for task in list_installed_tasks(of_plugins=False)} - done == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_pipeline_of_a_task_trains_compiles_and_judges(path: Path, tmp_path: Path) -> None:
    pipeline_of(path)  # skips what is not installed
    for read in ("examples", "docs", "README.md"):
        (tmp_path / read).symlink_to(FOLDER.parent / read)
    for command in commands_of(path.stem):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    runs = runs_of(tmp_path / "build" / "tasks" / path.stem)
    assert len(runs) == pipeline_of(path).count
    for run in runs:
        quality = Quality.from_run(run)
        assert quality is not None
        assert math.isfinite(quality.value), run.title
