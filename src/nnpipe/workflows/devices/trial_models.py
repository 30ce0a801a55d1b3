"""Tiny models whose outputs are known, with which a device is tried out; no package is needed to write them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.c_source import FORMAT, write_c_source

# Each is one operator that subtracts ``second`` from ``first``, as a file of that format: deflated, in base 85.
_FILES = {
    "onnx": (
        "c-rG&7h<p~<5J*aP0K7QF5zM;PEF3wOA+Eq$xKU2ElSNxPE}$KE=>|*Opg+WDiY%3;^ANv;^1Q9U<6{8C<(YWG?^qBE+m7{Wt~{K7zB6$E}I"
        "we"
    ),
    "tflite": (
        "c-mc1OA5j;5Pj8xf}wPgMHjt5cY>b5mCG*NRcKQvNQJhCa^ZozO`VxcKbr8!%;de~&7=VG%k^ZDz#@jBd=FkB<(QEYjsdWRUx6@y*Eo(G#{{D"
        "<?CHj6EhpRvchy)?M{+XvK-_4qBaJl<WqZv=G5x!)1zKlc55ie}y~!8%k%%u~D5|EeUFX`;VWnm6N4ZveABx_U&$jyK8R^Z>W||ZG-HE1dx_<"
        "cKFLU8O7hUEpXJ3Qy9LN"
    ),
}  # fmt: skip
_SHAPE = (1, 4)
# The same by hand, so that every version of nnpipe writes the same file: servers know models in C by their hash.
_IN_C = """/* Made by nnpipe: first - second. */
#include <stdint.h>

#define NN_ARENA_BYTES 48
static union { int64_t whole; float numbers[12]; uint8_t bytes[NN_ARENA_BYTES]; } nn_arena;

void *nn_input(int32_t number) { return number == 0 || number == 1 ? nn_arena.bytes + 16 * number : 0; }
const void *nn_output(int32_t number) { return number == 0 ? nn_arena.bytes + 32 : 0; }
void nn_reset(void) {}
void nn_run(void) {
    for (int32_t n = 0; n < 4; n++) nn_arena.numbers[8 + n] = nn_arena.numbers[n] - nn_arena.numbers[4 + n];
}
"""


def write_trial_models(folder: Path, formats: Collection[str] = ()) -> Iterator[Artifact]:
    """Yield a model in each of the formats that there is one for; without ``formats``, in all."""
    for name, packed in _FILES.items():
        if not formats or name in formats:
            path = folder / f"difference.{name}"
            path.write_bytes(zlib.decompress(base64.b85decode(packed)))
            names = ("first", "second", "difference") if name == "onnx" else ("t_first", "t_second", "t_difference")
            first, second, difference = (TensorSpec(each, _SHAPE, "float32") for each in names)
            yield Artifact.of(path, name, IOSpec((first, second), (difference,)))
    if not formats or FORMAT in formats:
        path = folder / f"difference.{FORMAT}"
        first, second, difference = (TensorSpec(each, _SHAPE, "float32") for each in ("first", "second", "difference"))
        io = IOSpec((first, second), (difference,))
        write_c_source(path, _IN_C, io, {"arena_bytes": 48, "arena_lower_bound": 48, "constant_bytes": 0})
        yield Artifact.of(path, FORMAT, io)


def trial_batch(artifact: Artifact, seed: int) -> tuple[Batch, np.ndarray]:
    """Return inputs of a test model, and its output: float32 ``(1, 4)``, which is exact in any runtime."""
    drawn = np.random.default_rng(seed).integers(-100, 100, (2, *_SHAPE)).astype(np.float32)
    return {spec.name: value for spec, value in zip(artifact.io.inputs, drawn, strict=True)}, drawn[0] - drawn[1]
