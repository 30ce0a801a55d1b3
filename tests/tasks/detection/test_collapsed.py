"""A detector whose boxes and scores share one int8 scale is named as such, by reports and
comparisons.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from finder_model import write_finder
from installed import needs

from nnpipe.core.evaluation import Evaluation
from nnpipe.datasets import SyntheticDetectionDataset
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.paired_comparison import ComparisonPlan
from nnpipe.measuring.run import Run
from nnpipe.modelwrappers import ONNXModel
from nnpipe.report.document import Block, Paragraph, Section
from nnpipe.report.render import render
from nnpipe.report.sections.comparison import list_remarks

needs("onnx", "onnxruntime")


def judged(path: str) -> Evaluation:
    """Return the evaluation of a detector on synthetic pictures."""
    dataset = SyntheticDetectionDataset(num_samples=24, noise=0.02)
    options = ("score_threshold=0.05",)
    wrapper = ONNXModel(
        model_path=Path(path), scale=255.0, decoder="YOLODecoder", decoder_options=options
    )
    wrapper = wrapper.for_dataset(dataset.spec)
    found = []
    with wrapper.open().session() as session:
        for number in range(24):
            inputs, truth = dataset.read(np.array([number]))
            outputs = session.infer(wrapper.preprocess(inputs))
            found.append(dataset.evaluate(wrapper.postprocess(outputs), truth))
    return Evaluation.concat(found)


def run(title: str, evaluation: Evaluation) -> Run:
    return Run(title, (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=evaluation)


def texts(block: Block) -> list[str]:
    if isinstance(block, Section):
        return [text for each in block.blocks for text in texts(each)]
    return [block.text] if isinstance(block, Paragraph) else []


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (0.3, "different scores, as after quantising boxes and scores by one scale"),
        (2.5, "finds nothing in 24 pictures with "),
    ],
)
def test_a_detector_with_one_scale_for_boxes_and_scores_is_named(
    tmp_path: Path, step: float, told: str
) -> None:
    runs = [
        run("float", judged(write_finder(tmp_path / "float.onnx"))),
        run("int8", judged(write_finder(tmp_path / "int8.onnx", step))),
    ]
    said = [
        text
        for section in render(runs, "T").sections
        for text in texts(section)
        if "Collapsed" in text
    ]
    assert len(said) == 1
    assert said[0].startswith("There is reason to distrust the predictions of int8. Collapsed: it")
    assert told in said[0]
    compared = list_remarks(Comparison("both", ComparisonPlan(), tuple(runs)))
    assert [
        text.startswith("Mind that the quality of int8 is in doubt (collapsed): it")
        for text in compared
    ] == [True]
