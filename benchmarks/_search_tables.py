"""Tables and a surrogate of trainings, to search without training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

EPOCHS = 52


@dataclass(frozen=True)
class Table:
    """The value of every configuration, the mean of its repetitions.

    Parameters
    ----------
    name
        Its name.
    space
        The parameters, as for :func:`nnpipe.search`.
    values
        One axis for each parameter.
    direction
        ``minimize`` or ``maximize``.
    """

    name: str
    space: Mapping[str, Any]
    values: Floats
    direction: str

    @property
    def best(self) -> float:
        """The best value of all."""
        return float(self.values.max() if self.direction == "maximize" else self.values.min())

    def value(self, configuration: Mapping[str, Any]) -> float:
        """Return the value of a configuration."""
        places = (each["values"].index(configuration[name]) for name, each in self.space.items())
        return float(self.values[tuple(places)])


def read_table(path: Path, described: Path | None = None) -> Table:
    """Read a table of cells as NAS-Bench-201, or one whose axes are described in a JSON file.

    A table of cells has the arrays ``valid_accuracy`` (cells, repetitions), NaN where one is missing, ``operations``
    and ``edges``; its rows are numbered with one digit for each edge, the first edge first.  Others have an array
    ``values`` with the repetitions last, and under the file's name ``axes`` and ``direction`` in the JSON file.
    """
    with np.load(path, allow_pickle=False) as arrays:
        if "valid_accuracy" in arrays:
            operations = [str(each) for each in arrays["operations"]]
            names = [f"edge_{start}_{end}" for start, end in arrays["edges"]]
            means = np.nanmean(arrays["valid_accuracy"], axis=1).reshape([len(operations)] * len(names))
            space = {name: {"kind": "discrete", "values": operations} for name in names}
            return Table(path.stem, space, means, "maximize")
        values = np.nanmean(arrays["values"].astype(np.float64), axis=-1)
    about = json.loads((described or path.parent / "tables.json").read_text("utf-8"))[path.name]
    space = {
        name: {"kind": "discrete", "values": list(each), "ordered": not isinstance(each[0], str)}
        for name, each in about["axes"].items()
    }
    return Table(path.stem, space, values, about["direction"])


class CurveSurrogate:
    """The learning curves of LCBench (Zimmer et al. 2021), as a network of YAHPO Gym (Pfisterer et al. 2022)."""

    # The order of the network's inputs (yahpo_gym/benchmarks/lcbench.py); the accuracy is its second output.
    _INPUTS = (
        "epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout",
    )  # fmt: skip
    _ACCURACY = 1

    def __init__(self, folder: Path, task: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        tasks = json.loads((folder / "encoding.json").read_text("utf-8"))["OpenML_task_id"]
        self._task = np.full((EPOCHS, 1), tasks[task], np.int32)
        declared = json.loads((folder / "config_space.json").read_text("utf-8"))["hyperparameters"]
        self.space = {each["name"]: _parameter(each) for each in declared if each["name"] in self._INPUTS[1:]}

    def curve(self, configuration: Mapping[str, Any]) -> Floats:
        """Return the validation accuracy in percent after each of 52 epochs, shape (52,)."""
        rows = np.array([[configuration.get(name, 0) for name in self._INPUTS]] * EPOCHS, np.float32)
        rows[:, 0] = np.arange(1, EPOCHS + 1)
        (found,) = self._session.run(None, {"x_cat": self._task, "x_cont": rows})
        return np.asarray(found[:, self._ACCURACY], np.float64)


def curve_tasks(folder: Path) -> list[str]:
    """Return the data sets of the surrogate, LCBench's default first."""
    declared = json.loads((folder / "config_space.json").read_text("utf-8"))["hyperparameters"]
    (tasks,) = [each for each in declared if each["name"] == "OpenML_task_id"]
    return list(tasks["choices"])


def _parameter(declared: Mapping[str, Any]) -> dict[str, Any]:
    low, high = declared["lower"], declared["upper"]
    if declared["type"] == "uniform_int":
        return {"kind": "int", "low": low, "high": high, "log": bool(declared["log"])}
    if declared["log"]:
        return {"kind": "power", "low": float(np.log10(low)), "high": float(np.log10(high))}
    return {"kind": "uniform", "low": low, "high": high}
