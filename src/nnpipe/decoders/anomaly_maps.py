"""The decoder of models that tell how unusual each pixel is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.output_decoder import OutputDecoder
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders._input_frames import frames
from nnpipe.tasks.anomaly_map.task import AnomalyMaps


class AnomalyMapDecoder(OutputDecoder):
    """Models that give an anomaly map, and perhaps a score of the whole picture, as anomalib exports them.

    The map is ``(n, rows, columns)``, perhaps with an axis of length 1, and of any size; the score is ``(n,)`` or
    ``(n, 1)``.  Without a score, a picture's is the greatest of its pixels.
    """

    tasks: ClassVar[tuple[str, ...]] = (AnomalyMaps.name,)

    map_output: str | None = argument(
        None, help="name of the output with the map, if there are several such; by default the one named ...map"
    )
    score_output: str | None = argument(
        None, help="name of the output with the score of a picture; by default the one named ...score"
    )

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check that there is an output with the map."""
        try:
            self._chosen({each.name: each.shape for each in io.outputs})
        except SpecMismatch as error:
            raise ConfigError(str(error)) from None

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning] = ()) -> Batch:
        """Return ``"map"``, ``(n, rows, columns)``, perhaps ``"score"``, ``(n,)``, and ``"frame"``."""
        named, scored = self._chosen({name: each.shape for name, each in outputs.items()})
        found = outputs[named]
        if found.ndim == 4:
            found = found[:, 0] if found.shape[1] == 1 else found[..., 0]
        score = {} if scored is None else {"score": outputs[scored].reshape(len(found))}
        return {"map": found.astype(np.float32), **score, "frame": frames(len(found), io, inputs)}

    def _chosen(self, shapes: dict[str, tuple[int | None, ...]]) -> tuple[str, str | None]:
        """Return the names of the outputs with the map and, if there is one, with the score."""
        maps = {
            name: shape for name, shape in shapes.items()
            if len(shape) == 3 or (len(shape) == 4 and (shape[1] in (1, None) or shape[3] in (1, None)))
        }  # fmt: skip
        flat = {name for name, shape in shapes.items() if len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)}
        named = [name for name in maps if name.lower().endswith("map")] if len(maps) > 1 else list(maps)
        if self.map_output is not None:
            named = [name for name in maps if name == self.map_output]
        scored = [name for name in flat if name.lower().endswith("score")]
        if self.score_output is not None:
            scored = [name for name in flat if name == self.score_output]
        if len(named) != 1 or (self.score_output is not None and not scored):
            given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
            raise SpecMismatch(
                f"expected a map (n, rows, columns) and perhaps a score (n,); the model gives {given}: name them with "
                "--decoder-options map_output=NAME score_output=NAME"
            )
        return named[0], scored[0] if len(scored) == 1 else None
