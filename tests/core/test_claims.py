"""What conversions claim is kept in order, told from the chain, and refused where it is no
claim.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nnpipe.core.artifact import (
    Artifact,
    Claim,
    get_lowest_precision,
    normalize_claims,
    select_weight_changes,
)
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import ConfigError
from nnpipe.core.registry import components
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.workflows.verification.claims import get_declared_claims

IO = IOSpec((TensorSpec("x", (None, 2), "float32"),), (TensorSpec("y", (None, 2), "float32"),))


def test_the_coarsest_numbers_and_all_changes_are_claimed() -> None:
    assert normalize_claims(["pruned", "float", "int8", "float16"]) == ("int8", "pruned")
    assert (
        get_lowest_precision(("pruned",)),
        select_weight_changes(("int8", "fine-tuned", "pruned")),
    ) == (
        "float",
        ("pruned", "fine-tuned"),
    )


def test_what_is_no_claim_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'int88' is no claim.*there are float, float16"):
        normalize_claims(["int88"])


@pytest.mark.parametrize("compiler", components(ModelCompiler), ids=lambda cls: cls.__name__)
def test_what_compilers_declare_are_claims(compiler: type[ModelCompiler]) -> None:
    assert normalize_claims(compiler().claims())


@pytest.mark.parametrize(
    ("name", "arguments", "claims"),
    [
        ("ONNXStaticQuantizer", {}, ("int8",)),
        ("ONNXDynamicQuantizer", {}, ("int8-weights",)),
        ("OpenVINOCompiler", {"precision": "fp16"}, ("float16",)),
        ("TFLiteCompiler", {"target": "dynamic"}, ("int8-weights",)),
        ("TorchFloat16", {"precision": "bfloat16"}, ("bfloat16",)),
        ("TorchPruner", {"fine_tuning_steps": 5}, ("pruned", "fine-tuned")),
        ("IREECompiler", {}, ("float",)),
    ],
)
def test_arguments_decide_what_is_claimed(
    name: str, arguments: dict[str, object], claims: tuple[Claim, ...]
) -> None:
    (cls,) = [cls for cls in components(ModelCompiler) if cls.__name__ == name]
    assert cls.from_json(arguments).claims() == claims


def _artifact(
    path: Path, parent: Artifact | None = None, claims: tuple[Claim, ...] = ()
) -> Artifact:
    path.write_bytes(path.name.encode())
    return Artifact.create(path, "onnx", IO, parent=parent, claims=claims)


def test_claims_add_up_along_the_chain_and_survive_on_the_disk(tmp_path: Path) -> None:
    source = _artifact(tmp_path / "source.onnx")
    pruned = _artifact(tmp_path / "pruned.onnx", source, ("pruned",))
    small = _artifact(tmp_path / "small.onnx", pruned, ("int8",))
    assert get_declared_claims(Artifact.read(small.path)) == ("int8", "pruned")
    # what lies before the source is not this conversion
    assert get_declared_claims(small, pruned.path) == ("int8",)
    assert get_declared_claims(_artifact(tmp_path / "odd.onnx", source)) is None


def test_a_claim_that_nobody_knows_is_an_error_of_the_description(tmp_path: Path) -> None:
    from nnpipe.core.errors import ArtifactError

    path = _artifact(tmp_path / "m.onnx", _artifact(tmp_path / "s.onnx"), ("int8",)).path
    beside = path.with_name("m.onnx.json")
    beside.write_text(beside.read_text("utf-8").replace('"int8"', '"int3"'), "utf-8")
    with pytest.raises(ArtifactError, match="not a model's description"):
        Artifact.read(path)
