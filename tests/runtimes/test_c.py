"""C sources run bound by name, and damaged ones are never compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import needs

from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.discoverable import C
from nnpipe.core.errors import ArtifactError
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.frameworks.c_source import write_c_source
from nnpipe.runtimes.c import CRuntime
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.model_files import write_tflite_difference
from nnpipe.testing.runtime import RuntimeContract
from nnpipe.testing.session import assert_one_line
from nnpipe.workflows.candidates.model_files import compute_model_size

needs("ai_edge_litert")
pytestmark = pytest.mark.skipif(
    C.find() is None, reason="no C compiler is installed (apt install gcc)"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return write_tflite_difference(tmp_path_factory.mktemp("source") / "difference.tflite")


@pytest.fixture(scope="module")
def compiled(source: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return CCompiler().compile(source, tmp_path_factory.mktemp("compiled") / "difference.c")


class TestCRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> CRuntime:
        return CRuntime()

    @pytest.fixture
    def artifact(self, compiled: Artifact) -> Artifact:
        return compiled

    @pytest.fixture
    def expected(self, source: Artifact, batch: Batch) -> Batch:
        with LiteRTRuntime().load(source) as session:
            return session.infer(batch)


def test_a_bare_file_says_what_it_takes_and_gives(compiled: Artifact) -> None:
    found = CRuntime().io_of(compiled.path)  # in the order of the file
    assert set(found.inputs) == set(compiled.io.inputs)
    assert found.outputs == compiled.io.outputs


def test_the_size_of_a_model_is_that_of_its_code_and_constants_as_built(compiled: Artifact) -> None:
    with CRuntime().load(compiled) as session:
        stats = session.stats()
    found = compute_model_size(compiled, stats)
    assert found is not None
    assert 100 < found == stats["built_bytes"] < compiled.size
    # the length of its text is none that compares with a file's
    assert compute_model_size(compiled) is None


def test_servers_know_that_loading_runs_machine_code() -> None:
    assert CRuntime.native_code == ("c",)


def test_what_the_c_compiler_refuses_is_named_in_one_line(
    compiled: Artifact, tmp_path: Path
) -> None:
    path = tmp_path / "strange.c"
    write_c_source(path, "int nn_run(void) { return unknown; }\n", compiled.io, {})
    with pytest.raises(
        ArtifactError, match=r"strange\.c: .* cannot compile it: .*unknown"
    ) as caught:
        CRuntime().load(Artifact.create(path, "c", compiled.io))
    assert_one_line(caught.value)


def test_a_source_without_its_functions_is_refused(compiled: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "empty.c"
    write_c_source(path, "int nothing;\n", compiled.io, {})
    with pytest.raises(ArtifactError, match=r"empty\.c: .* cannot be loaded") as caught:
        CRuntime().load(Artifact.create(path, "c", compiled.io))
    assert_one_line(caught.value)


def test_tensors_that_the_library_does_not_know_are_named(
    compiled: Artifact, tmp_path: Path
) -> None:
    path = tmp_path / "fewer.c"
    text = "void *nn_input(int n) { return 0; }\nconst void *nn_output(int n) { return 0; }\n"
    text += "void nn_reset(void) {}\nvoid nn_run(void) {}\n"
    write_c_source(path, text, compiled.io, {})
    with pytest.raises(ArtifactError, match="the library knows no tensor"):
        CRuntime().load(Artifact.create(path, "c", compiled.io))


def test_a_description_that_leaves_a_length_free_is_refused(
    compiled: Artifact, tmp_path: Path
) -> None:
    path = tmp_path / "free.c"
    first = compiled.io.inputs[0]
    free = IOSpec(
        (type(first)(first.name, (None,), first.dtype), *compiled.io.inputs[1:]),
        compiled.io.outputs,
    )
    write_c_source(path, "int nothing;\n", free, {})
    with pytest.raises(ArtifactError, match="it leaves a length free"):
        CRuntime().io_of(path)
