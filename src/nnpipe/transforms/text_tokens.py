"""Texts as the tokens of a model."""

from __future__ import annotations

import base64
import hashlib
import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.input_transform import InputTransform
from nnpipe.core.layout import Shape
from nnpipe.core.tensors import show_shape
from nnpipe.frameworks.text_tokenizer import LARGEST, TextTokenizer, read_tokenizer_file

if TYPE_CHECKING:
    from typing_extensions import Self

_PACKED = "zlib:"


class TextTokens(InputTransform):
    """The ids of a text's tokens, cut or filled up to one length, by a tokenizer of Hugging Face.

    A model's description holds the whole tokenizer, compressed, so that the texts of all files that
    are made of the model are tokenised alike.
    """

    requires: ClassVar[tuple[str, ...]] = ("tokenizers",)
    install: ClassVar[str] = "nnpipe[text]"
    takes_text: ClassVar[bool] = True

    tokenizer: str = argument(
        help="the file tokenizer.json, or its content as descriptions of models hold it"
    )
    length: int = argument(
        128, help="number of tokens that the model takes", minimum=1, maximum=1 << 20
    )
    padding: int = argument(0, help="token that fills up shorter texts", minimum=0)

    def pack_files(self) -> Self:
        """Return the transform with the content of the file in place of its path."""
        if self.tokenizer.startswith(_PACKED):
            return self
        content = read_tokenizer_file(Path(self.tokenizer))
        text = base64.b64encode(zlib.compress(content.encode(), 9)).decode("ascii")
        return type(self)(tokenizer=_PACKED + text, length=self.length, padding=self.padding)

    @cached_property
    def _tokenizer(self) -> TextTokenizer:
        self.check_installed()
        if not self.tokenizer.startswith(_PACKED):
            return TextTokenizer.read(Path(self.tokenizer))
        try:
            opener = zlib.decompressobj()
            raw = opener.decompress(
                base64.b64decode(self.tokenizer[len(_PACKED) :], validate=True), LARGEST + 1
            )
            if len(raw) > LARGEST or not opener.eof:
                raise ValueError("it is cut short or too long")
            content = raw.decode("utf-8")
        except (ValueError, zlib.error) as error:
            raise ArtifactError(
                f"the tokenizer in the model's description is damaged: {error}"
            ) from None
        return TextTokenizer(content, "the tokenizer in the model's description")

    def format_description(self) -> str:
        """Return the length, and the tokenizer's file or a short digest of its content."""
        packed = self.tokenizer.startswith(_PACKED)
        name = (
            hashlib.sha256(self.tokenizer.encode()).hexdigest()[:8]
            if packed
            else Path(self.tokenizer).name
        )
        return f"TextTokens({self.length} tokens, tokenizer {name})"

    def shape(self, sample: Shape) -> Shape:
        """Return the number of tokens; a sample is one text."""
        if sample:
            raise ConfigError(f"TextTokens takes one text a sample, not {show_shape(sample)}")
        return (self.length,)

    def _apply(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.full((len(samples), self.length), self.padding, np.int64)
        for row, text in zip(found, samples, strict=True):
            ids = self._tokenizer.encode(str(text), most=self.length)
            row[: len(ids)] = ids
        return found
