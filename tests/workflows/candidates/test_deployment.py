from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import needs

from nnpipe.__main__ import main
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.runtime_protocol import RemoteOptions
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.network import NetworkProtocol, UnixProtocol
from nnpipe.testing.fakes import FakeRuntime, compute_expected, write_fake_model
from nnpipe.testing.protocol import IO, assert_equal_outputs, create_batch
from nnpipe.workflows.candidates.deployment import Deployment, check_reached, start_deployment
from nnpipe.workflows.pipeline.file import Pipeline

TORCH = "nnpipe.modelwrappers.classification.small_cnn.PyTorchDigitsCNN"
TESTER = [
    "inference_tester",
    TORCH,
    "none",
    "ONNXRuntime",
    "DigitsDataset",
    "out.json",
    "--model-path",
    "m",
]


@pytest.mark.parametrize("where", ["network", "unix"])
def test_a_server_is_started_for_a_candidate_and_ended_after_it(tmp_path: Path, where: str) -> None:
    protocol = (
        NetworkProtocol(port=0)
        if where == "network"
        else UnixProtocol(socket_path=tmp_path / "socket")
    )
    with start_deployment(Deployment(protocol, serve=True), FakeRuntime()) as reached:
        with open_session(reached, write_fake_model(tmp_path, IO)) as session:
            assert_equal_outputs(
                session.infer(create_batch()), compute_expected(IO, create_batch())
            )
    with pytest.raises(NNPipeError, match="no target answers"):
        open_session(reached, write_fake_model(tmp_path, IO))


def test_a_target_that_runs_already_is_left_alone() -> None:
    protocol = NetworkProtocol(port=5)
    with start_deployment(Deployment(protocol), FakeRuntime()) as reached:
        assert reached is protocol


def test_a_server_that_cannot_be_started_says_why() -> None:
    with NetworkProtocol(port=0).listen() as taken:
        busy = NetworkProtocol(port=taken.address()[1])
        with (
            pytest.raises(NNPipeError, match="cannot listen"),
            start_deployment(Deployment(busy, serve=True), FakeRuntime()),
        ):
            raise AssertionError


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--protocol-cls", "NetworkProtokol"],
            "did you mean nnpipe.protocols.network.NetworkProtocol",
        ),
        (["--save-model-path", "x"], "--protocol-cls"),
        (["--token-file", "x"], "--protocol-cls"),
        (["--protocol-cls", "NetworkProtocol", "--token-file", "nowhere"], "nowhere"),
        (["--protocol-cls", "NetworkProtocol", "--port", "99999"], "65535"),
    ],
)
def test_what_cannot_work_is_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TESTER, *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_help_shows_the_options_of_the_line_and_of_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for argv in (
        [*TESTER, "--protocol-cls", "NetworkProtocol", "-h"],
        ["inference_server", "NetworkProtocol", "LiteRTRuntime", "-h"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        shown = capsys.readouterr().out
        for flag in (
            "--host",
            "--port",
            "--packet-size",
            "--save-model-path",
            "--verbosity",
            "--token-file",
        ):
            assert flag in shown
    assert "--delegates-list" in shown
    assert "--insecure" in shown


SETTINGS = {
    "dataset": "nnpipe.datasets.digits.DigitsDataset",
    "model": {"class": TORCH},
    "candidates": [{"title": "t", "export": "onnx", "runtime": "ONNXRuntime"}],
}


def pipeline(**candidate: object) -> Pipeline:
    return Pipeline.from_settings(
        {**SETTINGS, "candidates": [{**SETTINGS["candidates"][0], **candidate}]}
    )


def test_a_pipeline_file_names_the_way_to_a_target() -> None:
    found = pipeline(
        protocol={"class": "NetworkProtocol", "arguments": {"port": 7}},
        remote={"run_timeout": 3.0},
        serve=True,
    )
    assert found.models[0].candidates[0].deployment == Deployment(
        NetworkProtocol(port=7), RemoteOptions(run_timeout=3.0), True
    )
    assert pipeline().models[0].candidates[0].deployment is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"serve": True}, "candidates.0: name the way to the target: protocol"),
        ({"remote": {}}, "protocol"),
        ({"protocol": "NetworkProtocol", "serve": 1}, "candidates.0.serve"),
        ({"protocol": "NetworkProtocol", "remote": {"run_time": 1}}, "candidates.0.remote"),
        (
            {"protocol": {"class": "NetworkProtocol", "arguments": {"port": "x"}}},
            "candidates.0.protocol",
        ),
        (
            {"protocol": "NetworkProtocol", "runtime": None, "export": None},
            "a target needs a runtime",
        ),
    ],
)
def test_a_slip_in_a_pipeline_file_is_named_with_its_place(
    changes: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        pipeline(**changes)


# -- what is wrong with a target is told at the beginning
# --------------------------------------------

PIPELINE = """
dataset: DigitsDataset
model: {{class: {torch}, path: m.pt, training: {{num_epochs: 1}}}}
output: out
candidates:
  - {{title: here, export: onnx, runtime: ONNXRuntime}}
  - title: there
    export: onnx
    runtime: ONNXRuntime
    protocol: {{class: NetworkProtocol, arguments: {{port: {port}}}}}
    remote: {remote}
"""


@pytest.fixture
def nothing_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where data would be made ready, or a model trained or compiled."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("something slow began")

    for module in ("pipeline.run", "measurement.measure"):
        monkeypatch.setattr(f"nnpipe.workflows.{module}.prepare_dataset", begun)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, Path]]:
    """The port of a server that asks for a token, and where the token lies."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder, "token")
        token.write_text("the token that they share")
        command = [
            sys.executable,
            "-m",
            "nnpipe",
            "inference_server",
            "NetworkProtocol",
            "nnpipe.testing.fakes.FakeRuntime",
            "--port",
            "0",
            "--token-file",
            str(token),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline().rpartition(":")[2]), token
            finally:
                process.terminate()


@pytest.mark.usefixtures("nothing_slow")
@pytest.mark.parametrize("command", ["inference_tester", "run"])
@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("wrong", "token is wrong"),
        (None, "asks for a shared token"),
        ("absent", "cannot read the token"),
    ],
)
def test_a_token_that_the_target_refuses_is_told_before_anything_slow(
    server: tuple[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    token: str | None,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    port, _ = server
    Path("wrong").write_text("another token altogether")
    assert main(_command(command, port, token)) == 2
    said = capsys.readouterr().err
    assert told in said.replace("\n", " ")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("nothing_slow")
@pytest.mark.parametrize("command", ["inference_tester", "run"])
def test_a_target_that_does_not_answer_is_told_before_anything_slow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with at_once():
        assert main(_command(command, 9, None)) == 2
    said = capsys.readouterr().err
    assert "no target answers at 127.0.0.1:9" in said
    assert said.count("\n") == 1
    assert ("'there'" in said) == (command == "run")


def test_a_target_that_serves_somebody_now_will_do(
    server: tuple[int, Path], tmp_path: Path
) -> None:
    port, token = server
    deployment = Deployment(NetworkProtocol(port=port), RemoteOptions(token_file=token))
    with open_session(deployment.protocol, write_fake_model(tmp_path, IO), deployment.remote):
        check_reached(deployment)
    check_reached(deployment)


@pytest.mark.usefixtures("nothing_slow")
def test_a_missing_compiler_for_the_edge_tpu_is_told_before_anything_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("tensorflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = [
        "inference_tester",
        "TensorFlowDigitsCNN",
        "TFLiteCompiler",
        "LiteRTRuntime",
        "DigitsDataset",
        "out.json",
    ]
    with at_once():
        assert main([*words, "--model-path", "m.keras", "--target", "edgetpu"]) == 2
    said = capsys.readouterr().err
    assert "the Edge TPU compiler on the PATH (edgetpu_compiler)" in said
    assert said.count("\n") == 1


def _command(command: str, port: int, token: str | None) -> list[str]:
    if command == "run":
        remote = "{}" if token is None else f"{{token_file: {token}}}"
        Path("pipeline.yaml").write_text(PIPELINE.format(torch=TORCH, port=port, remote=remote))
        return ["run", "pipeline.yaml"]
    more = [] if token is None else ["--token-file", token]
    return [*TESTER, "--protocol-cls", "NetworkProtocol", "--port", str(port), *more]
