"""``nnpipe testrun`` runs a model on a plugin's data, and shows what a plugin made of what came
out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nnpipe.protocols.network import UnixProtocol
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.scenarios.testrun import main
from nnpipe.workflows.candidates.deployment import Deployment, start_deployment
from nnpipe.workflows.testrun import testrun

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

PLUGIN = """
import numpy as np

def load_test_data(path):
    data = np.load(path)
    return data, {steps}

def process_model_output(model_input, model_output):
    {body}
    with open("output/sums.csv", "w") as file:
        print("given,sum", file=file)
        for row, total in zip(model_input, model_output):
            print(f"{{row.tolist()}},{{total[0]}}".replace(", ", " "), file=file)
"""


def write_summing(path: Path, batch: int | str = "n") -> str:
    """A model that gives the sum of four numbers."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "ones"], ["sum"])],
        "summing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [batch, 1])],
        [numpy_helper.from_array(np.ones((4, 1), np.float32), "ones")],
    )
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        str(path),
    )
    return str(path)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a model, its data, and a plugin in two steps."""
    monkeypatch.chdir(tmp_path)
    write_summing(Path("summing.onnx"))
    np.save("data.npy", np.arange(20.0).reshape(5, 4))
    write_plugin()
    return tmp_path


def write_plugin(body: str = "pass", steps: int = 2, name: str = "mine.py") -> None:
    Path(name).write_text(PLUGIN.format(body=body, steps=steps))


def run(*words: str, model: str = "summing.onnx", plugin: str = "mine.py") -> int:
    return main([model, "data.npy", "tried", "--plugin", plugin, *words])


def sums(folder: str = "tried/output") -> list[float]:
    rows = [
        line
        for path in sorted(Path(folder).rglob("sums.csv"))
        for line in path.read_text().splitlines()[1:]
    ]
    return [float(row.rpartition(",")[2]) for row in rows]


RIGHT = [6, 22, 38, 54, 70]


def test_everything_is_run_kept_and_shown(capfd):
    assert run("--title", "Sums") == 0
    told = capfd.readouterr()
    assert told.out == "page: tried/index.html (2 files)\n"
    assert "mine.py is run as code, with all your rights" in told.err
    assert sorted(map(str, Path("tried").rglob("*.*"))) == [
        "tried/index.html",
        "tried/output/step-1/sums.csv",
        "tried/output/step-2/sums.csv",
        "tried/testrun.json",
    ]
    assert sums() == RIGHT
    text = Path("tried/index.html").read_text("utf-8")
    assert "<title>Sums</title>" in text
    assert "Step 2 of 2 (samples 2 to 4)" in text
    assert "<td class=number>38.0</td>" in text
    record = json.loads(Path("tried/testrun.json").read_text())
    assert record["facts"]["run by"] == "ONNXModel"
    assert [step["failure"] for step in record["steps"]] == ["", ""]
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_a_later_run_leaves_nothing_of_an_earlier_one():
    assert run() == 0
    write_plugin("open('output/only-now.txt', 'w').close()", steps=1)
    assert run() == 0
    assert sorted(path.name for path in Path("tried").rglob("*")) == [
        "index.html",
        "only-now.txt",
        "output",
        "sums.csv",
        "testrun.json",
    ]


def test_what_is_not_a_testrun_is_never_replaced(capsys):
    Path("tried").mkdir()
    assert run() == 0  # an empty folder is free
    Path("tried/testrun.json").write_text("{}")
    Path("tried/precious").touch()
    assert run() == 2
    assert "tried holds something else than an earlier testrun" in capsys.readouterr().err
    assert Path("tried/precious").exists()


def test_a_plugin_that_fails_stops_with_its_samples_and_leaves_the_earlier_run(capsys):
    assert run() == 0
    before = Path("tried/index.html").read_bytes()
    write_plugin("1 / int(model_input[0, 0] < 8)")
    assert run() == 2
    error = capsys.readouterr().err
    assert (
        "nnpipe testrun: step 2 of 2 (samples 2 to 4): mine.py: process_model_output failed: "
        "ZeroDivisionError" in error
    )
    assert "line 9 of mine.py" in error
    assert "Traceback" not in error
    assert Path("tried/index.html").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == [
        "data.npy",
        "mine.py",
        "summing.onnx",
        "tried",
    ]


def test_told_otherwise_it_goes_on_and_says_what_failed(capsys):
    write_plugin("open('output/before.txt', 'w').close(); 1 / int(model_input[0, 0] > 0)")
    assert run("--keep-going") == 1
    assert capsys.readouterr().out == "failed: 1 of 2 steps\npage: tried/index.html (3 files)\n"
    assert sums() == RIGHT[2:]
    assert Path("tried/output/step-1/before.txt").exists()
    assert "process_model_output failed: ZeroDivisionError" in Path("tried/index.html").read_text(
        "utf-8"
    )


def test_data_that_the_model_does_not_take_name_their_samples(capsys):
    np.save("data.npy", np.zeros((4, 3)))
    assert run() == 2
    assert "step 1 of 2 (samples 0 to 1): ONNXModel (summing.onnx)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import os; os.rmdir('output')", "process_model_output failed: FileNotFoundError"),
        (
            "import os; os.rmdir('output'); os.symlink('/etc', 'output'); return",
            "put something else there",
        ),
        ("import os; os.rmdir('output'); return", "process_model_output removed output/"),
        ("import os; os._exit(3)", "testing summing.onnx ended its process with status 3"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "crashed its process (SIGSEGV)",
        ),
        ("raise SystemExit(0)", "testing summing.onnx raised SystemExit: 0"),
        ("import time; time.sleep(60)", "did not end within 1 s; allow more with --time-limit"),
    ],
)
def test_whatever_a_plugin_does_is_one_error_and_leaves_nothing(body, told, capsys):
    write_plugin(body)
    assert run(*(("--time-limit", "1") if "sleep" in body else ())) == 2
    assert told in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["data.npy", "mine.py", "summing.onnx"]


def test_files_beside_the_folder_are_told_and_links_are_not_followed():
    Path("secret.txt").write_text("secret-content")
    secret = str(Path("secret.txt").resolve())
    write_plugin(
        f"import os; open('stray.txt', 'w').close(); os.symlink({secret!r}, 'output/link.txt')",
        steps=1,
    )
    assert run() == 0
    text = Path("tried/index.html").read_text("utf-8")
    assert "Written beside output/, and not kept: stray.txt" in text
    assert "a link, not followed" in text
    assert "secret-content" not in text


def test_a_process_that_the_plugin_leaves_behind_is_ended():
    write_plugin(
        "import subprocess, sys; "
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "open('output/pid.txt', 'w').write(str(p.pid))",
        steps=1,
    )
    assert run() == 0
    status = Path(f"/proc/{Path('tried/output/pid.txt').read_text()}/status")
    assert not status.exists() or "zombie" in status.read_text()


def test_a_plugin_that_is_changed_once_it_was_looked_at_is_not_run(monkeypatch, capsys):
    look = testrun.read_checked_source

    def changed_then(name, needed):
        found = look(name, needed)
        write_plugin("open('/'.join(['..', 'changed']), 'w').close()", name=name)
        return found

    monkeypatch.setattr(testrun, "read_checked_source", changed_then)
    assert run() == 2
    assert "plugin mine.py: it was changed after it had been looked at" in capsys.readouterr().err
    assert not Path("tried").exists()


def test_what_to_expect_is_given_to_who_asks_and_two_plugins_may_share_the_work(capsys):
    Path("loads.py").write_text(
        "import numpy as np\ndef load_test_data(path):\n    return np.load(path), list('abcde'), "
        "1\n"
    )
    Path("shows.py").write_text(
        "def process_model_output(model_output, expected_output, model_input):\n"
        "    open('output/all.txt', 'w').write(' '.join(expected_output))\n"
    )
    assert run("--output-plugin", "shows.py", plugin="loads.py") == 0
    assert Path("tried/output/all.txt").read_text() == "a b c d e"
    assert run(plugin="loads.py") == 2
    assert "loads.py: process_model_output: expected" in capsys.readouterr().err


def test_an_installed_plugin_is_named_and_not_warned_of(tmp_path, monkeypatch, capfd):
    site = tmp_path / "site"
    (site / "acme_functions-1.0.dist-info").mkdir(parents=True)
    (site / "acme_functions-1.0.dist-info" / "METADATA").write_text(
        "Name: acme-functions\nVersion: 1.0\n"
    )
    (site / "acme_functions-1.0.dist-info" / "entry_points.txt").write_text(
        "[nnpipe.functions]\nsums = acme_functions\n"
    )
    (site / "acme_functions.py").write_text(PLUGIN.format(body="pass", steps=1))
    monkeypatch.syspath_prepend(str(site))
    assert run(plugin="sums") == 0
    assert sums() == RIGHT
    assert "run as code" not in capfd.readouterr().err
    assert "sums (SHA-256 " in Path("tried/index.html").read_text("utf-8")
    assert run(plugin="sum") == 2
    assert "there is no plugin 'sum'; did you mean sums" in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    write_plugin("open(__file__ + '.began', 'w').close(); import time; time.sleep(600)", steps=1)
    words = ["testrun", "summing.onnx", "data.npy", "tried", "--plugin", "mine.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from "
            "nnpipe.__main__ import main; sys.exit(main(sys.argv[1:]))",
            *words,
        ],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            limit = time.monotonic() + 120
            while (
                not Path("mine.py.began").exists()
                and command.poll() is None
                and time.monotonic() < limit
            ):
                time.sleep(0.05)
            os.killpg(command.pid, signal.SIGINT)
            _, told = command.communicate(timeout=60)
        finally:
            command.kill()
    assert command.returncode == 130
    assert "nnpipe testrun: stopped" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data.npy",
        "mine.py",
        "mine.py.began",
        "summing.onnx",
    ]


@pytest.mark.parametrize("batch", ["n", 3, 1])
def test_any_batch_size_of_the_model_will_do(batch):
    write_summing(Path("summing.onnx"), batch)
    assert run("--batch-size", "2") == 0
    assert sums() == RIGHT


def test_processing_stands_before_the_model_unless_it_is_not_wanted():
    assert run("--scale", "2") == 0
    assert sums() == [value / 2 for value in RIGHT]
    assert run("--scale", "2", "--as-is") == 0
    assert sums() == RIGHT


@pytest.mark.slow
def test_a_runtime_is_chosen_and_so_is_a_target(tmp_path, capsys):
    assert run("--runtime", "ONNXRuntime", "--num-threads", "2") == 0
    assert sums() == RIGHT
    protocol = UnixProtocol(socket_path=tmp_path / "socket")
    remote = ("--protocol-cls", "UnixProtocol", "--socket-path", str(tmp_path / "socket"))
    for words in (remote, (*remote, "--runtime", "ONNXRuntime")):
        with start_deployment(Deployment(protocol, serve=True), ONNXRuntime()):
            assert run(*words, "--title", "far away") == 0
        assert sums() == RIGHT
        assert (
            "UnixProtocol" in json.loads(Path("tried/testrun.json").read_text())["facts"]["run by"]
        )
    assert run(*remote) == 2
    assert "no target answers" in capsys.readouterr().err


DIGITS = """
import numpy as np

def load_test_data(path):
    with np.load(path) as arrays:
        return arrays["image"], len(arrays["image"])

def process_model_output(model_input, model_output):
    np.save("output/scores.npy", model_output)
"""


def scores() -> np.ndarray:
    return np.concatenate(
        [np.load(path) for path in sorted(Path("tried/output").rglob("scores.npy"))]
    )


@pytest.mark.slow  # three starts of PyTorch
def test_a_class_with_weights_runs_in_its_framework_exported_and_compiled(capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from nnpipe.compilers.onnx_optimizer import ONNXFloat16
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN

    model = PyTorchDigitsCNN().open()
    model.save("digits.pt")
    images = np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).astype(np.uint8)
    np.savez("digits.npz", image=images)
    with model.session() as session:
        right = model.wrapper.postprocess(
            session.infer(model.wrapper.preprocess({"image": images}))
        )["scores"]
    exported = model.export("digits.onnx", "onnx")
    ONNXFloat16().compile(exported, Path("half.onnx"), lambda: [])
    Path("digits.py").write_text(DIGITS)
    name, rest = (
        "PyTorchDigitsCNN",
        ("digits.npz", "tried", "--plugin", "digits.py", "--model-path"),
    )
    for words, tolerance in (
        (("digits.pt",), 1e-6),
        (("digits.pt", "--runtime", "ONNXRuntime"), 1e-5),
        (("half.onnx", "--runtime", "ONNXRuntime"), 1e-2),
    ):
        assert main([name, *rest, *words]) == 0
        np.testing.assert_allclose(scores(), right, atol=tolerance)
    capsys.readouterr()
    assert main([name, *rest, "digits.onnx", "--runtime", "LiteRTRuntime"]) == 2
    assert "digits.onnx is onnx; LiteRTRuntime takes tflite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["nowhere.onnx", "data.npy", "tried", "--plugin", "mine.py"],
            "nowhere.onnx: no such model file",
        ),
        (
            ["summing.onnx", "nowhere.npy", "tried", "--plugin", "mine.py"],
            "load_test_data failed: FileNotFound",
        ),
        (["summing.onnx", "data.npy", "tried"], "--plugin"),
        (
            ["summing.onnx", "data.npy", "tried", "--plugin", "nowhere.py"],
            "nowhere.py: No such file",
        ),
        (["summing.onnx", "data.npy", "tried", "--plugin", "mime"], "there is no plugin 'mime'"),
        (
            ["summing.onnx", "data.npy", "tried", "--plugin", "mine.py", "--batch-size", "0"],
            "--batch-size: 0 is below",
        ),
        (
            ["summing.onnx", "data.npy", "tried", "--plugin", "mine.py", "--model-path", "x"],
            "is a file already",
        ),
        (["ONNXModel", "data.npy", "tried", "--plugin", "mine.py"], "--model-path is missing"),
        (
            [
                "summing.onnx",
                "data.npy",
                "tried",
                "--plugin",
                "mine.py",
                "--runtime",
                "LiteRTRuntime",
            ],
            "takes tflite",
        ),
        (
            ["summing.onnx", "data.npy", "tried", "--plugin", "mine.py", "--token-file", "x"],
            "--protocol-cls",
        ),
        (["summing.onnx", "data.npy", "mine.py/tried", "--plugin", "mine.py"], "mine.py"),
        (
            [
                "PyTorchDigitsCNN",
                "data.npy",
                "tried",
                "--plugin",
                "mine.py",
                "--model-path",
                "odd.pt",
            ],
            "odd.pt",
        ),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_written(words, told, capsys):
    Path("odd.pt").write_bytes(b"?")
    assert main(words) == 2
    error = capsys.readouterr().err.replace(
        "mine.py is run as code, with all your rights: use only files that you trust\n", ""
    )
    assert error.startswith("nnpipe testrun: ")
    assert told in error
    assert error.count("\n") == 1
    assert not os.path.lexists("tried")
