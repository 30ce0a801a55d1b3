"""Language models of transformers, built for onnxruntime-genai."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.compilers._quantisation import BlockwiseWeights
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.model_folder import (
    GENAI,
    TRANSFORMERS,
    TRANSFORMERS_CONFIGURATION,
    find_listed_folder,
    read_folder,
    write_genai_archive,
)
from nnpipe.frameworks.runtime_failures import suppress_output
from nnpipe.frameworks.text_tokenizer import TextTokenizer

_CLAIMS: dict[str, Claim] = {"fp32": "float", "int8": "int8-weights", "int4": "int4-weights"}
_TAKEN = (
    "*.safetensors",
    "*.safetensors.index.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


class ONNXRuntimeGenAIBuilder(BlockwiseWeights):
    """Language models for onnxruntime-genai, with weights of 4 or 8 bits, made by its own model
    builder.

    It takes what ``TransformersGenerator`` exports; nothing is downloaded, and no samples are
    needed.  The matrix products become ONNX Runtime's ``MatMulNBits``, with a scale for each block
    of weights.  ``ONNXRuntimeGenAI`` runs the result.
    """

    requires: ClassVar[tuple[str, ...]] = (
        "onnxruntime_genai",
        "transformers",
        "torch",
        "safetensors",
        "tokenizers",
    )
    install: ClassVar[str] = "nnpipe[genai,transformers]"
    accepts: ClassVar[tuple[str, ...]] = (TRANSFORMERS,)
    produces: ClassVar[str] = GENAI
    suffix: ClassVar[str] = ".genai"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime-genai", "onnxruntime", "transformers")

    precision: Literal["int4", "int8", "fp32"] = argument(
        "int4", help="bits of each weight of the matrix products"
    )
    product_type: Literal["int8", "float32"] = argument(
        "int8", help="type to which both factors of a product with quantised weights are converted"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return the precision of the weights."""
        return (_CLAIMS[self.precision],)

    def variant(self) -> str:
        """Return the precision of the weights."""
        return self.precision

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        source = find_listed_folder(artifact.path, TRANSFORMERS_CONFIGURATION)
        read_folder(source)  # refuses what would run code
        TextTokenizer.read(source / "tokenizer.json")
        with create_temporary_folder() as folder:
            given, made = folder / "model", folder / "made"
            given.mkdir()
            # A copy without pickles and code, of which the builder could take notice.
            for name in (TRANSFORMERS_CONFIGURATION, "tokenizer.json", *_TAKEN):
                for file in source.glob(name):
                    (given / file.name).symlink_to(file.resolve())
            self._build(given, made, folder / "cache")
            if not (made / "genai_config.json").is_file():
                raise CompileError("the model builder wrote no model")
            write_genai_archive(destination, made, artifact.io)
        return artifact.io

    def _build(self, source: Path, destination: Path, cache: Path) -> None:
        with suppress_output():
            from onnxruntime_genai.models import builder

        options = ["hf_token=false", "hf_remote=false"]
        if self.precision != "fp32":
            level = 4 if self.product_type == "int8" else 1
            options += [
                f"block_size={self.block_size}",
                f"is_symmetric={str(self.symmetric).lower()}",
            ]
            options.append(f"accuracy_level={level}")
        target: tuple[Any, ...] = (
            None,
            str(source),
            str(destination),
            self.precision,
            "cpu",
            str(cache),
        )
        with suppress_output():
            builder.create_model(*target, **builder.parse_extra_options(*target, options))
