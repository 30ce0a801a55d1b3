"""How long a model would take on an Ethos-U, as Arm's Vela estimates it."""

from __future__ import annotations

import csv
import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.discoverable import Tool
from nnpipe.core.errors import ArtifactError, CompileError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.messages import format_one_line
from nnpipe.formats.tflite import read_tflite

Accelerator = Literal[
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
    "ethos-u85-128",
    "ethos-u85-256",
    "ethos-u85-512",
    "ethos-u85-1024",
    "ethos-u85-2048",
]

VELA = Tool("Arm's compiler for Ethos-U", ("vela",), "pip install ethos-u-vela")
"""The compiler whose model of the processor gives the estimate."""

_OPERATORS = re.compile(r"^(CPU|NPU) operators = (\d+)", re.MULTILINE)
_KIB = 1024


@dataclass(frozen=True)
class EthosUEstimate:
    """An estimate by Vela: it was computed from a model of the processor, and nothing was run.

    Attributes
    ----------
    accelerator, system, memory_mode
        The processor, and what Vela assumes of the system around it.
    clock_hz
        The clock that Vela assumes.
    npu_operators, cpu_operators
        How many operators run on the Ethos-U, and how many on the processor beside it; the time of
        the latter is not included.
    cycles, seconds
        Of an inference; None if no operator runs on the Ethos-U.
    sram_bytes, flash_bytes
        Memory for values, and for weights.
    """

    accelerator: str
    system: str
    memory_mode: str
    clock_hz: float
    npu_operators: int
    cpu_operators: int
    cycles: int | None
    seconds: float | None
    sram_bytes: int
    flash_bytes: int

    def __str__(self) -> str:
        """Return the estimate as text that says what it is."""
        lines = [
            f"an estimate by Vela for {self.accelerator} ({self.system}, {self.memory_mode}); "
            f"nothing was run"
        ]
        if self.cycles is None or self.seconds is None:
            lines.append(
                f"none of its {self.cpu_operators} operators runs on an Ethos-U, which takes 8-bit "
                f"and 16-bit integers"
            )
            return "\n".join(lines)
        lines += [
            f"cycles      {self.cycles:,}, {self.seconds * 1e3:.3g} ms at {self.clock_hz / 1e6:g} "
            f"MHz",
            f"SRAM        {self.sram_bytes:,} bytes",
            f"flash       {self.flash_bytes:,} bytes",
            f"operators   {self.npu_operators} on the Ethos-U, {self.cpu_operators} beside it",
        ]
        if self.cpu_operators:
            lines.append("            the time of those beside it is not included")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON can hold it, with a mark that it is one."""
        return {"estimated_by": "vela", **asdict(self)}


def estimate_ethos_u(
    model: str | Path, accelerator: Accelerator = "ethos-u55-128"
) -> EthosUEstimate:
    """Return what Vela estimates of a TensorFlow Lite model on an Ethos-U.

    Parameters
    ----------
    model
        The file.
    accelerator
        The processor, and how many multiplications it does at once.

    Raises
    ------
    MissingTool
        If Vela is not installed.
    ArtifactError
        If the file is missing, or is no TensorFlow Lite model.
    CompileError
        If Vela refuses the model.
    """
    check_call(estimate_ethos_u, locals())
    path = Path(model)
    read_tflite(path)
    vela = VELA.check("estimate_ethos_u")
    with create_temporary_folder() as folder:
        command = [
            vela,
            str(path.absolute()),
            "--accelerator-config",
            accelerator,
            "--output-dir",
            str(folder),
        ]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            told = next(
                (
                    line
                    for line in reversed((done.stderr + done.stdout).splitlines())
                    if line.strip()
                ),
                "?",
            )
            raise CompileError(f"{path}: Vela refuses it: {format_one_line(told, 300)}")
        found = sorted(Path(folder).glob("*_summary_*.csv"))
        if not found:
            raise CompileError(f"{path}: Vela wrote no summary; version 5 does")
        with found[0].open(newline="") as file:
            row = next(csv.DictReader(file), {})
    return _parse_estimate(path, accelerator, row, dict(_OPERATORS.findall(done.stdout)))


def _parse_estimate(
    path: Path, accelerator: str, row: Mapping[str, str], operators: Mapping[str, str]
) -> EthosUEstimate:
    try:
        npu, cpu = int(operators.get("NPU", 0)), int(operators.get("CPU", 0))
        seconds, cycles = float(row["inference_time"]), float(row["cycles_total"])
        known = npu > 0 and math.isfinite(seconds) and math.isfinite(cycles)
        flash = float(row["on_chip_flash_memory_used"]) + float(row["off_chip_flash_memory_used"])
        sram = float(row["sram_memory_used"]) + float(row["dram_memory_used"])
        return EthosUEstimate(
            accelerator,
            row["system_config"],
            row["memory_mode"],
            float(row["core_clock"]),
            npu,
            cpu,
            round(cycles) if known else None,
            seconds if known else None,
            round(sram * _KIB),
            round(flash * _KIB),
        )
    except (KeyError, ValueError) as error:
        raise ArtifactError(
            f"{path}: the summary that Vela wrote cannot be read: {error}"
        ) from None
