"""Every runtime starts each independent sample of a model that keeps a state afresh, in whatever
order samples come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import needs
from models_with_state import (
    IO,
    decaying_module,
    remembering_module,
    write_filter,
    write_program,
    write_resources,
)

from nnpipe.core.artifact import Artifact
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.discoverable import C
from nnpipe.core.errors import CompileError
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.testing.session import InferenceSessionContract, OpenSession, assert_one_line


class _Stateful(InferenceSessionContract):
    """The contract of sessions, and what holds of those that keep a state."""

    atol = 1e-6

    @pytest.fixture
    def batch(self, session: InferenceSession) -> Batch:
        return generate_random_batch(session.io, 1, seed=1)

    @pytest.fixture
    def other_batch(self, session: InferenceSession) -> Batch:
        return generate_random_batch(session.io, 1, seed=2)

    def test_in_a_stream_what_it_keeps_passes_on(
        self, session: InferenceSession, batch: Batch
    ) -> None:
        afresh = session.infer(batch)
        session.start_stream()
        first, second = session.infer(batch), session.infer(batch)
        self.assert_same(first, afresh)
        assert any(not np.allclose(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def filter_in_c(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    needs("ai_edge_litert")
    if C.find() is None:
        pytest.skip("no C compiler is installed (apt install gcc)")
    folder = tmp_path_factory.mktemp("c")
    return find("CCompiler", ModelCompiler)().compile(
        write_filter(folder / "filter.tflite"), folder / "filter.c"
    )


@pytest.fixture(scope="module")
def executorch_program(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    needs("torch", "executorch")
    folder = tmp_path_factory.mktemp("executorch")
    source = write_program(folder / "decaying.pt2")
    return find("ExecuTorchCompiler", ModelCompiler)().compile(source, folder / "decaying.pte")


class TestLiteRTWithAStateTensor(_Stateful):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        needs("ai_edge_litert")
        artifact = write_filter(tmp_path / "filter.tflite")
        return lambda: find("LiteRTRuntime", Runtime)().load(artifact)


class TestLiteRTWithAResource(_Stateful):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        needs("ai_edge_litert")
        artifact = write_resources(tmp_path / "resources.tflite")
        return lambda: find("LiteRTRuntime", Runtime)().load(artifact)


class TestC(_Stateful):
    @pytest.fixture
    def open_session(self, filter_in_c: Artifact) -> OpenSession:
        return lambda: find("CRuntime", Runtime)().load(filter_in_c)

    def test_it_computes_what_litert_computes(
        self, session: InferenceSession, batch: Batch, tmp_path: Path
    ) -> None:
        with find("LiteRTRuntime", Runtime)().load(
            write_filter(tmp_path / "again.tflite")
        ) as source:
            for given in (batch, batch):
                np.testing.assert_allclose(
                    session.infer(given)["y"], source.infer(given)["y"], atol=1e-6
                )


class TestPyTorch(_Stateful):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        needs("torch")
        artifact = write_program(tmp_path / "decaying.pt2")
        return lambda: find("PyTorchRuntime", Runtime)().load(artifact)

    def test_it_begins_with_the_values_in_the_file(self, session: InferenceSession) -> None:
        np.testing.assert_allclose(session.infer({"x": np.zeros((1, 4), np.float32)})["add"], 1.0)


class TestExecuTorch(_Stateful):
    @pytest.fixture
    def open_session(self, executorch_program: Artifact) -> OpenSession:
        return lambda: find("ExecuTorchRuntime", Runtime)().load(executorch_program)

    def test_it_begins_with_the_values_in_the_file(self, session: InferenceSession) -> None:
        np.testing.assert_allclose(session.infer({"x": np.zeros((1, 4), np.float32)})["add"], 1.0)


class _Wrapped:
    """Opens sessions of a module as those of a wrapper are."""

    @pytest.fixture(params=[decaying_module, remembering_module])
    def open_session(self, request: pytest.FixtureRequest) -> OpenSession:
        needs("torch")
        from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper

        class Wrapped(PyTorchWrapper):
            io = IO

            def build(self) -> Any:
                return request.param()

        def opened() -> InferenceSession:
            wrapper = Wrapped()
            live = wrapper.open()
            live.native = wrapper.fresh()
            return live.session()

        return opened


class TestModulesOfPyTorch(_Wrapped, _Stateful):
    pass


class TestOpenVINO(_Stateful):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        needs("openvino")
        import openvino
        from openvino import opset13 as ops
        from openvino.op.util import Variable, VariableInfo

        from nnpipe.frameworks.openvino import OpenVINOSession, compile_model
        from nnpipe.frameworks.openvino_models import OpenVINOModel

        information = VariableInfo()
        information.data_shape, information.data_type = (
            openvino.PartialShape([1, 4]),
            openvino.Type.f32,
        )
        information.variable_id = "held"
        held = Variable(information)
        given = ops.parameter([1, 4], np.float32, name="x")
        value = ops.read_value(ops.constant(np.full((1, 4), 2, np.float32)), held)
        total = ops.add(ops.multiply(value, ops.constant(np.float32(0.5))), given)
        result = ops.result(total)
        result.output(0).get_tensor().set_names({"add"})
        given.output(0).get_tensor().set_names({"x"})
        native = openvino.Model([result], [ops.assign(total, held)], [given], "decaying")
        model = OpenVINOModel(native, IO, ("x",))

        def compiled() -> Any:
            return compile_model(model, tmp_path, "cpu", 1, "f32")

        return lambda: OpenVINOSession(compiled(), IO, model, tmp_path, compiled)


@pytest.mark.slow
class TestKeras(_Stateful):
    @pytest.fixture(params=[False, True], ids=["variables", "frozen"])
    def open_session(self, request: pytest.FixtureRequest) -> OpenSession:
        needs("tensorflow", "keras")
        from nnpipe.frameworks.keras import import_keras
        from nnpipe.frameworks.keras_session import KerasSession

        _, keras = import_keras()
        io = IOSpec((TensorSpec("x", (1, 3, 4), "float32"),), (TensorSpec("y", (1, 5), "float32"),))

        def opened() -> InferenceSession:
            keras.utils.set_random_seed(0)
            given = keras.Input(batch_shape=(1, 3, 4), name="x")
            model = keras.Model(given, keras.layers.LSTM(5, stateful=True, name="y")(given))
            return KerasSession(model, io, freeze=request.param)

        return opened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "runtime"),
    [("TorchInductorCompiler", "TorchInductorRuntime"), ("TVMCompiler", "TVMRuntime")],
)
def test_machine_code_starts_afresh_in_each_run(
    compiler: str, runtime: str, tmp_path: Path
) -> None:
    needs("torch", *(["tvm"] if "TVM" in runtime else []))
    source = write_program(tmp_path / "decaying.pt2")
    compiled = find(compiler, ModelCompiler)().compile(source, tmp_path / "decaying.bin")
    samples = [generate_random_batch(IO, 1, seed) for seed in range(3)]
    with find("PyTorchRuntime", Runtime)().load(source) as session:
        expected = [session.infer(sample)["add"] for sample in samples]
    with find(runtime, Runtime)().load(compiled) as session:
        for order in ([0, 1, 2], [2, 1, 0], [1, 1, 0]):
            for number in order:
                np.testing.assert_allclose(
                    session.infer(samples[number])["add"], expected[number], atol=1e-6
                )


@pytest.mark.slow
def test_a_conversion_that_would_lose_what_is_kept_is_refused(tmp_path: Path) -> None:
    needs("torch", "tensorflow", "keras")
    source = write_program(tmp_path / "decaying.pt2")
    with pytest.raises(CompileError, match="keeps held from one run to the next") as caught:
        find("TorchToTFLite", ModelCompiler)().compile(source, tmp_path / "decaying.tflite")
    assert_one_line(caught.value)
