"""Installing a package of the tests by pip into a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def installed(package: Path, folder: Path) -> Path:
    """Return the folder into which a package is installed from a copy: a build leaves files
    beside what it builds.
    """
    source, site = folder / "source", folder / "site"
    shutil.copytree(
        package, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    options = [
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", site, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    return site
