"""What scripts of every framework have in common.  What is not defined here, each framework's part defines."""

# mypy: ignore-errors
# ruff: noqa: F821

import csv
import importlib.util
import json
import struct
import sys
import time
import zipfile
from pathlib import Path


def append_line(path, values):
    """Append one JSON object to a file, in one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def numbers_only(figures):
    """Return the figures that are finite numbers, which is what JSON can hold."""
    found = {name: float(value) for name, value in figures.items()}
    return {name: value for name, value in found.items() if abs(value) < float("inf")}


def report_progress(path, fraction, figures):
    """Tell whoever watches how far the work is: `fraction` from 0 to 1, and figures."""
    line = {"fraction": fraction, "metrics": numbers_only(figures)}
    append_line(path, {**line, "time": round(time.time(), 3)})


def split_data(inputs, targets, fraction, seed):
    """Put aside some samples for testing, the same ones for a seed."""
    count = len(targets)
    aside = round(count * fraction)
    if any(len(x) != count for x in inputs):
        sys.exit(f"there are {count} targets for {', '.join(str(len(x)) for x in inputs)} samples")
    if not 0 < aside < count:
        sys.exit(f"of {count} samples, {aside} would be for testing; at least one must be, and one for training")
    order = shuffled(count, seed)
    parts = {"test": order[:aside], "train": order[aside:]}
    return {name: (tuple(x[rows] for x in inputs), targets[rows]) for name, rows in parts.items()}


def read_stored(path, kinds):
    """Read a .safetensors file: for each tensor its kind, its shape and its bytes."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except (struct.error, ValueError):
        sys.exit(f"{path}: is no .safetensors file")
    found = {}
    for name, item in header.items():
        if name != "__metadata__":
            start, end = (8 + length + place for place in item["data_offsets"])
            if item["dtype"] not in kinds or end > len(data):
                sys.exit(f"{path}: {name} is cut off, or of a kind that is not read here")
            found[name] = kinds[item["dtype"]], item["shape"], data[start:end]
    return found


def read_arrays(path, wanted):
    """Read some arrays of an .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            there = [name.removesuffix(".npy") for name in archive.namelist()]
            lost = [name for name in wanted if name not in there]
            if lost:
                sys.exit(f"{path}: no array {lost[0]!r}; there are {', '.join(there)}")
            return {name: read_array(archive.read(f"{name}.npy")) for name in wanted}
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except (ValueError, zipfile.BadZipFile):
        sys.exit(f"{path}: is no .npz file, or holds more than numbers")


def data_of_arrays(path, inputs, target, shape, scale, fraction, seed):
    """Read samples from an .npz file."""
    arrays = read_arrays(path, (*inputs, target))
    samples = tuple(as_input(arrays[name], shape, scale) for name in inputs)
    return split_data(samples, as_target(arrays[target]), fraction, seed)


def read_table(path, target, delimiter):
    """Read a CSV file with a header: rows of numbers, and the column of targets."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
        if len(rows) < 2 or target not in rows[0]:
            sys.exit(f"{path}: no column {target!r} below a header")
        table = [[float(cell) for cell in row] for row in rows[1:]]
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    if any(len(row) != len(rows[0]) for row in table):
        sys.exit(f"{path}: rows have not as many cells as the header")
    place = rows[0].index(target)
    return [row[:place] + row[place + 1 :] for row in table], [row[place] for row in table]


def image_files(folder):
    """List the images in a folder with one folder for each class: paths and classes."""
    found = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    classes = [path.name for path in found if path.is_dir()]
    if not classes:
        sys.exit(f"{folder}: no folders, one for each class")
    found = []
    for number, name in enumerate(classes):
        paths = sorted(path for path in (Path(folder) / name).iterdir() if path.is_file())
        found += [(path, number) for path in paths]
    return found


def load_plugin(path):
    """Run a plugin's file, which is code, and give its functions."""
    spec = importlib.util.spec_from_file_location("plugin", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        sys.exit(f"{path}: no such plugin")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def samples_of(data):
    """Return the samples for testing."""
    inputs, targets = data["test"]
    return {"inputs": inputs, "expected": targets}


def write_outputs(path, outputs):
    """Write what a network gave to a CSV file, one row a sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(outputs.reshape(len(outputs), -1).tolist())


def told(figures):
    """Return figures as text."""
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
