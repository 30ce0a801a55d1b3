"""Running one or two models on pictures, in a subprocess, and drawing what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import find_nonfinite_samples
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.task import list_tasks
from nnpipe.core.tensors import Batch
from nnpipe.plugins.plugin import OUTPUT
from nnpipe.report.formatting import clean, shorten
from nnpipe.report.task_section import TaskPictures, find_task_pictures, has_task_pictures
from nnpipe.workflows.testrun.picture_sources import iter_pictures
from nnpipe.workflows.testrun.predictor import Predictor
from nnpipe.workflows.testrun.run import StepOutcome, open_predictor

TASK = f"{__name__}:run_picture_request"
"""The function that the subprocess calls."""

_WIDEST = 800  # pixels of a drawn picture
_LINE = 14


def run_picture_request(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run the candidates on the pictures, and write a drawing of each, those first in which
    candidates differ most.
    """
    folder, differences, names = Path(request["folder"]) / OUTPUT, [], []
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        predictors = [
            stack.enter_context(open_predictor(each, request)) for each in request["candidates"]
        ]
        task = find_task_pictures(request["task"] or _choose_task(predictors))
        class_names = request["class_names"] or _find_class_names(predictors)
        for number, (name, picture) in enumerate(
            iter_pictures(request["data"], request["most"], request["every"])
        ):
            given: dict[str, npt.NDArray[Any]] = {
                "image": picture[None],
                IMAGE_SIZE: np.array([picture.shape[:2]], np.int32),
            }
            found = [each.predictions(given) for each in predictors]
            differences.append(_compute_difference(task, picture, found))
            names.append(name)
            _write(folder / f"{number}.jpg", task, picture, found, request["titles"], class_names)
    order = np.argsort(-np.array(differences), kind="stable").tolist()
    digits = len(str(len(order)))
    for place, number in enumerate(order, 1):
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in clean(names[number], 60))
        (folder / f"{number}.jpg").rename(folder / f"{place:0{digits}}-{stem}.jpg.part")
    for path in folder.glob("*.part"):
        path.rename(path.with_suffix(""))
    differing = sum(each > 0 for each in differences)
    beside = (
        f", {differing:,} of which the models see differently come first"
        if len(request["candidates"]) > 1
        else ""
    )
    return [StepOutcome(f"{len(order):,} pictures{beside}", OUTPUT).to_json()]


def _compute_difference(
    task: TaskPictures, picture: npt.NDArray[np.uint8], found: Sequence[Batch]
) -> float:
    """Return how much two models differ: infinitely if one of them gives no finite answer; 0 of
    one model.
    """
    lost = [_is_lost(each) for each in found]
    if len(found) < 2 or all(lost):
        return 0.0
    return math.inf if any(lost) else task.measure_difference(picture, found[0], found[1])


def _is_lost(predictions: Batch) -> bool:
    return bool(find_nonfinite_samples(predictions, 1).any())


def _choose_task(predictors: Sequence[Predictor]) -> str:
    """Return the task of the models' decoders, or else the one that judges a score for each
    class.
    """
    told = [_list_tasks(each) for each in predictors]
    common = [task for task in told[0] if all(task in tasks for tasks in told)]
    if len(common) == 1:
        return common[0]
    if common:
        raise ConfigError(f"the model may be for {' or '.join(common)}: name the task with --task")
    if not all(told):
        raise ConfigError("the model does not tell its task: name it with --task")
    raise ConfigError(
        f"one model is for {' or '.join(told[0])}, and the other for {' or '.join(told[1])}"
    )


def _list_tasks(predictor: Predictor) -> tuple[str, ...]:
    """Return the tasks that a model may be for and that draw into pictures."""
    decoder = predictor.wrapper.output_decoder
    if decoder is None:
        return tuple(task.name for task in list_tasks() if task.scores_classes)
    return tuple(task for task in decoder.tasks if has_task_pictures(task)) or decoder.tasks


def _find_class_names(predictors: Sequence[Predictor]) -> tuple[str, ...]:
    """Return the names of the classes that the description beside a model states; none if it
    does not.
    """
    meanings = (each.wrapper.meaning for each in predictors)
    outputs = (output for meaning in meanings if meaning is not None for output in meaning.outputs)
    return next((output.class_names for output in outputs if output.class_names), ())


def _write(
    path: Path,
    task: TaskPictures,
    picture: npt.NDArray[np.uint8],
    found: Sequence[Batch],
    titles: Sequence[str],
    class_names: Sequence[str],
) -> None:
    from PIL import Image, ImageDraw

    drawn = [
        (picture, "the outputs are NaN or infinite")
        if _is_lost(each)
        else task.draw(picture, each, class_names)
        for each in found
    ]
    width = min(picture.shape[1], _WIDEST)
    width = max(width, 160)
    height = max(1, round(picture.shape[0] * width / picture.shape[1]))
    lines = [
        [told] if len(drawn) == 1 else [title, told]
        for (_, told), title in zip(drawn, titles, strict=True)
    ]
    above = _LINE * max(map(len, lines)) + 4
    whole = Image.new("RGB", (len(drawn) * (width + 4) - 4, height + above), (255, 255, 255))
    pen = ImageDraw.Draw(whole)
    for place, ((image, _), texts) in enumerate(zip(drawn, lines, strict=True)):
        left = place * (width + 4)
        for row, text in enumerate(texts):
            pen.text(
                (left + 2, 2 + row * _LINE), shorten(clean(text, 300), width // 6), fill=(0, 0, 0)
            )
        whole.paste(
            Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR), (left, above)
        )
    whole.save(path, "JPEG", quality=85)
