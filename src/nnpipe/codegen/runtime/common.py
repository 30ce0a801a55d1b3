"""Functions for scripts of every framework.

Names that are not defined here are in the modules of each framework.
"""

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
    """Append an object to a file as one line of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def select_finite(figures):
    """Return the figures that are finite, because JSON has no infinity and no NaN."""
    found = {name: float(value) for name, value in figures.items()}
    return {name: value for name, value in found.items() if abs(value) < float("inf")}


def report_progress(path, fraction, figures):
    """Append the progress, from 0 to 1, and the figures to the progress file."""
    line = {"fraction": fraction, "metrics": select_finite(figures)}
    append_line(path, {**line, "time": round(time.time(), 3)})


def split_data(inputs, targets, fraction, seed):
    """Return the samples, split at random into a training set and a test set."""
    count = len(targets)
    aside = round(count * fraction)
    if any(len(x) != count for x in inputs):
        sys.exit(f"there are {count} targets for {', '.join(str(len(x)) for x in inputs)} samples")
    if not 0 < aside < count:
        sys.exit(
            f"{aside} of {count} samples are for testing; testing and training need at least one "
            f"each"
        )
    order = shuffle_indices(count, seed)
    parts = {"test": order[:aside], "train": order[aside:]}
    return {name: (tuple(x[rows] for x in inputs), targets[rows]) for name, rows in parts.items()}


def read_stored(path, kinds):
    """Return the type, shape and bytes of each tensor in a .safetensors file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except (struct.error, ValueError):
        sys.exit(f"{path}: not a .safetensors file")
    found = {}
    for name, item in header.items():
        if name != "__metadata__":
            start, end = (8 + length + place for place in item["data_offsets"])
            if item["dtype"] not in kinds or end > len(data):
                sys.exit(f"{path}: {name} is cut off or has an unsupported type")
            found[name] = kinds[item["dtype"]], item["shape"], data[start:end]
    return found


def read_arrays(path, wanted):
    """Return the named arrays of an .npz file."""
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
        sys.exit(f"{path}: not an .npz file, or its arrays do not hold numbers")


def read_array_data(path, inputs, target, shape, scale, fraction, seed):
    """Return samples from an .npz file, split for training and testing."""
    arrays = read_arrays(path, (*inputs, target))
    samples = tuple(as_input(arrays[name], shape, scale) for name in inputs)
    return split_data(samples, as_target(arrays[target]), fraction, seed)


def read_table(path, target, delimiter):
    """Return the rows of a CSV file without the target column, and that column."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
        if len(rows) < 2 or target not in rows[0]:
            sys.exit(f"{path}: no column {target!r}, or no rows below the header")
        table = [[float(cell) for cell in row] for row in rows[1:]]
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    if any(len(row) != len(rows[0]) for row in table):
        sys.exit(f"{path}: some rows do not have as many cells as the header")
    place = rows[0].index(target)
    return [row[:place] + row[place + 1 :] for row in table], [row[place] for row in table]


def list_image_files(folder):
    """Return the path and the class of each image; each class has its own folder."""
    found = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    classes = [path.name for path in found if path.is_dir()]
    if not classes:
        sys.exit(f"{folder}: has no folders; it needs one for each class")
    found = []
    for number, name in enumerate(classes):
        paths = sorted(path for path in (Path(folder) / name).iterdir() if path.is_file())
        found += [(path, number) for path in paths]
    return found


def read_image(path, size, grey):
    """Return an image of eight bits with a size; more bits, which Pillow would clip at 255,
    become eight.
    """
    with Image.open(path) as image:
        if image.mode.startswith(("I", "F")):
            white = 1 if image.mode == "F" else 65535
            least, most = image.getextrema()
            known = image.mode != "I" or image.format in ("PNG", "PPM")
            if not (known and 0 <= least <= most <= white):
                sys.exit(
                    f"{path}: nothing says which pixel is white; store 8 or 16 bits, or floats "
                    f"from 0 to 1"
                )
            image = image.convert("F").point(lambda value: value * (255 / white) + 0.5).convert("L")
        return image.convert("L" if grey else "RGB").resize(
            (size[1], size[0]), Image.Resampling.BICUBIC
        )


def load_plugin(path):
    """Return the module of a plugin; this runs the code in its file."""
    spec = importlib.util.spec_from_file_location("plugin", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        sys.exit(f"{path}: no such plugin")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def get_test_samples(data):
    """Return the test samples as inputs and expected outputs."""
    inputs, targets = data["test"]
    return {"inputs": inputs, "expected": targets}


def write_outputs(path, outputs):
    """Write the outputs of a network to a CSV file, one row for each sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(outputs.reshape(len(outputs), -1).tolist())


def as_text(figures):
    """Return the names and values of figures as text."""
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
