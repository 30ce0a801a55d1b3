"""Writing the reproducer: the model, its inputs and outputs, a script, and the text of an issue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.files import replacing_folder, write_text
from nnpipe.measuring.host import framework_versions, host_facts
from nnpipe.workflows.reduction.onnx_parts import ONNXPart, Values, stacked
from nnpipe.workflows.reduction.reproduction_script import script_of, scripts_alone
from nnpipe.workflows.reduction.symptom import Symptom
from nnpipe.workflows.ways import Planned

_PACKAGES = ("openvino", "nncf", "onnxruntime", "iree-base-compiler", "iree-base-runtime", "apache-tvm", "tensorflow",
             "tensorflow-cpu", "ai-edge-litert", "torch", "executorch", "keras")  # fmt: skip
_LEAST, _SECONDS = 30.0, 300.0  # after which a script is taken to hang, importing frameworks included


def write_reproducer(
    to: Path,
    part: ONNXPart,
    values: Values,
    chosen: Planned,
    chain: Mapping[str, Any],
    symptom: Symptom,
    reference: str,
    hang_after: float,
) -> None:
    """Write a folder, whole or not at all.

    Parameters
    ----------
    to
        The folder.
    part, values
        The nodes that are left, and what their inputs and outputs hold.
    chosen, chain
        The chain, and its description.
    symptom
        What is wrong with it.
    reference
        What computed the values.
    hang_after
        Seconds after which the script is taken to hang.
    """
    with replacing_folder(to) as folder:
        part.write(folder / "model.onnx")
        np.savez(folder / "inputs.npz", **_keyed(stacked(part.inputs, values)))
        np.savez(folder / "expected.npz", **_keyed(stacked(part.outputs, values)))
        alone = scripts_alone(chosen)
        script = script_of(chosen, chain, alone)
        write_text(folder / "reproduce.py", script)
        shown = _ends_badly(folder, symptom, hang_after)
        if alone and not shown:  # what nnpipe does besides matters
            alone = False
            write_text(folder / "reproduce.py", script_of(chosen, chain, False))
            shown = _ends_badly(folder, symptom, hang_after)
        write_text(folder / "issue.md", _issue(part, chosen, symptom, reference, alone, shown))


def _keyed(arrays: Mapping[str, Any]) -> dict[str, Any]:
    # By position: names of tensors may be anything, and those of a zip file's members may not.
    return {str(place): array for place, array in enumerate(arrays.values())}


def _ends_badly(folder: Path, symptom: Symptom, hang_after: float) -> bool:
    """Run the script, and return whether it shows the fault."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    seconds = min(max(hang_after, _LEAST), _SECONDS) if symptom.kind == "hang" else _SECONDS
    try:
        done = subprocess.run(
            [sys.executable, "reproduce.py"], cwd=folder, env=environment, capture_output=True, check=False,
            stdin=subprocess.DEVNULL, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return symptom.kind == "hang"
    if symptom.kind == "crash":
        return done.returncode not in (0, 1)
    return symptom.kind != "hang" and done.returncode == 1


def _issue(part: ONNXPart, chosen: Planned, symptom: Symptom, reference: str, alone: bool, shown: bool) -> str:
    facts = host_facts()
    stages = [type(each).__name__ for each in (*chosen.compilers, *([chosen.runtime] if chosen.runtime else []))]
    kinds = ", ".join(dict.fromkeys(node.op_type for node in part.model.graph.node))
    title = {
        "error": f"{symptom.what} for {kinds}",
        "crash": f"crash ({symptom.what}) on {kinds}",
        "hang": f"{kinds} never ends",
        "not finite": f"{kinds} gives NaN or infinity",
        "difference": f"wrong result of {kinds}",
    }[symptom.kind]
    versions = framework_versions((*_PACKAGES, "onnx", "numpy"))
    needs = "It needs numpy and the framework alone." if alone else "It needs nnpipe: pip install nnpipe."
    if not shown:
        needs += " Here it did not show the fault outside of nnpipe's own process; please look at it before reporting."
    count = len(part.model.graph.node)
    size = f"{count} node{'s' if count > 1 else ''}, cut out of a larger model"
    return f"""# {title}

## What happens

{symptom}

`model.onnx` has {size}. It goes through {", then ".join(stages)}.

## What should happen

The outputs in `expected.npz`, which {reference} computed from the inputs in `inputs.npz`.

## How to see it

    python reproduce.py

{needs} It ends with status 0 if all is well, and with 1 if the fault shows.
`inputs.npz` and `expected.npz` hold the model's inputs and outputs by their position, with a first axis for samples.

## The model

```text
{_listing(part)}
```

## Versions

{chr(10).join(f"- {name} {version}" for name, version in versions.items())}
- Python {sys.version.split()[0]}, {facts["system"]["distribution"]}, {facts["system"]["machine"]}
- {facts["cpu"]["model"]}, {facts["cpu"]["logical_cores"]} cores
"""


def _listing(part: ONNXPart) -> str:
    import onnx

    graph = part.model.graph
    lines = [f"{side} {_told(value)}" for side in ("input", "output") for value in getattr(graph, side)]
    lines += [f"constant {tensor.name}: {list(tensor.dims)}" for tensor in graph.initializer]
    lines += [onnx.printer.to_text(node) for node in graph.node]
    return "\n".join(line if len(line) < 400 else f"{line[:400]} ..." for line in lines)


def _told(value: Any) -> str:
    import onnx

    tensor = value.type.tensor_type
    shape = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    return f"{value.name}: {onnx.TensorProto.DataType.Name(tensor.elem_type)} {shape}"
