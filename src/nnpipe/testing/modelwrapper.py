"""The contract of model wrappers.

Tests of optional methods are skipped if the wrapper does not offer them (see
:meth:`~nnpipe.core.model.ModelWrapper.offers`).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, MissingDependency, NNPipeError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.testing._analysis import (
    AnalysisContract,
    assert_batches_equal,
    needs,
    outputs_of,
    reachable,
    twin,
    unsettle,
    unsettled,
)
from nnpipe.testing._training import TrainingContract
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.runtime import DAMAGES, nothing_installed, refused, spoiled
from nnpipe.testing.session import InferenceSessionContract, OpenSession, assert_one_line


class ModelWrapperContract(
    TrainingContract, AnalysisContract, ComponentContract, InferenceSessionContract
):
    """What every model wrapper must do; subclass it and define the fixture ``wrapper``.

    A wrapper that can be trained also needs the fixture ``dataset``: a small
    :class:`~nnpipe.core.dataset.Dataset` that fits the wrapper and can be learned in
    a few epochs.  If random numbers are not valid inputs, define ``batch`` and
    ``other_batch``.  The wrapper's sessions are tested by the contract of sessions.
    """

    @pytest.fixture
    def wrapper(self) -> ModelWrapper:
        raise NotImplementedError("a subclass of ModelWrapperContract gives the fixture `wrapper`")

    @pytest.fixture
    def model(self, wrapper: ModelWrapper) -> Iterator[LiveModel]:
        with wrapper.open() as model:
            yield model

    @pytest.fixture
    def component(self, wrapper: ModelWrapper) -> Component:
        return wrapper

    @pytest.fixture
    def open_session(self, model: LiveModel) -> OpenSession:
        return model.session

    # -- what it says of itself -----------------------------------------------------------------

    def test_it_names_its_framework_and_formats(self, wrapper: ModelWrapper) -> None:
        assert wrapper.framework
        assert wrapper.weights_format
        assert len(set(wrapper.exports)) == len(wrapper.exports)

    def test_its_tensors_are_known_before_there_is_a_model(
        self, wrapper: ModelWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def build(self: ModelWrapper) -> None:
            pytest.fail("the network is built in order to say what it takes and gives")

        monkeypatch.setattr(type(wrapper), "build", build)
        io = wrapper.io
        assert io.inputs
        assert io.outputs
        assert IOSpec.from_json(json.loads(json.dumps(io.to_json()))) == io

    def test_a_missing_package_says_what_to_install(
        self, wrapper: ModelWrapper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not wrapper.requires:
            pytest.skip(f"{type(wrapper).__name__} needs no package")
        nothing_installed(monkeypatch)
        with pytest.raises(MissingDependency, match="pip install") as caught:
            _ = wrapper.open().native
        assert type(wrapper).__name__ in str(caught.value)
        assert_one_line(caught.value)

    # -- where its network lives ----------------------------------------------------------------

    def test_the_wrapper_stays_as_it_was_whatever_its_model_does(
        self, wrapper: ModelWrapper, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        other, hashed = pickle.loads(pickle.dumps(wrapper)), hash(wrapper)
        outputs_of(model, batch)
        unsettled(model)
        model.save(tmp_path / f"model{_suffix(model)}")
        if wrapper.offers("export"):
            model.export(tmp_path / f"model.{wrapper.exports[0]}", wrapper.exports[0])
        assert wrapper == other == pickle.loads(pickle.dumps(wrapper))
        assert hash(wrapper) == hashed
        held = reachable(vars(wrapper))
        assert id(model) not in held
        assert id(model.native) not in held

    def test_two_models_of_a_wrapper_share_no_weights(self, model: LiveModel, batch: Batch) -> None:
        with model.wrapper.open() as other:
            before = outputs_of(other, batch)
            unsettle(model)
            assert_batches_equal(outputs_of(other, batch), before)

    def test_a_closed_model_lets_its_network_go_and_says_so(
        self, wrapper: ModelWrapper, batch: Batch
    ) -> None:
        model = wrapper.open()
        outputs_of(model, batch)
        model.close()
        model.close()
        assert not model.is_built
        with pytest.raises(NNPipeError, match="closed") as caught:
            model.session()
        assert_one_line(caught.value)

    # -- weights on the disk --------------------------------------------------------------------

    def test_equal_arguments_make_equal_models(self, model: LiveModel, batch: Batch) -> None:
        assert_batches_equal(outputs_of(twin(model), batch), outputs_of(model, batch))

    def test_a_session_runs_the_model_as_it_is_now(self, model: LiveModel, batch: Batch) -> None:
        fresh = outputs_of(model, batch)
        unsettle(model)
        now = outputs_of(model, batch)
        assert any(not np.array_equal(now[name], fresh[name]) for name in fresh)

    def test_what_is_saved_is_what_is_loaded(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        unsettle(model)
        path = tmp_path / "new folder" / f"model{_suffix(model)}"
        model.save(path)
        other = twin(model)
        other.load(path)
        assert_batches_equal(outputs_of(other, batch), outputs_of(model, batch))

    def test_the_file_saved_says_what_it_is(self, model: LiveModel, tmp_path: Path) -> None:
        path = tmp_path / f"model{_suffix(model)}"
        path.write_bytes(b"an older file")
        artifact = model.save(path)
        assert artifact.path == path
        assert artifact.format == model.wrapper.weights_format
        assert artifact.io == model.io
        assert artifact.frameworks
        assert artifact.producer == model.wrapper.describe()
        assert Artifact.read(path) == artifact
        assert {p.name for p in tmp_path.iterdir()} == {path.name, sidecar_of(path).name}

    def test_a_damaged_file_is_named_and_leaves_the_model_alone(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        path = tmp_path / f"model{_suffix(model)}"
        model.save(path)
        whole = path.read_bytes()
        unsettled(model)
        before = outputs_of(model, batch)
        for damage in DAMAGES:
            path.write_bytes(spoiled(whole, damage))
            with refused(path, damage):
                model.load(path)
            assert_batches_equal(outputs_of(model, batch), before)

    def test_a_missing_file_is_named_in_one_line(self, model: LiveModel, tmp_path: Path) -> None:
        path = tmp_path / f"nowhere{_suffix(model)}"
        with pytest.raises(ArtifactError) as caught:
            model.load(path)
        assert str(path) in str(caught.value)
        assert_one_line(caught.value)

    # -- exchange formats -----------------------------------------------------------------------

    def test_every_format_it_names_can_be_exported(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        needs(model, "export")
        before = outputs_of(model, batch)
        assert model.wrapper.exports, "a wrapper that overrides export names its formats"
        for format in model.wrapper.exports:
            folder = tmp_path / format
            path = folder / f"model.{format}"
            artifact = model.export(path, format)
            assert (artifact.path, artifact.format) == (path, format)
            assert Artifact.read(path) == artifact
            assert artifact.producer["class"] == model.wrapper.dotted_path()
            assert artifact.frameworks
            for side in ("inputs", "outputs"):
                mine, its = getattr(model.io, side), getattr(artifact.io, side)
                assert {s.name for s in its} == {s.name for s in mine}, format
            assert {p.name for p in folder.iterdir()} == {path.name, sidecar_of(path).name}
        assert_batches_equal(outputs_of(model, batch), before)

    def test_an_unknown_format_is_refused_in_one_line(
        self, model: LiveModel, tmp_path: Path
    ) -> None:
        with pytest.raises(NNPipeError, match="no-such-format") as caught:
            model.export(tmp_path / "model", "no-such-format")
        assert_one_line(caught.value)
        assert list(tmp_path.iterdir()) == []


def _suffix(model: LiveModel) -> str:
    return "." + model.wrapper.weights_format
