"""Whatever a user gets wrong is answered with one line that helps, and exit status 2."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from installed import needs

from nnpipe.__main__ import main

TENSORFLOW = "nnpipe.modelwrappers.classification.small_cnn.TensorFlowDigitsCNN"
TORCH = "nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN"
DIGITS = "nnpipe.datasets.digits.DigitsDataset"
MNIST = "nnpipe.datasets.mnist.MNISTDataset"
ONNX = "nnpipe.runtimes.onnxruntime.ONNXRuntime"
LITERT = "nnpipe.runtimes.litert.LiteRTRuntime"


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that must fail, and give the one line that it says."""

    def run(*argv: object) -> str:
        assert main([str(word) for word in argv]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        said = [line for line in lines if line.startswith("nnpipe ")]
        assert said == lines[-1:], lines
        assert "Traceback" not in "".join(lines)
        return said[0]

    return run


def test_a_wrong_path_names_the_nearest_right_one(told: Callable[..., str]) -> None:
    wrong = TENSORFLOW.replace("small_cnn", "smal_cnn")
    assert f"did you mean {TENSORFLOW}?" in told(
        "model_training", wrong, DIGITS, "--model-path", "m"
    )
    assert f"did you mean {DIGITS}?" in told(
        "model_training", TENSORFLOW, "DigitDataset", "--model-path", "m"
    )


def test_an_unknown_command_names_the_nearest(
    told: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model_trainign"]) == 2
    assert "did you mean model_training?" in capsys.readouterr().err


def test_a_missing_framework_says_what_to_install(told: Callable[..., str], tmp_path: Path) -> None:
    said = told(
        "inference_tester",
        TORCH,
        "none",
        "toys.Runner",
        DIGITS,
        tmp_path / "o.json",
        "--model-path",
        "m",
    )
    assert (
        "Runner needs surely_not_installed_anywhere, which is not installed: pip install 'runner'"
        in said
    )


def test_formats_that_do_not_fit_name_the_compiler_between(
    told: Callable[..., str], tmp_path: Path
) -> None:
    said = told(
        "inference_tester",
        TENSORFLOW,
        "none",
        LITERT,
        DIGITS,
        tmp_path / "o.json",
        "--model-path",
        "m",
    )
    assert "LiteRTRuntime takes tflite, but TensorFlowDigitsCNN gives" in said
    assert "put nnpipe.compilers.tflite.TFLiteCompiler between them" in said


def test_formats_that_nothing_bridges_say_so(told: Callable[..., str], tmp_path: Path) -> None:
    said = told(
        "inference_tester",
        TORCH,
        "none",
        "toys.Reader",
        DIGITS,
        tmp_path / "o.json",
        "--model-path",
        "m",
    )
    assert "Reader takes papyrus" in said
    assert "no compiler here leads from" in said


def test_an_export_format_that_the_model_lacks_is_named(
    told: Callable[..., str], tmp_path: Path
) -> None:
    said = told(
        "inference_tester",
        TORCH,
        "none",
        ONNX,
        DIGITS,
        tmp_path / "o.json",
        "--model-path",
        "m",
        "--model-framework",
        "keras",
    )
    assert "PyTorchDigitsCNN cannot be exported as keras; it can as" in said


def test_one_flag_with_two_meanings_names_both(told: Callable[..., str], tmp_path: Path) -> None:
    said = told(
        "inference_tester",
        TORCH,
        "toys.Halver,toys.Doubler",
        ONNX,
        DIGITS,
        tmp_path / "o",
        "--model-path",
        "m",
    )
    assert "--mode" in said
    assert "Halver" in said
    assert "Doubler" in said


def test_a_data_set_that_is_not_there_says_how_to_get_it(
    told: Callable[..., str], tmp_path: Path
) -> None:
    said = told(
        "model_training", TORCH, MNIST, "--dataset-root", tmp_path, "--model-path", tmp_path / "m"
    )
    assert str(tmp_path) in said
    assert "--download-dataset" in said


def test_a_damaged_data_set_is_named(told: Callable[..., str], tmp_path: Path) -> None:
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"))
    said = told(
        "model_training", TORCH, MNIST, "--dataset-root", tmp_path, "--model-path", tmp_path / "m"
    )
    assert "idx" in said
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("content", "wrapper", "name"),
    [
        (None, TORCH, "m.safetensors"),
        pytest.param(b"", TORCH, "m.safetensors", marks=pytest.mark.slow),
        (b"no model at all", TORCH, "m.safetensors"),
        # each starts TensorFlow
        pytest.param(b"no model at all", TENSORFLOW, "m.keras", marks=pytest.mark.slow),
        pytest.param(None, TENSORFLOW, "m.keras", marks=pytest.mark.slow),
        pytest.param(b"", TENSORFLOW, "m.keras", marks=pytest.mark.slow),
    ],
)
def test_a_missing_or_damaged_model_is_named(
    told: Callable[..., str], tmp_path: Path, wrapper: str, name: str, content: bytes | None
) -> None:
    needs("torch" if wrapper is TORCH else "tensorflow")
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    said = told("inference_performance", wrapper, DIGITS, tmp_path / "o.json", "--model-path", path)
    assert name in said
    assert not (tmp_path / "o.json").exists()


def test_a_data_set_of_another_shape_names_both(told: Callable[..., str], tmp_path: Path) -> None:
    synthetic = "nnpipe.datasets.synthetic.SyntheticImagesDataset"
    said = told("model_training", TORCH, synthetic, "--model-path", tmp_path / "m")
    assert "(8, 8, 1)" in said


def test_a_damaged_pipeline_file_is_named_with_the_place(
    told: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        f"dataset: {DIGITS}\nmodel: {{class: {TORCH}}}\ncandidates:\n  - title: a\n    runtime: "
        f"Nonsense\n"
    )
    said = told("run", path)
    assert f"{path}: candidates.0.runtime: no Runtime is called 'Nonsense'" in said
    path.write_text(
        f"dataset: {DIGITS}\nmodel: {{class: {TORCH}}}\ncandidates:\n  - title: a\n    runtme: x\n"
    )
    assert "candidates.0: unknown key 'runtme'; did you mean runtime?" in told("run", path)


def test_every_scenario_runs_as_a_module_too() -> None:
    from nnpipe.scenarios._cli.index import list_scenarios, read_scenario_summary

    assert {
        "model_training",
        "inference_performance",
        "inference_tester",
        "render_report",
        "run",
    } <= set(list_scenarios())
    for name in list_scenarios():
        assert callable(import_module(f"nnpipe.scenarios.{name}").main)
        assert read_scenario_summary(name)
