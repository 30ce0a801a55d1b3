"""Published test vectors pass where a runtime computes them, and nothing passes that computes
wrong values.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.scenarios.conformance import main
from nnpipe.workflows.recipes import Recipe
from nnpipe.workflows.verification.conformance_cases import count_results, run_case, run_cases
from nnpipe.workflows.verification.test_vectors import (
    Case,
    describe_difference,
    find_cases,
    read_side,
)

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

F = np.array([[1.0, -2.5, np.nan], [np.inf, -np.inf, 0.0]], np.float32)


def write_vector(folder: Path, name: str = "test_parts", spoil: bool = False) -> None:
    """Sum and difference of two inputs, as ONNX's own vectors lie."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 3, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Sub", ["a", "b"], ["rest"]),
    ]
    sides = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 4]) for n in names]
        for names in ("ab", ("sum", "rest"))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, name, *sides),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    place = folder / name / "test_data_set_0"
    place.mkdir(parents=True)
    onnx.save_model(model, str(folder / name / "model.onnx"))
    outputs = [a + b, a - b][:: -1 if spoil else 1]
    for side, arrays in (("input", [a, b]), ("output", outputs)):
        for number, array in enumerate(arrays):
            (place / f"{side}_{number}.pb").write_bytes(
                numpy_helper.from_array(array).SerializeToString()
            )


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_vector(tmp_path / "vectors")
    return tmp_path / "vectors"


def run(vectors: Path, tmp_path: Path, *further: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "results.json"
    status = main([str(vectors), "--results", str(out), *further])
    return status, json.loads(out.read_text("utf-8"))["results"]


def test_vectors_pass_and_are_reported(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.rst"
    status, found = run(vectors, tmp_path, "--only", "ONNXRuntime", "--output", str(report))
    assert status == 0
    assert found["onnx"]["ONNXRuntime"] == {"test_parts": {"status": "passed"}}
    assert "| ONNXRuntime | 1 | 1 | 0 | 0 | 0 | 0 |" in capsys.readouterr().out
    assert "ONNX operators" in report.read_text("utf-8")
    assert report.with_suffix(".html").is_file()


@pytest.mark.slow
def test_an_archive_will_do(vectors: Path, tmp_path: Path) -> None:
    archive = tmp_path / "vectors.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(vectors, "node")
    assert run(archive, tmp_path, "--only", "ONNXRuntime")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "status", "told"),
    [
        ("Straight", "passed", ""),
        ("Perturbing", "wrong", "1 of 12 elements are wrong"),
        ("SwappingOutputs", "wrong", "12 of 12 elements are wrong"),
        ("GivingNaN", "wrong", "is nan, not"),
        ("Widening", "wrong", "gives float64 elements, not float32"),
        ("Flattening", "wrong", "gives shape (12), not (3, 4)"),
        ("Crashing", "crashed", "SIGSEGV"),
        ("Hanging", "crashed", "did not end within 3 s"),
        ("Defective", "failed", "KeyError: 'a defect'"),
    ],
)
def test_a_runtime_that_computes_wrong_values_or_dies_is_found_out(
    runtime: str, status: str, told: str, vectors: Path, tmp_path: Path
) -> None:
    limit = "3" if runtime == "Hanging" else "60"
    exit_status, found = run(
        vectors, tmp_path, "--only", f"crooked.{runtime}", "--time-limit", limit
    )
    result = found["onnx"][runtime]["test_parts"]
    assert result["status"] == status
    assert told in result.get("reason", "")
    assert exit_status == (0 if status == "passed" else 1)


@pytest.mark.slow
def test_swapped_vectors_fail(tmp_path: Path) -> None:
    write_vector(tmp_path / "vectors", spoil=True)
    status, found = run(tmp_path / "vectors", tmp_path, "--only", "ONNXRuntime")
    assert (status, found["onnx"]["ONNXRuntime"]["test_parts"]["status"]) == (1, "wrong")


def test_a_case_after_a_crash_runs_in_a_new_process(tmp_path: Path) -> None:
    import crooked

    for number in range(3):
        write_vector(tmp_path / "vectors", f"test_{number}")
    cases = find_cases(tmp_path / "vectors")
    found = list(run_cases(cases, Recipe("ONNX", (), crooked.Crashing()), 1e-3, 1e-5, 30, jobs=2))
    assert count_results(found)["crashed"] == 3


@pytest.mark.parametrize(
    ("expected", "found", "told"),
    [
        (F, F.copy(), ""),
        (F, F * np.float32(1.0005), ""),
        (F, np.where(np.isnan(F), 0, F).astype(np.float32), "is 0.0, not nan"),
        (np.zeros(2, np.float32), np.array([0, np.nan], np.float32), "is nan, not 0.0"),
        (F, np.where(np.isinf(F), -F, F), "is -inf, not inf"),
        (F, np.where(np.isinf(F), np.finfo(np.float32).max, F).astype(np.float32), "not inf"),
        (F, F[:, ::-1], "elements are wrong"),
        (
            np.arange(1000, 1003),
            np.array([1000, 1001, 1003]),
            "1 of 3 elements are wrong; the first, at (2,), is 1003",
        ),
        (np.int8(1), np.int8(2), "is 2, not 1"),
        (np.array(True), np.array(False), "is False, not True"),
        (np.array(["a", "b"], object), np.array(["a", "b"]), ""),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), "is c, not b"),
        (np.zeros(3, np.float32), np.zeros(3, np.float64), "gives float64"),
        (np.zeros((3, 1), np.float32), np.zeros((1, 3), np.float32), "gives shape (1, 3)"),
        (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), ""),
        (np.zeros((0, 2), np.float32), np.zeros((2, 0), np.float32), "gives shape"),
        (np.zeros((), np.float32), np.zeros((1,), np.float32), "gives shape (1)"),
    ],
)
def test_differences_are_told(expected: Any, found: Any, told: str) -> None:
    answer = describe_difference(np.asarray(expected), np.asarray(found), 1e-3, 1e-5)
    assert (answer == "") == (told == "")
    assert told in answer


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["{empty}"], "no test vectors below it"),
        (["{nowhere}"], "no such folder or archive"),
        (["{vectors}", "--only", "NoSuchRuntime"], "--only NoSuchRuntime: no such way here"),
        (["{vectors}", "--jobs", "0"], "--jobs: 0 is below the minimum 1"),
        (["{vectors}", "--output", "report.html"], "must end in .rst"),
        (["{broken}"], "broken.tar.gz"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    argv: list[str], told: str, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b and nothing else")
    places = {name: str(tmp_path / name) for name in ("empty", "nowhere")} | {
        "vectors": str(vectors)
    }
    places["broken"] = str(tmp_path / "broken.tar.gz")
    assert main([word.format(**places) for word in argv]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_damaged_vectors_are_refused_by_name(vectors: Path, tmp_path: Path) -> None:
    place = vectors / "test_parts" / "test_data_set_0" / "output_1.pb"
    place.write_bytes(place.read_bytes()[:-7])
    _, found = run(vectors, tmp_path, "--only", "ONNXRuntime")
    result = found["onnx"]["ONNXRuntime"]["test_parts"]
    assert result["status"] == "refused"
    assert "output_1.pb" in result["reason"]


def case_of(vectors: Path) -> Case:
    return find_cases(vectors)[0]


def test_integers_of_tensorflow_lite_must_be_exact(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from nnpipe.testing.model_files import write_tflite_difference

    write_tflite_difference(tmp_path / "sub0.tflite", "int8", named=False, batch=1)
    numbers = {"input0": "5,6,7,8", "input1": "1,2,3,4", "golden": "8,8,8,8"}
    runtime = {
        "class": "nnpipe.runtimes.litert.LiteRTRuntime",
        "arguments": {"reference_kernels": True},
    }

    def status(**changed: str) -> list[str]:
        for name, text in (numbers | changed).items():
            (tmp_path / f"sub0_{name}_int8.csv").write_text(text + "\n", "ascii")
        task = {
            "case": case_of(tmp_path).to_json(),
            "compilers": [],
            "runtime": runtime,
            "rtol": 0.0,
            "atol": 0.0,
        }
        return run_case(task)

    verdict, reason = status()
    assert verdict == "wrong"
    golden = reason.partition("is ")[2].partition(",")[0]
    exact = ",".join([golden] * 4)
    assert status(golden=exact) == ["passed", ""]
    assert status(golden=",".join([golden] * 3 + [str(int(golden) + 1)]))[0] == "wrong"
    assert status(golden=golden)[0] == "refused"
    assert status(golden="8,8,8,many")[0] == "refused"


# -- the real vectors
# -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node_vectors(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return _unpacked(shared_data / "vectors" / "onnx_node_a.tar.gz", tmp_path_factory)


@pytest.fixture(scope="module")
def layer_vectors(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return _unpacked(shared_data / "vectors" / "tflm_seanet_a.tar.gz", tmp_path_factory)


def _unpacked(archive: Path, factory: pytest.TempPathFactory) -> list[Case]:
    if not archive.is_file():
        pytest.skip(f"{archive} is not here")
    folder = factory.mktemp("vectors")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return find_cases(folder)


@pytest.mark.slow  # hundreds of vectors
def test_onnx_runtime_computes_every_operator_vector_or_refuses_it_by_name(
    node_vectors: list[Case],
) -> None:
    from nnpipe.runtimes.onnxruntime import ONNXRuntime

    assert len(node_vectors) == 744
    found = list(run_cases(node_vectors, Recipe("ONNX", (), ONNXRuntime()), 1e-3, 1e-5, 60, jobs=1))
    counts = count_results(found)
    assert counts == {"passed": 737, "wrong": 0, "refused": 7, "failed": 0, "crashed": 0}
    assert all(
        "only plain tensors" in result.reason for result in found if result.status == "refused"
    )


def test_litert_computes_every_layer_bit_for_bit(layer_vectors: list[Case]) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from nnpipe.runtimes.litert import LiteRTRuntime

    assert len(layer_vectors) == 64
    found = list(
        run_cases(
            layer_vectors,
            Recipe("LiteRT", (), LiteRTRuntime(reference_kernels=True)),
            0.0,
            0.0,
            60,
            jobs=1,
        )
    )
    assert count_results(found)["passed"] == 64


def test_no_vector_passes_that_was_changed(node_vectors: list[Case]) -> None:
    """Each expected output with one element changed, another type or another shape is told from
    what it was.
    """
    looked_at = 0
    for case in node_vectors:
        for _, expected in case.sets:
            names = [str(number) for number in range(len(expected))]
            try:
                arrays = read_side(expected, names, {})
            except Exception:  # sequences and optional values are no tensors
                continue
            for array in arrays.values():
                looked_at += 1
                assert describe_difference(array, array.copy(), 1e-3, 1e-5) == ""
                assert describe_difference(array, array[None], 1e-3, 1e-5)
                if array.dtype.kind in "biuf":
                    other = np.complex64 if array.dtype == np.float64 else np.float64
                    assert describe_difference(array, array.astype(other), 1e-3, 1e-5)
                if array.size:
                    assert describe_difference(array, changed(array), 1e-3, 1e-5), case.name
    assert looked_at > 800


def changed(array: np.ndarray) -> np.ndarray:
    """The same with its last element another."""
    other = array.copy()
    last = array.reshape(-1)[-1]
    if array.dtype.kind == "b":
        value: Any = not last
    elif array.dtype.kind in "iu":
        value = last ^ 1
    elif array.dtype.kind == "f":
        value = 0 if not np.isfinite(last) else last + max(abs(last) * 0.01, 0.001)
    else:
        value = str(last) + "!"
    other.reshape(-1)[-1] = value
    return other
