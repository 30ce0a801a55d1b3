"""44 kinds of data as people have them: each gives the right figure, or one line that says where
and what to do.

Half of them are drawn.  The quick tests measure in this process; the slow ones go through the
commands and ``compare``.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from property_examples import examples

import nnpipe as nnp
from nnpipe.__main__ import main
from nnpipe.core.progress import silent

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

Draw = Callable[[st.SearchStrategy[Any]], Any]
NAMES = ("ant", "bee", "cat")
SIDE = 8


@dataclass
class Case:
    """Data with a model, and what must come of them.

    Attributes
    ----------
    model
        The model file.
    data
        The class of the data set and its arguments, or data for ``compare``.
    accuracy, error
        The right accuracy, or mean absolute error; ``None`` if it is to be refused.
    said
        What a refusal says.
    told
        What is told before work begins.
    preparation
        Arguments of the model's wrapper.
    """

    model: Path
    data: Any
    accuracy: float | None = None
    error: float | None = None
    said: tuple[str, ...] = ()
    told: str = ""
    preparation: Mapping[str, Any] = field(default_factory=dict)


# -- models whose right figure is known
# ---------------------------------------------------------------


def write_model(
    path: Path,
    shape: Sequence[int],
    weights: np.ndarray,
    bias: np.ndarray,
    names: Sequence[str] = (),
    inputs: int = 1,
) -> Path:
    """Write a linear model of flattened samples; with ``names``, the description beside it names
    its classes.
    """
    from onnx import TensorProto, helper, numpy_helper

    taken = ["x"] if inputs == 1 else [f"part{n}" for n in range(inputs)]
    flat = [helper.make_node("Flatten", [name], [f"flat_{name}"]) for name in taken]
    joined = helper.make_node("Concat", [f"flat_{name}" for name in taken], ["features"], axis=1)
    product = helper.make_node("Gemm", ["features", "weights", "bias"], ["y"])
    values = [
        numpy_helper.from_array(weights.astype(np.float32), "weights"),
        numpy_helper.from_array(bias.astype(np.float32), "bias"),
    ]
    given_ = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape]) for name in taken
    ]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weights.shape[1]])
    graph = helper.make_graph([*flat, joined, product], "linear", given_, [made], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))
    if names:
        specs = tuple(nnp.TensorSpec(name, (None, *shape), "float32") for name in taken)
        sides = nnp.IOSpec(specs, (nnp.TensorSpec("y", (None, weights.shape[1]), "float32"),))
        inputs_ = tuple(nnp.InputProcessing(name) for name in taken)
        meaning = nnp.ModelMetadata(inputs_, (nnp.OutputMetadata("y", "scores", tuple(names)),))
        nnp.Artifact.create(path, "onnx", sides, meaning=meaning)
    return path


def nearest(path: Path, prototypes: np.ndarray, names: Sequence[str] = (), inputs: int = 1) -> Path:
    """Write a model that finds the nearest of some samples, ``(classes, ...)``."""
    flat = prototypes.reshape(len(prototypes), -1).astype(np.float64)
    return write_model(
        path, prototypes.shape[1:], 2 * flat.T, -(flat**2).sum(axis=1), names, inputs
    )


# -- pictures
# -----------------------------------------------------------------------------------------


def pattern(number: int, channels: int = 1) -> np.ndarray:
    """A picture of a class, with levels of grey from 0 to 255 that are no sixteen bits clipped."""
    levels = np.linspace(40, 215, SIDE)
    grey = [
        levels[:, None] + 0 * levels,
        levels[None] + 0 * levels[:, None],
        levels[::-1][:, None] + 0 * levels,
    ][number]
    return np.repeat(np.rint(grey)[..., None], channels, axis=-1).astype(np.uint8)


def prototypes(channels: int = 1) -> np.ndarray:
    return np.stack([pattern(number, channels) for number in range(3)])


def save(path: Path, pixels: np.ndarray, how: str = "L", **options: Any) -> None:
    """Store a picture of grey levels 0 to 255, ``(rows, columns)``, in some mode; the ending is
    part of ``how``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode, _, ending = how.partition(".")
    deep: dict[str, Callable[[], np.ndarray]] = {
        "I;16": lambda: pixels.astype(np.uint16) * 257,
        "F1": lambda: (pixels / 255).astype(np.float32),
        "F255": lambda: pixels.astype(np.float32),
        "I": lambda: pixels.astype(np.int32) * 257,
        "1": lambda: pixels > 127,
    }
    image = Image.fromarray(deep[mode]()) if mode in deep else Image.fromarray(pixels).convert(mode)
    image.save(path.with_suffix(f".{ending or 'png'}"), **options)


def put_folders(
    root: Path,
    parts: Sequence[tuple[str, int]],
    names: Sequence[str] = NAMES,
    how: str = "L",
    wrong: int = 0,
) -> None:
    """Write pictures of three classes below each part; ``wrong`` of those in the last are in the
    folder of another.
    """
    for part, count in parts:
        for number, name in enumerate(names):
            for n in range(count):
                lies = part == parts[-1][0] and number == 0 and n < wrong
                noise = np.random.default_rng(100 * number + 7 * n + len(part)).integers(
                    -9, 10, (SIDE, SIDE)
                )
                pixels = np.clip(pattern(1 if lies else number)[..., 0] + noise, 0, 255).astype(
                    np.uint8
                )
                save(root / part / name / f"{n}{part}", pixels, how)


def pictures(root: Path, **options: Any) -> tuple[str, dict[str, Any]]:
    return "ImageFolderDataset", {
        "dataset_root": root,
        "image_size": (SIDE, SIDE),
        "color": "grayscale",
        **options,
    }


def of_folders(
    folder: Path, train: str, test: str, inner: str = "", names: Sequence[str] = NAMES
) -> Case:
    root = folder / "data"
    put_folders(root / inner, [(train, 3), (test, 4)], names, wrong=3)
    model = nearest(folder / "model.onnx", prototypes())
    return Case(model, pictures(root), accuracy=9 / 12, told=f"{Path(test).parts[0]} is test")


def plain_folders(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("", 5)], wrong=2)
    model = nearest(folder / "model.onnx", prototypes())
    return Case(
        model,
        pictures(folder / "data", test_fraction=1.0),
        accuracy=13 / 15,
        told="3 classes: ant, bee, cat",
    )


def kaggle_folders(folder: Path, draw: Draw) -> Case:
    return of_folders(folder, "Training", "Testing")


def roboflow_folders(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("valid", 2)])
    return of_folders(folder, "train", "test")


def keras_folders(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("train", 6), ("val", 2)])
    return Case(
        nearest(folder / "model.onnx", prototypes()),
        pictures(folder / "data"),
        accuracy=1.0,
        told="val is",
    )


def sets_in_folders(folder: Path, draw: Draw) -> Case:
    return of_folders(folder, "training_set", "test_set")


def doubled_folders(folder: Path, draw: Draw) -> Case:
    return of_folders(folder, "seg_train/seg_train", "seg_test/seg_test")


def split_folders_in_any_case(folder: Path, draw: Draw) -> Case:
    cases = st.sampled_from([str.lower, str.upper, str.title])
    behind = draw(st.sampled_from(["", "_set", "-images", "Data", " split", "set", "2017"]))
    change = draw(cases)
    train, test = draw(
        st.sampled_from([("train", "test"), ("training", "testing"), ("training", "test")])
    )
    inner = draw(st.sampled_from(["", "archive"]))
    return of_folders(folder, change(train) + behind, change(test) + behind, inner)


def unsorted_test_pictures(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("train", 2)])
    save(folder / "data" / "test" / "1", pattern(0)[..., 0])
    model = nearest(folder / "model.onnx", prototypes())
    return Case(
        model,
        pictures(folder / "data"),
        said=("test holds images and no folders of classes", "sort them"),
    )


def classes_at_other_numbers(folder: Path, draw: Draw) -> Case:
    order = draw(st.permutations(range(3)))
    put_folders(folder / "data", [("", 3)], wrong=1)
    model = nearest(folder / "model.onnx", prototypes()[order], [NAMES[number] for number in order])
    return Case(
        model,
        pictures(folder / "data", test_fraction=1.0),
        accuracy=8 / 9,
        told="3 classes: ant, bee, cat",
    )


def classes_written_in_other_ways(folder: Path, draw: Draw) -> Case:
    names = ("fire ant", "honey bee", "house cat")
    ways: list[Callable[[str], str]] = [
        lambda name: name.replace(" ", "_"),
        str.title,
        lambda name: name.upper().replace(" ", "-"),
    ]
    order = draw(st.permutations(range(3)))
    put_folders(folder / "data", [("", 3)], [draw(st.sampled_from(ways))(name) for name in names])
    model = nearest(folder / "model.onnx", prototypes()[order], [names[number] for number in order])
    return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=1.0)


def classes_with_other_names(folder: Path, draw: Draw) -> Case:
    stranger = draw(st.sampled_from(["dog", "Ameise", "cat2"]))
    put_folders(folder / "data", [("", 2)], (*NAMES[:2], stranger))
    model = nearest(folder / "model.onnx", prototypes(), NAMES)
    return Case(
        model, pictures(folder / "data", test_fraction=1.0), said=(repr(stranger), "--class-list")
    )


def some_of_the_classes(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("", 2)], NAMES[:2])
    model = nearest(folder / "model.onnx", prototypes(), NAMES)
    said = ("the data set lacks 'cat'", "--class-list")
    return Case(model, pictures(folder / "data", test_fraction=1.0), said=said)


def pictures_stored_as(how: str) -> Callable[[Path, Draw], Case]:
    def kind(folder: Path, draw: Draw) -> Case:
        put_folders(folder / "data", [("", 3)], how=how, wrong=1)
        model = nearest(folder / "model.onnx", prototypes())
        return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=8 / 9)

    kind.__name__ = f"pictures_stored_as_{how}"
    return kind


def sixteen_bits(folder: Path, draw: Draw) -> Case:
    how, brightest = draw(st.sampled_from(["I;16.png", "I;16.tif"])), draw(st.integers(200, 255))
    shades = (pattern(0)[..., 0] // 2, np.full((SIDE, SIDE), brightest, np.uint8))
    for number, name in enumerate(NAMES[:2]):
        for n in range(3):
            save(folder / "data" / name / f"{n}", shades[number], how)
    model = nearest(folder / "model.onnx", np.stack([shades[0], shades[1]])[..., None])
    return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=1.0)


def deep_pictures_without_a_white(folder: Path, draw: Draw) -> Case:
    how = draw(st.sampled_from(["F255.tif", "I.tif"]))
    put_folders(folder / "data", [("", 2)], how=how)
    model = nearest(folder / "model.onnx", prototypes())
    said = (".tif is no image that can be read", "nothing says which is white", "8 or 16 bits")
    return Case(model, pictures(folder / "data", test_fraction=1.0), said=said)


def one_bit(folder: Path, draw: Draw) -> Case:
    shades = np.stack([np.eye(SIDE), 1 - np.eye(SIDE)]) * 255
    for number, name in enumerate(NAMES[:2]):
        save(folder / "data" / name / "a", shades[number].astype(np.uint8), "1.png")
    model = nearest(folder / "model.onnx", shades[..., None])
    return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=1.0)


def grey_for_three_channels(folder: Path, draw: Draw) -> Case:
    put_folders(folder / "data", [("", 3)], wrong=1)
    model = nearest(folder / "model.onnx", prototypes(3).transpose(0, 3, 1, 2))
    return Case(model, pictures(folder / "data", test_fraction=1.0, color="rgb"), accuracy=8 / 9)


def turned_pictures(folder: Path, draw: Draw) -> Case:
    for number, name in enumerate(NAMES):
        for n in range(2):
            turn = draw(st.integers(1, 8))
            upright = pattern(number)[..., 0]
            # What a camera stores: the inverse of what the tag says.
            undone = {
                1: upright,
                2: upright[:, ::-1],
                3: upright[::-1, ::-1],
                4: upright[::-1],
                5: upright.T,
                6: np.rot90(upright),
                7: upright[::-1, ::-1].T,
                8: np.rot90(upright, -1),
            }[turn]
            exif = Image.Exif()
            exif[0x0112] = turn
            save(folder / "data" / name / str(n), np.ascontiguousarray(undone), "L.png", exif=exif)
    model = nearest(folder / "model.onnx", prototypes())
    return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=1.0)


def pictures_of_mixed_modes(folder: Path, draw: Draw) -> Case:
    modes = st.sampled_from(
        [
            "L.png",
            "RGB.bmp",
            "RGBA.png",
            "LA.png",
            "P.png",
            "P.gif",
            "CMYK.tif",
            "I;16.png",
            "F1.tif",
        ]
    )
    for number, name in enumerate(NAMES):
        for n in range(3):
            save(folder / "data" / name / str(n), pattern(number)[..., 0], draw(modes))
    model = nearest(folder / "model.onnx", prototypes())
    return Case(model, pictures(folder / "data", test_fraction=1.0), accuracy=1.0)


# -- tables
# -------------------------------------------------------------------------------------------


def rows_of(draw: Draw, rows: int = 12) -> list[list[Any]]:
    """Rows of two numbers and a class, which is yes where the first number is greater; a quarter
    of the classes lie.
    """
    numbers = st.integers(-4000, 4000).map(lambda number: number / 8)
    found: list[list[Any]] = []
    for n in range(rows):
        one, more = draw(numbers), draw(st.integers(1, 400)) / 8
        pair = [one + more, one] if n % 2 else [one, one + more]
        greater = pair[0] > pair[1]
        found.append([*pair, "yes" if greater != (n % 4 == 3) else "no"])
    return found


def write_table(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]], **options: Any
) -> Path:
    encoding, decimal = options.pop("encoding", "utf-8"), options.pop("decimal", ".")
    text = io.StringIO()
    writer = csv.writer(text, **options)
    for row in (header, *rows) if header else rows:
        writer.writerow(
            [str(cell).replace(".", decimal) if isinstance(cell, float) else cell for cell in row]
        )
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def greater(folder: Path) -> Path:
    """A model that says yes, the second class, where the first column is greater than the
    second.
    """
    return write_model(
        folder / "model.onnx", (2,), np.array([[-1.0, 1.0], [1.0, -1.0]]), np.zeros(2)
    )


def table(path: Path, **options: Any) -> tuple[str, dict[str, Any]]:
    return "TabularClassificationDataset", {"dataset_root": path, "test_fraction": 1.0, **options}


def of_table(
    folder: Path, rows: Sequence[Sequence[Any]], header: Sequence[str], **written: Any
) -> Case:
    path = write_table(folder / "table.csv", header, rows, **written)
    return Case(greater(folder), table(path), accuracy=9 / 12, told="numbers: age, pay")


HEADER = ("age", "pay", "bought")


def plain_table(folder: Path, draw: Draw) -> Case:
    return of_table(folder, rows_of(draw), HEADER)


def table_with_decimal_commas(folder: Path, draw: Draw) -> Case:
    return of_table(
        folder,
        rows_of(draw),
        HEADER,
        delimiter=draw(st.sampled_from([";", "\t", "|"])),
        decimal=",",
    )


def table_of_a_spreadsheet(folder: Path, draw: Draw) -> Case:
    end = draw(st.sampled_from(["\r\n", "\n"]))
    return of_table(
        folder,
        rows_of(draw),
        HEADER,
        encoding="utf-8-sig",
        lineterminator=end,
        quoting=csv.QUOTE_ALL,
    )


def table_with_an_index(folder: Path, draw: Draw) -> Case:
    name = draw(st.sampled_from(["", "Unnamed: 0"]))
    rows = [[number, *row] for number, row in enumerate(rows_of(draw))]
    case = of_table(folder, rows, (name, *HEADER))
    case.told = "ignored: Unnamed: 0"
    return case


def table_with_an_odd_cell(folder: Path, draw: Draw) -> Case:
    rows = rows_of(draw)
    row, column = draw(st.integers(0, 11)), draw(st.integers(0, 1))
    word = rows[row][column] = draw(
        st.sampled_from(["unknown", "-", "abc", "12 kg", "#DIV/0!", "inf"])
    )
    path = write_table(folder / "table.csv", HEADER, rows)
    said = (f"line {row + 2}: {word!r} in column {HEADER[column]}", "--missing-words", "--ignored")
    return Case(greater(folder), table(path), said=said)


def odd_cells_in_a_column_that_is_ignored(folder: Path, draw: Draw) -> Case:
    rows = [["?" if n == 3 else n, *row] for n, row in enumerate(rows_of(draw))]
    rows[5][0] = "unknown"
    path = write_table(folder / "table.csv", ("code", *HEADER), rows)
    return Case(
        greater(folder), table(path, ignored=("code",)), accuracy=9 / 12, told="ignored: code"
    )


def classes_called_none(folder: Path, draw: Draw) -> Case:
    words = {"no": "NA", "yes": "None"}
    rows = [[one, other, words[kind]] for one, other, kind in rows_of(draw)]
    case = of_table(folder, rows, HEADER)
    case.told = "2 classes: NA, None"
    return case


def table_without_names(folder: Path, draw: Draw) -> Case:
    path = write_table(folder / "table.csv", (), rows_of(draw))
    return Case(
        greater(folder),
        table(path),
        said=("table.csv: the first line holds", "put a line with the names"),
    )


def table_of_marked_numbers(folder: Path, draw: Draw) -> Case:
    rows = [[f"{1000 + n:,}.50", n, "no"] for n in range(9)]
    path = write_table(folder / "table.csv", HEADER, rows)
    return Case(
        greater(folder), table(path), said=("line 2: '1,000.50' in column age", "write it plainly")
    )


def table_of_values(folder: Path, draw: Draw) -> Case:
    pairs = [row[:2] for row in rows_of(draw)]
    off = draw(st.integers(1, 40)) / 4
    path = write_table(
        folder / "table.csv", ("a", "b", "value"), [[*pair, sum(pair) + off] for pair in pairs]
    )
    model = write_model(folder / "model.onnx", (2,), np.ones((2, 1)), np.zeros(1))
    return Case(
        model, ("TabularRegressionDataset", {"dataset_root": path, "test_fraction": 1.0}), error=off
    )


def table_with_a_row_without_class(folder: Path, draw: Draw) -> Case:
    rows, row = rows_of(draw), draw(st.integers(0, 11))
    rows[row][2] = draw(st.sampled_from(["", " "]))
    path = write_table(folder / "table.csv", HEADER, rows)
    return Case(
        greater(folder), table(path), said=("1 rows have no bought", f"line {row + 2}; remove them")
    )


# -- arrays
# -------------------------------------------------------------------------------------------


def samples(
    shape: Sequence[int], count: int = 12, wrong: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples of three classes with their labels, some of which are wrong, and what the classes
    look like.
    """
    random = np.random.default_rng(len(shape))
    means = random.normal(0, 1, (3, *shape)).astype(np.float32)
    true = np.arange(count) % 3
    found = means[true] + random.normal(0, 0.05, (count, *shape)).astype(np.float32)
    labels = true.copy()
    labels[:wrong] = (labels[:wrong] + 1) % 3
    return found, labels, means


def archive(folder: Path, **arrays: np.ndarray) -> tuple[str, dict[str, Any]]:
    np.savez(folder / "arrays.npz", **arrays)
    return "ArraysDataset", {"dataset_root": folder / "arrays.npz", "test_fraction": 1.0}


def arrays_with_texts(folder: Path, draw: Draw) -> Case:
    x, labels, means = samples((4,))
    texts = np.array(NAMES)[labels]
    texts = draw(st.sampled_from([texts, texts.astype("S"), texts[:, None]]))
    order = draw(st.permutations(range(3)))
    model = nearest(folder / "model.onnx", means[order], [NAMES[number] for number in order])
    return Case(
        model, archive(folder, x=x, label=texts), accuracy=9 / 12, told="3 classes: ant, bee, cat"
    )


def channels_first_for_last(folder: Path, draw: Draw) -> Case:
    channels, side = draw(st.sampled_from([1, 3])), draw(st.integers(5, 9))
    x, labels, means = samples((side, side + 1, channels))
    model = nearest(folder / "model.onnx", means)
    return Case(model, archive(folder, x=x.transpose(0, 3, 1, 2), labels=labels), accuracy=9 / 12)


def channels_last_for_first(folder: Path, draw: Draw) -> Case:
    channels, side = draw(st.sampled_from([1, 3])), draw(st.integers(5, 9))
    x, labels, means = samples((channels, side, side + 2))
    model = nearest(folder / "model.onnx", means)
    return Case(model, archive(folder, x=x.transpose(0, 2, 3, 1), labels=labels), accuracy=9 / 12)


def labels_in_other_forms(folder: Path, draw: Draw) -> Case:
    x, labels, means = samples((5,))
    forms = [
        labels.astype(np.float32),
        labels[:, None],
        np.eye(3)[labels],
        np.eye(3, dtype=bool)[labels],
    ]
    form = draw(st.sampled_from(range(4)))
    return Case(
        nearest(folder / "model.onnx", means),
        archive(folder, x=x, labels=forms[form]),
        accuracy=9 / 12,
    )


def axes_in_another_order(folder: Path, draw: Draw) -> Case:
    shape = draw(st.sampled_from([(2, 30), (20, 3), (4, 6, 7, 3)]))
    x, labels, means = samples(shape)
    data = archive(folder, x=np.moveaxis(x, 1, -1), labels=labels)
    return Case(
        nearest(folder / "model.onnx", means),
        data,
        said=("the same axes in another order", "transpose"),
    )


def sounds_of_another_rate(folder: Path, draw: Draw) -> Case:
    for name in NAMES:
        path = folder / "data" / name / "a.wav"
        path.parent.mkdir(parents=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(bytes(32000))
    data = "WavFolderDataset", {"dataset_root": folder / "data", "test_fraction": 1.0}
    model = write_model(folder / "model.onnx", (128, 44), np.zeros((128 * 44, 3)), np.zeros(3))
    said = ("22,050 samples a second", "gives 16,000: give --sample-rate 22050")
    return Case(
        model,
        data,
        said=said,
        preparation={"transform": "LogMel", "transform_options": ("convention=librosa",)},
    )


# -- data in Python
# -----------------------------------------------------------------------------------


def dicts_of_a_loader(folder: Path, draw: Draw) -> Case:
    x, labels, means = samples((5,))
    size, name = draw(st.integers(1, 12)), draw(st.sampled_from(["labels", "label", "target"]))
    parts = range(0, 12, size)
    batches = [{"pixel_values": x[n : n + size], name: labels[n : n + size]} for n in parts]
    return Case(nearest(folder / "model.onnx", means), batches, accuracy=9 / 12)


def tuples_of_two_inputs(folder: Path, draw: Draw) -> Case:
    x, labels, means = samples((2, 5))
    model = nearest(folder / "model.onnx", means[:, 0], inputs=1)
    flat = means.reshape(3, -1).astype(np.float64)
    write_model(model, (5,), 2 * flat.T, -(flat**2).sum(axis=1), inputs=2)
    return Case(model, ((x[:, 0], x[:, 1]), labels), accuracy=9 / 12)


def numbers_to_predict(folder: Path, draw: Draw) -> Case:
    x = np.arange(24, dtype=np.float32).reshape(12, 2) / 8
    off = draw(st.integers(1, 40)) / 4
    model = write_model(folder / "model.onnx", (2,), np.ones((2, 1)), np.zeros(1))
    return Case(model, (x, x.sum(axis=1, keepdims=True) + off), error=off)


def text_labels(folder: Path, draw: Draw) -> Case:
    x, labels, means = samples((5,))
    texts = np.array(NAMES)[labels]
    return Case(
        nearest(folder / "model.onnx", means),
        (x, draw(st.sampled_from([texts, texts.tolist()]))),
        9 / 12,
    )


FIXED = (
    plain_folders,
    kaggle_folders,
    roboflow_folders,
    keras_folders,
    sets_in_folders,
    doubled_folders,
    unsorted_test_pictures,
    some_of_the_classes,
    pictures_stored_as("F1.tif"),
    pictures_stored_as("RGBA.png"),
    pictures_stored_as("P.png"),
    pictures_stored_as("CMYK.jpg"),
    pictures_stored_as("LA.png"),
    table_with_a_row_without_class,
    one_bit,
    grey_for_three_channels,
    odd_cells_in_a_column_that_is_ignored,
    classes_called_none,
    table_of_marked_numbers,
    table_without_names,
    sounds_of_another_rate,
    tuples_of_two_inputs,
)
DRAWN = (
    split_folders_in_any_case,
    classes_at_other_numbers,
    classes_written_in_other_ways,
    classes_with_other_names,
    sixteen_bits,
    deep_pictures_without_a_white,
    turned_pictures,
    pictures_of_mixed_modes,
    plain_table,
    table_with_decimal_commas,
    table_of_a_spreadsheet,
    table_with_an_index,
    table_with_an_odd_cell,
    table_of_values,
    arrays_with_texts,
    channels_first_for_last,
    channels_last_for_first,
    labels_in_other_forms,
    axes_in_another_order,
    dicts_of_a_loader,
    numbers_to_predict,
    text_labels,
)


def test_there_are_44_kinds_of_which_half_are_drawn() -> None:
    assert len({kind.__name__ for kind in FIXED + DRAWN}) == 44
    assert len(DRAWN) == 22


def right(case: Case, found: Any) -> None:
    """Check the figure of a run."""
    name, value = ("accuracy", case.accuracy) if case.error is None else ("mae", case.error)
    assert found.summary()[name]["value"] == pytest.approx(value, rel=1e-4)
    assert case.told in "\n".join(found.preparation["read"])


def of_case(case: Case) -> Any:
    """Return the run of a data set, measured in this process, or of data in Python."""
    wrapper = nnp.find("ONNXModel", nnp.ModelWrapper).from_json(
        {"model_path": str(case.model), **case.preparation}
    )
    if not (isinstance(case.data, tuple) and isinstance(case.data[0], str)):
        options = nnp.MeasureOptions(measure_seconds=0.0, warmup_runs=0)
        return nnp.measure(
            case.model, data=case.data, options=options, calibration_samples=0, progress=silent
        ).run
    name, arguments = case.data
    dataset = nnp.find(name, nnp.Dataset)(**arguments)
    dataset.prepare()
    wrapper = wrapper.for_dataset(dataset.spec)
    with wrapper.open() as model:
        return nnp.benchmark(
            model.session,
            dataset=dataset,
            indices=dataset.split("test"),
            wrapper=wrapper,
            options=nnp.MeasureOptions(measure_seconds=0.0, warmup_runs=0, inference_batch_size=4),
        )


def check(kind: Callable[[Path, Draw], Case], draw: Draw) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = kind(Path(folder), draw)
        if case.accuracy is None and case.error is None:
            with pytest.raises(nnp.NNPipeError) as caught:
                of_case(case)
            assert "\n" not in str(caught.value)
            for part in case.said:
                assert part in str(caught.value)
            return
        right(case, of_case(case))


def first(strategy: st.SearchStrategy[Any]) -> Any:
    """Draw one example, for what is not drawn over and over."""
    drawn = []

    @settings(
        max_examples=1,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    return drawn[0]


@pytest.mark.parametrize("kind", FIXED, ids=lambda kind: kind.__name__)
def test_a_kind_gives_the_right_figure_or_one_line(kind: Callable[[Path, Draw], Case]) -> None:
    check(kind, first)


IN_PROCESSES_OF_THEIR_OWN = (dicts_of_a_loader, numbers_to_predict, text_labels)


@pytest.mark.parametrize("kind", DRAWN, ids=lambda kind: kind.__name__)
def test_a_drawn_kind_gives_the_right_figure_or_one_line(
    kind: Callable[[Path, Draw], Case],
) -> None:
    @settings(
        max_examples=1 if kind in IN_PROCESSES_OF_THEIR_OWN else examples(20),
        phases=[Phase.generate],
    )
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        check(kind, data.draw)

    drawn()


def as_flags(arguments: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in arguments.items():
        values = value if isinstance(value, tuple) else (value,)
        flags += [f"--{name.replace('_', '-')}", *map(str, values)]
    return flags


@pytest.mark.slow
@pytest.mark.parametrize("kind", FIXED + DRAWN, ids=lambda kind: kind.__name__)
def test_the_command_or_compare_says_the_same(
    kind: Callable[[Path, Draw], Case],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    case = kind(tmp_path, first)
    if not (isinstance(case.data, tuple) and isinstance(case.data[0], str)):
        found = nnp.compare(
            case.model,
            data=case.data,
            calibration=case.data,
            ways=["onnx"],
            max_seconds=0.2,
            progress=silent,
        )
        for run in found.comparison.whole:
            right(case, run)
        return
    name, arguments = case.data
    out = tmp_path / "out.json"
    options = as_flags({**arguments, **case.preparation})
    measured = [
        "inference_performance",
        "ONNXModel",
        name,
        str(out),
        "--model-path",
        str(case.model),
    ]
    status = main([*measured, "--measure-seconds", "0", *options])
    said = capsys.readouterr().err
    if case.said:
        assert status == 2
        (line,) = [
            line for line in said.splitlines() if line.startswith("nnpipe inference_performance: ")
        ]
        assert not out.exists()
        assert all(part in line for part in case.said)
        return
    assert status == 0, said
    assert case.told in caplog.text
    right(case, nnp.Run.read(out))
    assert json.loads(out.read_text())["preparation"]["read"]
