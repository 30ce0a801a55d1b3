"""What lies in ``examples`` works, and holds every compiler and runtime that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import MissingDependency
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.experiment.settings import read_settings
from nnpipe.workflows.pipeline.file import CandidateSettings, Pipeline

FOLDER = Path(__file__).resolve().parents[1] / "examples"
BREADTH = FOLDER / "breadth.yaml"
LANGUAGE_MODELS = FOLDER / "tiny_language_model.yaml"
PIPELINES = sorted(path for path in FOLDER.glob("*.yaml") if "candidates" in read_settings(path))


def pipeline_of(path: Path) -> Pipeline:
    try:
        return Pipeline.from_settings(read_settings(path))
    except MissingDependency as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_an_example_is_a_pipeline_that_editors_find_no_fault_with(path: Path) -> None:
    from nnpipe.workflows.pipeline.schema import schema

    pytest.importorskip("jsonschema", reason="jsonschema is not installed").validate(read_settings(path), schema())
    assert pipeline_of(path).count > 1


def test_the_example_of_a_sweep_is_one_that_editors_find_no_fault_with() -> None:
    from nnpipe.workflows.sweep.schema import schema

    pytest.importorskip("jsonschema", reason="jsonschema is not installed").validate(
        read_settings(FOLDER / "sweep.yaml"), schema()
    )


@pytest.mark.parametrize("network", ["CNN", "MobileNetV2"])
@pytest.mark.parametrize("family", [ModelCompiler, Runtime], ids=["compilers", "runtimes"])
def test_a_small_and_a_large_network_go_through_all_there_are(network: str, family: type[Component]) -> None:
    used = {
        type(part)
        for model in (*pipeline_of(BREADTH).models, *pipeline_of(LANGUAGE_MODELS).models)
        if model.title in (network, f"Keras {network}", "")
        for candidate in model.candidates
        for part in parts_of(candidate)
    }
    ours = {cls for cls in components(family) if cls.__module__.startswith("nnpipe.")}
    assert {cls.__name__ for cls in ours - used} == set()


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
        rows = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
        ways = [candidate.title.removeprefix(f"{model.title}: ") for candidate in model.candidates]
        assert rows[2:] == ways
