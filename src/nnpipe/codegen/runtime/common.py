"""What scripts of every framework have in common."""

# mypy: ignore-errors

import csv
import importlib.util
import json
import sys
import time
from pathlib import Path


def append_line(path, values):
    """Append one JSON object to a file, in one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def numbers_only(figures):
    """Give the figures that are finite numbers, which is what JSON can hold."""
    found = {name: float(value) for name, value in figures.items()}
    return {name: value for name, value in found.items() if abs(value) < float("inf")}


def report_progress(path, fraction, figures):
    """Tell whoever watches how far the work is: `fraction` from 0 to 1, and figures."""
    line = {"fraction": fraction, "metrics": numbers_only(figures)}
    append_line(path, {**line, "time": round(time.time(), 3)})


def read_table(path, target, delimiter):
    """Read a CSV file with a header: rows of numbers, and the column of targets."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter=delimiter))
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    if len(rows) < 2 or target not in rows[0]:
        sys.exit(f"{path}: no column {target!r} below a header")
    place = rows[0].index(target)
    table = [[float(cell) for cell in row] for row in rows[1:] if row]
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


def told(figures):
    """Give figures as text."""
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
