"""A value of a wrong kind, for every setting of a pipeline file and of a sweep, is refused in
one line.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from installed import needs

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.settings import read_settings
from nnpipe.workflows.pipeline.file import Pipeline
from nnpipe.workflows.pipeline.schema import build_pipeline_schema as pipeline_schema
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.schema import build_sweep_schema as sweep_schema

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WRONG: list[Any] = [
    None,
    True,
    7,
    -1,
    10**38,
    2.5,
    -1e300,
    float("nan"),
    "",
    "text",
    "\0",
    "a" * 5000,
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    {"": {}},
]

pytest.importorskip("torch", reason="PyTorch is not installed")
needs("tensorflow")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

FILES: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[], dict[str, Any]]]] = {
    "digits.yaml": (Pipeline.from_settings, pipeline_schema),
    "sweep.yaml": (Sweep.from_settings, sweep_schema),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List every place in a tree, each list by its first element only."""
    if path:
        yield path
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    for key, part in entries:
        yield from places(part, (*path, key))


def planted(settings: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    changed = copy.deepcopy(settings)
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = wrong
    return changed


@cache
def checker(file: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(FILES[file][1]())


def refusal(file: str, settings: dict[str, Any]) -> str | None:
    """Return what is said of settings that are refused; any other error than ours is one of the
    test.
    """
    try:
        FILES[file][0](settings)
    except NNPipeError as error:
        return str(error)
    return None


def cases() -> Iterator[Any]:
    for file in FILES:
        for path in places(read_settings(EXAMPLES / file)):
            yield pytest.param(file, path, id=f"{file}:{'.'.join(map(str, path))}")


@pytest.mark.parametrize(("file", "path"), [*cases()])
def test_a_wrong_value_is_refused_in_one_line_and_never_passed_over(
    file: str, path: tuple[Any, ...]
) -> None:
    settings = read_settings(EXAMPLES / file)
    silent = []
    for wrong in WRONG:
        changed = planted(settings, path, wrong)
        said = refusal(file, changed)
        if said is not None:
            assert len(said.splitlines()) == 1
        # A key with nothing after it is left out, as everywhere in YAML.
        elif wrong is not None and not checker(file).is_valid(changed):
            silent.append(wrong)
    assert silent == []


@pytest.mark.parametrize(("file", "path"), [*cases()])
def test_a_key_that_means_nothing_is_refused_by_name(file: str, path: tuple[Any, ...]) -> None:
    settings = read_settings(EXAMPLES / file)
    part = settings
    for key in path:
        part = part[key]
    if not isinstance(part, dict):
        return
    with pytest.raises(NNPipeError, match="meaningless"):
        FILES[file][0](planted(settings, (*path, "meaningless"), 1))
