"""The names of classes go with a compiled model where its source knows them, and data never give
it any.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from labelled_files import write_labelled_onnx, write_labelled_tflite

from nnpipe.core.artifact import Artifact
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.plan import Plan
from nnpipe.core.progress import silent
from nnpipe.core.tensor_metadata import OutputMetadata
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.arrays import write_arrays
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.modelwrappers.files.onnx import ONNXModel
from nnpipe.modelwrappers.files.tflite import TFLiteModel
from nnpipe.modelwrappers.tabular.sklearn import SklearnTabularModel
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import fit
from nnpipe.workflows.measurement.measure import measure
from nnpipe.workflows.recipes import Recipe

NAMES = ("cat", "dog", "cow", "bee")
ORDER = ("dog", "bee", "cat", "cow")
QUICK = MeasureOptions(measure_seconds=0.0)


def data_in_another_order(folder: Path, *inputs: str) -> Dataset:
    """Return samples whose first input is greatest at the model's number of the class, and whose
    others are 0.
    """
    classes = np.arange(40) % 4
    labels = np.array([ORDER.index(NAMES[number]) for number in classes])
    arrays = {name: np.zeros((40, 4), np.float32) for name in inputs}
    arrays[inputs[0]] = np.eye(4, dtype=np.float32)[classes]
    split = np.full(40, 2, np.int8)
    return write_arrays(folder, arrays, labels, split=split, class_names=ORDER)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("onnx", {}),
        ("onnx", {"scale": 1.0}),
        ("onnx", {"class_offset": 0}),
        ("tflite", {}),
        ("tflite", {"result_kind": "scores"}),
    ],
)
def test_a_compiled_model_keeps_the_names_in_its_source(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    wrapper: type[FileModel]
    if kind == "onnx":
        needs("onnx")
        needs("onnxruntime")
        path = write_labelled_onnx(tmp_path / "m.onnx", NAMES)
        data, wrapper, runtime = (
            data_in_another_order(tmp_path / "data", "image"),
            ONNXModel,
            ONNXRuntime(),
        )
    else:
        needs("ai_edge_litert")
        path = write_labelled_tflite(tmp_path / "m.tflite", NAMES)
        data = data_in_another_order(tmp_path / "data", "first", "second")
        wrapper, runtime = TFLiteModel, LiteRTRuntime()
    model = (wrapper(model_path=path, **options), path)
    to = tmp_path / f"made.{kind}"
    found = measure(
        model,
        data=data,
        way=Recipe("none", (), runtime),
        options=QUICK,
        compiled_path=to,
        progress=silent,
    )
    by_number = "class_offset" in options
    assert found.figure("accuracy").value == (0.0 if by_number else 1.0)
    meaning = Artifact.read(to).meaning
    assert meaning is not None
    assert [each.class_names for each in meaning.outputs] == [NAMES]
    assert wrapper(model_path=to).preparation().known == ("scale" in options)
    again = measure((wrapper(model_path=to), to), data=data, options=QUICK, progress=silent)
    assert again.figure("accuracy").value == 1.0


def test_data_give_a_model_no_names(tmp_path: Path) -> None:
    needs("onnx")
    needs("onnxruntime")
    path = write_onnx_classifier(tmp_path / "m.onnx", np.eye(4, dtype=np.float32), np.arange(4))
    data = data_in_another_order(tmp_path / "data", "image")
    wrapper = ONNXModel(model_path=path, scale=1.0, result_kind="logits")
    with ModelProcess(wrapper, data, path) as source:
        made = source.compile(Plan("onnx", ()), (), tmp_path / "made.onnx", 8, 60.0)
    assert made.meaning is not None
    assert [(each.kind, each.class_names) for each in made.meaning.outputs] == [("logits", ())]


@pytest.mark.slow
def test_an_export_has_the_names_of_the_data_that_the_weights_were_trained_on(
    tmp_path: Path,
) -> None:
    needs("sklearn")
    needs("skl2onnx")
    rows, labels = np.eye(4, dtype=np.float32)[np.arange(40) % 4], np.arange(40) % 4
    trained_on = write_arrays(tmp_path / "own", {"x": rows}, labels, class_names=NAMES)
    fit(SklearnTabularModel(), trained_on, TrainingOptions(), tmp_path / "weights", silent)
    other = data_in_another_order(tmp_path / "other", "x")
    with ModelProcess(SklearnTabularModel(), other, tmp_path / "weights", judged=False) as source:
        made = source.compile(Plan("onnx", ()), (), tmp_path / "made.onnx", 8, 60.0)
    assert made.meaning is not None
    assert made.meaning.outputs[0].class_names == NAMES


def test_weights_are_not_judged_on_their_classes_in_another_order(tmp_path: Path) -> None:
    write_onnx_classifier(tmp_path / "weights", np.eye(4, dtype=np.float32), np.arange(4))
    io = IOSpec(
        (TensorSpec("x", (None, 4), "float32"),), (TensorSpec("scores", (None, 4), "float32"),)
    )
    meaning = ModelMetadata(outputs=(OutputMetadata("scores", "probabilities", NAMES),))
    Artifact.create(tmp_path / "weights", "skops", io, meaning=meaning)
    data = data_in_another_order(tmp_path / "data", "x")
    spec = CandidateSpec("m", SklearnTabularModel(), tmp_path / "weights", dataset=data)
    with pytest.raises(
        ConfigError, match=r"trained on the classes cat, dog, .* as dog, bee, .*--class-list"
    ):
        spec.fit_wrapper()
    replace(spec, judged=False).fit_wrapper()
