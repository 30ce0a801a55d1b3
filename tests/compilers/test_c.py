"""C sources compute what LiteRT's reference kernels compute: to the bit in 8-bit numbers,
closely in floats.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from installed import needs

from nnpipe.compilers._c_code.operators import catalogue
from nnpipe.compilers._c_code.operators.catalogue import BUILDERS
from nnpipe.compilers._c_code.source import generate_source
from nnpipe.compilers.c import CCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.discoverable import C
from nnpipe.core.errors import CompileError, ConfigError, MissingTool
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import read_program
from nnpipe.runtimes.c import CRuntime
from nnpipe.runtimes.litert import LiteRTRuntime
from nnpipe.testing.c_operator import run_sanitized
from nnpipe.testing.compiler import ModelCompilerContract, run_compiled
from nnpipe.testing.integer_graphs import IntegerGraph
from nnpipe.testing.model_files import write_tflite_difference
from nnpipe.testing.session import assert_one_line

needs("ai_edge_litert")
KERNELS = Path(catalogue.__file__).parents[1] / "kernels"
MODELS = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
REFERENCE = LiteRTRuntime(reference_kernels=True)
INTEGER = [
    "tflm/hello_world_int8",
    "mlperf_tiny_kws/kws_ref_model",
    "mlperf_tiny_ic/pretrainedResnet_quant",
    "mlperf_tiny_ad/ad01_int8",
    "coral/mobilenet_v1_0.25_128_quant",
]
LARGE = ["coral/movenet_single_pose_lightning_ptq", "coral/deeplabv3_mnv2_dm05_pascal_quant"]
FLOAT = ["tflm/hello_world_float", "mlperf_tiny_ic/pretrainedResnet", "mlperf_tiny_ad/ad01_fp32"]


pytestmark = pytest.mark.skipif(
    C.find() is None, reason="no C compiler is installed (apt install gcc)"
)


def shared_model(name: str) -> Path:
    """Return the path of a model from outside, which need not be there."""
    path = MODELS / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    return path


def described(path: Path, folder: Path) -> Artifact:
    copy = folder / path.name
    shutil.copyfile(path, copy)
    return Artifact.create(copy, "tflite", read_tflite(copy).io)


def random_inputs(io: IOSpec, count: int) -> list[Batch]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        batch = {}
        for spec in io.inputs:
            shape = [length or 1 for length in spec.shape]
            kind = np.dtype(spec.dtype)
            values = (
                rng.normal(size=shape)
                if kind.kind == "f"
                else rng.integers(*_range(kind), shape, endpoint=True)
            )
            batch[spec.name] = values.astype(kind)
        found.append(batch)
    return found


def _range(kind: np.dtype) -> tuple[int, int]:
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


@pytest.mark.parametrize(
    "name", [*INTEGER, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
)
def test_integer_models_compute_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    source = described(shared_model(name), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    batches = random_inputs(source.io, 2)
    with CRuntime().load(made) as session, REFERENCE.load(source) as reference:
        for batch in batches:
            expected, found = reference.infer(batch), session.infer(batch)
            for output in expected:
                np.testing.assert_array_equal(found[output], expected[output], strict=True)


@pytest.mark.parametrize("name", INTEGER[:3])
def test_kernels_for_extensions_of_cortex_m_compute_the_same_to_the_bit(
    name: str, tmp_path: Path
) -> None:
    source = described(shared_model(name), tmp_path)
    batches = random_inputs(source.io, 1)
    with REFERENCE.load(source) as reference:
        expected = [reference.infer(batch) for batch in batches]
    graphs = [(generate_source(read_program(source.path), 0), batches)]
    for defines in (["NN_DSP_IN_C"], ["NN_DSP_IN_C", "NN_MVE_IN_C"]):
        np.testing.assert_equal(run_sanitized(graphs, defines), [expected])


@pytest.mark.parametrize("name", FLOAT)
def test_float_models_compute_nearly_the_same(name: str, tmp_path: Path) -> None:
    source = described(shared_model(name), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    with CRuntime().load(made) as session, REFERENCE.load(source) as reference:
        for batch in random_inputs(source.io, 2):
            expected, found = reference.infer(batch), session.infer(batch)
            for output in expected:
                np.testing.assert_allclose(found[output], expected[output], rtol=1e-5, atol=1e-5)


def test_the_arena_of_image_classification_is_as_small_as_can_be(tmp_path: Path) -> None:
    source = described(shared_model("mlperf_tiny_ic/pretrainedResnet_quant"), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    # The values need 49,152 bytes, and two pixels' windows of 3 x 3 x 16 numbers of 16 bits come to
    # them.
    assert made.outcome["arena_bytes"] == made.outcome["arena_lower_bound"] == 49152 + 2 * 144 * 2
    with CRuntime().load(made) as session:
        assert session.stats()["arena_bytes"] == made.outcome["arena_bytes"]


@pytest.mark.parametrize("defines", [[], ["-DNN_DSP_IN_C"], ["-DNN_DSP_IN_C", "-DNN_MVE_IN_C"]])
def test_the_source_needs_no_library_and_gives_no_warning(
    defines: list[str], tmp_path: Path
) -> None:
    source = described(shared_model("mlperf_tiny_kws/kws_ref_model"), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    command = [
        "cc",
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffreestanding",
        "-fno-builtin",
        "-O1",
    ]
    subprocess.run(
        [*command, *defines, "-c", "-o", str(tmp_path / "model.o"), str(made.path)], check=True
    )
    found = subprocess.run(
        ["nm", "-u", str(tmp_path / "model.o")], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().removeprefix("U ").strip() in ("", "_GLOBAL_OFFSET_TABLE_")


class TestCCompiler(ModelCompilerContract):
    tolerance = 1e-5

    @pytest.fixture
    def compiler(self) -> CCompiler:
        return CCompiler()

    @pytest.fixture(scope="class")
    @classmethod
    def artifact(cls, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
        return write_tflite_difference(tmp_path_factory.mktemp("source") / "difference.tflite")

    @pytest.fixture
    def runtime(self) -> CRuntime:
        return CRuntime()

    @pytest.fixture
    def batches(self, artifact: Artifact) -> Sequence[Batch]:
        return random_inputs(artifact.io, 3)

    @pytest.fixture
    def expected(self, artifact: Artifact, batches: Sequence[Batch]) -> Sequence[Batch]:
        return run_compiled(LiteRTRuntime(), artifact, artifact.io, batches)


def test_names_from_the_model_cannot_leave_the_comment(tmp_path: Path) -> None:
    plain = write_tflite_difference(tmp_path / "plain.tflite")
    first = plain.io.inputs[0].name
    wicked = (b'*/\nint x; /*"' * 9)[: len(first.encode())]
    data = plain.path.read_bytes()
    path = tmp_path / "wicked.tflite"
    path.write_bytes(data.replace(first.encode(), wicked))
    source = Artifact.create(path, "tflite", read_tflite(path).io)
    made = CCompiler().compile(source, tmp_path / "wicked.c")
    text = made.path.read_text()
    assert wicked.decode() not in text
    assert text.count("*/") == text.count("/*")
    with CRuntime().load(made) as session:
        assert wicked.decode() in {spec.name for spec in session.io.inputs}


def test_an_operator_without_kernel_is_named_in_one_line(tmp_path: Path) -> None:
    graph = IntegerGraph(np.random.default_rng(0), "int8")
    graph._add_operator("POW", [0], graph._tensor([1], "float32"))
    path = tmp_path / "power.tflite"
    path.write_bytes(graph.content())
    source = Artifact.create(path, "tflite", read_tflite(path).io)
    with pytest.raises(CompileError, match="operator 0 is POW") as caught:
        CCompiler().compile(source, tmp_path / "model.c")
    assert_one_line(caught.value)
    assert "POW" in CCompiler().refusals(source.path)[0]


def test_kernels_of_different_files_have_different_names() -> None:
    found: dict[str, set[str]] = {}
    for path in KERNELS.glob("*.c"):
        text = path.read_text("utf-8")
        functions = re.findall(r"^(?:static|NN_APART) .*?\b(nn_\w+@?\w*)\(", text, re.MULTILINE)
        types = re.findall(r"^(?:typedef .*)?\} ?(nn_\w+@?\w*);$", text, re.MULTILINE)
        for name in functions + types:
            found.setdefault(name, set()).add(path.name)
    assert len(found) > 50
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_page_names_every_operator() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "c.md").read_text("utf-8")
    table = page.partition("| kind | operators |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([A-Z0-9_]+)`", table)) == {name for name, _ in BUILDERS.values()}


def test_a_recurrent_layer_goes_on_from_its_state(tmp_path: Path) -> None:
    source = described(shared_model("tflm/trained_lstm"), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    first, second = random_inputs(source.io, 2)
    with CRuntime().load(made) as session, REFERENCE.load(source) as reference:
        for batch in (first, second, first):
            expected, found = reference.infer(batch), session.infer(batch)
            for output in expected:
                np.testing.assert_allclose(found[output], expected[output], rtol=1e-5, atol=1e-5)


def test_without_a_c_compiler_the_command_that_installs_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CCompiler().compile(
        write_tflite_difference(tmp_path / "plain.tflite"), tmp_path / "plain.c"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="apt install gcc") as caught:
        CRuntime().load(made)
    assert_one_line(caught.value)


def test_a_run_can_be_repeated_although_it_overwrites_its_inputs(tmp_path: Path) -> None:
    source = described(shared_model("mlperf_tiny_kws/kws_ref_model"), tmp_path)
    made = CCompiler().compile(source, tmp_path / "model.c")
    with CRuntime().load(made) as session:
        session.put(random_inputs(source.io, 1)[0])
        session.run()
        first = session.get()
        session.run()
        np.testing.assert_equal(session.get(), first)


_BOTH = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
void *first_input(int32_t); void *second_input(int32_t);
const void *first_output(int32_t); const void *second_output(int32_t);
void first_run(void); void second_run(void); void first_reset(void); void second_reset(void);
int main(void) {
    float values[8] = {5, 6, 7, 8, 1, 1, 1, 1};
    first_reset(), second_reset();
    memcpy(first_input(FIRST), values, 16), memcpy(first_input(1 - FIRST), values + 4, 16), first_run();
    memcpy(second_input(FIRST), first_output(0), 16), memcpy(second_input(1 - FIRST), values + 4, 16), second_run();
    for (int n = 0; n < 4; n++) printf("%g ", ((const float *)second_output(0))[n]);
    return 0;
}
"""


def test_two_models_with_prefixes_make_one_program(tmp_path: Path) -> None:
    source = write_tflite_difference(tmp_path / "difference.tflite", batch=1)
    parts = []
    for prefix in ("first", "second"):
        made = CCompiler(prefix=prefix).compile(source, tmp_path / f"{prefix}.c")
        with CRuntime().load(made) as session:
            found = session.infer(
                {"first": np.full((1, 4), 3, np.float32), "second": np.ones((1, 4), np.float32)}
            )
        np.testing.assert_array_equal(found["difference"], np.full((1, 4), 2))
        parts.append(str(made.path))
    order = [spec.name for spec in CRuntime().io_of(parts[0]).inputs]
    main = tmp_path / "main.c"
    main.write_text(_BOTH)
    command = [
        "cc",
        "-std=c99",
        f"-DFIRST={order.index('first')}",
        "-o",
        str(tmp_path / "both"),
        str(main),
        *parts,
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert (
        subprocess.run([tmp_path / "both"], check=True, capture_output=True, text=True).stdout
        == "3 4 5 6 "
    )


@pytest.mark.parametrize("prefix", ["", "2nd", "a b", "a;", "é", "x" * 41])
def test_a_prefix_that_cannot_begin_a_name_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="--prefix") as caught:
        CCompiler(prefix=prefix)
    assert_one_line(caught.value)


def test_damage_in_the_middle_is_noticed(tmp_path: Path) -> None:
    made = CCompiler().compile(
        write_tflite_difference(tmp_path / "plain.tflite"), tmp_path / "plain.c"
    )
    text = made.path.read_text().replace("nn_run", "nn_ran", 1)
    made.path.write_text(text)
    with pytest.raises(Exception, match="damaged"):
        CRuntime().load(dataclasses.replace(made))


@pytest.mark.slow
def test_layers_of_16_bit_activations_are_those_of_the_vectors() -> None:
    from nnpipe.workflows.verification.conformance import conformance

    path = MODELS.parent / "vectors" / "tflm_seanet_a.tar.gz"
    if not path.is_file():
        pytest.skip("the vectors of TensorFlow Lite Micro are not there")
    found = [
        result.status
        for result in conformance(path, only=["CCompiler"]).found["tflite"]["CCompiler → CRuntime"]
    ]
    assert found == ["passed"] * 64
