"""The names of classes are found in files where exporters write them, and never made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from installed import needs
from labelled_files import write_labelled_onnx, write_labelled_tflite

from nnpipe.core.errors import ArtifactError
from nnpipe.formats.class_names import read_onnx_class_names, read_tflite_class_names
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.testing.model_files import write_onnx_classifier, write_tflite_difference

NAMES = ("cat", "guinea pig", "dog's", 'the "other"')


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{0: 'cat', 1: \"dog's\"}", ("cat", "dog's")),
        ('{"0": "cat", "1": "d\\u00e9g"}', ("cat", "dég")),
        ('["cat", "dog"]', ("cat", "dog")),
        ("['cat', 'dog',]", ("cat", "dog")),
        ("{1: 'cat', 2: 'dog'}", ()),
        ("['cat', 2]", ()),
        ("['cat' 'dog'", ()),
        ("{'cat', 'dog'}", ()),
        ("cat, dog", ()),
        ("[__import__('os')]", ()),
        ("", ()),
    ],
)
def test_names_among_the_properties_of_an_onnx_file(
    text: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    path = write_onnx_classifier(tmp_path / "m.onnx", np.eye(2, dtype=np.float32), np.arange(2))
    model = onnx.load_model(str(path))
    onnx.helper.set_model_props(model, {"names": text, "stride": "[1, 2]"})
    onnx.save_model(model, str(path))
    assert read_onnx_class_names(path) == names


@pytest.mark.parametrize("zipped", [True, False])
def test_names_in_classifiers_of_scikit_learn(zipped: bool, tmp_path: Path) -> None:
    needs("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    rows = np.eye(3, dtype=np.float32)
    estimator = LogisticRegression().fit(rows, ["red", "green", "blue"])
    options = None if zipped else {id(estimator): {"zipmap": False}}
    path = tmp_path / "m.onnx"
    path.write_bytes(to_onnx(estimator, rows, options=options).SerializeToString())
    assert read_onnx_class_names(path) == ("blue", "green", "red")
    meaning = ONNXModel(model_path=path, scale=1.0, result_output="probabilities").meaning
    assert meaning is not None
    assert meaning.outputs[0].class_names == ("blue", "green", "red")


def test_labels_of_a_tflite_file(tmp_path: Path) -> None:
    needs("ai_edge_litert")
    path = write_labelled_tflite(tmp_path / "m.tflite", NAMES)
    assert read_tflite_class_names(path) == {"difference": NAMES}
    assert (
        read_tflite_class_names(write_labelled_tflite(tmp_path / "n.tflite", NAMES, kind=1)) == {}
    )
    assert read_tflite_class_names(write_tflite_difference(tmp_path / "o.tflite").path) == {}


def test_labels_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    needs("ai_edge_litert")
    path = write_labelled_tflite(tmp_path / "m.tflite", NAMES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert read_tflite_class_names(path) == {}
    with pytest.raises(ArtifactError, match="no such"):
        read_tflite_class_names(tmp_path / "none.tflite")


def test_published_labels(shared_data: Path) -> None:
    found = read_tflite_class_names(
        shared_data / "models" / "coral" / "mobilenet_v1_0.25_128_quant.tflite"
    )
    (names,) = found.values()
    assert len(names) == 1001
    assert names[:2] == ("background", "tench, Tinca tinca")


def test_names_are_as_many_as_the_scores_or_none(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    path = write_labelled_onnx(tmp_path / "m.onnx", NAMES)
    meaning = ONNXModel(model_path=path, class_offset=1).meaning
    assert meaning is not None
    assert meaning.outputs[0].class_names == NAMES[1:]
    other = write_onnx_classifier(tmp_path / "o.onnx", np.eye(5, dtype=np.float32), np.arange(5))
    onnx = pytest.importorskip("onnx")
    model = onnx.load_model(str(other))
    onnx.helper.set_model_props(model, {"names": str(dict(enumerate(NAMES)))})
    onnx.save_model(model, str(other))
    assert ONNXModel(model_path=other).meaning is None
