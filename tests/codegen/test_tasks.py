"""What each task comes to when its script runs, in both frameworks."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from steps import MODEL, READ, READY, TRAIN, VARIABLES

from nnpipe import layers as nn
from nnpipe.codegen import check_script, generate
from nnpipe.codegen.description import list_task_classes
from nnpipe.formats.tflite import read_tflite
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.keras.read_file import read_keras
from nnpipe.layers.keras.to_config import write_keras

# What Keras and TensorFlow say of themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning"),
]
BOTH = pytest.mark.parametrize("framework", ["pytorch", "keras"])
BOTH_SLOWLY = pytest.mark.parametrize(
    "framework", ["pytorch", pytest.param("keras", marks=pytest.mark.slow)]
)
NETWORK = [
    {"class": "Input", "name": "row", "shape": [4]},
    {
        "class": "Dense",
        "units": 8,
        "activation": "relu",
        "name": "hidden",
        "kernel_regularizer": "l2",
        "kernel_constraint": {"class_name": "MaxNorm", "config": {"max_value": 1.0}},
    },
    {"class": "Dense", "units": 3, "name": "answer"},
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 60)
    rows = np.eye(4, dtype=np.float32)[truth] + random.normal(0, 0.1, (60, 4)).astype(np.float32)
    np.savez_compressed("rows.npz", x=rows, y=truth)
    with open("rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "kind", "b", "c", "d"])
        writer.writerows([r[0], int(t), *r[1:]] for r, t in zip(rows.tolist(), truth, strict=True))
    return tmp_path


def described(framework, steps, variables=(), networks=None, **more):
    return {
        "script": "tried",
        "framework": framework,
        "networks": networks or {"small": NETWORK},
        "variables": {**VARIABLES, **dict(variables)},
        "tasks": steps,
        **more,
    }


def written(framework, steps, variables=(), networks=None, **more):
    """Generate a script into this folder; give its text."""
    needs = {"pytorch": "torch", "keras": "keras"}[framework]
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    data = described(framework, steps, variables, networks, **more)
    used = {
        name
        for step in steps
        for value in step.values()
        for name in (value if isinstance(value, list) else [value])
    }
    data["variables"] = {name: kind for name, kind in data["variables"].items() if name in used}
    checked = check_script(data)
    assert checked.problems == ()
    made = generate(checked.graph)
    for name, content in made.files.items():
        with open(name, "wb") as file:
            file.write(content)
    with open("script.py", "w", encoding="utf-8") as file:
        file.write(made.text)
    return made.text


def ran(framework, steps, variables=(), *arguments, monkeypatch, networks=None, **more):
    """Generate a script, and run it here; give what it defines."""
    text = written(framework, steps, variables, networks, **more)
    monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
    namespace = {"__name__": "script", "__file__": str(Path("script.py").resolve())}
    exec(compile(text, "script.py", "exec"), namespace)
    namespace["main"]()
    return namespace


@BOTH_SLOWLY
def test_a_table_is_learnt_and_judged(framework, here, monkeypatch, capsys):
    table = {"task": "load_csv", "path": "rows.csv", "target": "kind", "data": "data"}
    judge = {"task": "evaluate", "compiled": "ready", "data": "data", "after": ["train"]}
    ran(
        framework,
        [MODEL, table, READY, TRAIN, judge],
        (),
        "--epochs",
        "30",
        "--learning-rate",
        "0.02",
        monkeypatch=monkeypatch,
    )
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["accuracy"] > 0.9


@pytest.mark.slow
@BOTH
def test_constraints_hold_and_regularisers_count(framework, here, monkeypatch):
    save = {"task": "save", "model": "done", "path": "out/trained"}
    ran(
        framework,
        [MODEL, READ, READY, TRAIN, save],
        (),
        "--learning-rate",
        "0.5",
        monkeypatch=monkeypatch,
    )
    if framework == "keras":
        kernel = read_keras(here / "out" / "trained.keras").weights["hidden/kernel"]
    else:
        from safetensors.numpy import load_file

        kernel = load_file(here / "out" / "trained.safetensors")["hidden.weight"].T
    norms = np.linalg.norm(kernel, axis=0)
    assert norms.max() < 1.001
    assert norms.max() > 0.5


@BOTH
def test_the_loss_that_is_told_holds_what_regularisers_add(framework, here, monkeypatch, capsys):
    weights, layer = (
        np.full((4, 3), 0.5, np.float32),
        {"class": "Dense", "units": 3, "name": "answer"},
    )
    layer |= {
        "kernel_initializer": {"class_name": "Constant", "config": {"value": 0.5}},
        "kernel_regularizer": "l2",
    }
    judge = {"task": "evaluate", "compiled": "ready", "data": "data", "batch_size": 5}
    network = [
        NETWORK[0],
        {**layer, "activity_regularizer": {"class_name": "L1", "config": {"l1": 0.1}}},
    ]
    save = {"task": "save", "model": "net", "path": "net", "after": ["evaluate"]}
    steps = [MODEL, READ, READY, judge, save]
    namespace = ran(framework, steps, monkeypatch=monkeypatch, networks={"small": network})
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["loss"]
    (rows,), _ = namespace["read_array_data"](here / "rows.npz", ("x",), "y", None, 1.0, 0.2, 0)[
        "test"
    ]
    outputs = np.asarray(rows) @ weights
    # Classes are all as likely; a sample's outputs count in the mean over its batch.
    assert found == pytest.approx(
        np.log(3) + 0.01 * (weights**2).sum() + 0.1 * np.abs(outputs).sum(1).mean(), rel=1e-3
    )


@BOTH
def test_images_are_read_by_class(framework, here, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for place, name in enumerate(("cat", "dog")):
        (here / "pets" / name).mkdir(parents=True)
        for number in range(10):
            picture = image.new("RGB", (9, 7), (200 * place, number, 9))
            # by which ways to make an image smaller differ
            picture.putpixel((4, 3), (255, 255, 255))
            picture.save(here / "pets" / name / f"{number}.png")
    net = [
        {"class": "Input", "shape": [6, 8, 3]},
        {"class": "Flatten"},
        {"class": "Dense", "units": 2},
    ]
    images = {
        "task": "load_images",
        "path": "pets",
        "size": [6, 8],
        "scale": 1 / 255,
        "data": "data",
        "test_fraction": 0.5,
    }
    namespace = ran(
        framework, [MODEL, images, READY, TRAIN], monkeypatch=monkeypatch, networks={"small": net}
    )
    data = namespace["read_image_data"]("pets", (6, 8), False, 1.0, 0.5, 0)
    inputs, targets = data["test"]
    assert tuple(inputs[0].shape) == (10, 6, 8, 3)
    assert [float(x[0, 0, 0]) for x in inputs[0]] == [200.0 * int(t) for t in targets]
    for x, place in zip(inputs[0], targets, strict=True):
        path = here / "pets" / ("cat", "dog")[int(place)] / f"{int(x[0, 0, 1])}.png"
        wanted = image.open(path).resize((8, 6), image.Resampling.BICUBIC)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(wanted, np.float32))


@BOTH
def test_images_of_more_than_eight_bits_keep_their_shades(framework, here, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    shades = np.array([0.2, 0.4, 0.6, 0.8, 1.0] * 2)
    for name, shade in zip(("dark", "bright"), (0.5, 1.0), strict=True):
        (here / "scans" / name).mkdir(parents=True)
        for number, value in enumerate(shades * shade):
            pixels = np.full((6, 8), value)
            deep = np.rint(pixels * 65535).astype(np.uint16)
            path = here / "scans" / name / f"{number}.{('png', 'tif')[number % 2]}"
            image.fromarray(pixels.astype(np.float32) if number == 9 else deep).save(path)
    net = [
        {"class": "Input", "shape": [6, 8, 1]},
        {"class": "Flatten"},
        {"class": "Dense", "units": 2},
    ]
    images = {"task": "load_images", "path": "scans", "size": [6, 8], "grey": True, "data": "data"}
    namespace = ran(
        framework, [MODEL, images, READY, TRAIN], monkeypatch=monkeypatch, networks={"small": net}
    )
    data = namespace["read_image_data"]("scans", (6, 8), True, 1.0, 0.5, 0)
    found = [float(x[0, 0, 0]) for part in data.values() for x in part[0][0]]
    np.testing.assert_allclose(
        sorted(found), sorted(np.rint(np.outer([0.5, 1.0], shades * 255).ravel())), atol=1
    )


@pytest.mark.slow
@BOTH
def test_samples_of_scikit_learn(framework, here, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    # The data have the name of the function that reads them.
    steps = [
        MODEL,
        {"task": "load_sklearn", "dataset": "iris", "data": "load_iris"},
        READY,
        {**TRAIN, "data": "load_iris"},
    ]
    ran(framework, steps, {"load_iris": "data"}, monkeypatch=monkeypatch)


@BOTH_SLOWLY
def test_plugins_take_part(framework, here, monkeypatch):
    (here / "mine.py").write_text(
        "import numpy as np\n"
        "def process_dataset(x, y):\n    return x * 2, y\n"
        "def load_test_data(path):\n    return np.load(path)['x'][:5], np.load(path)['y'][:5], 5\n"
        "def process_model_output(model_input, expected_output, model_output):\n"
        "    assert model_input.shape == (5, 4) and model_output.shape == (5, 3) and "
        "len(expected_output) == 5\n"
        "    np.savetxt('output/seen.txt', model_output.argmax(-1))\n"
    )
    variables = {"raw": "data", "seen": "samples", "given": "outputs"}
    steps = [
        MODEL,
        {**READ, "data": "raw"},
        {"task": "process_dataset", "plugin": "mine.py", "samples": "raw", "data": "data"},
        READY,
        TRAIN,
        {"task": "load_test_data", "plugin": "mine.py", "path": "rows.npz", "samples": "seen"},
        {
            "task": "inference",
            "model": "done",
            "samples": "seen",
            "path": "given.csv",
            "outputs": "given",
        },
        {"task": "process_model_output", "plugin": "mine.py", "outputs": "given"},
    ]
    ran(framework, steps, variables, monkeypatch=monkeypatch)
    assert len((here / "output" / "seen.txt").read_text().splitlines()) == 5
    assert len((here / "given.csv").read_text().splitlines()) == 5


@BOTH
def test_weights_of_a_keras_file_come_along(framework, here, monkeypatch):
    pytest.importorskip("h5py", reason="h5py is not installed")
    x = nn.Input((4,), name="row")
    graph = nn.network(
        x, nn.Dense(nn.BatchNorm(nn.Dense(x, 5, name="hidden")), 3, name="answer"), "old"
    )
    weights = initial_weights(graph, 4)
    write_keras("old.keras", graph, weights)
    variables = {"given": "outputs"}
    steps = [
        MODEL,
        READ,
        {
            "task": "inference",
            "model": "net",
            "samples": "data",
            "path": "given.csv",
            "outputs": "given",
        },
    ]
    ran(
        framework,
        steps,
        variables,
        monkeypatch=monkeypatch,
        networks={"small": {"file": "old.keras"}},
    )
    given = np.loadtxt("given.csv", delimiter=",")
    assert (here / "tried.small.safetensors").is_file()

    rows = np.load("rows.npz")["x"]
    normal = weights["batch_norm/gamma"] / np.sqrt(weights["batch_norm/moving_variance"] + 1e-3)
    hidden = (rows @ weights["hidden/kernel"] + weights["hidden/bias"]) * normal
    expected = hidden @ weights["answer/kernel"] + weights["answer/bias"]
    # The samples put aside come in an order of their own.
    assert given.shape == (12, 3)
    for row in given:
        assert np.abs(expected - row).max(1).min() < 1e-4


@BOTH
def test_one_network_is_there_twice_with_weights_of_its_own_each(framework, here, monkeypatch):
    x = nn.Input((4,), name="row")
    graph = nn.network(x, nn.Dense(x, 3, name="answer"), "small")
    for number in (1, 2):
        write_keras(f"{number}.keras", graph, initial_weights(graph, number))
    variables = {"one": "network", "two": "network"}
    steps = [
        {**MODEL, "name": "first", "weights": "1.keras", "model": "one"},
        {**MODEL, "name": "second", "weights": "2.keras", "model": "two"},
        {"task": "save", "name": "keep", "model": "one", "path": "one"},
        {"task": "save", "model": "two", "path": "two", "after": ["keep"]},
    ]
    layers = [NETWORK[0], {"class": "Dense", "units": 3, "name": "answer"}]
    ran(framework, steps, variables, monkeypatch=monkeypatch, networks={"small": layers})
    for number, name in enumerate(variables, 1):
        if framework == "keras":
            kernel = read_keras(here / f"{name}.keras").weights["answer/kernel"]
        else:
            from safetensors.numpy import load_file

            kernel = load_file(here / f"{name}.safetensors")["answer.weight"].T
        np.testing.assert_array_equal(kernel, initial_weights(graph, number)["answer/kernel"])
    assert sorted(path.name for path in here.glob("tried.*")) == [
        "tried.small.safetensors",
        "tried.small_2.safetensors",
    ]


@pytest.mark.slow
@BOTH
def test_a_delta_keeps_what_stayed(framework, here, monkeypatch):
    after = [*NETWORK[:2], {"class": "Dense", "units": 3, "name": "answer", "use_bias": False}]
    after.append({"class": "Dense", "units": 5, "name": "other"})
    after[1] = {**after[1], "trainable": False}
    delta = {"task": "apply_delta", "model": "done", "network": "large", "changed": "bigger"}
    keep = [
        {"task": "save", "name": "one", "model": "done", "path": "one"},
        {"task": "save", "name": "two", "model": "bigger", "path": "two", "after": ["one"]},
    ]
    steps = [MODEL, READ, READY, TRAIN, delta, *keep]
    ran(
        framework,
        steps,
        {"bigger": "network"},
        monkeypatch=monkeypatch,
        networks={"small": NETWORK, "large": after},
    )
    if framework == "keras":
        one, two = read_keras(here / "one.keras").weights, read_keras(here / "two.keras").weights
        names = ("hidden/kernel", "hidden/bias", "answer/kernel")
    else:
        from safetensors.numpy import load_file

        one, two = load_file("one.safetensors"), load_file("two.safetensors")
        names = ("hidden.weight", "hidden.bias", "answer.weight")
    for name in names:
        np.testing.assert_array_equal(one[name], two[name])
    assert {key for key in two if key not in one} == {key for key in two if key.startswith("other")}


@pytest.mark.slow
@BOTH_SLOWLY
def test_callbacks_look_on(framework, here):
    if framework == "keras":
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    else:
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    variables = {
        "stop": "callback",
        "board": "callback",
        "table": "callback",
        "best": "callback",
        "far": "callback",
    }
    steps = [
        MODEL,
        READ,
        READY,
        {"task": "early_stopping", "patience": 1, "min_delta": 1000.0, "callback": "stop"},
        {"task": "tensorboard_logger", "folder": "board", "callback": "board"},
        {"task": "csv_logger", "path": "logs/table.csv", "callback": "table"},
        {"task": "checkpoint", "path": "best", "callback": "best"},
        {"task": "progress", "path": "logs/progress.jsonl", "callback": "far"},
        {**TRAIN, "epochs": 50, "callbacks": list(variables)},
    ]
    written(framework, steps, variables)
    # In a process of its own: TensorBoard settles once for all where it finds TensorFlow.  What the
    # frameworks look for and can do without is most of what they take to start.
    missing = (
        ["tensorflow"] if framework == "pytorch" else ["jax", "matplotlib", "pandas", "sklearn"]
    )
    start = f"import runpy, sys; sys.modules.update(dict.fromkeys({missing}))\n"
    start += "runpy.run_path('script.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [
        json.loads(line) for line in (here / "logs" / "progress.jsonl").read_text().splitlines()
    ]
    assert lines[0] | {"time": 0} == {"fraction": 0.0, "metrics": {}, "time": 0}
    assert lines[1]["fraction"] == 0.02
    assert lines[-1]["fraction"] == 1.0  # ended early is ended
    # by one name in both frameworks
    assert lines[-1]["metrics"].keys() >= {"loss", "test_loss", "test_accuracy"}
    assert len(lines) < 8
    assert len((here / "logs" / "table.csv").read_text().splitlines()) in (3, 4)
    assert list((here / "board").rglob("events*"))


def test_a_missing_compiler_for_the_edge_tpu_is_told_before_the_training(here, monkeypatch):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    variables = {"small8": "file", "edge": "file"}
    steps = [
        MODEL,
        READ,
        READY,
        TRAIN,
        {
            "task": "quantise",
            "model": "done",
            "data": "data",
            "path": "rows.tflite",
            "file": "small8",
        },
        {"task": "compile_edge_tpu", "quantised": "small8", "file": "edge"},
    ]
    with pytest.raises(SystemExit, match="edgetpu_compiler is not installed"):
        ran("keras", steps, variables, monkeypatch=monkeypatch)
    assert not (here / "rows.tflite").exists()


@pytest.mark.slow
def test_quantised_and_compiled_for_the_edge_tpu(here, monkeypatch):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    (here / "edgetpu_compiler").write_text('#!/bin/sh\ncp "$3" "$2/rows_edgetpu.tflite"\n')
    (here / "edgetpu_compiler").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    variables = {"small8": "file", "edge": "file"}
    steps = [
        MODEL,
        READ,
        READY,
        TRAIN,
        {
            "task": "quantise",
            "model": "done",
            "data": "data",
            "path": "rows.tflite",
            "file": "small8",
        },
        {"task": "compile_edge_tpu", "quantised": "small8", "file": "edge"},
    ]
    ran("keras", steps, variables, monkeypatch=monkeypatch)
    assert (here / "rows_edgetpu.tflite").read_bytes() == (here / "rows.tflite").read_bytes()
    assert (here / "rows.tflite").read_bytes()[4:8] == b"TFL3"
    assert [spec.shape[0] for spec in read_tflite(here / "rows.tflite").io] == [
        1,
        1,
    ]  # the Edge TPU takes no free batch


def test_a_function_of_an_installed_package_is_called(here, monkeypatch, capsys):
    show = {"task": "call", "function": "pprint:pprint", "arguments": ["net"]}
    steps = [MODEL, show, {**show, "name": "again", "after": ["call"]}]
    ran("pytorch", steps, monkeypatch=monkeypatch)
    assert capsys.readouterr().out.count("(answer): Linear") == 2
    assert (here / "script.py").read_text().count("from pprint import pprint\n") == 1


def test_initialisers_that_have_no_code_lie_beside_as_numbers(here, monkeypatch):
    network = [
        NETWORK[0],
        {"class": "Dense", "units": 4, "name": "same", "kernel_initializer": "identity"},
    ]
    save = {"task": "save", "model": "net", "path": "same"}
    ran("pytorch", [MODEL, save], monkeypatch=monkeypatch, networks={"small": network})
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(
        load_file("same.safetensors")["same.weight"], np.eye(4, dtype=np.float32)
    )
    assert load_file("tried.small.safetensors").keys() == load_file("same.safetensors").keys()


def test_names_of_variables_never_meet_those_of_the_script(here, monkeypatch):
    names = {
        "train": "network",
        "_help": "data",
        "torch": "compiled",
        "Small": "network",
        "args": "callback",
    }
    steps = [
        {**MODEL, "model": "train"},
        {**READ, "data": "_help"},
        {**READY, "model": "train", "compiled": "torch"},
        {"task": "progress", "callback": "args"},
        {**TRAIN, "compiled": "torch", "data": "_help", "callbacks": ["args"], "model": "Small"},
        {"task": "save", "model": "Small", "path": "small"},
    ]
    ran("pytorch", steps, names, monkeypatch=monkeypatch)
    assert (here / "small.safetensors").is_file()


def test_every_task_says_what_it_does():
    assert len(list_task_classes()) > 18
    for cls in list_task_classes().values():
        assert cls.__doc__
        assert cls.frameworks
