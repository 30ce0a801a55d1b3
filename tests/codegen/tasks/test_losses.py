"""Scripts learn by the loss that a network's output carries, as the trainer and Keras do."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from borrowed import LAYERS, loaded

from nnpipe import layers as nn
from nnpipe.codegen import ScriptGenerator, Variable, generate
from nnpipe.codegen.script import Writer
from nnpipe.codegen.syntax import assign, call
from nnpipe.codegen.tasks.data import LoadArrays
from nnpipe.codegen.tasks.models import LoadModel
from nnpipe.codegen.tasks.outputs import Evaluate, Save
from nnpipe.codegen.tasks.training import Compile, LossAndMetrics, Train
from nnpipe.codegen.torch_code.code_blocks import Script
from nnpipe.layers.torch.to_trainer import to_trainer

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


_outputs = loaded("judged_outputs", LAYERS / "vocabulary" / "test_outputs.py")
ROW = nn.Input((4,), name="row")
VARIABLES = {"net": "network", "rows": "data", "ready": "compiled", "done": "network"}


def judged(declare, shape):
    x = nn.Input(shape, name="x")
    return nn.network(x, declare(x), "small")


def script_of(graph, framework="pytorch", tasks=(), **chosen):
    """Describe a script that compiles a network without naming a loss."""
    made = Compile(name="choose", model="net", compiled="ready", **chosen)
    used = {name: VARIABLES[name] for name in (VARIABLES if tasks else ("net", "ready"))}
    return ScriptGenerator(
        name="tried",
        framework=framework,
        networks={"small": graph},
        variables=tuple(Variable(*item) for item in used.items()),
        tasks=(LoadModel(name="load", network="small", model="net"), made, *tasks),
    )


def told(script):
    return {(problem.where, problem.message) for problem in script.check().problems}


def expected(graph, given, truth):
    batch = {"x": torch.from_numpy(given), "truth": torch.from_numpy(truth)}
    (output,) = to_trainer(graph)(batch).values()
    return float(output.loss())


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize(("declare", "shape", "truth"), _outputs.JUDGED)
def test_the_loss_is_that_of_the_output(declare, shape, truth, scale, run):
    graph = judged(lambda x: dataclasses.replace(declare(x), scale=scale), shape)
    given = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32)
    writer, script = Writer(script_of(graph)), Script()
    loss, _ = LossAndMetrics.from_network(graph, None, ()).to_torch_code(writer)
    script.definitions = {"loss": assign("loss", loss)}
    found = run("pytorch", script, tuple(writer.wanted))["loss"](
        torch.from_numpy(given), torch.from_numpy(truth)
    )
    assert float(found) == pytest.approx(expected(graph, given, truth), rel=1e-5)


@pytest.mark.parametrize(("declare", "shape", "truth"), _outputs.JUDGED)
def test_the_loss_in_keras_is_that_of_the_output(declare, shape, truth, run):
    pytest.importorskip("keras", reason="Keras is not installed")
    from nnpipe.layers.keras.to_keras import to_keras

    graph = judged(lambda x: dataclasses.replace(declare(x), scale=0.25), shape)
    given = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32)
    writer, script = Writer(script_of(graph, "keras")), Script()
    script.definitions = {
        "given": assign(
            "given",
            call("dict", **LossAndMetrics.from_network(graph, None, ()).to_keras_code(writer)),
        )
    }
    model = to_keras(graph)
    model.compile("sgd", **run("keras", script, tuple(writer.wanted))["given"])
    figures = model.evaluate(given, truth, verbose=0, return_dict=True)
    assert figures["loss"] == pytest.approx(expected(graph, given, truth), rel=1e-5)


TASKS = (
    LoadArrays(name="read", path="rows.npz", data="rows"),
    Train(name="learn", compiled="ready", data="rows", epochs=20, model="done"),
    Evaluate(name="judge", compiled="ready", data="rows", after=("learn",)),
    Save(name="keep", model="done", path="small", after=("judge",)),
)


def ran(run_script, folder, script):
    """Write a script into a folder with samples, run it there, and give what it prints last."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 60)
    rows = np.eye(4, dtype=np.float32)[truth] + random.normal(0, 0.1, (60, 4)).astype(np.float32)
    np.savez(folder / "rows.npz", x=rows, y=truth)
    checked = script.check()
    assert checked.problems == ()
    (folder / "script.py").write_text(generate(checked.graph).text, "utf-8")
    return json.loads(run_script(folder / "script.py").splitlines()[-1])


@pytest.mark.parametrize(
    ("framework", "needs"),
    [("pytorch", "torch"), pytest.param("keras", "keras", marks=pytest.mark.slow)],
)
def test_a_script_learns_by_what_its_network_says(
    framework, needs, ruff_finds_nothing, run_script, tmp_path
):
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    last = nn.OutputClassification(nn.Dense(ROW, 3), "label", 0.5, (2, 3), scale=2.0, name="kind")
    script = script_of(
        nn.network(ROW, last, "small"), framework, TASKS, metrics=("accuracy",), learning_rate=0.1
    )
    figures = ran(run_script, tmp_path, script)
    assert figures.keys() == {"loss", "accuracy", "top2", "top3"}
    assert figures["top3"] == pytest.approx(1)
    assert figures["accuracy"] > 0.9
    # Half of each truth is spread over three classes: no loss is below its entropy, which is
    # multiplied with two.
    shares = np.array([1 / 2 + 1 / 6, 1 / 6, 1 / 6])
    assert figures["loss"] > -2 * (shares * np.log(shares)).sum()
    ruff_finds_nothing(tmp_path)


@pytest.mark.slow
def test_keras_reads_a_network_whose_loss_it_has_not(run_script, tmp_path):
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    last = nn.OutputClassification(nn.Dense(ROW, 3), "label", 0.5, name="kind")
    ran(run_script, tmp_path, script_of(nn.network(ROW, last, "small"), "keras", TASKS))
    assert keras.saving.load_model(tmp_path / "small.keras").output_shape == (None, 3)


@pytest.mark.parametrize("framework", ["pytorch", "keras"])
def test_ruff_finds_nothing_whatever_the_loss_is(framework, ruff_finds_nothing, tmp_path):
    for number, (declare, shape, _) in enumerate(_outputs.JUDGED):
        graph = judged(
            lambda x, declare=declare: dataclasses.replace(declare(x), scale=0.25), shape
        )
        checked = script_of(graph, framework, TASKS).check()
        assert checked.problems == ()
        (tmp_path / f"script_{number}.py").write_text(generate(checked.graph).text, "utf-8")
    ruff_finds_nothing(tmp_path)


def test_a_loss_is_said_once():
    plain = nn.network(ROW, nn.Dense(ROW, 3, name="out"), "small")
    output = nn.OutputClassification(nn.Dense(ROW, 3), "label", name="kind")
    assert told(script_of(nn.network(ROW, output, "small"), loss="cross_entropy")) == {
        ("choose.loss", "the output kind has its own loss; remove this loss or that output")
    }
    ((where, message),) = told(script_of(plain))
    assert where == "choose.loss"
    assert message.startswith("is missing: name one, or use an output layer that has one")
    assert told(script_of(plain, loss="cross_entropy")) == set()


def test_a_loss_that_would_count_for_nothing_is_told():
    inner = nn.network(
        ROW, nn.OutputClassification(nn.Dense(ROW, 3), "label", name="kind"), "inner"
    )
    graph = nn.network(ROW, nn.Dense(nn.Submodel(ROW, inner, name="whole"), 2), "small")
    ((where, message),) = told(script_of(graph))
    assert (where, "end it with one" in message) == ("choose.loss", True)
    assert told(script_of(graph, loss="huber")) == {
        ("choose.loss", "the output whole/kind has its own loss; remove this loss or that output")
    }


@pytest.mark.parametrize(
    ("output", "chosen", "problem"),
    [
        (
            nn.OutputEmbedding(ROW, name="seen"),
            {},
            ("choose.model", "the output seen has no loss that scripts can train with"),
        ),
        (
            nn.OutputRegression(ROW, "truth", weights="counts", name="out"),
            {},
            (
                "choose.model",
                "out weights samples by 'counts', which scripts do not read; remove it",
            ),
        ),
        (
            nn.OutputRegression(ROW, "truth", name="out"),
            {"metrics": ("accuracy", "mean_absolute_error")},
            (
                "choose.metrics",
                "accuracy does not fit OutputRegression, which has: mean_squared_error, "
                "mean_absolute_error",
            ),
        ),
        (
            nn.OutputSegmentation(nn.Reshape(ROW, (2, 1, 2)), "truth", name="out"),
            {"metrics": ("accuracy",)},
            ("choose.metrics", "accuracy does not fit OutputSegmentation, which has: none"),
        ),
    ],
)
def test_what_scripts_cannot_learn_from_is_told(output, chosen, problem):
    assert told(script_of(nn.network(ROW, output, "small"), **chosen)) == {problem}
