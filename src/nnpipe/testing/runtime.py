"""The contract of runtimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.session import InferenceSessionContract, OpenSession, assert_one_line


class RuntimeContract(ComponentContract, InferenceSessionContract):
    """What every runtime must do; subclass it and define the fixtures ``runtime``, ``artifact`` and
    ``expected``.

    ``artifact`` is a model that the runtime can load; ``expected`` are its outputs
    for ``batch``, computed independently.  ``batch`` is random by default.  The
    runtime's sessions are tested by the contract of sessions.

    Attributes
    ----------
    expected_rtol, expected_atol
        Tolerances between outputs and ``expected``.
    """

    expected_rtol: float = 1e-5
    expected_atol: float = 1e-6

    @pytest.fixture
    def runtime(self) -> Runtime:
        raise NotImplementedError("a subclass of RuntimeContract gives the fixture `runtime`")

    @pytest.fixture
    def artifact(self) -> Artifact:
        raise NotImplementedError("a subclass of RuntimeContract gives the fixture `artifact`")

    @pytest.fixture
    def expected(self) -> Batch:
        raise NotImplementedError("a subclass of RuntimeContract gives the fixture `expected`")

    @pytest.fixture
    def component(self, runtime: Runtime) -> Component:
        return runtime

    @pytest.fixture
    def open_session(self, runtime: Runtime, artifact: Artifact) -> OpenSession:
        return lambda: runtime.load(artifact)

    def test_the_results_are_those_expected(
        self, runtime: Runtime, artifact: Artifact, batch: Batch, expected: Batch
    ) -> None:
        with runtime.load(artifact) as session:
            found = session.infer(batch)
        assert found.keys() == expected.keys()
        for name, array in found.items():
            if name in session.varying:
                continue
            np.testing.assert_allclose(
                array,
                expected[name],
                self.expected_rtol,
                self.expected_atol,
                err_msg=name,
                strict=True,
            )

    def test_the_session_binds_the_tensors_that_the_description_names(
        self, runtime: Runtime, artifact: Artifact
    ) -> None:
        with runtime.load(artifact) as session:
            for side in ("inputs", "outputs"):
                described, bound = getattr(artifact.io, side), getattr(session.io, side)
                assert [(s.name, s.dtype) for s in bound] == [(s.name, s.dtype) for s in described]

    def test_loading_leaves_the_file_alone(self, runtime: Runtime, artifact: Artifact) -> None:
        before = sorted(path.name for path in artifact.path.parent.iterdir())
        runtime.load(artifact).close()
        artifact.verify()
        assert sorted(path.name for path in artifact.path.parent.iterdir()) == before

    def test_it_names_the_formats_it_accepts(self, runtime: Runtime) -> None:
        assert runtime.accepts
        assert len(set(runtime.accepts)) == len(runtime.accepts)
        assert set(runtime.native_code) <= set(runtime.accepts)

    def test_another_format_is_refused_in_one_line(
        self, runtime: Runtime, artifact: Artifact
    ) -> None:
        foreign = dataclasses.replace(artifact, format="no-such-format")
        with pytest.raises(ConfigError, match="no-such-format") as caught:
            runtime.load(foreign)
        assert_one_line(caught.value)

    def test_a_damaged_file_is_named_in_one_line(
        self, runtime: Runtime, artifact: Artifact, tmp_path: Path
    ) -> None:
        whole = artifact.path.read_bytes()
        for damage in DAMAGES:
            broken = dataclasses.replace(artifact, path=tmp_path / damage / artifact.path.name)
            broken.path.parent.mkdir()
            broken.path.write_bytes(damage_content(whole, damage))
            with assert_refused(broken.path, damage):
                runtime.load(broken)

    def test_a_missing_file_is_named_in_one_line(
        self, runtime: Runtime, artifact: Artifact, tmp_path: Path
    ) -> None:
        gone = dataclasses.replace(artifact, path=tmp_path / "gone" / artifact.path.name)
        with pytest.raises(ArtifactError) as caught:
            runtime.load(gone)
        assert str(gone.path) in str(caught.value)
        assert_one_line(caught.value)

    def test_a_description_that_contradicts_the_file_is_refused_in_one_line(
        self, runtime: Runtime, artifact: Artifact
    ) -> None:
        for io in build_contradictions(artifact.io):
            with pytest.raises(ArtifactError) as caught:
                runtime.load(dataclasses.replace(artifact, io=io))
            assert str(artifact.path) in str(caught.value)
            assert_one_line(caught.value)

    def test_a_missing_package_says_what_to_install(
        self, runtime: Runtime, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not runtime.requires:
            pytest.skip(f"{type(runtime).__name__} needs no package")
        hide_packages(monkeypatch)
        with pytest.raises(MissingDependency, match="pip install") as caught:
            runtime.load(artifact)
        assert type(runtime).__name__ in str(caught.value)
        assert_one_line(caught.value)


def hide_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every package that a component may need appear missing."""
    monkeypatch.setattr("nnpipe.core.discoverable.is_installed", lambda name: False)


DAMAGES = ("empty", "eighth", "half", "most", "noise", "noisy tail", "text")
"""Kinds of damage to a file; see :func:`damage_content`."""


@contextmanager
def assert_refused(path: Path, damage: str) -> Iterator[None]:
    """Check that a damaged file is refused in one line that names it."""
    found: ArtifactError | None = None
    try:
        yield
    except ArtifactError as error:
        found = error
    assert found is not None, f"a damaged file ({damage}) was taken"
    assert str(path) in str(found), damage
    assert_one_line(found)


def damage_content(data: bytes, damage: str) -> bytes:
    """Return the content of a model file with a kind of damage."""
    noise = np.random.default_rng(0).bytes(len(data))
    return {
        "empty": b"",
        "eighth": data[: len(data) // 8],
        "half": data[: len(data) // 2],
        "most": data[: len(data) - len(data) // 10 - 1],
        "noise": noise,
        "noisy tail": data[:8] + noise[8:],
        "text": b"<html><title>404 Not Found</title></html>\n",
    }[damage]


def build_contradictions(io: IOSpec) -> list[IOSpec]:
    """Return descriptions of a model's tensors that contradict ``io``."""

    def replace_spec(side: str, spec: TensorSpec) -> IOSpec:
        return dataclasses.replace(io, **{side: (spec, *getattr(io, side)[1:])})

    found = []
    for side in ("inputs", "outputs"):
        first: TensorSpec = getattr(io, side)[0]
        plain = TensorSpec(first.name, first.shape, first.dtype)
        found += [
            replace_spec(side, dataclasses.replace(plain, name=plain.name + "_too")),
            replace_spec(
                side,
                dataclasses.replace(
                    plain, dtype="float64" if plain.dtype != "float64" else "float32"
                ),
            ),
            replace_spec(side, dataclasses.replace(plain, shape=(*plain.shape, 7))),
        ]
    return found
