"""Data sets of the user's own arrays."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import DatasetError, NNPipeError
from nnpipe.datasets.arrays import ArraysDataset, write_arrays
from nnpipe.testing.dataset import DatasetContract

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 4, 5, 3)).astype(np.uint8)
LABELS = np.arange(60) % 3


class TestArraysDataset(DatasetContract):
    needs_files = True

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> ArraysDataset:
        return write_arrays(tmp_path / "own", {"image": IMAGES}, LABELS)


def test_an_archive_holds_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", image=IMAGES, labels=LABELS)
    archive, folder = (
        ArraysDataset(dataset_root=tmp_path / "own.npz"),
        write_arrays(tmp_path / "own", {"image": IMAGES}, LABELS),
    )
    assert archive.spec == folder.spec
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(archive.split(name), folder.split(name))
    inputs, truth = archive.read(np.array([7, 3]))
    np.testing.assert_array_equal(inputs["image"], IMAGES[[7, 3]])
    np.testing.assert_array_equal(truth["label"], [1, 0])


def test_a_split_of_ones_own_is_kept(tmp_path: Path) -> None:
    split = np.repeat([0, 1, 2], 20)
    data = write_arrays(
        tmp_path, {"image": IMAGES}, LABELS, split=split, class_names=("a", "b", "c")
    )
    assert data.spec.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(data.split("test"), np.arange(40, 60))
    assert not set(data.split("train")) & set(data.split("test"))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"image": IMAGES}, "no array 'labels' with the class of each sample; there are image"),
        ({"labels": LABELS}, "no array beside 'labels'"),
        ({"image": IMAGES, "labels": LABELS[:50]}, "differ in their number of samples"),
        (
            {"image": IMAGES, "labels": LABELS - 1},
            "'labels' should be class numbers from 0; they are int64, the least -1",
        ),
        (
            {"image": IMAGES, "labels": LABELS / 2},
            "should be class numbers from 0; they are float64",
        ),
        ({"image": IMAGES, "labels": LABELS, "split": LABELS + 1}, "'split' should hold 0"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(
    tmp_path: Path, arrays: dict[str, np.ndarray], said: str
) -> None:
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(DatasetError, match=said) as caught:
        ArraysDataset(dataset_root=tmp_path).prepare()
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "image.npy", np.array([{"a": 1}] * 60, dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "image.npy", IMAGES)
    content = (tmp_path / "image.npy").read_bytes()
    (tmp_path / "image.npy").write_bytes(content.replace(b"(60, 4, 5, 3)", b"(9**9,4,5,3) ", 1))
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()
    (tmp_path / "image.npy").write_bytes(content.replace(b"(60, 4, 5, 3)", b"(60,4,9000,3)", 1))
    with pytest.raises(DatasetError, match=r"image\.npy: no array of numpy"):
        ArraysDataset(dataset_root=tmp_path).prepare()


# -- any task, tables, raw numbers
# ------------------------------------------------------------------


def test_the_targets_of_any_task_are_found_by_name(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    np.savez(
        tmp_path / "boxes.npz",
        image=IMAGES,
        boxes=draws.uniform(1, 4, (60, 2, 4)),
        **{"class": np.tile(np.array([[0, -1]]), (60, 1))},
    )
    data = ArraysDataset(dataset_root=tmp_path / "boxes.npz", task_name="detection")
    assert [each.name for each in data.spec.inputs] == ["image"]
    assert {each.name for each in data.spec.targets} == {"boxes", "class"}
    _, truth = data.read(np.arange(5))
    found = data.evaluate(data.task.perfect(truth, data.spec), truth)
    assert data.task.primary.compute(found) == pytest.approx(1)
    np.savez(tmp_path / "masks.npz", x=IMAGES, y=IMAGES[..., 0] % 3)
    (tmp_path / "names.txt").write_text("ground\nsky\nsea\n")
    masks = ArraysDataset(
        dataset_root=tmp_path / "masks.npz",
        task_name="segmentation",
        targets=("mask=y",),
        class_list=tmp_path / "names.txt",
    )
    assert masks.spec.targets[0].dtype == "int64"
    assert masks.task.perfect(masks.read(np.array([0]))[1], masks.spec)["mask"].shape == (1, 4, 5)


def test_the_arguments_of_a_task_can_be_given(tmp_path: Path) -> None:
    vectors = np.array([[1.0, 0], [2, 0], [0, 1], [0, 2]])
    np.savez(tmp_path / "a.npz", x=vectors, label=np.array([0, 1, 0, 1]))
    options = {"dataset_root": tmp_path / "a.npz", "task_name": "embedding"}
    data = ArraysDataset(**options, task_options=("distance=euclidean",))
    inputs, truth = data.read(np.arange(4))
    assert data.evaluate({"embedding": inputs["x"]}, truth).settings == {"distance": "euclidean"}
    with pytest.raises(NNPipeError, match="distance"):
        ArraysDataset(**options, task_options=("distance=taxi",))


def test_targets_of_the_wrong_form_are_told_at_once(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz",
        image=IMAGES,
        boxes=np.zeros((60, 5)),
        **{"class": np.zeros((60, 2), int)},
    )
    for said, options in (
        ("no targets of the task detection: boxes float64", {}),
        (r"needs the target 'class'", {"targets": ("boxes",)}),
        (
            "there is no array|no array 'mask', a target of the task segmentation",
            {"task_name": "segmentation"},
        ),
        ("no array 'boxed', did you mean|no array 'boxed'", {"targets": ("boxes=boxed", "class")}),
    ):
        with pytest.raises(DatasetError, match=said) as caught:
            ArraysDataset(
                **{"dataset_root": tmp_path / "a.npz", "task_name": "detection", **options}
            ).prepare()
        assert "\n" not in str(caught.value)


def table(path: Path, rows: int = 40) -> None:
    lines = [
        f"{n % 7}.5,{n},{'cat' if n % 2 else 'a dog'},{n / 10},{('train', 'test')[n % 4 == 0]}"
        for n in range(rows)
    ]
    path.write_text("width,height,kind,price,split\n" + "\n".join(lines) + "\n")


def test_columns_of_a_table_are_inputs_and_targets(tmp_path: Path) -> None:
    table(tmp_path / "a.csv")
    pets = ArraysDataset(
        dataset_root=tmp_path / "a.csv", inputs=("width", "height"), targets=("label=kind",)
    )
    assert pets.spec.class_names == ("a dog", "cat")
    assert pets.spec.inputs[0].shape == (None, 2)
    inputs, truth = pets.read(np.array([3]))
    assert inputs["features"].tolist() == [[3.5, 3.0]]
    assert truth["label"].tolist() == [1]
    assert pets.split("test").tolist() == list(range(0, 40, 4))
    prices = ArraysDataset(
        dataset_root=tmp_path / "a.csv",
        task_name="regression",
        inputs=("a=width", "b=height,width"),
        targets=("price",),
    )
    inputs, truth = prices.read(np.array([3]))
    assert {name: array.shape for name, array in inputs.items()} == {"a": (1, 1), "b": (1, 2)}
    assert truth["value"] == pytest.approx(0.3)


def test_raw_numbers_and_labels_in_files_of_their_own(tmp_path: Path) -> None:
    IMAGES.tofile(tmp_path / "images.bin")
    (tmp_path / "classes.txt").write_text("\n".join(["no", "yes", "maybe"][n] for n in LABELS))
    data = ArraysDataset(
        dataset_root=tmp_path, arrays=("image=images.bin:uint8:4x5x3", "labels=classes.txt")
    )
    assert isinstance(data.samples.inputs["image"], np.memmap)
    inputs, truth = data.read(np.array([59, 0]))
    np.testing.assert_array_equal(inputs["image"], IMAGES[[59, 0]])
    assert [data.spec.class_names[label] for label in truth["label"]] == ["maybe", "no"]
    short = ArraysDataset(
        dataset_root=tmp_path, arrays=("image=images.bin:uint8:4x5x7", "labels=classes.txt")
    )
    with pytest.raises(
        DatasetError, match=r"images\.bin has 3,600 bytes, .* 140 each: 100 are left over"
    ):
        short.prepare()


def test_all_samples_can_be_the_test_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.zeros((50, 3)), labels=np.arange(50) % 2)
    data = ArraysDataset(dataset_root=tmp_path / "a.npz", test_fraction=1.0)
    assert data.split("test").tolist() == list(range(50))
    assert not len(data.split("train"))


def test_quantised_inputs_become_real_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([[3, 5], [-128, 127]], np.int8), labels=np.arange(2))
    data = ArraysDataset(dataset_root=tmp_path / "a.npz", quantised=("0.5:3",))
    assert data.spec.inputs[0].dtype == "float32"
    assert data.read(np.arange(2))[0]["x"].tolist() == [[0, 1], [-65.5, 62]]


def test_arrays_of_an_archive_without_compression_are_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(IMAGES), labels=LABELS)
    np.savez_compressed(tmp_path / "b.npz", x=IMAGES, labels=LABELS)
    mapped, loaded = (ArraysDataset(dataset_root=tmp_path / name) for name in ("a.npz", "b.npz"))
    assert isinstance(mapped.samples.inputs["x"], np.memmap)
    np.testing.assert_array_equal(
        mapped.read(np.arange(60))[0]["x"], loaded.read(np.arange(60))[0]["x"]
    )


def hostile(path: Path, kind: str) -> dict[str, object]:
    """Write a hostile file, and return the options to read it by."""
    if kind == "line":
        with open(path / "a.csv", "wb") as file:
            file.truncate(1 << 30)  # 1 GB of NUL without a line end
    elif kind == "second line":
        with open(path / "a.csv", "wb") as file:
            file.write(b"a,labels\n")
            file.truncate(1 << 30)
    elif kind == "columns":
        (path / "a.csv").write_text(",".join(f"c{n}" for n in range(1_000_000)) + "\n")
    elif kind == "many short columns":
        (path / "a.csv").write_text(",".join(f"{n:x}" for n in range(150_000)) + "\n")
    elif kind == "lying archive":
        np.savez(path / "a.npz", x=IMAGES, labels=LABELS)
        held = (path / "a.npz").read_bytes()
        (path / "a.npz").write_bytes(held.replace(b"(60, 4, 5, 3)", b"(60,4,9**9,3)"))
    elif kind == "larger archive":
        np.savez(path / "a.npz", x=IMAGES, labels=LABELS)
        held = (path / "a.npz").read_bytes()
        (path / "a.npz").write_bytes(held.replace(b"(60, 4, 5, 3)", b"(60,4,9000,3)"))
    elif kind == "pickles":
        np.savez(path / "a.npz", x=np.array([{"a": 1}] * 60, object), labels=LABELS)
    elif kind == "zeros":
        with (
            zipfile.ZipFile(path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x.npy", "w") as member,
        ):
            np.lib.format.write_array_header_1_0(
                member, {"descr": "|u1", "fortran_order": False, "shape": (1 << 29,)}
            )
            for _ in range(1 << 7):
                member.write(bytes(1 << 22))
    names = {entry.name for entry in path.iterdir()}
    return {"dataset_root": path / min(names)}


@pytest.mark.parametrize(
    "kind",
    [
        "line",
        "second line",
        "columns",
        "many short columns",
        "lying archive",
        "larger archive",
        "pickles",
        "zeros",
    ],
)
def test_hostile_files_are_refused_in_one_line_with_little_memory(
    tmp_path: Path, kind: str
) -> None:
    options = hostile(tmp_path, kind)
    tracemalloc.start()
    with pytest.raises(DatasetError) as caught:
        ArraysDataset(**options).prepare()  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert str(tmp_path) in str(caught.value)
    assert peak < 100 << 20


@pytest.mark.parametrize(
    "options",
    [
        {"arrays": ("x",)},
        {"arrays": ("x=a.bin:uint7:3",)},
        {"arrays": ("x=a.bin:uint8:3x-1",)},
        {"arrays": ("x=a.bin:float64:999999999x999999999",)},
        {"arrays": ("x=a.bin:3",)},
        {"quantised": ("x=0:1",)},
        {"quantised": ("nan",)},
        {"inputs": ("x=",)},
        {"task_name": "clasification"},
    ],
)
def test_wrong_options_are_told_in_one_line(options: dict[str, object]) -> None:
    with pytest.raises(NNPipeError) as caught:
        ArraysDataset(**options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
