"""A classification of more classes than a confusion matrix can hold has a report, too."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from nnpipe.core.task import get_task
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.run import Run
from nnpipe.report.render import render
from nnpipe.report.writers.html import to_html
from nnpipe.report.writers.markdown import to_markdown

COUNT = 5000


@pytest.mark.parametrize("named", [True, False])
def test_a_report_of_5000_classes_shows_the_worst_ones_and_the_most_common_confusions(named):
    random = np.random.default_rng(2)
    truth = random.integers(0, COUNT, 8_000)
    given = np.where(random.random(8_000) < 0.2, random.integers(0, COUNT, 8_000), truth)
    truth[:60], given[:60] = 4321, 17
    scores = np.zeros((8_000, COUNT), np.int8)
    scores[np.arange(8_000), given] = 1
    names = tuple(f"kind {n}" for n in range(COUNT))
    spec = DatasetSpec("classification", (), (), names)
    judged = get_task("classification").evaluate({"scores": scores}, {"label": truth}, spec)
    judged = judged if named else dataclasses.replace(judged, class_names=())
    runs = [
        Run(f"net {n}", (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=judged) for n in range(2)
    ]
    for document in (render(runs[:1], "One"), render(runs, "Two")):
        to_html(document)
        text = to_markdown(document, {})
        word = "kind" if named else "class"
        assert re.search(rf"\| {word} 4321 \| {word} 17 \| 60 \|", text)
        assert "There are 5,000 classes, of which a confusion matrix would be too large." in text
        assert "The 40 classes with the least F1, of 5,000" in text
        assert f"{100 * float((truth == given).mean()):.2f}" in text.replace("\\", "")
