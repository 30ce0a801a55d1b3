"""The recipe of the target's image, as far as it can be held without a container engine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nnpipe.core.runtime_protocol import RemoteOptions, ServerOptions
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.network import NetworkProtocol
from nnpipe.scenarios import target
from nnpipe.scenarios._cli.command import parse
from nnpipe.scenarios.inference_server import ROLES
from nnpipe.workflows.devices.inspection import make_trial_batch, write_trial_models

TEXT = (Path(__file__).parents[1] / "Dockerfile.target").read_text("utf-8")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
GLIBC = {"bookworm": "2.36", "trixie": "2.41"}
"""Of the releases of Debian on which the images of Python are built."""


def instruction(name: str) -> str:
    (found,) = re.findall(rf"^{name} (.*)$", TEXT, re.MULTILINE)
    return found


def options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    target._add_options(parser)
    return parser.parse_args(words)


def test_nothing_is_run_while_it_is_built() -> None:
    known = {"FROM", "ARG", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {
        line.split()[0] for line in TEXT.splitlines() if line and not line.startswith("#")
    } == known


def test_the_bundles_are_for_the_processors_python_and_library_of_the_base() -> None:
    version, release = re.fullmatch(r"python:(3\.\d+)-slim-(\w+)", instruction("FROM")).groups()  # type: ignore[union-attr]
    commands = [
        shlex.split(line)[2:]
        for line in re.findall(r"^#   (nnpipe target bundle .*)$", TEXT, re.MULTILINE)
    ]
    found = {Path(words[1]).name: options(words) for words in commands}
    assert {name: given.machine for name, given in found.items()} == MACHINES
    for given in found.values():
        assert (given.python_version, given.glibc) == (version, GLIBC[release])
    (built,) = re.findall(r"^#   docker buildx build (.*)$", TEXT, re.MULTILINE)
    assert {name.removeprefix("linux/") for name in re.findall(r"linux/\w+", built)} == set(
        MACHINES
    )
    assert built.split()[-1] == Path(commands[0][1]).parent.name, (
        "the bundles lie in the folder that is built from"
    )


def test_the_server_takes_the_words_of_the_recipe() -> None:
    entry, words = json.loads(instruction("ENTRYPOINT")), json.loads(instruction("CMD"))
    assert entry[-3:] == ["-m", "nnpipe", "inference_server"]
    parsed = parse(words, "inference_server", "", ROLES, lambda _: None, fixed=(ServerOptions,))
    protocol = parsed.make("PROTOCOL")
    assert isinstance(protocol, NetworkProtocol)
    assert protocol.is_exposed()
    assert parsed.options.token_file is not None
    assert str(protocol.port) == instruction("EXPOSE")


@pytest.mark.slow
def test_a_bundle_serves_with_the_words_of_the_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, bare = tmp_path / "image" / "this", tmp_path / "bare"
    here = [
        "--machine",
        platform.machine(),
        "--python-version",
        ".".join(map(str, sys.version_info[:2])),
    ]
    if target.main(["bundle", str(bundle), "ONNXRuntime", *here]):
        pytest.skip(f"no index of packages here: {capsys.readouterr().err}")
    assert target.main(["bundle", str(bundle), "ONNXRuntime", *here]) == 2
    assert "is not empty" in capsys.readouterr().err
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    (tmp_path / "token").write_text("a token of more than sixteen bytes")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))]
    places = {
        "python": str(bare / "bin" / "python"),
        "0.0.0.0": "127.0.0.1",
        instruction("EXPOSE"): str(port),
    }
    places["/token"] = str(tmp_path / "token")
    server = subprocess.Popen(
        [places.get(word, word) for word in words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(bundle)},
    )
    try:
        assert server.stdout is not None
        assert "is served at" in server.stdout.readline()
        (artifact,) = write_trial_models(tmp_path, ["onnx"])
        with open_session(
            NetworkProtocol(port=port), artifact, RemoteOptions(token_file=tmp_path / "token")
        ) as session:
            batch, wanted = make_trial_batch(artifact, 0)
            assert (session.infer(batch)["difference"] == wanted).all()
    finally:
        server.terminate()
        server.communicate()
