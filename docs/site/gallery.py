"""Run the example notebooks anew and keep their outputs: ``make gallery``.

Each runs in an empty folder of its own and in a process of its own.  The site shows the outputs
that are kept, so building it runs nothing.

    python docs/site/gallery.py           runs all of them
    python docs/site/gallery.py NAME ...  runs these
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

GALLERY = Path(__file__).resolve().parents[1] / "gallery"
SOURCES = GALLERY.parents[1] / "src"


def run(path: Path, folder: Path, timeout: float = 1800.0) -> Any:
    """Run all cells of a notebook in a folder and return it with their outputs.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell raises; the message shows the cell and its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    with (
        tempfile.TemporaryDirectory() as sockets
    ):  # of files, not ports: nobody else on the machine can reach them
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        client = NotebookClient(
            notebook, km=kernel, timeout=timeout, startup_timeout=300, record_timing=False
        )
        client.execute(
            cleanup_kc=True, cwd=str(folder), env=environment()
        )  # which ends the kernel, too
    return tidied(notebook)


def environment() -> dict[str, str]:
    """Return the variables for a kernel: this checkout's nnpipe and its commands, and one
    thread.
    """
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
    )
    return (
        os.environ
        | threads
        | {"PYTHONPATH": str(SOURCES), "PATH": beside, "TF_CPP_MIN_LOG_LEVEL": "2"}
    )


def tidied(notebook: Any) -> Any:
    """Leave out what differs from run to run and tells nothing: progress bars, marks of cells,
    the kernel's version.
    """
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "text/html" in output.get("data", {}):
                    output.data.pop("text/plain", None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    return notebook


def main(names: list[str]) -> None:
    """Run the named notebooks, or all."""
    for path in sorted(GALLERY.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(run(path, Path(folder)), path)
            sys.stdout.write(f"{path.relative_to(GALLERY.parents[1])} run\n")


if __name__ == "__main__":
    main(sys.argv[1:])
