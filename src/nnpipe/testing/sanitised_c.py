"""Runs C sources of models under the sanitisers of GCC and Clang, which end a program at the first fault."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnpipe.core.tensors import Batch, IOSpec

_FLAGS = ("-std=c99", "-O0", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_MAIN = """#include "{source}"
#include <stdio.h>
int main(void) {{
    static const int32_t in[] = {{{inputs}}}, out[] = {{{outputs}}};
    for (int32_t n = 0; in[n]; n++) if (fread(nn_input(n), 1, in[n], stdin) != (size_t)in[n]) return 3;
    nn_run();
    for (int32_t n = 0; out[n]; n++) fwrite(nn_output(n), 1, out[n], stdout);
    return 0;
}}
"""


def sanitised_outputs(path: Path, io: IOSpec, batch: Batch, defines: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the outputs of a C source, computed by a program with AddressSanitizer and UndefinedBehaviorSanitizer.

    Parameters
    ----------
    path
        The C source.
    io
        Its inputs and outputs, in its order.
    batch
        Its inputs by name.
    defines
        Macros to define, such as ``NN_DSP_IN_C``, with which instructions of a microcontroller are computed in C.

    Raises
    ------
    AssertionError
        If a sanitiser finds a fault; the message is its report.
    """
    sizes = [", ".join([*(str(_bytes(io, spec.name)) for spec in side), "0"]) for side in (io.inputs, io.outputs)]
    with tempfile.TemporaryDirectory() as folder:
        main, program = Path(folder, "main.c"), Path(folder, "main")
        main.write_text(_MAIN.format(source=path.absolute(), inputs=sizes[0], outputs=sizes[1]))
        subprocess.run(
            ["cc", *_FLAGS, *(f"-D{each}" for each in defines), "-o", str(program), str(main)],
            check=True,
            capture_output=True,
        )
        given = b"".join(np.ascontiguousarray(batch[spec.name]).tobytes() for spec in io.inputs)
        done = subprocess.run([str(program)], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[:2000]
    found, at = {}, 0
    for spec in io.outputs:
        count = _bytes(io, spec.name)
        kind = np.dtype(spec.dtype)
        found[spec.name] = np.frombuffer(done.stdout, kind, count // kind.itemsize, at).reshape(
            [length or 0 for length in spec.shape]
        )
        at += count
    return found


def _bytes(io: IOSpec, name: str) -> int:
    (spec,) = [spec for spec in io if spec.name == name]
    return int(np.prod([length or 0 for length in spec.shape], dtype=np.int64)) * np.dtype(spec.dtype).itemsize
