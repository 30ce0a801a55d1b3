"""Anomaly scores that were computed elsewhere, to be judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets._score_table import ScoreTable
from nnpipe.datasets._split import TEST
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.tasks.anomaly.metrics import CLIP
from nnpipe.tasks.anomaly.task import AnomalyDetection


class AnomalyScoresDataset(InMemoryDataset):
    """Anomaly scores from a CSV file, one row each, to be judged by ``nnpipe judge AnomalyScoresDataset``.

    Whether a row is an anomaly is in ``kind_column``, or else follows from its name: the default arguments read
    the files of DCASE and MLPerf Tiny, ``anomaly_id_01_00000000.wav,9.7``.  Columns are named by the file's first
    line, or numbered from 1.  All rows are the test split.
    """

    dataset_root: Path = argument(Path("scores.csv"), help="CSV file of scores")
    score_column: str = argument("2", help="column of the scores; greater means more anomalous")
    kind_column: str | None = argument(None, help="column that holds 1 for an anomaly and 0 for a normal sample")
    name_column: str = argument("1", help="column of names, if there is no column of kinds")
    anomaly_text: str = argument("anomaly", help="text that the names of anomalies contain")
    clip_column: str | None = argument(
        None, help="column that says which rows belong to one clip, whose score is the mean of theirs"
    )

    @property
    def spec(self) -> DatasetSpec:
        """A score, and whether the sample is an anomaly."""
        targets = [TensorSpec("anomalous", (None,), "int64")]
        if self.clip_column is not None:
            targets.append(TensorSpec(CLIP, (None,), "int64"))
        return DatasetSpec(
            AnomalyDetection.name,
            inputs=(TensorSpec("score", (None,), "float64"),),
            targets=tuple(targets),
            class_names=("usual", "anomalous"),
        )

    def load(self) -> Samples:
        """Return the scores, float64, and the kinds, int64."""
        table = ScoreTable(self.dataset_root, self.score_column)
        if self.kind_column is not None:
            kinds = table.kinds(self.kind_column)
        else:
            names = table.texts(self.name_column)
            kinds = np.array([self.anomaly_text in name for name in names], np.int64)
        targets = {"anomalous": kinds}
        if self.clip_column is not None:
            clips = np.array(table.texts(self.clip_column), object)
            targets[CLIP] = np.unique(clips, return_inverse=True)[1].reshape(-1).astype(np.int64)
        official = np.full(len(table), TEST, np.int8)
        return Samples({"score": table.numbers(self.score_column)}, targets, ("usual", "anomalous"), official)
