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

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, MissingDependency, NNPipeError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import ModelWrapper
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.testing._analysis import (
    AnalysisContract,
    assert_batches_equal,
    change_weights,
    find_reachable,
    open_twin,
    run_batch,
    skip_unless_offered,
    try_change_weights,
)
from nnpipe.testing._training import TrainingContract
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.runtime import DAMAGES, assert_refused, damage_content, hide_packages
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
        hide_packages(monkeypatch)
        with pytest.raises(MissingDependency, match="pip install") as caught:
            _ = wrapper.open().native
        assert type(wrapper).__name__ in str(caught.value)
        assert_one_line(caught.value)

    # -- where its network lives ----------------------------------------------------------------

    def test_the_wrapper_stays_as_it_was_whatever_its_model_does(
        self, wrapper: ModelWrapper, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        other, hashed = pickle.loads(pickle.dumps(wrapper)), hash(wrapper)
        run_batch(model, batch)
        try_change_weights(model)
        model.save(tmp_path / f"model{_get_suffix(model)}")
        if wrapper.offers("export"):
            model.export(tmp_path / f"model.{wrapper.exports[0]}", wrapper.exports[0])
        assert wrapper == other == pickle.loads(pickle.dumps(wrapper))
        assert hash(wrapper) == hashed
        held = find_reachable(vars(wrapper))
        assert id(model) not in held
        assert id(model.native) not in held

    def test_two_models_of_a_wrapper_share_no_weights(self, model: LiveModel, batch: Batch) -> None:
        with model.wrapper.open() as other:
            before = run_batch(other, batch)
            change_weights(model)
            assert_batches_equal(run_batch(other, batch), before)

    def test_a_closed_model_lets_its_network_go_and_says_so(
        self, wrapper: ModelWrapper, batch: Batch
    ) -> None:
        model = wrapper.open()
        run_batch(model, batch)
        model.close()
        model.close()
        assert not model.is_built
        with pytest.raises(NNPipeError, match="closed") as caught:
            model.session()
        assert_one_line(caught.value)

    # -- weights on the disk --------------------------------------------------------------------

    def test_equal_arguments_make_equal_models(self, model: LiveModel, batch: Batch) -> None:
        assert_batches_equal(run_batch(open_twin(model), batch), run_batch(model, batch))

    def test_a_session_runs_the_model_as_it_is_now(self, model: LiveModel, batch: Batch) -> None:
        fresh = run_batch(model, batch)
        change_weights(model)
        now = run_batch(model, batch)
        assert any(not np.array_equal(now[name], fresh[name]) for name in fresh)

    def test_what_is_saved_is_what_is_loaded(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        change_weights(model)
        path = tmp_path / "new folder" / f"model{_get_suffix(model)}"
        model.save(path)
        other = open_twin(model)
        other.load(path)
        assert_batches_equal(run_batch(other, batch), run_batch(model, batch))

    def test_the_file_saved_says_what_it_is(self, model: LiveModel, tmp_path: Path) -> None:
        path = tmp_path / f"model{_get_suffix(model)}"
        path.write_bytes(b"an older file")
        artifact = model.save(path)
        assert artifact.path == path
        assert artifact.format == model.wrapper.weights_format
        assert artifact.io == model.io
        assert artifact.frameworks
        assert artifact.producer == model.wrapper.describe()
        assert Artifact.read(path) == artifact
        assert {p.name for p in tmp_path.iterdir()} == {path.name, get_sidecar_path(path).name}

    def test_a_damaged_file_is_named_and_leaves_the_model_alone(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        path = tmp_path / f"model{_get_suffix(model)}"
        model.save(path)
        whole = path.read_bytes()
        try_change_weights(model)
        before = run_batch(model, batch)
        for damage in DAMAGES:
            path.write_bytes(damage_content(whole, damage))
            with assert_refused(path, damage):
                model.load(path)
            assert_batches_equal(run_batch(model, batch), before)

    def test_a_missing_file_is_named_in_one_line(self, model: LiveModel, tmp_path: Path) -> None:
        path = tmp_path / f"nowhere{_get_suffix(model)}"
        with pytest.raises(ArtifactError) as caught:
            model.load(path)
        assert str(path) in str(caught.value)
        assert_one_line(caught.value)

    # -- exchange formats -----------------------------------------------------------------------

    def test_every_format_it_names_can_be_exported(
        self, model: LiveModel, batch: Batch, tmp_path: Path
    ) -> None:
        skip_unless_offered(model, "export")
        before = run_batch(model, batch)
        assert model.wrapper.exports, "a wrapper that overrides export names its formats"
        for format in model.wrapper.exports:
            folder = tmp_path / format
            path = folder / f"model.{format}"
            artifact = model.export(path, format)
            assert (artifact.path, artifact.format) == (path, format)
            assert Artifact.read(path) == artifact
            assert artifact.producer["class"] == model.wrapper.get_dotted_path()
            assert artifact.frameworks
            for side in ("inputs", "outputs"):
                mine, its = getattr(model.io, side), getattr(artifact.io, side)
                assert {s.name for s in its} == {s.name for s in mine}, format
            assert {p.name for p in folder.iterdir()} == {path.name, get_sidecar_path(path).name}
        assert_batches_equal(run_batch(model, batch), before)

    def test_an_unknown_format_is_refused_in_one_line(
        self, model: LiveModel, tmp_path: Path
    ) -> None:
        with pytest.raises(NNPipeError, match="no-such-format") as caught:
            model.export(tmp_path / "model", "no-such-format")
        assert_one_line(caught.value)
        assert list(tmp_path.iterdir()) == []


def _get_suffix(model: LiveModel) -> str:
    return "." + model.wrapper.weights_format
