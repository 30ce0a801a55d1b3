"""Servers in C with a model that can do anything, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.c_source import write_c_source
from nnpipe.protocols.network import NetworkProtocol

IO = IOSpec(
    (TensorSpec("image", (3, 5), "uint8"), TensorSpec("mask", (7,), "float32")),
    (TensorSpec("label", (3,), "int16"), TensorSpec("scores", (4,), "float32")),
)
CRASH, HANG, SLOW = 255, 254, 253  # in the first place of the image

_SOURCE = """#include <stdint.h>
#define NN_ARENA_BYTES 128
static union { int64_t whole; double real; uint8_t bytes[NN_ARENA_BYTES]; } nn_arena;
/* image at 0, mask at 16, label at 48, scores at 56, and at 80 how often it has run */
void *nn_input(int32_t number) { return number == 0 ? nn_arena.bytes : number == 1 ? nn_arena.bytes + 16 : 0; }
const void *nn_output(int32_t number) {
    return number == 0 ? nn_arena.bytes + 48 : number == 1 ? nn_arena.bytes + 56 : 0;
}
void nn_reset(void) { for (int i = 80; i < 84; i++) nn_arena.bytes[i] = 0; }
void nn_run(void) {
    uint8_t *image = nn_arena.bytes;
    float *mask = (float *)(nn_arena.bytes + 16), *scores = (float *)(nn_arena.bytes + 56);
    int16_t *label = (int16_t *)(nn_arena.bytes + 48);
    int32_t *runs = (int32_t *)(nn_arena.bytes + 80);
    volatile uint32_t turns = 0;
    if (image[0] == 255) *(volatile int *)0 = 1;
    while (image[0] == 254) turns++;
    if (image[0] == 253) while (turns < 100000000u) turns++;
    for (int i = 0; i < 3; i++) label[i] = (int16_t)(image[i] * 100 - 1);
    for (int i = 0; i < 4; i++) scores[i] = mask[i] * 2 + SCORE;
    ++*runs;
    for (int i = 0; i < 44; i++) nn_arena.bytes[i] = 0xA5; /* as a run does with its inputs */
}
"""


def write_model(folder: Path, counts_runs: bool = False) -> Artifact:
    """Write the model; it may add to its scores how often it has run, as a recurrent layer
    would.
    """
    path = folder / ("counting.c" if counts_runs else "any.c")
    write_c_source(path, _SOURCE.replace("SCORE", "(float)*runs" if counts_runs else "1"), IO, {})
    return Artifact.create(path, "c", IO)


LARGE = 100_000
"""Bytes of the large model's input and output: more than the server has room for elsewhere."""

_LARGE_SOURCE = """#include <stdint.h>
#define NN_ARENA_BYTES 200000
static union { int64_t whole; double real; uint8_t bytes[NN_ARENA_BYTES]; } nn_arena;
void *nn_input(int32_t number) { return number == 0 ? nn_arena.bytes : 0; }
const void *nn_output(int32_t number) { return number == 0 ? nn_arena.bytes + 100000 : 0; }
void nn_reset(void) {}
void nn_run(void) { for (int i = 0; i < 100000; i++) nn_arena.bytes[100000 + i] = (uint8_t)(nn_arena.bytes[i] + 1); }
"""


def write_large_model(folder: Path) -> Artifact:
    """Write a model that adds 1 to each of many bytes."""
    path = folder / "large.c"
    io = IOSpec((TensorSpec("x", (LARGE,), "uint8"),), (TensorSpec("y", (LARGE,), "uint8"),))
    write_c_source(path, _LARGE_SOURCE, io, {})
    return Artifact.create(path, "c", io)


def expected(batch: Batch) -> dict[str, np.ndarray]:
    """Return what the model computes."""
    return {
        "label": (batch["image"].reshape(-1)[:3].astype(np.int16) * 100 - 1).astype(np.int16),
        "scores": batch["mask"][:4] * np.float32(2) + np.float32(1),
    }


class CServer:
    """A server in C that runs; for a ``with`` block."""

    def __init__(
        self, program: Path, *options: str, prefix: Sequence[str] = (), timeout: float = 5.0
    ) -> None:
        command = [*prefix, str(program), "--port", "0", *options]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # a pipe would be full at some time
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " is served at " in line, self.log
        self.protocol = NetworkProtocol(port=int(line.rpartition(":")[2]), timeout=timeout)

    @property
    def log(self) -> str:
        """What it has said so far."""
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> tuple[int, str]:
        """End the server; return its exit status and log."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20), self.log

    def __enter__(self) -> CServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
