"""Whether a file that somebody else made can make a command fail as none may.

    python fuzz/foreign_files.py --quick
    python fuzz/foreign_files.py --count 2000 --seed 1
    python fuzz/foreign_files.py --only onnx,yaml --more ~/models --keep failed

Sound files of every kind that nnpipe reads are changed: bytes flipped, cut,
repeated and moved, numbers made huge, texts replaced by those that programs
stumble over, cells of databases given other types.  A command is run on each.
It may succeed, or refuse the file with one line and the status 2; it must not
end with a traceback or by a signal, take more than 20 s of the processor or
1 GB more than before, or write control characters to the terminal.

Every command runs in a process that is forked from one that has imported what
is needed, so that a trial takes milliseconds.  What nnpipe runs in processes of
its own is forked likewise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU_SECONDS, WALL_SECONDS, BYTES = 20.0, 120.0, 1 << 30
_MOST_ADDED = 16 << 20  # bytes that one change adds
_HARMFUL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_IMPORTED = (
    "numpy",
    "PIL.Image",
    "yaml",
    "sqlalchemy.dialects.sqlite",
    "h5py",
    "onnx",
    "onnx_ir.passes.common",
    "onnxruntime",
    "torch.export",
    "openvino",
    "ai_edge_litert.interpreter",
)
# left out of a quick run, with the commands that need them
_SLOWLY_IMPORTED = ("tensorflow", "keras", "transformers")
_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_SHARED_MODELS = (
    "models/tflm/hello_world_float.tflite",
    "models/tflm/hello_world_int8.tflite",
    "models/recurrent/keras_lstm_mnist_ptq.tflite",
    "models/mnist-8.onnx",
    "keras_files/nonSequentialModel1.h5",
)
# the file in which commands on unchanged files tell what they have imported
_MODULES = "FOREIGN_FILES_MODULES"
_LOOKS = (("info", "{file}"), ("explain", "{file}"))


@dataclass(frozen=True)
class Seed:
    """A sound file with those beside it, and the commands that read it.

    Parameters
    ----------
    kind
        What it is.
    files
        Paths below the folder, with contents; the changed one is the first.
    commands
        Command lines of ``nnpipe``, or ``("read", data set, options as JSON)``; one is drawn.
    """

    kind: str
    files: Mapping[str, bytes]
    commands: Sequence[Sequence[str]]


# -- changes ---------------------------------------------------------------------------------------

_WORDS = (
    "",
    "0",
    "-1",
    "1e999",
    "NaN",
    "null",
    "true",
    "[]",
    "{}",
    '""',
    "5",
    "x",
    "\\u0000",
    "\\ud800",
    "1:2:3",
    "9" * 4000,
    "2147483648",
    "9223372036854775808",
    "../../../etc/passwd",
    "/dev/zero",
    "*",
    "&a",
    "\x1b[31m",
    "\u202e",
    "\x9b31m",
    "[[[[[[[[",
    "~",
    "<<",
    "!!python/name:os.system",
    "1" * 30,
    "é",
    "\ufeff",
    "<!ENTITY a 'b'>",
    "&a;",
    "%s",
    ",",
    "\n",
    "'",
    '"',
    "0x10",
    "1e-400",
    "-0.0",
    ".inf",
)
_TOKEN = re.compile(rb"[A-Za-z_]\w*|-?\d+(?:\.\d+)?|\"[^\"\n]*\"|[\[\]{}:,<>=]")


def repeated(part: bytes, times: int) -> bytes:
    """Return a part so many times, or as often as fits into the bytes that a change may add."""
    return part * min(times, max(1, _MOST_ADDED // max(1, len(part))))


def changed(content: bytes, textual: bool, draw: random.Random) -> bytes:
    """Return a content with one to four changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        content = (_changed_text if textual and draw.random() < 0.8 else _changed_bytes)(
            content, draw
        )
    return content


def _changed_bytes(content: bytes, draw: random.Random) -> bytes:
    size = len(content)
    if size < 4:
        return draw.randbytes(8)
    at, length = draw.randrange(size), min(draw.choice((1, 1, 2, 4, 8, 64, 1024)), size)
    kind = draw.randrange(8)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[at + length :]
    if kind == 2:
        return content[:at] + content[at : at + length] * draw.choice((2, 3, 100)) + content[at:]
    if kind == 3:
        other = draw.randrange(size)
        return content[:at] + content[other : other + length] + content[at + length :]
    if kind == 4:
        huge = draw.choice((b"\xff", b"\x7f", b"\x00", b"\x80")) * draw.choice((1, 2, 4, 8))
        return content[:at] + huge + content[at + len(huge) :]
    if kind == 5:
        number = draw.choice((0, 1, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 62)))
        packed = number.to_bytes(8, draw.choice(("little", "big")))[: draw.choice((4, 8))]
        return content[:at] + packed + content[at + len(packed) :]
    if kind == 6:
        return content[:at] + draw.randbytes(length) + content[at + length :]
    return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]


def _changed_text(content: bytes, draw: random.Random) -> bytes:
    tokens = list(_TOKEN.finditer(content))
    if not tokens:
        return _changed_bytes(content, draw)
    token, other = draw.choice(tokens), draw.choice(tokens)
    lines = content.splitlines(keepends=True)
    line = draw.randrange(len(lines))
    kind = draw.randrange(7)
    if kind == 0:
        return b"".join(lines[:line] + lines[line + 1 :])
    if kind == 1:
        more = repeated(lines[line], draw.choice((1, 2, 5000)))
        return b"".join([*lines[: line + 1], more, *lines[line + 1 :]])
    if kind == 2:
        new = other.group()
    elif kind == 3:
        new = repeated(token.group(), draw.choice((2, 50, 100_000)))
    else:
        new = draw.choice(_WORDS).encode()
        if token.group().startswith(b'"') and draw.random() < 0.7:
            new = b'"' + new.replace(b'"', b"") + b'"'
    return content[: token.start()] + new + content[token.end() :]


_VALUES = (
    None,
    0,
    -1,
    5,
    1 << 40,
    -(1 << 63),
    (1 << 63) - 1,
    1e308,
    float("inf"),
    -1.5,
    "",
    "x",
    "[]",
    "{}",
    "null",
    "5",
    "[[[[",
    '{"a": NaN}',
    '{"a": [1]}',
    '{"a": {"b": 1}}',
    "running",
    b"\xff\xfe",
    b"",
    "\x1b[31m",
    "x" * 100_000,
    "\x00",
    "9" * 5000,
    '{"a": "\\ud800"}',
    '{"packages": 5}',
)
_VIEWS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "SELECT * FROM {name}_1",
)


def changed_database(content: bytes, draw: random.Random) -> bytes:
    """Return a database with other values in some cells, other tables, or other bytes."""
    if draw.random() < 0.25:
        return changed(content, False, draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.sqlite")
        path.write_bytes(content)
        database = sqlite3.connect(path, isolation_level=None)
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        tables = [name for name in tables if name.startswith("nnpipe")]
        for _ in range(draw.choice((1, 1, 2, 4))):
            table = draw.choice(tables)
            with contextlib.suppress(sqlite3.Error):
                if draw.random() < 0.1:
                    database.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
                    database.execute(
                        f"CREATE VIEW {table} AS {draw.choice(_VIEWS).format(name=table)}"
                    )
                    continue
                columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                where = draw.choice(("", f" WHERE rowid IN (SELECT rowid FROM {table} LIMIT 1)"))
                value = draw.choice(_VALUES)
                database.execute(
                    f'UPDATE OR IGNORE {table} SET "{draw.choice(columns)}" = ?{where}', (value,)
                )
        database.close()
        return path.read_bytes()


# -- seeds -----------------------------------------------------------------------------------------


def seeds(folder: Path) -> list[Seed]:
    """Return the seeds, some of which are made in this folder."""
    found: list[Seed] = []
    makers = (
        _models,
        _keras_models,
        _openvino_models,
        _shared_models,
        _data,
        _results,
        _databases,
        _states,
        _settings,
    )
    for make in makers:
        with contextlib.suppress(ImportError):
            found += make(folder)
    return found


def _models(folder: Path) -> list[Seed]:
    from nnpipe.testing.model_files import write_onnx_network

    made = [
        Seed(
            "onnx",
            {"m.onnx": Path(write_onnx_network(folder / "m.onnx").path).read_bytes()},
            _LOOKS,
        )
    ]
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto
    calls = [
        helper.make_node("f", ["x"], ["h"], domain="d"),
        helper.make_node("f", ["h"], ["y"], domain="d"),
    ]
    body = [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    ends = [helper.make_tensor_value_info(name, kind.FLOAT, ["n", 4]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    function = helper.make_function("d", "f", ["a"], ["b"], body, opsets[:1])
    graph = helper.make_graph(calls, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    made.append(Seed("onnx", {"m.onnx": model.SerializeToString()}, _LOOKS))
    with contextlib.suppress(ImportError):
        import torch

        network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        torch.export.save(
            torch.export.export(network.eval(), (torch.zeros(1, 4),)), folder / "m.pt2"
        )
        made.append(Seed("pt2", {"m.pt2": (folder / "m.pt2").read_bytes()}, _LOOKS))
    return made


def _keras_models(folder: Path) -> list[Seed]:
    import h5py

    dense = {"name": "d", "units": 2, "activation": "relu", "use_bias": True}
    given = {
        "class_name": "InputLayer",
        "config": {"name": "i", "batch_input_shape": [None, 3], "dtype": "float32"},
    }
    layers = [given, {"class_name": "Dense", "config": dense}]
    network = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
    with h5py.File(folder / "m.h5", "w") as file:
        file.attrs.update(
            {"model_config": json.dumps(network), "keras_version": "2.4.0", "backend": "tensorflow"}
        )
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [b"d"]
        weights.create_group("d").attrs["weight_names"] = [b"d/kernel:0", b"d/bias:0"]
        weights["d/d/kernel:0"], weights["d/d/bias:0"] = [[1.0, 2.0]] * 3, [0.0, 1.0]

    given = {
        "class_name": "InputLayer",
        "config": {"name": "i", "batch_shape": [None, 3], "dtype": "float32"},
    }
    layers = [{"module": "keras.layers", **layer} for layer in (given, layers[1])]
    network = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "s", "layers": layers},
    }
    with h5py.File(folder / "w.h5", "w") as file:
        file["layers/dense/vars/0"], file["layers/dense/vars/1"] = [[1.0, 2.0]] * 3, [0.0, 1.0]
    parts = {
        "metadata.json": json.dumps({"keras_version": "3.5.0"}),
        "config.json": json.dumps(network),
    }
    with zipfile.ZipFile(folder / "m.keras", "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
        archive.write(folder / "w.h5", "model.weights.h5")
    looks = [
        ["explain-declared", "{file}"],
        *([["info", "{file}"]] if "keras" in sys.modules else []),
    ]
    return [
        Seed("keras", {name: (folder / name).read_bytes()}, looks) for name in ("m.h5", "m.keras")
    ]


def _openvino_models(folder: Path) -> list[Seed]:
    import numpy as np
    import openvino
    from openvino import opset13

    from nnpipe.core.tensors import IOSpec, TensorSpec

    taken = opset13.parameter([1, 4], np.float32, name="x")
    product = opset13.matmul(taken, opset13.constant(np.ones((4, 3), np.float32)), False, False)
    openvino.save_model(
        openvino.Model([opset13.relu(product)], [taken], "m"),
        folder / "m.xml",
        compress_to_fp16=False,
    )
    io = IOSpec([TensorSpec("x", (1, 4), "float32")], [TensorSpec("y", (1, 3), "float32")])
    files = {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}
    files["io.json"] = json.dumps(io.to_json() | {"taken": ["x"]}).encode()
    return [
        Seed("openvino", {name: files[name], **files}, [["read-openvino"]])
        for name in ("m.xml", "io.json")
    ]


def _shared_models(_folder: Path) -> list[Seed]:
    if not _SHARED.is_dir():
        print(f"{_SHARED} is not there: no TensorFlow Lite files are changed")
        return []
    return [_model_seed(_SHARED / name) for name in _SHARED_MODELS]


def _states(_folder: Path) -> list[Seed]:
    import numpy as np

    from nnpipe.experiment.state_file import to_bytes

    content = to_bytes(
        {"weights": [np.ones((2, 3)), np.zeros(4, np.int8)], "epoch": 3, "best": 0.5}, kind="fuzz"
    )
    return [Seed("state", {"s.safetensors": content}, [["read-state", "{file}"]])]


def _model_seed(path: Path) -> Seed:
    kind = {"h5": "keras"}.get(path.suffix[1:], path.suffix[1:])
    looks = [["explain-declared", "{file}"]] if kind == "keras" else _LOOKS
    return Seed(kind, {path.name: path.read_bytes()}, looks)


def _data(folder: Path) -> list[Seed]:
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    pictures = {}
    for suffix, mode in (
        ("png", "RGB"),
        ("jpg", "RGB"),
        ("bmp", "RGB"),
        ("png", "I;16"),
        ("gif", "P"),
        ("tiff", "L"),
    ):
        path = folder / f"p.{suffix}"
        colours = Image.fromarray(draw.integers(0, 255, (16, 16, 3), np.uint8))
        deep = Image.fromarray(draw.integers(0, 65535, (16, 16)).astype(np.uint16))
        (deep if mode == "I;16" else colours.convert(mode)).save(path)
        pictures[f"{mode.replace(';', '')}.{suffix}"] = path.read_bytes()
    png = pictures["RGB.png"]
    made = [
        Seed(
            "picture",
            {f"a/{name}": content, "a/2.png": png, "b/1.png": png, "b/2.png": png},
            [
                [
                    "read",
                    "ImageFolderDataset",
                    json.dumps({"dataset_root": ".", "image_size": [8, 8]}),
                ]
            ],
        )
        for name, content in pictures.items()
    ]
    np.savez(
        folder / "d.npz", images=draw.random((9, 4)).astype(np.float32), labels=np.arange(9) % 3
    )
    made.append(
        Seed(
            "npz",
            {"d.npz": (folder / "d.npz").read_bytes()},
            [
                [
                    "read",
                    "ArraysDataset",
                    json.dumps({"dataset_root": "d.npz", "task_name": "classification"}),
                ]
            ],
        )
    )
    table = "a,b,c,label\n" + "".join(
        f"{i},{i * 0.5},{'uv'[i % 2]},{'yn'[i % 2]}\n" for i in range(12)
    )
    made.append(
        Seed(
            "csv",
            {"d.csv": table.encode()},
            [
                [
                    "read",
                    "TabularClassificationDataset",
                    json.dumps({"dataset_root": "d.csv", "target": "label"}),
                ]
            ],
        )
    )
    series = "t,a\n" + "".join(f"{i},{i % 7}\n" for i in range(60))
    made.append(
        Seed(
            "csv",
            {"d.csv": series.encode()},
            [["read", "SeriesDataset", json.dumps({"dataset_root": "d.csv", "window": 4})]],
        )
    )
    texts = "".join(
        json.dumps({"text": f"word {i}", "label": "yn"[i % 2]}) + "\n" for i in range(10)
    )
    made.append(
        Seed(
            "jsonl",
            {"d.jsonl": texts.encode()},
            [["read", "TextClassificationDataset", json.dumps({"dataset_root": "d.jsonl"})]],
        )
    )
    import io
    import wave

    with wave.open(sound := io.BytesIO(), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
        file.writeframes(draw.integers(-999, 999, 1600).astype("<i2").tobytes())
    wav = sound.getvalue()
    made.append(
        Seed(
            "wav",
            {"a/1.wav": wav, "a/2.wav": wav, "b/1.wav": wav, "b/2.wav": wav},
            [["read", "WavFolderDataset", json.dumps({"dataset_root": "."})]],
        )
    )
    box = {
        "id": 1,
        "image_id": 1,
        "category_id": 3,
        "bbox": [1, 2, 5, 6],
        "area": 30,
        "iscrowd": 0,
        "segmentation": [[1, 2, 6, 2, 6, 8]],
        "keypoints": [3, 3, 2] * 2,
        "num_keypoints": 2,
    }
    coco = {
        "images": [
            {"id": i, "file_name": f"{i}.png", "width": 16, "height": 16} for i in (1, 2, 3)
        ],
        "annotations": [box, box | {"id": 2, "image_id": 2}, box | {"id": 3, "image_id": 3}],
        "categories": [{"id": 3, "name": "cat", "keypoints": ["a", "b"], "skeleton": [[1, 2]]}],
    }
    beside = {f"{i}.png": png for i in (1, 2, 3)}
    given = json.dumps({"dataset_root": ".", "annotations": ["c.json"], "images": "."})
    kinds = ("COCODataset", "COCOInstancesDataset", "COCOKeypointsDataset")
    made.append(
        Seed(
            "coco",
            {"c.json": json.dumps(coco, indent=1).encode(), **beside},
            [["read", kind, given] for kind in kinds],
        )
    )
    voc = (
        "<annotation><filename>1.jpg</filename><size><width>16</width><height>16</height><depth>3</depth></size>"
        "<object><name>cat</name><difficult>0</difficult><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax>"
        "<ymax>9</ymax></bndbox></object></annotation>"
    )
    tree = {f"Annotations/{i}.xml": voc.replace("1.jpg", f"{i}.jpg").encode() for i in (1, 2, 3)}
    tree |= {f"JPEGImages/{i}.jpg": pictures["RGB.jpg"] for i in (1, 2, 3)}
    tree |= {"ImageSets/Main/train.txt": b"1\n2\n", "ImageSets/Main/val.txt": b"3\n"}
    for first in ("Annotations/1.xml", "ImageSets/Main/train.txt"):
        made.append(
            Seed(
                "voc",
                {first: tree[first], **tree},
                [["read", "PascalVOCDataset", json.dumps({"dataset_root": "."})]],
            )
        )
    points = "image,keypoint_id,keypoint_x,keypoint_y\n" + "".join(
        f"{i}.png,{p},0.5,0.25\n" for i in (1, 2, 3) for p in "12"
    )
    made.append(
        Seed(
            "csv",
            {"keypoints.csv": points.encode(), **beside},
            [["read", "KeypointsTableDataset", json.dumps({"dataset_root": "."})]],
        )
    )
    yolo = {"data.yaml": b"train: images/train\nval: images/val\nnames: [cat, dog]\n"}
    yolo |= {f"images/{split}/{i}.png": png for split in ("train", "val") for i in (1, 2)}
    yolo |= {
        f"labels/{split}/{i}.txt": b"0 0.5 0.5 0.2 0.2\n1 0.3 0.3 0.1 0.1\n"
        for split in ("train", "val")
        for i in (1, 2)
    }
    for first in ("data.yaml", "labels/train/1.txt"):
        made.append(
            Seed(
                "yolo",
                {first: yolo[first], **yolo},
                [["read", "YOLOFolderDataset", json.dumps({"dataset_root": "."})]],
            )
        )
    return made


def _results(folder: Path) -> list[Seed]:
    from nnpipe.datasets.digits import DigitsDataset
    from nnpipe.scenarios.inference_performance import main
    from nnpipe.testing.model_files import write_onnx_classifier

    dataset = DigitsDataset()
    dataset.prepare()
    inputs, truth = dataset.read(dataset.split("train"))
    model = write_onnx_classifier(
        folder / "digits.onnx", next(iter(inputs.values())), next(iter(truth.values()))
    )
    result = folder / "r.json"
    main(["ONNXModel", "DigitsDataset", str(result), "--model-path", str(model), "--scale", "1"])
    return [
        Seed(
            "result",
            {"r.json": result.read_bytes()},
            [["render_report", "{file}", "Title", "out.html"]],
        )
    ]


def _databases(folder: Path) -> list[Seed]:
    from nnpipe.experiment.configuration import Configuration
    from nnpipe.experiment.database.database import RunDatabase

    path = folder / "runs.sqlite"
    with RunDatabase(path, store=folder / "store") as database:
        tree = Configuration({"lr": 0.1, "name": "x"})
        runs = [database.runs.create("digits", tree) for _ in range(2)]
        for run in runs:
            database.figures.put_statistics(run, {"accuracy": 0.9, "loss": 0.1})
            database.figures.put_history(
                run, "training", [{"loss": 1.0, "step": 1}, {"loss": 0.5, "step": 2}]
            )
        search = database.searches.open("widths", {"size": "minimize"}, tree)
        trials = database.searches.trials(search)
        trials.add(
            [
                ({"x": 1}, "k1", {"state": "finished", "results": '{"size": 5.0}'}),
                ({"x": 2}, "k2", {}),
            ],
            counted=True,
        )
        database.jobs.create("train", tree, place="here")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    at = ["--database", "{file}"]
    commands = [
        ["runs", "list", *at],
        ["runs", "show", "digits", *at],
        ["runs", "show", "widths", *at],
        ["runs", "tree", *at],
        ["runs", "compare", "digits", "widths", *at],
        ["runs", "query", "statistics.accuracy > 0.1", *at],
        ["runs", "export", "digits", "--json", "out.json", *at],
        ["jobs", "list", *at],
        ["runs", "export", "widths", "--json", "out.json", *at],
    ]
    return [Seed("database", {"runs.sqlite": path.read_bytes()}, commands)]


def _settings(folder: Path) -> list[Seed]:
    examples = Path(__file__).parents[1] / "examples"
    kinds = {
        "digits.yaml": ["run", "{file}", "--dry-run"],
        "sweep.yaml": ["sweep", "{file}", "--dry-run"],
        "search_digits.yaml": ["search", "{file}", "--dry-run"],
        "tabular_sweep.yaml": ["sweep", "{file}", "--dry-run"],
        "small_cnn.yaml": ["explain-yaml", "{file}"],
    }
    made = [
        Seed("yaml", {name: (examples / name).read_bytes()}, [command])
        for name, command in kinds.items()
    ]
    import yaml

    tree = yaml.safe_load((examples / "digits.yaml").read_text("utf-8"))
    return [
        *made,
        Seed(
            "json",
            {"p.json": json.dumps(tree, indent=1).encode()},
            [["run", "{file}", "--dry-run"]],
        ),
    ]


def more_seeds(folder: Path) -> list[Seed]:
    """Return a seed for each small model file below a folder."""
    kinds = (".onnx", ".tflite", ".h5", ".keras", ".pt2", ".openvino")
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in kinds]
    return [_model_seed(path) for path in paths if path.stat().st_size < 1 << 21]


# -- trials ----------------------------------------------------------------------------------------


class ForkedWorker:
    """Does what :class:`~nnpipe.workflows.isolation.subprocess_worker.Worker` does, in a forked
    process.
    """

    def __init__(self, function: str, **options: Any) -> None:
        self._function = function

    def __enter__(self) -> ForkedWorker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Return the result of a task."""
        from nnpipe.core import errors
        from nnpipe.workflows.isolation import subprocess_guard
        from nnpipe.workflows.isolation.subprocess_worker import WorkerDied, WorkerTimeout

        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                module, _, name = self._function.partition(":")
                found = subprocess_guard._run_function(
                    getattr(importlib.import_module(module), name), dict(request)
                )
                with os.fdopen(write, "w") as stream:
                    stream.write(json.dumps(found))
                _tell_modules()
            finally:
                os._exit(0)
        os.close(write)
        said, end = b"", time.monotonic() + seconds
        while True:
            if not select.select([read], [], [], max(end - time.monotonic(), 0))[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise WorkerTimeout(f"did not end within {seconds:g} s")
            piece = os.read(read, 1 << 16)
            if not piece:
                break
            said += piece
        os.close(read)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not said:
            raise WorkerDied(
                f"crashed its process ({signal.Signals(-status).name if status < 0 else status})"
            )
        reply = json.loads(said)
        if "value" in reply:
            return reply["value"]
        if reply["known"]:
            raise getattr(errors, reply["kind"], errors.NNPipeError)(reply["message"])
        raise AssertionError(reply["traceback"])


def run_command(command: Sequence[str]) -> int:
    """Run a command in this process, and return its status."""
    from nnpipe.scenarios._cli.command import execute

    name, *rest = command
    if name == "read":
        return execute(lambda argv: read_dataset(*(argv or ())), rest, "read")
    if name in ("explain-declared", "explain-yaml"):
        return execute(lambda argv: declared(*(argv or ())), rest, "declared")
    if name == "read-openvino":
        return execute(lambda _: read_openvino(), rest, name)
    if name == "read-state":
        return execute(lambda argv: read_state(*(argv or ())), rest, name)
    status: int = importlib.import_module(f"nnpipe.scenarios.{name}").main(rest)
    return status


def read_dataset(name: str, arguments: str) -> None:
    """Read the first samples of every split of a data set."""
    from nnpipe.core.dataset import Dataset
    from nnpipe.core.registry import find

    dataset = find(name, Dataset).from_json(json.loads(arguments))
    dataset.prepare()
    print(dataset.spec.class_names)
    for split in ("train", "validation", "test"):
        dataset.read(dataset.split(split)[:8])


def declared(path: str) -> None:
    """Explain a network that nnpipe's own layers describe."""
    from nnpipe.modelwrappers.files.declared import DeclaredModel
    from nnpipe.workflows.explanation.explain import explain

    explain(DeclaredModel(network=Path(path), scale=1.0)).show()


def read_openvino() -> None:
    """Put the parts of an OpenVINO model into one file, whose checksums are those of the changed
    parts, and read it.
    """
    from nnpipe.formats.model_folder import write_stored
    from nnpipe.runtimes.openvino import OpenVINORuntime

    parts = {"io.json": Path("io.json"), "model.xml": Path("m.xml"), "model.bin": Path("m.bin")}
    write_stored(Path("m.openvino"), parts)
    print(OpenVINORuntime().io_of("m.openvino"))


def read_state(path: str) -> None:
    """Read the state of an experiment."""
    from nnpipe.experiment import state_file

    print(len(state_file.read_state(path, kind="fuzz")))


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    word: str
    said: str
    seconds: float
    grown: int


def run_apart(seed: Seed, content: bytes, command: Sequence[str], folder: Path) -> Outcome:
    """Write a seed's files, run a command on them in a process of its own, and return how it
    ended.
    """
    first = next(iter(seed.files))
    for name, data in {**seed.files, first: content}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    words = [word.replace("{file}", first) for word in command]
    told = folder / "said.txt"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _be_command(words, folder, told)
    end, killed = time.monotonic() + WALL_SECONDS, False
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            killed = True
            os.killpg(child, signal.SIGKILL)
            end += WALL_SECONDS
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it left
    said, code = told.read_text("utf-8", "replace"), os.waitstatus_to_exitcode(status)
    seconds, grown = used.ru_utime + used.ru_stime, max(used.ru_maxrss - before, 0) * 1024
    return Outcome(_word(code, said, seconds, grown, killed), said, seconds, grown)


def _word(code: int, said: str, seconds: float, grown: int, killed: bool) -> str:
    if killed or seconds > CPU_SECONDS:
        return "hang"
    if code < 0:
        return f"crash ({signal.Signals(-code).name})"
    if "Traceback (most recent call last)" in said:
        return "traceback"
    if grown > BYTES:
        return "memory"
    if _HARMFUL.search(said.replace("\r", "")):
        return "raw escape"
    if code == 2 and len([line for line in said.splitlines() if line.startswith("nnpipe ")]) != 1:
        return "not one line"
    # 1: not all can be done
    return {0: "accepted", 1: "accepted", 2: "refused"}.get(code, f"status {code}")


def _be_command(words: Sequence[str], folder: Path, told: Path) -> None:
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        where = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(where, stream)
        sys.stdout, sys.stderr = (
            os.fdopen(stream, "w", encoding="utf-8", errors="backslashreplace") for stream in (1, 2)
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        import nnpipe.workflows.isolation.limits as limits

        limits.Worker = ForkedWorker  # type: ignore[misc, assignment]
        code = run_command(words)
        _tell_modules()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell_modules() -> None:
    where = os.environ.get(_MODULES)
    if where is not None:
        with open(where, "a", encoding="utf-8") as file:
            file.write("".join(f"{name}\n" for name in sys.modules))


def _import_told() -> None:
    """Import what commands have imported, so that those that follow need not."""
    where = Path(os.environ[_MODULES])
    names = where.read_text("utf-8").splitlines() if where.is_file() else []
    for name in dict.fromkeys(names):
        if name not in sys.modules:
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
    where.unlink(missing_ok=True)


def _made_apart(folder: Path) -> list[Seed]:
    """Return the seeds, made in a forked process, which leaves no threads of frameworks here."""
    told = folder / "seeds.json"
    child = os.fork()
    if not child:
        try:
            found = [
                {
                    "kind": each.kind,
                    "commands": list(each.commands),
                    "files": {
                        name: content.decode("latin-1") for name, content in each.files.items()
                    },
                }
                for each in seeds(folder)
            ]
            told.write_text(json.dumps(found))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return [
        Seed(
            each["kind"],
            {name: text.encode("latin-1") for name, text in each["files"].items()},
            each["commands"],
        )
        for each in json.loads(told.read_text())
    ]


class Trials:
    """Runs commands on files and counts how they end."""

    def __init__(self, top: Path, keep: Path | None) -> None:
        self.failures = 0
        self._folder, self._keep = top / "w", keep
        self._counts: Counter[tuple[str, str]] = Counter()

    def run(self, title: str, seed: Seed, content: bytes, command: Sequence[str]) -> None:
        """Run a command on a content that stands in for that of a seed; an unchanged one must be
        accepted.
        """
        outcome = run_apart(seed, content, command, self._folder)
        unchanged = content == next(iter(seed.files.values()))
        if not unchanged:
            self._counts[seed.kind, outcome.word] += 1
        if outcome.word not in (("accepted",) if unchanged else ("accepted", "refused")):
            self.failures += 1
            used = f"{outcome.seconds:.1f} s, {outcome.grown >> 20} MB"
            print(
                f"{title} {seed.kind} {' '.join(command)}: {outcome.word} ({used})\n    "
                f"{_last(outcome)}",
                flush=True,
            )
            if self._keep is not None:
                shutil.copytree(self._folder, self._keep / title, dirs_exist_ok=True)
        shutil.rmtree(self._folder)

    def show(self) -> None:
        """Print the counts."""
        for (kind, word), count in sorted(self._counts.items()):
            print(f"{kind:<10} {word:<20} {count:>6}")
        print(
            f"{self._counts.total()} changed files in {_processor_seconds():.0f} CPU s: "
            f"{self.failures} failures"
        )


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _run_all(
    trials: Trials, every: Sequence[Seed], count: int, seed_of_changes: int, limit: float
) -> None:
    """Run the commands on the unchanged files, and on changed ones until their count or the
    limit is reached.
    """
    for number, seed in enumerate(every):
        for command in seed.commands:
            trials.run(f"unchanged-{number}", seed, next(iter(seed.files.values())), command)
            _import_told()
    del os.environ[_MODULES]
    grouped: dict[str, list[Seed]] = {}
    for seed in every:
        grouped.setdefault(seed.kind, []).append(seed)
    for number in range(count):
        if _processor_seconds() > limit:
            return
        draw = random.Random(f"{seed_of_changes} {number}")
        seed = draw.choice(grouped[sorted(grouped)[number % len(grouped)]])
        content = next(iter(seed.files.values()))
        textual = next(iter(seed.files)).endswith(_TEXTUAL)
        new = (
            changed_database(content, draw)
            if seed.kind == "database"
            else changed(content, textual, draw)
        )
        trials.run(str(number), seed, new, draw.choice(seed.commands))


def main() -> int:
    """Run the trials, and return 1 if a command failed as none may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="stop after 45 s of the processor")
    parser.add_argument("--count", type=int, default=2000, help="changed files (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the changes")
    parser.add_argument(
        "--only", default="", metavar="KINDS", help="kinds of files, joined by commas"
    )
    parser.add_argument(
        "--more", type=Path, metavar="FOLDER", help="also change the model files below this folder"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the files of failures here"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    commands = [
        f"nnpipe.scenarios.{name}"
        for name in ("info", "explain", "runs", "jobs", "run", "sweep", "render_report")
    ]
    for name in (*_IMPORTED, *(() if options.quick else _SLOWLY_IMPORTED), *commands):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    wanted = set(filter(None, options.only.split(",")))
    with tempfile.TemporaryDirectory(prefix="foreign-") as top:
        place = Path(top, "seeds")
        place.mkdir()
        every = _made_apart(place)
        every += [] if options.more is None else more_seeds(options.more)
        every = [seed for seed in every if not wanted or seed.kind in wanted]
        trials = Trials(Path(top), options.keep)
        os.environ[_MODULES] = str(Path(top, "modules.txt"))
        try:
            _run_all(
                trials, every, options.count, options.seed, 45 if options.quick else float("inf")
            )
        except KeyboardInterrupt:
            print("interrupted")
            trials.failures += 1
        trials.show()
    return 1 if trials.failures else 0


_TEXTUAL = (".yaml", ".json", ".csv", ".jsonl", ".xml", ".txt")


def _last(outcome: Outcome) -> str:
    lines = [line.rstrip() for line in outcome.said.splitlines() if line.strip()]
    places = [
        line.strip() for line in lines if "/src/nnpipe/" in line and line.strip().startswith("File")
    ]
    return " | ".join(
        [
            *(place.split("/src/")[1] for place in places[-2:]),
            *(ascii(line)[:200] for line in lines[-1:]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
