"""Models as files that firmware of a Cortex-M loads: machine code for one core and one address.

A file begins with a header that states the core, the address, the memory that it needs and its
tensors, and that has a CRC-32 of everything (``image.h``).
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.discoverable import Tool
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.c_source import FORMAT as C_SOURCE
from nnpipe.frameworks.c_source import FUNCTIONS, get_function_names, read_c_source

CoreName = Literal["cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55"]
_PACKAGES = "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi"

ARM_GCC = Tool("a C compiler for Cortex-M", ("arm-none-eabi-gcc",), _PACKAGES)
"""The compiler and linker for Arm processors without an operating system."""

_HARD_FLOATS = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


@dataclass(frozen=True)
class Core:
    """A core.

    Attributes
    ----------
    name
        Its name, as GCC and QEMU know it.
    number
        The number by which files name it.
    floats
        Options of GCC for its floating-point unit; empty if it has none.
    model_address
        Where models begin in the memory of the board that QEMU emulates.
    """

    name: CoreName
    number: int
    floats: tuple[str, ...]
    model_address: int

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of GCC that choose it."""
        return (f"-mcpu={self.name}", "-mthumb", *self.floats)


CORES: Mapping[str, Core] = {
    core.name: core
    for core in (
        Core("cortex-m3", 3, (), 0x21000000),
        Core("cortex-m4", 4, _HARD_FLOATS, 0x21000000),
        Core("cortex-m7", 7, _HARD_FLOATS, 0x60000000),
        Core("cortex-m55", 55, ("-mfloat-abi=hard",), 0x70000000),
    )
}
"""The cores by name."""

_NAKED = {"nn_add_products": 40, "nn_add_rows": 40}
"""Bytes that functions in assembly push, for which GCC states no frame."""

_LIBRARY = {
    "__aeabi_fcmp": 32,
    "__aeabi_dcmp": 20,
    "__aeabi_dadd": 12,
    "__aeabi_dsub": 12,
    "__aeabi_dmul": 16,
    "__aeabi_ddiv": 16,
    "__aeabi_i2d": 12,
    "__aeabi_ui2d": 12,
    "__aeabi_l2d": 12,
    "__aeabi_ul2d": 12,
    "__aeabi_f2d": 12,
    "__aeabi_ldivmod": 48,
    "__aeabi_uldivmod": 48,
    "__aeabi_f2lz": 60,
    "__aeabi_d2lz": 68,
    "__aeabi_f2ulz": 68,
    "__aeabi_d2ulz": 68,
}
"""Bytes that functions of GCC's library use with what they call, by the beginning of their names,
as GCC 12 has them for cores without a floating-point unit; those of sums and products of single
precision use none.
"""

_FRAME = re.compile(r'title: "([^"]+)" label: "[^"]*\\n(\d+) bytes')
_CALL = re.compile(r'sourcename: "([^"]+)" targetname: "([^"]+)"')


def compute_stack_depth(graphs: Iterable[str], root: str = "nn_run") -> int:
    """Return the bytes of stack of the deepest chain of calls from a function.

    Functions of which nothing is known count as 0.

    Parameters
    ----------
    graphs
        The contents of ``.ci`` files, one for each translation unit.
    root
        The function that is called first.

    Examples
    --------
    >>> frame = 'node: { title: "%s" label: "%s\\\\nm.c:1:1\\\\n%d bytes (static)" }'
    >>> call = 'edge: { sourcename: "nn_run" targetname: "m.c:add" label: "m.c:3:1" }'
    >>> compute_stack_depth(["\\n".join([frame % ("nn_run", "nn_run", 8), frame % ("m.c:add", "add", 16), call])])
    24
    """
    frames: dict[str, int] = {}
    called: dict[str, set[str]] = {}
    for graph in graphs:
        frames.update((title, int(size)) for title, size in _FRAME.findall(graph))
        for source, target in _CALL.findall(graph):
            called.setdefault(source, set()).add(target)
    depths: dict[str, int] = {}

    def compute_depth(name: str) -> int:
        if name not in depths:
            depths[name] = 0  # a function that calls itself would have no end
            own = next(
                (size for word, size in (_NAKED | _LIBRARY).items() if word in name),
                frames.get(name, 0),
            )
            depths[name] = own + max(map(compute_depth, called.get(name, ())), default=0)
        return depths[name]

    return compute_depth(root)


FORMAT = "cortex-m"
SOURCES = Path(__file__).parent
TYPES = {
    "float32": 1,
    "int8": 2,
    "uint8": 3,
    "int16": 4,
    "int32": 5,
    "int64": 6,
    "bool": 7,
    "uint16": 8,
    "uint32": 9,
}
_MAGIC, _VERSION = b"nncode", 2
_HEADER = struct.Struct("<6sH15I")
_CHECK_AT, _STACK_AT = 20, 40
_MOST_RANK, _LIMIT = 6, 1 << 30


@dataclass(frozen=True)
class ImageFacts:
    """What the header of a file says.

    Attributes
    ----------
    core
        The core that it is for.
    address
        Where it must lie in memory.
    size
        Bytes of the file.
    flash_bytes
        Bytes of code, constants and initial values.
    arena_bytes
        Bytes of memory that begins with zeros, where all values lie.
    data_bytes
        Bytes of memory that has initial values.
    stack_bytes
        Bytes of stack that a run is predicted to need.
    """

    core: str
    address: int
    size: int
    flash_bytes: int
    arena_bytes: int
    data_bytes: int
    stack_bytes: int

    @property
    def ram_bytes(self) -> int:
        """Bytes of memory that a run is predicted to need: data, arena and stack."""
        return self.arena_bytes + self.data_bytes + self.stack_bytes


def build_image(artifact: Artifact, core: Core, address: int, level: str, needed_by: str) -> bytes:
    """Build a C source of ``CCompiler`` for a core and an address.

    Parameters
    ----------
    artifact
        The source; the image has its inputs and outputs in the order of its description.
    level
        The level of optimisation, such as ``"-O2"``.
    needed_by
        The component that asks, for the message if no compiler is installed.

    Raises
    ------
    MissingTool
        If no compiler for Arm is installed.
    ArtifactError
        If the source is damaged.
    CompileError
        If the compiler refuses the source.
    """
    found, notes = read_c_source(artifact.path)
    io = verify_io(artifact, found)
    compiler = ARM_GCC.check(needed_by)
    flags = [*core.flags, level, "-ffp-contract=off", "-w", "-fcallgraph-info=su"]
    with create_temporary_folder() as folder:
        header = folder / "header.c"
        functions = get_function_names(notes)
        header.write_text(_format_header(io, found, core, functions))
        objects: list[str] = []
        for path, extra in (
            (artifact.path.absolute(), ("-std=c99", "-x", "c")),
            (header, ("-std=c99", "-I", str(SOURCES))),
            (
                SOURCES / "memory.c",
                ("-std=c99", "-fno-tree-loop-distribute-patterns", "-ffunction-sections"),
            ),
        ):
            objects.append(str(folder / f"part{len(objects)}.o"))
            run_gcc([compiler, *flags, *extra, "-c", str(path), "-o", objects[-1]])
        linked, image = folder / "linked.elf", folder / "image.bin"
        run_gcc(
            [
                compiler,
                *flags,
                "-nostdlib",
                "-T",
                str(SOURCES / "image.ld"),
                f"-Wl,--defsym=_address={address:#x}",
                "-Wl,--gc-sections,-e,nnpipe_image",
                *objects,
                "-lgcc",
                "-o",
                str(linked),
            ]
        )
        run_gcc([compiler.replace("-gcc", "-objcopy"), "-O", "binary", str(linked), str(image)])
        graphs = [path.read_text() for path in sorted(folder.glob("*.ci"))]
        content = bytearray(image.read_bytes())
    struct.pack_into(
        "<I", content, _STACK_AT, compute_stack_depth(graphs, functions[FUNCTIONS.index("run")])
    )
    struct.pack_into("<I", content, _CHECK_AT, zlib.crc32(content))
    return bytes(content)


@contextlib.contextmanager
def build_for_core(
    artifact: Artifact, core: Core, address: int, needed_by: str
) -> Iterator[Artifact]:
    """Yield a model as firmware takes it: C built for a core, anything else as it is; raises as
    :func:`build_image`.
    """
    if artifact.format != C_SOURCE:
        yield artifact
        return
    with create_temporary_folder() as folder:
        path = folder / "model.bin"
        path.write_bytes(build_image(artifact, core, address, "-O2", needed_by))
        yield Artifact.create(path, FORMAT, artifact.io, target=core.name)


def read_image(path: Path) -> ImageFacts:
    """Return what a file says, after checking that it is undamaged.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or was not made by nnpipe; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such model file")
    size = path.stat().st_size
    content = bytearray(path.read_bytes()) if _HEADER.size <= size <= _LIMIT else bytearray()
    if not content.startswith(_MAGIC):
        raise ArtifactError(f"{path}: no model for a Cortex-M")
    _, version, number, address, told, check, _, zeros, flash, data, stack, *_ = (
        _HEADER.unpack_from(content)
    )
    if version != _VERSION:
        raise ArtifactError(f"{path}: made by another version of nnpipe; make it anew")
    struct.pack_into("<I", content, _CHECK_AT, 0)
    core = next((core.name for core in CORES.values() if core.number == number), None)
    if told != size or zlib.crc32(content) != check or core is None:
        raise ArtifactError(f"{path}: damaged: its content does not agree with its header")
    return ImageFacts(core, address, size, flash, zeros, data, stack)


def run_gcc(command: Iterable[str]) -> None:
    """Run a compiler.

    Raises
    ------
    CompileError
        With the first error that it reports.
    """
    words = list(command)
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = done.stderr.splitlines()
        told = next(
            (line for line in lines if "error" in line or "undefined" in line),
            done.stderr.strip() or "?",
        )
        raise CompileError(f"{words[0]} refuses it: {' '.join(told.split())[:300]}")


def _format_header(io: IOSpec, found: IOSpec, core: Core, functions: Sequence[str]) -> str:
    input_at, output_at, run, reset = functions
    tensors = ",\n".join(
        _format_tensor(spec, [own.name for own in stated].index(spec.name))
        for described, stated in ((io.inputs, found.inputs), (io.outputs, found.outputs))
        for spec in described
    )
    return f"""#include "image.h"

void *{input_at}(int32_t number);
const void *{output_at}(int32_t number);
void {run}(void);
void {reset}(void);
extern uint8_t _image_start[], _image_bytes[], _flash_bytes[], _data_bytes[], _zeros[], _zero_bytes[];

__attribute__((section(".nnpipe_image"), used)) const struct nnpipe_image nnpipe_image = {{
    "{_MAGIC.decode()}", {_VERSION}, {core.number}, (uint32_t)_image_start, (uint32_t)_image_bytes, 0,
    (uint32_t)_zeros, (uint32_t)_zero_bytes, (uint32_t)_flash_bytes, (uint32_t)_data_bytes, 0,
    {input_at}, {output_at}, {run}, {reset}, {len(io.inputs)}, {len(io.outputs)},
    {{
{tensors}
    }}
}};
"""


def _format_tensor(spec: TensorSpec, number: int) -> str:
    shape = [length or 1 for length in spec.shape]
    if str(spec.dtype) not in TYPES or len(shape) > _MOST_RANK:
        raise CompileError(
            f"{spec.name!r} is {spec.dtype} of {len(shape)} dimensions, which firmware does not "
            f"take"
        )
    size = math.prod(shape) * np.dtype(spec.dtype).itemsize
    return (
        f"        {{{size}, {TYPES[str(spec.dtype)]}, {len(shape)}, {number}, "
        f"{{{', '.join(map(str, shape)) or 0}}}}}"
    )
