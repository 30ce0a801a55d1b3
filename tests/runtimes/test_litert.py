"""LiteRT runs TensorFlow Lite files by the names of their signature, and refuses what is none."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.quantization import adapt_inputs
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.model_files import STEP, write_tflite_difference
from nnpipe.testing.runtime import RuntimeContract

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def difference(batch: Batch) -> np.ndarray:
    return batch["first"] - batch["second"]


class TestLiteRTRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> LiteRTRuntime:
        return LiteRTRuntime(num_threads=2)

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return write_tflite_difference(tmp_path / "difference.tflite")

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        return {"difference": difference(batch)}


class TestReferenceKernelsOnIntegers(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> LiteRTRuntime:
        return LiteRTRuntime(reference_kernels=True)

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        return write_tflite_difference(tmp_path / "difference.tflite", "int8", batch=2)

    @pytest.fixture
    def batch(self) -> Batch:
        return {
            name: np.arange(8, dtype="int8").reshape(2, 4) * k
            for name, k in (("first", 3), ("second", -5))
        }

    @pytest.fixture
    def other_batch(self) -> Batch:
        return {name: np.full((2, 4), k, "int8") for name, k in (("first", 90), ("second", -90))}

    @pytest.fixture
    def expected(self, batch: Batch) -> Batch:
        # Equal scales: the zero points are all that keeps this from being a subtraction of
        # integers.
        wide = (batch["first"].astype(int) - 1) - (batch["second"].astype(int) + 2) + 3
        return {"difference": np.clip(wide, -128, 127).astype("int8")}


def test_tensors_without_a_signature_are_bound_by_their_own_names(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "unnamed.tflite", named=False)
    with LiteRTRuntime().load(artifact) as session:
        found = session.infer(
            {"t_second": np.ones((1, 4), "float32"), "t_first": np.zeros((1, 4), "float32")}
        )
    np.testing.assert_array_equal(found["t_difference"], -np.ones((1, 4)))


def test_a_bare_file_says_what_it_takes_and_gives(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "bare.tflite", "int8")
    found = LiteRTRuntime().io_of(artifact.path)
    assert {spec.name: spec for spec in found} == {spec.name: spec for spec in artifact.io}


def test_a_description_with_another_scale_is_refused(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "scaled.tflite", "int8")
    wrong = tuple(dataclasses.replace(spec, scale=STEP * 2) for spec in artifact.io.inputs)
    with pytest.raises(
        ArtifactError, match=r"scaled\.tflite: tensor 'first' has scale 0\.125 .* says 0\.25 and 1$"
    ):
        LiteRTRuntime().load(dataclasses.replace(artifact, io=IOSpec(wrong, artifact.io.outputs)))


def test_a_description_may_leave_the_quantisation_to_the_file(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite", "int8")
    plain = [
        [TensorSpec(s.name, s.shape, s.dtype) for s in side]
        for side in (artifact.io.inputs, artifact.io.outputs)
    ]
    with LiteRTRuntime().load(
        dataclasses.replace(artifact, io=IOSpec(*map(tuple, plain)))
    ) as session:
        assert session.io == artifact.io


def test_a_description_may_fix_what_the_file_leaves_free(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    fixed = [
        tuple(dataclasses.replace(s, shape=(3, 4)) for s in side)
        for side in (artifact.io.inputs, artifact.io.outputs)
    ]
    with LiteRTRuntime().load(dataclasses.replace(artifact, io=IOSpec(*fixed))) as session:
        assert session.infer({n: np.ones((3, 4), "float32") for n in ("first", "second")})[
            "difference"
        ].shape == (3, 4)


def test_sizes_that_cannot_be_run_are_reported_and_do_no_harm(tmp_path: Path) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    good = {"first": np.ones((2, 4), "float32"), "second": np.zeros((2, 4), "float32")}
    with LiteRTRuntime().load(artifact) as session:
        with pytest.raises(
            ArtifactError,
            match=r"model\.tflite: LiteRT cannot run it with inputs of \(2, 4\), \(3, 4\)",
        ):
            session.put(
                {"first": np.ones((2, 4), "float32"), "second": np.zeros((3, 4), "float32")}
            )
        np.testing.assert_array_equal(session.infer(good)["difference"], np.ones((2, 4)))


@pytest.mark.parametrize("library", ["no_such_library.so", Path(np.linalg._umath_linalg.__file__)])
def test_a_delegate_that_is_none_is_named(tmp_path: Path, library: str | Path) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    with pytest.raises(ConfigError, match=r"the delegate .* cannot be loaded") as caught:
        LiteRTRuntime(delegates_list=(Path(library),)).load(artifact)
    assert str(library) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    with LiteRTRuntime().load(artifact) as session:
        session.infer({n: np.ones((5, 4), "float32") for n in ("first", "second")})
    assert capfd.readouterr() == ("", "")


def test_an_interpreter_that_cannot_be_imported_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    for package in ("ai_edge_litert", "tflite_runtime", "tensorflow.lite.python"):
        monkeypatch.setitem(sys.modules, f"{package}.interpreter", None)
    with pytest.raises(
        MissingDependency, match="no TensorFlow Lite interpreter can be imported"
    ) as caught:
        LiteRTRuntime().load(artifact)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["tflite_runtime", "tensorflow.lite.python"])
def test_an_interpreter_of_another_package_stands_in(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ai_edge_litert import interpreter

    opened = []

    class Interpreter(interpreter.Interpreter):
        def __init__(self, *given: Any, **named: Any) -> None:
            opened.append(package)
            super().__init__(*given, **named)

    other = ModuleType(f"{package}.interpreter")
    vars(other).update(vars(interpreter), Interpreter=Interpreter)
    for name in ("ai_edge_litert", "tflite_runtime"):
        monkeypatch.setitem(sys.modules, f"{name}.interpreter", None)
    monkeypatch.setitem(sys.modules, f"{package}.interpreter", other)
    batch = {"first": np.full((2, 4), 5, "float32"), "second": np.ones((2, 4), "float32")}
    with LiteRTRuntime().load(write_tflite_difference(tmp_path / "model.tflite")) as session:
        np.testing.assert_array_equal(session.infer(batch)["difference"], difference(batch))
    assert opened == [package]


_WITHOUT_LITERT = """
import sys
sys.modules["ai_edge_litert"] = None  # cannot be imported
import numpy as np
from nnpipe.core.artifact import Artifact
from nnpipe.runtimes.litert import LiteRTRuntime
with LiteRTRuntime().load(Artifact.read(sys.argv[1])) as session:
    batch = {"first": np.full((2, 4), 5, "float32"), "second": np.ones((2, 4), "float32")}
    print(session.infer(batch)["difference"].tolist())
"""


@pytest.mark.slow  # TensorFlow starts in a process of its own
def test_tensorflow_stands_in_where_litert_is_missing(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    artifact = write_tflite_difference(tmp_path / "model.tflite")
    command = [sys.executable, "-W", "error", "-c", _WITHOUT_LITERT, str(artifact.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([[4.0] * 4] * 2)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("file", "accuracy"),
    [("pretrainedResnet.tflite", 0.890), ("pretrainedResnet_quant.tflite", 0.884)],
)
def test_the_mlperf_tiny_network_is_as_accurate_as_published(
    shared_data: Path, file: str, accuracy: float
) -> None:
    path = shared_data / "models" / "mlperf_tiny_ic" / file
    records = np.frombuffer(
        gzip.decompress((shared_data / "cifar10" / "test_000-499.bin.gz").read_bytes()), "uint8"
    )
    labels, pixels = np.split(records.reshape(500, 3073), [1], axis=1)
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype("float32")
    io = LiteRTRuntime().io_of(path)
    real = IOSpec((TensorSpec(io.inputs[0].name, (None, 32, 32, 3), "float32"),), io.outputs)
    batch = adapt_inputs({io.inputs[0].name: images}, real, io)
    with LiteRTRuntime().load(Artifact(path, "tflite", io, "")) as session:
        (scores,) = session.infer(batch).values()
    assert np.mean(scores.argmax(1) == labels[:, 0]) == pytest.approx(accuracy, abs=0.004)
