"""Real architectures through every usual way: train each briefly, compile it, and compare it with its source.

    python examples/zoo/matrix.py                              everything, in some hours
    python examples/zoo/matrix.py --models bert vit --ways onnx onnx-int8

Each cell runs in a process of its own with a time limit.  Finished cells are kept
in ``build/zoo`` and not repeated; delete a cell's file to try it again.  The table
is written to ``build/zoo/matrix.md``.

"same", "close" and "different" are the verdicts of ``nnpipe verify``; "refused" is an
error of nnpipe that says why, and "unclear" a crash, an error of a framework as it is, or too long a time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import nnpipe
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import write_text
from nnpipe.workflows.candidates.stages import suffix
from nnpipe.workflows.isolation.subprocess_worker import Died
from nnpipe.workflows.user_inputs.inputs import given
from nnpipe.workflows.ways import planned

MODELS = {
    **dict.fromkeys(("resnet", "mobilenet_v2", "efficientnet", "vit", "swin", "deit"), "hugging_face"),
    **dict.fromkeys(("mobilenet_v3", "squeezenet", "shufflenet_v2", "ssdlite", "deeplab", "fastvit"), "convolutional"),
    **dict.fromkeys(("bert", "bert_mask", "distilbert", "whisper", "wav2vec2", "gpt2", "llama"), "hugging_face"),
    **dict.fromkeys(("lstm", "gru", "tcn"), "recurrent"),
    "keras_mobilenet_v3": "keras_models",
}
WAYS = (
    "onnx", "onnx-int8", "onnx-dynamic", "onnx-float16", "openvino", "openvino-int8", "executorch",
    "executorch-int8", "tflite", "tflite-int8", "iree",
)  # fmt: skip
SAMPLES = 128
AS_GIVEN = {"scale": 1.0}
_HERE = Path(__file__).resolve()


def make(model: str, folder: Path) -> None:
    """Train a model, and write it with its samples to a folder, unless that has been done."""
    if (folder / "done").exists():
        return
    sys.path.insert(0, str(_HERE.parents[1]))
    found = getattr(importlib.import_module(f"zoo.{MODELS[model]}"), model.removeprefix("keras_"))
    network, test, calibration = found()
    given(network, test, folder, calibration=calibration)
    for name, (inputs, labels) in (("test", test), ("calibration", calibration)):
        np.savez(folder / f"{name}.npz", labels=labels, **inputs)
    (folder / "done").touch()


def cell(model: str, way: str, output: Path) -> dict[str, str]:
    """Return the verdict of a model that was compiled in one way, and the reason."""
    folder = output / model
    make(model, folder)
    source = next(path for path in (folder / "model.pt2", folder / "model.keras") if path.exists())
    test, calibration = (_samples(folder / f"{name}.npz") for name in ("test", "calibration"))
    try:
        plan = planned(way, given(source, test, folder / way).models)
        to = folder / way / f"compiled{suffix(plan.plan, plan.compilers) if plan.plan else ''}"
        made = nnpipe.compile(source, way, to, calibration=calibration, preparation=AS_GIVEN)
        found = nnpipe.verify(source, made, data=test, samples=SAMPLES, runtime=plan.runtime, preparation=AS_GIVEN)
    except Died as error:
        return {"verdict": "unclear", "reason": str(error)}
    except NNPipeError as error:
        # An error that is no subclass was raised by a framework, and only passed on.
        return {"verdict": "unclear" if type(error) is NNPipeError else "refused", "reason": str(error)}
    return {"verdict": found.verdict, "reason": found.reason}


def _samples(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as content:
        arrays = dict(content)
    return arrays, arrays.pop("labels")


def table(output: Path) -> str:
    """Return the matrix as Markdown, and why each cell is refused, different or unclear."""
    lines = ["| model | " + " | ".join(WAYS) + " |", "| --- |" + " --- |" * len(WAYS)]
    causes = []
    for model in MODELS:
        words = []
        for way in WAYS:
            path = output / model / f"{way}.json"
            found = json.loads(path.read_text("utf-8")) if path.exists() else {"verdict": "–", "reason": ""}
            words.append(found["verdict"])
            if found["verdict"] not in ("same", "close", "–"):
                causes.append(f"- {model}, {way}: {found['verdict']}: {' '.join(found['reason'].split())}")
        lines.append(f"| {model} | " + " | ".join(words) + " |")
    return "\n".join([*lines, "", *causes]) + "\n"


def main() -> None:
    """Carry out the cells that have not been done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--output", type=Path, default=Path("build/zoo"))
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds of a cell (default: 600)")
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for way in options.ways:
        for model in options.models:
            path = options.output / model / f"{way}.json"
            if path.exists():
                continue
            if options.cell:
                found = cell(model, way, options.output)
            else:
                found = _apart(model, way, options.output, options.time_limit)
                if found is None:
                    continue
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(found, indent=1) + "\n")
    if not options.cell:
        write_text(options.output / "matrix.md", table(options.output))
        print(table(options.output))


def _apart(model: str, way: str, output: Path, seconds: float) -> dict[str, str] | None:
    """Carry out a cell in a new process; return ``None`` if that process wrote its outcome itself."""
    command = [sys.executable, str(_HERE), "--cell", "--models", model, "--ways", way, "--output", str(output)]
    try:
        ended = subprocess.run(command, timeout=seconds, stdout=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return {"verdict": "unclear", "reason": f"did not end within {seconds:g} s"}
    if ended.returncode:
        return {"verdict": "unclear", "reason": f"its process ended with status {ended.returncode}"}
    return None


if __name__ == "__main__":
    main()
