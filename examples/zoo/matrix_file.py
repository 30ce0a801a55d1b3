"""The file that lists the rows and columns of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.experiment.settings import parse_yaml


@dataclass(frozen=True)
class Row:
    """A model: made by a function, or a file with samples.

    Parameters
    ----------
    make
        ``MODULE.FUNCTION`` of this folder, which returns a network, and samples for test and
        calibration.
    format
        ``"onnx"`` to write the network as ONNX instead of as a program.
    path, test, calibration
        A model's file, and samples as ``.npz`` with inputs by name and ``labels``.
    preparation
        The preprocessing that the model expects, as options of its wrapper.
    """

    make: str = ""
    format: str = ""
    path: Path | None = None
    test: Path | None = None
    calibration: Path | None = None
    preparation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MatrixFile:
    """Rows, columns and limits of a matrix."""

    models: Mapping[str, Row]
    ways: tuple[str, ...]
    output: Path
    samples: int
    time_limit: float


def read(path: Path) -> MatrixFile:
    """Return the content of a file.

    Raises
    ------
    ConfigError
        If it is missing, is not YAML, or has an unknown key.
    """
    try:
        content = parse_yaml(path.read_text("utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    known = {"models", "ways", "output", "samples", "time_limit"}
    _check(path, content, known, "a matrix")
    rows = {}
    for name, row in content["models"].items():
        _check(path, row, set(Row.__dataclass_fields__), f"model {name!r}")
        files = {
            key: path.parent / row[key] for key in ("path", "test", "calibration") if key in row
        }
        if not row.get("make") and len(files) < 3:
            raise ConfigError(
                f"{path}: model {name!r} needs make:, or path:, test: and calibration:"
            )
        rows[name] = Row(**{**row, **files})
    return MatrixFile(
        rows,
        tuple(content["ways"]),
        Path(content.get("output", "build/zoo")),
        content.get("samples", 128),
        content.get("time_limit", 600),
    )


def _check(path: Path, content: Any, known: set[str], what: str) -> None:
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: {what} must be a mapping")
    for key in set(content) - known:
        raise ConfigError(f"{path}: {what} has no {key!r}{suggest_name(str(key), known)}")
