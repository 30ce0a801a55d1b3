"""C becomes machine code for a core and an address, with a header that says what it needs, and
that shows damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import needs

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError, MissingTool
from nnpipe.frameworks.cortex_m.image import (
    ARM_GCC,
    CORES,
    FORMAT,
    build_for_core,
    build_image,
    read_image,
)
from nnpipe.testing.model_files import write_tflite_difference

needs("ai_edge_litert")
ADDRESS = 0x20010000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("source")
    return CCompiler().compile(
        write_tflite_difference(folder / "difference.tflite"), folder / "difference.c"
    )


@pytest.fixture(scope="module")
def image(source: Artifact) -> bytes:
    if ARM_GCC.find() is None:
        pytest.skip(f"arm-none-eabi-gcc is not installed ({ARM_GCC.install})")
    return build_image(source, CORES["cortex-m4"], ADDRESS, "-O2", "a test")


def test_the_header_says_what_it_needs(image: bytes, source: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(image)
    facts = read_image(path)
    assert (facts.core, facts.address, facts.size) == ("cortex-m4", ADDRESS, len(image))
    assert facts.arena_bytes == source.outcome["arena_bytes"]
    assert 0 < facts.flash_bytes < len(image)
    assert facts.ram_bytes == facts.arena_bytes + facts.data_bytes + facts.stack_bytes
    assert facts.stack_bytes < 100


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[:40], "no model for a Cortex-M"),
        (lambda data: data[:-8], "damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 4]), "damaged"),
        (lambda data: data[:6] + b"\x03\x00" + data[8:], "another version"),
    ],
)
def test_damage_is_told(image: bytes, spoil: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(spoil(image))  # type: ignore[operator]
    with pytest.raises(ArtifactError, match=said):
        read_image(path)


def test_only_c_is_built(source: Artifact, image: bytes) -> None:
    core = CORES["cortex-m4"]
    with build_for_core(source, core, ADDRESS, "a test") as built:
        assert (built.format, built.io, built.path.read_bytes()) == (FORMAT, source.io, image)
        with build_for_core(built, core, ADDRESS, "a test") as same:
            assert same is built
    assert not built.path.exists()


def test_a_missing_compiler_is_named_with_its_package(
    source: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool, match="apt install gcc-arm-none-eabi"):
        build_image(source, CORES["cortex-m4"], ADDRESS, "-O2", "a test")
