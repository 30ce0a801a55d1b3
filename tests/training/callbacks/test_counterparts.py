"""The table of TRW's callbacks in docs/callbacks.md: each row's class, its test, and the file
that it names.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.registry import find
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.selection import find_callback_classes

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "training"


class Row(NamedTuple):
    theirs: str
    ours: str
    writes: str
    test: str


def rows() -> list[Row]:
    text = (ROOT / "docs" / "callbacks.md").read_text("utf-8")
    table = re.findall(r"^\| `(Callback\w+)` \| (.+) \| (.+) \| `(\S+)` \|$", text, re.M)
    return [Row(*found) for found in table]


ROWS = rows()
ASKED = """
ZipSources ReportingModelSummary ReportingDatasetSummary ReportingExportSamples ReportingClassificationErrors
ReportingAugmentations LearningRateFinder Profiler EpochSummary ReportingRecordHistory ReportingBestMetrics
ReportingLearningRateRecorder ReportingLayerStatistics ReportingLayerWeights WorstSamplesByEpoch ExportConvolutionKernel
SaveLastModel ExportClassificationReport ExportHistory ExplainDecision TensorboardEmbedding TensorboardRecordHistory
TensorboardRecordModel EarlyStopping SkipEpoch DebugProcesses
""".split()
"""What TRW's callbacks are called after the word ``Callback``."""


def test_every_callback_of_trw_has_a_row() -> None:
    assert {f"Callback{name}" for name in ASKED} - {row.theirs for row in ROWS} == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.theirs}-{row.writes}")
def test_a_row_names_a_class_and_a_test_that_exist(row: Row) -> None:
    name = row.ours.strip("`")
    if name in find_callback_classes():
        assert any(row.theirs in cls.formerly for cls in find_callback_classes().values())
    else:  # what the trainer does by itself: whoever looks for it is told the option
        with pytest.raises(ComponentNotFound) as told:
            find(row.theirs, Callback)
        options = re.findall(r"`(\w+)`", row.ours)
        assert options
        assert all(option in str(told.value) for option in options)
    file, _, function = row.test.partition("::")
    assert function in {
        node.name
        for node in ast.walk(ast.parse((TESTS / file).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.slow
def test_each_row_names_a_file_that_a_training_writes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import every

    from nnpipe.training.options import TrainerOptions
    from nnpipe.training.trainer import Trainer

    Trainer(TrainerOptions(num_epochs=2), every.every()).fit(
        every.model(), every.data(), folder=tmp_path
    )
    patterns = {row.writes.strip("`") for row in ROWS if row.writes != "nothing"}
    assert [pattern for pattern in patterns if not any(tmp_path.glob(pattern))] == []
