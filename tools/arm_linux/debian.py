"""Packages of Debian for arm64, unpacked into a folder: nothing is configured or installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PYTHON_VERSION, GLIBC = (3, 11), (2, 36)

PYTHON = (
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libexpat1",
    "libssl3",
    "libbz2-1.0",
    "liblzma5",
    "libffi8",
    "libsqlite3-0",
    "libuuid1",
    "libcrypt1",
    "libatomic1",
    "libgomp1",
)
SSH = ("busybox-static", "dropbear-bin", "libtomcrypt1", "libtommath1", "libgmp10")
KERNEL = "linux-image-cloud-arm64"

# Libraries ask this file what the processor can do; with that of this machine, ONNX Runtime
# crashes.
CPUINFO = """processor\t: 0
BogoMIPS\t: 100.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

"""


def system(folder: Path, packages: Sequence[str]) -> Path:
    """Return the folder in which packages are unpacked, which are fetched if it does not exist."""
    name = hashlib.sha256(" ".join((SUITE, *packages)).encode()).hexdigest()[:12]
    made = folder / f"debian-{name}"
    if not made.exists():
        partial = folder / f"debian-{name}.{os.getpid()}.partial"
        unpack(fetch(folder, packages), partial)
        (partial / "proc").mkdir(exist_ok=True)
        (partial / "proc" / "cpuinfo").write_text(CPUINFO)
        _compile(partial)
        partial.replace(made)
    return made


def kernel(folder: Path) -> tuple[Path, Path]:
    """Return Debian's kernel for virtual machines, and the folder of its modules."""
    made = folder / "kernel"
    if not made.exists():
        told = subprocess.run(
            ["apt-cache", *_options(folder), "depends", KERNEL], check=True, capture_output=True
        )
        image = next(
            word for word in told.stdout.decode().split() if word.startswith("linux-image-6")
        )
        partial = folder / f"kernel.{os.getpid()}.partial"
        unpack(fetch(folder, [image]), partial)
        partial.replace(made)
    return next(made.glob("boot/vmlinuz-*")), next(made.glob("lib/modules/*"))


def fetch(folder: Path, packages: Sequence[str]) -> list[Path]:
    """Download packages, as far as they are not there; apt checks their signatures."""
    into = folder / "debs"
    into.mkdir(parents=True, exist_ok=True)
    options = _options(folder)
    if not any(folder.glob("apt/lists/*Packages*")):
        subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
    found = {path.name.partition("_")[0]: path for path in into.glob("*.deb")}
    missing = [name for name in packages if name not in found]
    if missing:
        subprocess.run(["apt-get", *options, "-qq", "download", *missing], check=True, cwd=into)
        found = {path.name.partition("_")[0]: path for path in into.glob("*.deb")}
    return [found[name] for name in packages]


def unpack(packages: Sequence[Path], into: Path) -> None:
    """Unpack packages over one another, into a folder that is made anew."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for path in packages:
        subprocess.run(["dpkg-deb", "-x", str(path), str(into)], check=True)


def _compile(system: Path) -> None:
    """Compile Python's own modules, which takes an emulated processor long at each start."""
    own = sys.version_info[:2] == PYTHON_VERSION
    python = (
        [sys.executable]
        if own
        else ["qemu-aarch64", "-L", str(system), str(system / "usr/bin/python3.11")]
    )
    library = str(system / "usr/lib/python3.11")
    subprocess.run(
        [*python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", library],
        check=True,
    )


def _options(folder: Path) -> list[str]:
    """Return options of apt that keep everything in the folder: this machine's own packages stay
    as they are.
    """
    own = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (own / name).mkdir(parents=True, exist_ok=True)
    (own / "status").touch()
    (own / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {SUITE} main\n")
    settings = {
        "Dir::Etc::sourcelist": own / "sources.list",
        "Dir::Etc::sourceparts": "/nonexistent",
        "Dir::State::Lists": own / "lists",
        "Dir::State::status": own / "status",
        "Dir::Cache": own / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
