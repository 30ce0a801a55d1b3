"""The third-party package, installed by pip and used from the command line where no framework is
installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pip_package import installed

from nnpipe.measuring.run import Run

pytestmark = pytest.mark.slow  # pip installs the package, and each command starts anew

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
FRAMEWORKS = (
    "torch tensorflow keras onnx onnxruntime onnxscript ai_edge_litert tflite_runtime sklearn h5py "
    "safetensors "
    "tensorboardX tensorboard tf2onnx tvm scipy pynvml".split()
)

_SITE = f"""
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FRAMEWORKS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package with pip into a folder of its own, and block all frameworks there."""
    found = installed(HERE / "acme_nn", tmp_path_factory.mktemp("installed"))
    (found / "sitecustomize.py").write_text(_SITE, "utf-8")
    return found


@pytest.fixture(scope="module")
def nnpipe(site: Path) -> Command:
    """Run an ``nnpipe`` command in a folder; it must end with this status."""

    def run(folder: Path, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (site, SOURCE))),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "nnpipe", *map(str, words)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def trained(nnpipe: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the weights of a trained network, ``model.npz``."""
    folder = tmp_path_factory.mktemp("trained")
    options = ["--model-path", "model.npz", "--num-epochs", 30, "--learning-rate", 0.02]
    done = nnpipe(folder, "model_training", "AcmeClassifier", "SpiralsDataset", *options)
    assert "weights: model.npz" in done.stdout
    return folder


MEASURE = ("--model-path", "model.npz", "--measure-seconds", 0.05)


def accuracy(run: Run) -> float:
    assert run.evaluation is not None
    return float((run.evaluation.arrays["predicted"] == run.evaluation.arrays["truth"]).mean())


def test_no_framework_can_be_had_there(nnpipe: Command, tmp_path: Path) -> None:
    listed = nnpipe(tmp_path, "list", "runtimes").stdout
    assert "[ready]" in listed.partition("acme_nn.runtime.AcmeRuntime")[2]
    assert "[needs onnxruntime]" in listed


def test_its_components_are_listed_under_their_families(nnpipe: Command, tmp_path: Path) -> None:
    for family, path in {
        "datasets": "acme_nn.spirals.SpiralsDataset",
        "modelwrappers": "acme_nn.classifier.AcmeClassifier",
        "compilers": "acme_nn.packer.AcmePacker",
        "runtimes": "acme_nn.runtime.AcmeRuntime",
    }.items():
        done = nnpipe(tmp_path, "list", family)
        assert path in done.stdout
        assert done.stderr == ""


def test_info_and_help_explain_its_arguments(nnpipe: Command, tmp_path: Path) -> None:
    info = nnpipe(tmp_path, "info", "AcmePacker").stdout
    for part in (
        "acme-npz",
        "acme-packed",
        "--target",
        "how to store the weights",
        "needs_calibration",
    ):
        assert part in info
    help = nnpipe(
        tmp_path,
        "inference_tester",
        "AcmeClassifier",
        "AcmePacker",
        "AcmeRuntime",
        "SpiralsDataset",
        "-h",
    )
    for flag in (
        "--width",
        "--target",
        "--inference-input-type",
        "--precision",
        "--turns",
        "--model-path",
    ):
        assert flag in help.stdout


def test_its_model_is_measured_as_trained(nnpipe: Command, trained: Path) -> None:
    nnpipe(
        trained, "inference_performance", "AcmeClassifier", "SpiralsDataset", "plain.json", *MEASURE
    )
    run = Run.read(trained / "plain.json")
    assert accuracy(run) >= 0.9
    assert run.artifact["frameworks"] == [["acme-nn", "1.2.3"]]
    assert run.frameworks["acme-nn"] == "1.2.3"
    assert run.components["wrapper"]["class"] == "acme_nn.classifier.AcmeClassifier"


@pytest.mark.parametrize("input_type", [pytest.param("float32", marks=pytest.mark.slow), "int8"])
def test_its_compiler_and_runtime_are_measured(
    nnpipe: Command, trained: Path, input_type: str
) -> None:
    out = f"packed-{input_type}.json"
    words = [
        "inference_tester",
        "AcmeClassifier",
        "AcmePacker",
        "AcmeRuntime",
        "SpiralsDataset",
        out,
        *MEASURE,
    ]
    nnpipe(
        trained,
        *words,
        "--target",
        "int8",
        "--inference-input-type",
        input_type,
        "--inference-batch-size",
        4,
    )
    run = Run.read(trained / out)
    assert accuracy(run) >= 0.9
    assert run.artifact["format"] == "acme-packed"
    assert run.artifact["io"]["inputs"][0]["dtype"] == input_type
    assert run.artifact["parent"]["format"] == "acme-npz"
    assert run.components["compilers"][0]["arguments"]["target"] == "int8"


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset",
    [
        ("DigitsDataset",),
        pytest.param(("SyntheticVectorsDataset", "--num-classes", 5), marks=pytest.mark.slow),
    ],
)
def test_a_model_of_its_own_learns_data_sets_of_nnpipe(
    nnpipe: Command, tmp_path: Path, dataset: tuple[str]
) -> None:
    name, *given = dataset
    options = ["--model-path", "model.npz", "--num-epochs", 3, "--learning-rate", 0.005, *given]
    nnpipe(tmp_path, "model_training", "AcmeClassifier", name, *options)
    options = ["--model-path", "model.npz", "--measure-seconds", 0, *given]
    nnpipe(
        tmp_path,
        "inference_tester",
        "AcmeClassifier",
        "none",
        "AcmeRuntime",
        name,
        "out.json",
        *options,
    )
    assert accuracy(Run.read(tmp_path / "out.json")) >= 0.8


@pytest.mark.slow
def test_a_chain_that_does_not_fit_names_its_compiler_as_the_bridge(
    nnpipe: Command, trained: Path
) -> None:
    words = [
        "inference_tester",
        "AcmeClassifier",
        "none",
        "ONNXRuntime",
        "SpiralsDataset",
        "x.json",
        *MEASURE,
    ]
    done = nnpipe(trained, *words, status=2)
    assert "ONNXRuntime takes onnx, but AcmeClassifier gives acme-npz" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (trained / "x.json").exists()


@pytest.mark.slow
def test_weights_of_another_model_are_refused_in_one_line(nnpipe: Command, trained: Path) -> None:
    words = [
        "inference_performance",
        "AcmeClassifier",
        "SpiralsDataset",
        "x.json",
        *MEASURE,
        "--width",
        5,
    ]
    done = nnpipe(trained, *words, status=2)
    assert "model.npz: holds the weights of another model" in done.stderr
    assert done.stderr.count("\n") == 1


PIPELINE = {
    "title": "Spirals",
    "output": "build",
    "dataset": {"class": "SpiralsDataset", "arguments": {"num_samples": 400}},
    "model": {
        "class": "acme_nn.classifier.AcmeClassifier",
        "path": "build/model.npz",
        "training": {"num_epochs": 20, "learning_rate": 0.02},
    },
    "measure": {"measure_seconds": 0.05},
    "candidates": [
        {"title": "as trained"},
        {"title": "unpacked", "runtime": "AcmeRuntime"},
        {
            "title": "packed",
            "compilers": [{"class": "AcmePacker", "arguments": {"inference_input_type": "int8"}}],
            "runtime": {"class": "AcmeRuntime", "arguments": {"precision": "float64"}},
        },
    ],
}


@pytest.mark.slow
def test_a_pipeline_file_trains_compiles_measures_and_reports(
    nnpipe: Command, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="reports are drawn with matplotlib")
    (tmp_path / "spirals.json").write_text(json.dumps(PIPELINE), "utf-8")
    schema = json.loads(nnpipe(tmp_path, "run", "--schema").stdout)
    done = nnpipe(tmp_path, "run", "spirals.json", "model.training.num_epochs=30")
    results = sorted((tmp_path / "build").glob("0*.json"))
    titles = [Run.read(path).title for path in results if len(path.suffixes) == 1]
    assert titles == ["as trained", "unpacked", "packed"]
    assert "report" in done.stdout.splitlines()[-1]
    page = (tmp_path / "build" / "report.html").read_text("utf-8")
    for part in ("Spirals", "as trained", "packed", "inner start"):
        assert part in page
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.validate(PIPELINE, schema)


def test_a_report_is_rendered_from_its_results(nnpipe: Command, trained: Path) -> None:
    pytest.importorskip("matplotlib", reason="reports are drawn with matplotlib")
    nnpipe(
        trained, "inference_performance", "AcmeClassifier", "SpiralsDataset", "one.json", *MEASURE
    )
    options = [
        "--img-dir",
        "img",
        "--root-dir",
        ".",
        "--report-types",
        "performance",
        "classification",
    ]
    nnpipe(trained, "render_report", "one.json", "Two spirals", "report.rst", *options)
    text = (trained / "report.rst").read_text("utf-8")
    assert "Two spirals" in text
    assert "AcmeClassifier" in text
    assert list((trained / "img").iterdir())
