"""Keras files that come from anybody: what is damaged, lies, or brings code is refused, in one
line that names it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installed import ImportedWhenUsed, needs
from property_examples import examples

from nnpipe.core.errors import ArtifactError
from nnpipe.frameworks.keras import import_keras, suppress_copy_warning
from nnpipe.frameworks.keras_files import load_model, read_weights
from nnpipe.testing.session import assert_one_line

needs("tensorflow")
keras = ImportedWhenUsed("keras")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")
CONFIG, WEIGHTS = "config.json", "model.weights.h5"


def build() -> Any:
    import_keras()
    x = keras.Input((4,), name="x")
    hidden = keras.layers.Dense(5, activation="relu", name="hidden")(x)
    return keras.Model(
        x, keras.layers.Dense(3, name="y")(keras.layers.Dropout(0.1, name="drop")(hidden))
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    with suppress_copy_warning():
        build().save(path)
    return path


def repacked(archive: Path, path: Path, **changes: Callable[[bytes], bytes | None]) -> Path:
    """Copy an archive with some of its members changed (config=...) or left out."""
    short = {"config": CONFIG, "weights": WEIGHTS}
    edits = {short[name]: edit for name, edit in changes.items()}
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = edits.get(name, lambda same: same)(old.read(name))
            if content is not None:
                new.writestr(name, content)
    return path


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        config = json.loads(content)
        change(config)
        return json.dumps(config).encode()

    return edit


def layer(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        item for item in config["config"]["layers"] if item["config"]["name"] == name
    )
    return found


def refused(path: Path, why: str, read: Callable[[Path], object] = load_model) -> None:
    with pytest.raises(ArtifactError, match=why) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert_one_line(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 500


def test_a_whole_archive_gives_the_model_with_its_weights(archive: Path) -> None:
    model, batch = load_model(archive), np.ones((2, 4), "float32")
    expected = build()
    read_weights(archive, expected, "it")
    np.testing.assert_array_equal(model(batch).numpy(), expected(batch).numpy())
    assert not np.array_equal(model(batch).numpy(), build()(batch).numpy())


# -- structures -----------------------------------------------------------------------------------


def test_a_model_with_a_lambda_is_refused_by_name(tmp_path: Path) -> None:
    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda v: v * 2, name="double", output_shape=(4,))(x)).save(
        tmp_path / "m.keras"
    )
    refused(
        tmp_path / "m.keras",
        r"holds a Lambda layer \('double'\), which would run code from the file",
    )


@pytest.mark.parametrize("name", ["TFSMLayer", "TorchModuleWrapper", "__lambda__", "JaxLayer"])
def test_other_layers_that_carry_code_are_refused(archive: Path, tmp_path: Path, name: str) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "drop")["class_name"] = name

    refused(
        repacked(archive, tmp_path / "m.keras", config=edited(change)),
        "would run code from the file",
    )


def test_code_hidden_deep_in_arguments_is_refused(archive: Path, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "hidden")["config"]["activation"] = [
            {"a": {"class_name": "__lambda__", "config": {"value": ""}}}
        ]

    refused(repacked(archive, tmp_path / "m.keras", config=edited(change)), "a Python lambda")


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("builtins", "eval"), ("subprocess", "Popen")]
)
def test_functions_of_other_modules_are_not_called(
    archive: Path, tmp_path: Path, module: str, name: str
) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "hidden")["config"]["activation"] = {
            "module": module,
            "class_name": "function",
            "config": name,
            "registered_name": name,
        }

    refused(
        repacked(archive, tmp_path / "m.keras", config=edited(change)),
        "Keras cannot build the model",
    )


def test_a_layer_that_is_unknown_here_is_named(archive: Path, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "drop").update(
            class_name="Peculiar", module="somewhere", registered_name="Peculiar"
        )

    refused(repacked(archive, tmp_path / "m.keras", config=edited(change)), "Peculiar")


def test_more_weights_than_the_file_can_hold_are_not_made(archive: Path, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "hidden")["config"]["units"] = 2_000_000_000
        layer(config, "hidden").pop("build_config")
        layer(config, "y").pop("build_config")

    # 14 billion weights: to make them would end this process.
    refused(
        repacked(archive, tmp_path / "m.keras", config=edited(change)),
        "claims 64,000,000,028 bytes of weights",
    )
    assert load_model(archive) is not None, "nothing of the giant is left behind"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"[" * 100_000, b'{"class_name": 3}', b"\xff\xfe", b'{"a": NaN}']
)
def test_a_damaged_structure_is_named(archive: Path, tmp_path: Path, text: bytes) -> None:
    refused(
        repacked(archive, tmp_path / "m.keras", config=lambda _: text),
        r"config\.json is damaged|cannot build",
    )


def test_a_description_of_something_else_is_refused(archive: Path, tmp_path: Path) -> None:
    flat = {
        "module": "keras.layers",
        "class_name": "Flatten",
        "config": {},
        "registered_name": None,
    }
    path = repacked(archive, tmp_path / "m.keras", config=lambda _: json.dumps(flat).encode())
    refused(path, "Flatten is no functional or sequential model")


def test_structure_and_weights_that_do_not_fit_are_refused(archive: Path, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        layer(config, "hidden")["config"]["units"] = 6
        layer(config, "hidden").pop("build_config")
        layer(config, "y").pop("build_config")

    refused(
        repacked(archive, tmp_path / "m.keras", config=edited(change)),
        "structure and its weights do not belong",
    )


@pytest.mark.parametrize(("member", "name"), [("config", CONFIG), ("weights", WEIGHTS)])
def test_an_archive_without_its_parts_is_no_model(
    archive: Path, tmp_path: Path, member: str, name: str
) -> None:
    refused(repacked(archive, tmp_path / "m.keras", **{member: lambda _: None}), f"without {name}")


def test_a_member_that_would_blow_up_is_not_unpacked(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(CONFIG, old.read(CONFIG))
        new.writestr(WEIGHTS, bytes(64 << 20))
    refused(path, r"model\.weights\.h5 claims 67,108,864 bytes")


def test_hdf5_is_not_taken_for_an_archive(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    path.write_bytes(zipfile.ZipFile(archive).read(WEIGHTS))
    refused(path, "holds weights and no structure")


# -- weights --------------------------------------------------------------------------------------


def weights_file(archive: Path, path: Path, change: Callable[[Any], None]) -> Path:
    path.write_bytes(zipfile.ZipFile(archive).read(WEIGHTS))
    with h5py.File(path, "r+") as file:
        change(file)
    return path


KERNEL = "layers/dense/vars/0"


def replaced(make: Callable[[Any], None]) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[KERNEL]
        make(file)

    return change


def external_storage(file: Any) -> None:
    file.create_dataset(KERNEL, (4, 5), "float32", external=[("/etc/passwd", 0, 80)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4, 5), "float32")
    layout[:] = h5py.VirtualSource("secret.h5", "data", (4, 5))
    file.create_virtual_dataset(KERNEL, layout)


LIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "external link": (
        replaced(lambda f: f.__setitem__(KERNEL, h5py.ExternalLink("secret.h5", "data"))),
        "is a link",
    ),
    "soft link": (
        replaced(lambda f: f.__setitem__(KERNEL, h5py.SoftLink("/layers/dense_1/vars/0"))),
        "is a link",
    ),
    "external storage": (replaced(external_storage), "lies in another file"),
    "virtual dataset": (replaced(virtual), "lies in another file"),
    "text": (replaced(lambda f: f.__setitem__(KERNEL, "weights")), "not an array of numbers"),
    "complex numbers": (
        replaced(lambda f: f.__setitem__(KERNEL, np.ones((4, 5), complex))),
        "not an array of numbers",
    ),
    "a group": (replaced(lambda f: f.create_group(KERNEL)), "layers/dense/vars/0 is missing"),
    "another shape": (
        replaced(lambda f: f.__setitem__(KERNEL, np.ones((5, 4)))),
        r"shape \(5, 4\), the model's is",
    ),
    "a giant": (
        replaced(lambda f: f.create_dataset(KERNEL, (1 << 40,), "f4", chunks=(1 << 20,))),
        "has shape",
    ),
    "one too many": (
        lambda f: f.__setitem__("layers/dense_2/vars/0", np.ones(1)),
        "dense_2/vars/0 is not in the model",
    ),
    "a circle": (
        lambda f: f["layers"].__setitem__("again", f["layers"]),
        "nested more than 64 deep",
    ),
    "linked layers": (
        lambda f: (f.move("layers", "x"), f.__setitem__("layers", h5py.SoftLink("/x")))[0],
        "is a link",
    ),
    "nothing": (lambda f: f.__delitem__("layers"), "without Keras weights"),
}


@pytest.mark.parametrize("lie", LIES)
def test_weights_that_lie_are_refused_and_none_is_set(
    archive: Path, tmp_path: Path, lie: str
) -> None:
    change, why = LIES[lie]
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = np.full((4, 5), 42.0, "float32")
    model = build()
    before = [weight.numpy() for weight in model.weights]
    path = weights_file(archive, tmp_path / "m.weights.h5", change)
    refused(path, why, lambda path: read_weights(path, model, "it"))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_what_an_optimiser_left_is_passed_over(archive: Path, tmp_path: Path) -> None:
    path = weights_file(
        archive,
        tmp_path / "m.weights.h5",
        lambda f: f.__setitem__("optimizer/vars/0", np.ones((9, 9))),
    )
    model = build()
    read_weights(path, model, "it")
    np.testing.assert_array_equal(model.weights[0].numpy(), load_model(archive).weights[0].numpy())


def old_file(path: Path, change: Callable[[Any], None] = lambda file: None) -> Path:
    """Write the layout of old: layers and weights by name."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"first", b"drop", b"last"]
        for name, shapes in (("first", [(4, 5), (5,)]), ("drop", []), ("last", [(5, 3), (3,)])):
            group = file.create_group(name)
            weights = [f"{name}/{kind}:0" for kind in ("kernel", "bias")[: len(shapes)]]
            group.attrs["weight_names"] = [weight.encode() for weight in weights]
            for weight, shape in zip(weights, shapes, strict=True):
                group[weight] = np.full(shape, len(shape), "float32")
        change(file)
    return path


def test_an_old_file_with_other_layer_names_is_read_in_order(tmp_path: Path) -> None:
    model = build()
    read_weights(old_file(tmp_path / "m.h5"), model, "it")
    assert [float(weight.numpy().mean()) for weight in model.weights] == [2.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda f: f.__delitem__("last"), "last is listed in the file, but missing"),
        (lambda f: f.__delitem__("last/last/bias:0"), "bias:0 is listed in the file, but missing"),
        (
            lambda f: f["last"].attrs.__setitem__("weight_names", [b"last/kernel:0"]),
            "layer last holds 1 weights",
        ),
        (
            lambda f: f.attrs.__setitem__("layer_names", [b"first"]),
            "1 layers with weights, the model has 2",
        ),
        (
            lambda f: f.attrs.__setitem__("layer_names", [b"last", b"first"]),
            r"has shape \(5, 3\), the model's is",
        ),
        (
            lambda f: f.attrs.__setitem__("layer_names", [b"../../x", b"/"]),
            "listed in the file, but missing",
        ),
        (lambda f: f.attrs.__setitem__("layer_names", 7), "cannot be read"),
        (
            lambda f: f["last"].attrs.__setitem__("weight_names", [b"\xff\xfe", b"a"]),
            "cannot be read",
        ),
        (
            lambda f: (
                f.__delitem__("first") or f.__setitem__("first", h5py.ExternalLink("x.h5", "/"))
            ),
            "is a link",
        ),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_an_old_file_that_lies_is_refused(
    tmp_path: Path, change: Callable[[Any], None], why: str
) -> None:
    model = build()
    before = [weight.numpy() for weight in model.weights]
    refused(old_file(tmp_path / "m.h5", change), why, lambda path: read_weights(path, model, "it"))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


# -- anything at all ------------------------------------------------------------------------------


def accepted(path: Path, read: Callable[[Path], Any]) -> Any:
    """Return what is read, or None where it is refused as it should be."""
    try:
        return read(path)
    except ArtifactError as error:
        refusal = str(error)
    assert str(path) in refusal
    assert "\n" not in refusal
    return None


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_flipped_bytes_are_noticed_or_harmless(
    archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(archive.read_bytes())
    places = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(content) - 1), st.integers(1, 255)), min_size=1, max_size=4
        )
    )
    for place, flip in places:
        content[place] ^= flip
    path = tmp_path / "m.keras"
    path.write_bytes(content)
    expected = load_model(archive)
    # bytes may mean nothing: dates, attributes
    if (found := accepted(path, load_model)) is not None:
        for mine, its in zip(expected.weights, found.weights, strict=True):
            np.testing.assert_array_equal(mine.numpy(), its.numpy())


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_flipped_bytes_in_bare_hdf5_are_errors_of_one_line_or_numbers(
    archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(zipfile.ZipFile(io.BytesIO(archive.read_bytes())).read(WEIGHTS))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "m.weights.h5"
    path.write_bytes(content)
    accepted(path, lambda path: read_weights(path, build(), "it"))
