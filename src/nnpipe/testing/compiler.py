"""The contract of model compilers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.compiler import Calibration, ModelCompiler
from nnpipe.core.component import Component
from nnpipe.core.errors import (
    ArtifactError,
    ConfigError,
    MissingDependency,
    NNPipeError,
    SpecMismatch,
)
from nnpipe.core.files import compute_sha256
from nnpipe.core.quantization import adapt_inputs, adapt_outputs
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.runtime import damage_content, hide_packages
from nnpipe.testing.session import assert_one_line


class ModelCompilerContract(ComponentContract):
    """What every compiler must do; subclass it and define the fixtures named below.

    ``compiler``
        The compiler.
    ``artifact``
        A small model that it can compile, with its description.
    ``runtime``
        A runtime that runs the result.
    ``batches``
        Inputs of the model, as in ``artifact.io``: at least one batch, and for a
        quantiser those on which it is judged.
    ``expected``
        The outputs of the uncompiled model for each of them.
    ``calibration``
        Samples for calibration, only if the compiler needs them; by default ``batches`` one by one.

    Compiling may take long: if ``artifact`` is the same file for all tests of a
    class, the result ``compiled`` is made once.

    Attributes
    ----------
    tolerance
        The greatest difference between an output of the result and the model's.
    agreement
        The least share of samples whose greatest output has the same place in both,
        for every output with more than one axis.
    """

    tolerance: float = 1e-5
    agreement: float = 1.0

    @pytest.fixture
    def compiler(self) -> ModelCompiler:
        raise NotImplementedError(
            "a subclass of ModelCompilerContract gives the fixture `compiler`"
        )

    @pytest.fixture
    def artifact(self) -> Artifact:
        raise NotImplementedError(
            "a subclass of ModelCompilerContract gives the fixture `artifact`"
        )

    @pytest.fixture
    def runtime(self) -> Runtime:
        raise NotImplementedError("a subclass of ModelCompilerContract gives the fixture `runtime`")

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        raise NotImplementedError("a subclass of ModelCompilerContract gives the fixture `batches`")

    @pytest.fixture
    def expected(self) -> Sequence[Batch]:
        raise NotImplementedError(
            "a subclass of ModelCompilerContract gives the fixture `expected`"
        )

    @pytest.fixture
    def calibration(self, batches: Sequence[Batch]) -> Calibration:
        return lambda: batches

    @pytest.fixture(scope="class")
    @classmethod
    def compiled_before(cls) -> dict[tuple[ModelCompiler, Path, str], Artifact]:
        """Results that tests of this class have compiled, by compiler, model and content."""
        return {}

    @pytest.fixture
    def compiled(
        self,
        compiler: ModelCompiler,
        artifact: Artifact,
        calibration: Calibration,
        compiled_before: dict[tuple[ModelCompiler, Path, str], Artifact],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Artifact:
        key = compiler, artifact.path, artifact.sha256
        if key not in compiled_before:
            path = tmp_path_factory.mktemp("compiled") / f"compiled{compiler.suffix}"
            compiled_before[key] = compiler.compile(artifact, path, calibration)
        return compiled_before[key]

    @pytest.fixture
    def component(self, compiler: ModelCompiler) -> Component:
        return compiler

    # -- what it says of itself -----------------------------------------------------------------

    def test_it_names_what_it_reads_and_writes(
        self, compiler: ModelCompiler, artifact: Artifact
    ) -> None:
        assert compiler.accepts
        assert len(set(compiler.accepts)) == len(compiler.accepts)
        assert artifact.format in compiler.accepts
        assert compiler.produces
        assert compiler.suffix.startswith(".")

    def test_its_variant_can_be_part_of_a_file_name(self, compiler: ModelCompiler) -> None:
        assert compiler.variant()
        assert compiler.variant().replace("-", "").replace("_", "").replace(".", "").isalnum()

    # -- what comes out -------------------------------------------------------------------------

    def test_the_result_is_described_beside_it(
        self, compiler: ModelCompiler, compiled: Artifact
    ) -> None:
        assert compiled.format == compiler.produces
        assert Artifact.read(compiled.path) == compiled

    def test_the_result_leads_back_to_where_it_came_from(
        self, compiler: ModelCompiler, artifact: Artifact, compiled: Artifact
    ) -> None:
        assert compiled.parent == artifact
        assert compiled.producer == compiler.describe()
        assert all(name and version for name, version in compiled.frameworks)
        json.dumps(compiled.to_json(), allow_nan=False)

    def test_names_of_inputs_and_outputs_are_kept(
        self, artifact: Artifact, compiled: Artifact
    ) -> None:
        for side in ("inputs", "outputs"):
            before, after = getattr(artifact.io, side), getattr(compiled.io, side)
            assert [spec.name for spec in after] == [spec.name for spec in before]

    def test_the_result_runs_as_its_description_says(
        self, runtime: Runtime, artifact: Artifact, compiled: Artifact, batches: Sequence[Batch]
    ) -> None:
        with runtime.load(compiled) as session:
            assert session.io == compiled.io
            session.io.check_outputs(
                session.infer(adapt_inputs(batches[0], artifact.io, compiled.io))
            )

    def test_the_result_computes_what_the_model_computes(
        self,
        runtime: Runtime,
        artifact: Artifact,
        compiled: Artifact,
        batches: Sequence[Batch],
        expected: Sequence[Batch],
    ) -> None:
        found = run_compiled(runtime, compiled, artifact.io, batches)
        for name in found[0]:
            have, want = _join_batches(found, name), _join_batches(expected, name)
            np.testing.assert_allclose(have, want, rtol=0, atol=self.tolerance, err_msg=name)
            if have.ndim > 1 and have.shape[-1] > 1:
                assert np.mean(have.argmax(-1) == want.argmax(-1)) >= self.agreement, name

    def test_compiling_anew_to_an_awkward_path_gives_an_equal_model(
        self,
        compiler: ModelCompiler,
        runtime: Runtime,
        artifact: Artifact,
        compiled: Artifact,
        batches: Sequence[Batch],
        calibration: Calibration,
        tmp_path: Path,
    ) -> None:
        path = tmp_path / "a new folder" / "größe 2" / f"the result{compiler.suffix}"
        again = compiler.compile(artifact, path, calibration)
        assert again.path == path
        assert again.io == compiled.io
        first = run_compiled(runtime, compiled, artifact.io, batches[:3])
        second = run_compiled(runtime, again, artifact.io, batches[:3])
        for one, other in zip(first, second, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)

    def test_nothing_is_printed_and_the_source_is_left_alone(
        self,
        compiler: ModelCompiler,
        artifact: Artifact,
        calibration: Calibration,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        before = sorted(artifact.path.parent.iterdir())
        target = tmp_path / "alone" / f"out{compiler.suffix}"
        capfd.readouterr()
        compiler.compile(artifact, target, calibration)
        assert capfd.readouterr() == ("", "")
        artifact.verify()
        assert sorted(set(artifact.path.parent.iterdir()) - {target.parent}) == before
        assert sorted(target.parent.iterdir()) == sorted([target, get_sidecar_path(target)])

    # -- what goes wrong ------------------------------------------------------------------------

    def test_another_format_is_refused_in_one_line(
        self, compiler: ModelCompiler, artifact: Artifact, calibration: Calibration, tmp_path: Path
    ) -> None:
        foreign = dataclasses.replace(artifact, format="no-such-format")
        with pytest.raises(ConfigError, match="no-such-format") as caught:
            compiler.compile(foreign, tmp_path / "never" / "out", calibration)
        assert_one_line(caught.value)
        assert not (tmp_path / "never").exists()

    @pytest.mark.parametrize("damage", ["empty", "half", "noise", "text"])
    @pytest.mark.parametrize(
        "described", [False, True], ids=["noticed by its digest", "described as damaged"]
    )
    def test_a_damaged_source_is_named_and_an_old_result_survives(
        self,
        compiler: ModelCompiler,
        artifact: Artifact,
        calibration: Calibration,
        tmp_path: Path,
        damage: str,
        described: bool,
    ) -> None:
        path = tmp_path / "damaged" / artifact.path.name
        path.parent.mkdir()
        path.write_bytes(damage_content(artifact.path.read_bytes(), damage))
        digest = compute_sha256(path) if described else artifact.sha256
        with _check_old_result(tmp_path, compiler) as target, pytest.raises(NNPipeError) as caught:
            compiler.compile(
                dataclasses.replace(artifact, path=path, sha256=digest), target, calibration
            )
        assert str(path) in str(caught.value)
        assert_one_line(caught.value)

    def test_a_missing_source_is_named(
        self, compiler: ModelCompiler, artifact: Artifact, calibration: Calibration, tmp_path: Path
    ) -> None:
        gone = dataclasses.replace(artifact, path=tmp_path / "gone" / artifact.path.name)
        with (
            _check_old_result(tmp_path, compiler) as target,
            pytest.raises(ArtifactError) as caught,
        ):
            compiler.compile(gone, target, calibration)
        assert str(gone.path) in str(caught.value)
        assert_one_line(caught.value)

    def test_calibration_is_asked_for_where_it_is_needed(
        self, compiler: ModelCompiler, artifact: Artifact, tmp_path: Path
    ) -> None:
        _skip_unless_calibrated(compiler)
        with (
            _check_old_result(tmp_path, compiler) as target,
            pytest.raises(ConfigError, match="calibration") as caught,
        ):
            compiler.compile(artifact, target)
        assert_one_line(caught.value)

    def test_calibration_without_samples_is_refused(
        self, compiler: ModelCompiler, artifact: Artifact, tmp_path: Path
    ) -> None:
        _skip_unless_calibrated(compiler)
        with (
            _check_old_result(tmp_path, compiler) as target,
            pytest.raises(ConfigError, match="calibration") as caught,
        ):
            compiler.compile(artifact, target, lambda: ())
        assert_one_line(caught.value)

    def test_calibration_with_other_tensors_is_refused(
        self, compiler: ModelCompiler, artifact: Artifact, batches: Sequence[Batch], tmp_path: Path
    ) -> None:
        _skip_unless_calibrated(compiler)
        wrong = {f"{name}_too": array for name, array in batches[0].items()}
        with _check_old_result(tmp_path, compiler) as target, pytest.raises(SpecMismatch) as caught:
            compiler.compile(artifact, target, lambda: (wrong,))
        assert_one_line(caught.value)

    def test_a_missing_package_says_what_to_install(
        self,
        compiler: ModelCompiler,
        artifact: Artifact,
        calibration: Calibration,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        if not compiler.requires:
            pytest.skip(f"{type(compiler).__name__} needs no package")
        hide_packages(monkeypatch)
        with (
            _check_old_result(tmp_path, compiler) as target,
            pytest.raises(MissingDependency, match="pip install") as caught,
        ):
            compiler.compile(artifact, target, calibration)
        assert type(compiler).__name__ in str(caught.value)
        assert_one_line(caught.value)


def run_compiled(
    runtime: Runtime, compiled: Artifact, io: IOSpec, batches: Sequence[Batch]
) -> list[dict[str, np.ndarray]]:
    """Return the compiled model's outputs for batches of the source, converted to its inputs and
    back.

    Outputs that differ from run to run are left out.
    """
    with runtime.load(compiled) as session:
        found = [
            adapt_outputs(session.infer(adapt_inputs(batch, io, session.io)), io, session.io)
            for batch in batches
        ]
        return [
            {name: array for name, array in each.items() if name not in session.varying}
            for each in found
        ]


@contextmanager
def _check_old_result(folder: Path, compiler: ModelCompiler) -> Iterator[Path]:
    """Put a file at the path of a result, and check at the end that it is unchanged and alone."""
    target = folder / "results" / f"old{compiler.suffix}"
    target.parent.mkdir()
    target.write_bytes(b"an old result")
    yield target
    assert target.read_bytes() == b"an old result"
    assert list(target.parent.iterdir()) == [target]


def _skip_unless_calibrated(compiler: ModelCompiler) -> None:
    if not compiler.needs_calibration():
        pytest.skip(f"{type(compiler).__name__} needs no calibration with these arguments")


def _join_batches(batches: Sequence[Batch], name: str) -> np.ndarray:
    return np.concatenate([np.atleast_1d(batch[name]) for batch in batches])
