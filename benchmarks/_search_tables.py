"""Tables and a surrogate of trainings, to search without training."""

from __future__ import annotations

import json
import zipfile
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
        return float(
            np.nanmax(self.values) if self.direction == "maximize" else np.nanmin(self.values)
        )

    def value(self, configuration: Mapping[str, Any]) -> float:
        """Return the value of a configuration; NaN if it is not known."""
        places = (each["values"].index(configuration[name]) for name, each in self.space.items())
        return float(self.values[tuple(places)])


class TableError(Exception):
    """A table that cannot be read; the message says what is wrong."""


def read_table(path: Path, described: Path | None = None) -> Table:
    """Read a table of cells as NAS-Bench-201, or one whose axes are described in a JSON file.

    A table of cells has an array ``valid_accuracy`` (cells, repetitions) and the arrays
    ``operations`` and ``edges`` (edges, 2).  Its row is the number whose digits are the operations
    of the edges, the first edge first; with an array ``key`` of these digits, rows may be in any
    order, and cells may be missing.  Any other table has an array ``values`` with an axis for each
    parameter, and optionally one more for repetitions, the last.  NaN stands for a repetition that
    is missing; configurations without any are never the best.

    The JSON file has ``axes``, the values of each parameter by its name in the order of the array's
    axes, and ``direction``, either by themselves or under the table's file name.  Tables of cells
    do without.

    Parameters
    ----------
    path
        The table, ``.npz``.
    described
        The JSON file; by default ``tables.json`` beside the table.

    Raises
    ------
    TableError
        If a file cannot be read, or they do not fit together.
    """
    arrays = _arrays(path)
    if "valid_accuracy" in arrays:
        return _of_cells(path, arrays)
    if "values" not in arrays:
        raise TableError(
            f"{path}: expected an array valid_accuracy or values, found "
            f"{', '.join(arrays) or 'none'}"
        )
    about = _description(described or path.parent / "tables.json", path.name)
    axes, values = about["axes"], arrays["values"].astype(np.float64)
    shape = tuple(map(len, axes.values()))
    if values.shape[: len(shape)] != shape or values.ndim > len(shape) + 1:
        told = ", ".join(f"{name} {len(each)}" for name, each in axes.items())
        raise TableError(f"{path}: values has the shape {values.shape}, but the axes are {told}")
    if values.ndim > len(shape):
        values = _mean(values)
    space = {
        name: {
            "kind": "discrete",
            "values": list(each),
            "ordered": not any(isinstance(v, str) for v in each),
        }
        for name, each in axes.items()
    }
    return _checked(path, Table(path.stem, space, values, about["direction"]))


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if path.is_file() and not zipfile.is_zipfile(path):
        raise TableError(f"{path}: is no file of arrays (.npz)")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays}
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise TableError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _of_cells(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Table:
    for needed in ("operations", "edges"):
        if needed not in arrays:
            raise TableError(
                f"{path}: a table of cells has an array {needed}; found {', '.join(arrays)}"
            )
    operations = [_text(each) for each in arrays["operations"]]
    names = [f"edge_{start}_{end}" for start, end in arrays["edges"]]
    shape = (len(operations),) * len(names)
    found = arrays["valid_accuracy"].astype(np.float64)
    means = found if found.ndim == 1 else _mean(found)
    rows = np.arange(len(means))
    if "key" in arrays:
        keys = [_text(each) for each in arrays["key"]]
        if len(keys) != len(means) or not all(
            len(key) == len(names) and key.isdigit() for key in keys
        ):
            raise TableError(
                f"{path}: key has no digit for each of {len(names)} edges in each of {len(means)} "
                f"rows"
            )
        digits = np.array([[int(digit) for digit in key] for key in keys])
        if digits.max() >= len(operations):
            raise TableError(
                f"{path}: key has the digit {digits.max()}, but there are {len(operations)} "
                f"operations"
            )
        rows = np.ravel_multi_index(tuple(digits.T), shape)
    elif len(means) != np.prod(shape):
        raise TableError(
            f"{path}: {len(operations)} operations on {len(names)} edges are {np.prod(shape)} "
            f"cells, and there are {len(means)} rows; an array key says which cell each is"
        )
    values = np.full(int(np.prod(shape)), np.nan)
    values[rows] = means
    space = {name: {"kind": "discrete", "values": operations} for name in names}
    return _checked(path, Table(path.stem, space, values.reshape(shape), "maximize"))


def _description(path: Path, name: str) -> Mapping[str, Any]:
    hint = (
        f'it says the axes of {name}: {{"axes": {{"rate": [0.1, 0.01]}}, "direction": '
        f'"maximize"}}; --axes names it'
    )
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise TableError(f"{path}: {getattr(error, 'strerror', None) or error}; {hint}") from None
    about = found.get(name, found) if isinstance(found, dict) else found
    axes = about.get("axes") if isinstance(about, dict) else None
    if (
        not isinstance(axes, dict)
        or not axes
        or not all(isinstance(each, list) and each for each in axes.values())
    ):
        raise TableError(f"{path}: has no axes for this table; {hint}")
    ways = {"min": "minimize", "max": "maximize", "minimize": "minimize", "maximize": "maximize"}
    if about.get("direction") not in ways:
        raise TableError(
            f"{path}: direction is minimize or maximize, not {about.get('direction')!r}"
        )
    return {"axes": axes, "direction": ways[about["direction"]]}


def _checked(path: Path, table: Table) -> Table:
    if not np.isfinite(table.values).any():
        raise TableError(f"{path}: has no number")
    return table


def _mean(values: Floats) -> Floats:
    """Return the means over the last axis without NaN; NaN where there is nothing else."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(-1) / known.sum(-1))


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


class CurveSurrogate:
    """The learning curves of LCBench (Zimmer et al.

    2021), as a network of YAHPO Gym (Pfisterer et al. 2022).
    """

    # The order of the network's inputs (yahpo_gym/benchmarks/lcbench.py); the accuracy is its
    # second output.
    _INPUTS = (
        "epoch",
        "batch_size",
        "learning_rate",
        "momentum",
        "weight_decay",
        "num_layers",
        "max_units",
        "max_dropout",
    )
    _ACCURACY = 1

    def __init__(self, folder: Path, task: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        tasks = json.loads((folder / "encoding.json").read_text("utf-8"))["OpenML_task_id"]
        self._task = np.full((EPOCHS, 1), tasks[task], np.int32)
        declared = json.loads((folder / "config_space.json").read_text("utf-8"))["hyperparameters"]
        self.space = {
            each["name"]: _parameter(each) for each in declared if each["name"] in self._INPUTS[1:]
        }

    def curve(self, configuration: Mapping[str, Any]) -> Floats:
        """Return the validation accuracy in percent after each of 52 epochs, shape (52,)."""
        rows = np.array(
            [[configuration.get(name, 0) for name in self._INPUTS]] * EPOCHS, np.float32
        )
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
