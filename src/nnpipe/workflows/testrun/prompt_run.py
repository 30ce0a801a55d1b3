"""Running one or two models on prompts, in a subprocess, and writing their answers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import format_csv
from nnpipe.core.generation import NONE, PROMPT, REQUEST_NS, TOKENS
from nnpipe.core.model import ModelWrapper
from nnpipe.datasets.texts import PromptsDataset
from nnpipe.plugins.plugin import OUTPUT
from nnpipe.report.formatting import clean
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.testrun.predictor import Predictor
from nnpipe.workflows.testrun.run import StepOutcome, open_predictor

TASK = f"{__name__}:run_prompt_request"
"""The function that the subprocess calls."""

_LONGEST = 2000  # letters of a text in the table


def can_answer_prompts(wrapper: ModelWrapper) -> bool:
    """Return whether a model answers prompts with text."""
    return any(spec.name == PROMPT for spec in wrapper.io.inputs)


def run_prompt_request(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer the prompts, and write a table of the answers, those first in which the candidates
    differ.
    """
    folder = Path(request["folder"]) / OUTPUT
    folder.mkdir(parents=True)
    prompts = PromptsDataset(dataset_root=Path(request["data"]))
    prompts.prepare()
    numbers = np.arange(len(prompts))[:: request["every"]][: request["most"]]
    rows = []
    with ExitStack() as stack:
        predictors = [
            stack.enter_context(open_predictor(each, request)) for each in request["candidates"]
        ]
        for number in show_progress(numbers.tolist(), "testing", len(numbers)):
            given, _ = prompts.read(np.array([number]))
            answers = [_generate_answer(each, given) for each in predictors]
            rows.append(
                (number, *(str(given[name][0]) for name in ("prompt", "reference")), answers)
            )
    differing = [len({text for text, *_ in answers}) > 1 for *_, answers in rows]
    several = len(request["candidates"]) > 1
    names = [
        f" ({number})" if several else "" for number in range(1, len(request["candidates"]) + 1)
    ]
    columns = [f"{what}{name}" for name in names for what in ("answer", "tokens", "milliseconds")]
    columns = ["prompt number", "prompt", "reference", *columns]
    lines = []
    for place in np.argsort(~np.array(differing, bool), kind="stable").tolist():
        number, prompt, reference, answers = rows[place]
        cells = [
            cell
            for text, tokens, ms in answers
            for cell in (clean(text, _LONGEST), tokens, f"{ms:.3g}")
        ]
        line = [number + 1, clean(prompt, _LONGEST), clean(reference, _LONGEST), *cells]
        lines.append(dict(zip(columns, line, strict=True)))
    write_text(folder / "answers.csv", format_csv(columns, lines))
    beside = (
        f", {sum(differing):,} of which the models answer differently come first" if several else ""
    )
    return [StepOutcome(f"{len(rows):,} prompts{beside}", OUTPUT).to_json()]


def _generate_answer(predictor: Predictor, given: Mapping[str, Any]) -> tuple[str, int, float]:
    """Return the text of an answer, the number of its tokens, and the milliseconds that it took."""
    found = predictor.predictions(given)
    tokens = int(np.count_nonzero(found[TOKENS][0] != NONE))
    return str(found["text"][0]), tokens, float(found[REQUEST_NS][0]) / 1e6
