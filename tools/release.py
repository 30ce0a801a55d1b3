"""Look at what would be released: ``make release-check``.

    python tools/release.py                 the wheel, then every extra by itself
    python tools/release.py torch onnx      the wheel, then these extras
    python tools/release.py --no-extras     the wheel alone

Two wheels that are built after each other must be equal to the byte, and their descriptions such
that PyPI shows them. Each extra is installed alone into an empty environment of this Python, with
the versions in ``constraints``; there ``pip check`` must be content and ``nnpipe list`` work.  The
exit status is 1 if anything is not as it should be.

pip and the network are needed, and 8 GB of disk for the largest extra; with uv on the path it is
quicker.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints" / f"python{sys.version_info[0]}.{sys.version_info[1]}.txt"


class Failed(Exception):
    """Something is not as it should be; the message says what."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that is thrown away."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Environment:
        """Make an empty one."""
        venv.create(folder, with_pip=True)
        return cls(folder)

    def program(self, name: str) -> str:
        """Return the path of a program in it."""
        return str(self.folder / ("Scripts" if os.name == "nt" else "bin") / name)

    def run(self, program: str, *words: str) -> str:
        """Run a program in it and return what it prints."""
        return output([self.program(program), *words])

    def install(self, *requirements: str, constraints: Path | None = None) -> None:
        """Install packages, by uv where there is one."""
        quick = shutil.which("uv")
        words = [quick, "pip", "install", "--quiet", "--python"] if quick else []
        words += [self.program("python"), *([] if quick else ["-m", "pip", "install", "--quiet"])]
        output([*words, *(["-c", str(constraints)] if constraints else []), *requirements])


def output(words: Sequence[str], folder: Path | None = None) -> str:
    """Run a command and return what it prints; raise Failed, with all that it said, where it
    fails.
    """
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def wheel(folder: Path) -> Path:
    """Build the wheel twice, from copies of the sources, and return it when both are equal and PyPI
    would show it.

    Raises
    ------
    Failed
        If the wheels differ, or ``twine check`` finds a fault.
    """
    tools = Environment.made(folder / "tools")
    tools.install("build", "twine")
    wheels = []
    for each in ("first", "second"):
        copy = folder / each / "nnpipe"
        shutil.copytree(
            ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
            (copy / name).write_bytes((ROOT / name).read_bytes())  # with a time of its own
        tools.run("python", "-m", "build", "--wheel", "--outdir", str(folder / each), str(copy))
        wheels += sorted((folder / each).glob("*.whl"))
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    if len(wheels) != 2 or len(digests) != 1:
        raise Failed("two wheels of the same sources differ")
    tools.run("python", "-m", "twine", "check", "--strict", str(wheels[0]))
    return wheels[0]


def extras_of(path: Path) -> list[str]:
    """Return the names of a wheel's extras."""
    with zipfile.ZipFile(path) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name)).get_all("Provides-Extra", [])


def check_extra(path: Path, extra: str, folder: Path, constraints: Path | None) -> str:
    """Install the wheel with one extra, or with none, and return how many packages and megabytes
    that makes.

    Raises
    ------
    Failed
        If installing, ``pip check`` or ``nnpipe list`` fails.
    """
    place = Environment.made(folder)
    place.install(f"{path}[{extra}]" if extra else str(path), constraints=constraints)
    place.run("python", "-m", "pip", "check")
    if "DigitsDataset" not in place.run("nnpipe", "list"):
        raise Failed("`nnpipe list` names no DigitsDataset")
    packages = len(place.run("python", "-m", "pip", "list", "--format", "freeze").splitlines())
    size = sum(
        each.stat().st_size
        for each in folder.rglob("*")
        if each.is_file() and not each.is_symlink()
    )
    return f"{packages} packages, {size / 1e6:.0f} MB"


def main() -> int:
    """Check the wheel and the extras, say each result in a line, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", help="extras to install, each alone (default: all)")
    parser.add_argument("--no-extras", action="store_true", help="look at the wheel alone")
    parser.add_argument(
        "--constraints", type=Path, help="versions to install (default: those for this Python)"
    )
    options = parser.parse_args()
    constraints = options.constraints or (CONSTRAINTS if CONSTRAINTS.is_file() else None)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nnpipe-release-") as folder:
        try:
            built = wheel(Path(folder))
        except Failed as error:
            print(f"wheel: {error}")
            return 1
        print(
            f"wheel: {built.name}, {built.stat().st_size / 1e6:.1f} MB, the same twice, and PyPI "
            f"would show it"
        )
        for extra in [] if options.no_extras else options.extras or ["", *extras_of(built)]:
            place = Path(folder) / f"with-{extra}"
            try:
                print(
                    f"{extra or 'no extra'}: {check_extra(built, extra, place, constraints)}",
                    flush=True,
                )
            except Failed as error:
                failed += 1
                print(f"{extra or 'no extra'}: FAILED\n{error}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
