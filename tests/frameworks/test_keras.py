from __future__ import annotations

import os
import subprocess
import sys

import pytest
from installed import ImportedWhenUsed, needs

from nnpipe.core.errors import ConfigError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.keras import check_io, make_named_call, read_keras_io, resolve_keras_io
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.testing.session import InferenceSessionContract, OpenSession

needs("tensorflow")
keras = ImportedWhenUsed("keras")


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has not started TensorFlow yet."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_"))
    }
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-c", "from nnpipe.frameworks.keras import import_keras\n" + program],
        env=plain | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_tensorflow_starts_without_a_word_and_leaves_the_environment_alone() -> None:
    done = python(
        "import os, sys\n"
        # What Keras looks for and can do without is nearly half of its start.
        "sys.modules.update(dict.fromkeys(['jax', 'matplotlib', 'pandas', 'sklearn']))\n"
        "tensorflow, keras = import_keras()\n"
        "tensorflow.constant(1) + 1\n"
        "os.write(2, b'still heard')\n"
        "print([name for name in os.environ if name.startswith('TF_')])"
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "still heard", "[]\n")


def test_what_is_no_greeting_is_passed_on() -> None:
    done = python(
        "import os, sys, nnpipe.frameworks.keras as starting\n"
        "with starting._suppress_chatter():\n"
        "    os.write(2, b'E0000 something is broken\\nI0000 oneDNN custom operations are on.\\n')"
    )
    assert done.stderr == "E0000 something is broken\n"


@pytest.mark.slow
def test_who_asks_for_tensorflows_log_gets_it() -> None:
    assert (
        "TensorFlow binary is optimized"
        in python("import_keras()", TF_CPP_MIN_LOG_LEVEL="0").stderr
    )


@pytest.mark.slow
def test_channels_first_need_onednn() -> None:
    done = python(
        "import numpy as np\n"
        "from nnpipe.core.errors import NotSupported\n"
        "from nnpipe.frameworks.keras import read_keras_io\n"
        "from nnpipe.frameworks.keras_session import KerasSession\n"
        "_, keras = import_keras()\n"
        "first = keras.layers.Conv2D(2, 3, data_format='channels_first')\n"
        "model = keras.Sequential([keras.Input((3, 8, 8), name='x'), first])\n"
        "session = KerasSession(model, read_keras_io(model))\n"
        "try:\n"
        "    session.infer({'x': np.zeros((1, 3, 8, 8), np.float32)})\n"
        "except NotSupported as error:\n"
        "    print(error)\n",
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    assert "channels first" in done.stdout
    assert "TF_ENABLE_ONEDNN_OPTS" in done.stdout


def test_another_backend_is_refused_before_it_is_started() -> None:
    done = python("import_keras()", KERAS_BACKEND="torch")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        "ConfigError: Keras computes with torch here; set the environment variable KERAS_BACKEND"
        in last
    )
    assert "No module" not in done.stderr


@pytest.mark.slow
def test_threads_can_be_chosen_once() -> None:
    done = python(
        "tensorflow, _ = import_keras(1)\n"
        "tensorflow.constant(1) + 1\n"
        "from nnpipe.frameworks.keras import get_thread_count\n"
        "import_keras(2)\n"
        "print(get_thread_count())"
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def vector(name: str, length: int) -> TensorSpec:
    return TensorSpec(name, (None, length), "float32")


def test_tensors_are_bound_by_name_whatever_the_order() -> None:
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"b": b, "a": a}, {"z": a * 2.0, "c": b + 1.0})
    io = IOSpec((vector("b", 3), vector("a", 2)), (vector("z", 2), vector("c", 3)))
    check_io(model, io, "it")
    found = make_named_call(model, io)({"a": keras.ops.ones((1, 2)), "b": keras.ops.ones((1, 3))})
    assert list(found) == ["z", "c"]
    assert found["z"].numpy().tolist() == [[2.0, 2.0]]
    assert found["c"].numpy().tolist() == [[2.0, 2.0, 2.0]]


def test_outputs_of_one_layer_are_told_apart() -> None:
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    shared = keras.layers.Dense(1, name="shared")
    assert [
        spec.name for spec in read_keras_io(keras.Model([a, b], [shared(a), shared(b)])).outputs
    ] == [
        "shared_0",
        "shared_1",
    ]


def test_only_names_that_keras_made_up_give_way() -> None:
    io = IOSpec((vector("x", 2),), (vector("y", 1),))
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert resolve_keras_io(plain, io) == io
    given = keras.Sequential(
        [keras.Input((2,), name="image"), keras.layers.Dense(1, name="scores")]
    )
    assert [spec.name for spec in resolve_keras_io(given, io)] == ["image", "scores"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([vector("a", 2)], [vector("y", 1)], "the model has the inputs x; io says a"),
        (
            [vector("x", 2)],
            [vector("y", 1), vector("z", 1)],
            "the model has the outputs y; io says y, z",
        ),
        (
            [vector("x", 3)],
            [vector("y", 1)],
            r"'x' of the model is float32 \(\?, 2\); io says float32 \(\?, 3\)",
        ),
        (
            [vector("x", 2)],
            [TensorSpec("y", (None, 1), "int8")],
            r"is float32 \(\?, 1\); io says int8 \(\?, 1\)",
        ),
    ],
)
def test_a_promise_that_the_model_does_not_keep_is_named(
    inputs: list[TensorSpec], outputs: list[TensorSpec], message: str
) -> None:
    model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1, name="y")])
    with pytest.raises(ConfigError, match=message):
        check_io(model, IOSpec(tuple(inputs), tuple(outputs)), "it")


class TestSessionThatPassesInputsOn(InferenceSessionContract):
    """The case in which results are most easily the inputs' own memory."""

    @pytest.fixture
    def open_session(self) -> OpenSession:
        x = keras.Input((4,), name="x")
        model = keras.Model(x, {"same": x, "flat": keras.ops.reshape(x, (-1, 4))})
        return lambda: KerasSession(
            model, IOSpec((vector("x", 4),), (vector("same", 4), vector("flat", 4)))
        )
