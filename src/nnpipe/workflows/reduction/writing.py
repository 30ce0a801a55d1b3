"""Writing the reproducer: the model, its inputs and outputs, a script, and the text of an issue."""

from __future__ import annotations

import os
import pprint
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.artifact import normalize_claims
from nnpipe.core.files import replace_folder_atomically, write_text
from nnpipe.measuring.host import get_framework_versions, read_host_facts
from nnpipe.workflows.recipes import PlannedRecipe
from nnpipe.workflows.reduction.onnx_parts import ONNXPart, TensorValues, stack_values
from nnpipe.workflows.reduction.symptom import Symptom

_HEAD = '''"""Compile and run model.onnx, and compare its outputs with expected.npz.

The exit status is 0 if they agree, and 1 if they do not or something fails.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
MODEL = HERE / "model.onnx"
TOLERANCE = {tolerance}  # of the mean relative error


def arrays(name):
    with np.load(HERE / name) as found:
        return [found[str(place)] for place in range(len(found.files))]


'''
_TAIL = """

def main():
    inputs, expected, wrong = arrays("inputs.npz"), arrays("expected.npz"), False
    found = [computed([array[n] for array in inputs]) for n in range(len(expected[0]))]
    for place, ours in enumerate(expected):
        ours = ours.astype(np.float64)
        theirs = np.stack([outputs[place] for outputs in found]).astype(np.float64)
        size = np.sqrt(np.mean(ours**2, axis=tuple(range(1, ours.ndim)), keepdims=True))
        error = np.abs(theirs - ours) / np.maximum(np.maximum(np.abs(ours), size), 1e-300)
        print(f"output {place}: mean relative error {error.mean():.3g}, largest {error.max():.3g}")
        wrong |= not error.mean() <= TOLERANCE
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
"""
_ALONE: Mapping[tuple[str, ...], str] = {
    ("ONNXRuntime",): """def computed(batch):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([value.name for value in session.get_inputs()], batch)))
""",
    ("OpenVINOCompiler", "OpenVINORuntime"): """def computed(batch):
    import openvino

    model = openvino.Core().read_model(str(MODEL))
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(batch)
    return [found[place] for place in range(len(compiled.outputs))]
""",
}
"""How frameworks do by themselves what chains of components with default arguments do."""

_NNPIPE = """CHAIN = {chain}


def computed(batch, made=[]):
    from dataclasses import replace

    from nnpipe.core.quantization import adapt
    from nnpipe.core.quantization import dequantize_linear
    from nnpipe.core.registry import create_component
    from nnpipe.core.runtime import Runtime
    from nnpipe.formats.onnx import read_onnx

    source = read_onnx(MODEL).io()
    if not made:
        made.append(create_component(CHAIN["runtime"], Runtime).load(compiled(source)))
    io = made[0].io
    names = in_order(source.inputs, io.inputs)
    taken = tuple(replace(spec, name=name) for spec, name in zip(source.inputs, names))
    found = made[0].infer(adapt(dict(zip(names, batch)), taken, io.inputs))
    specs = {{spec.name: spec for spec in io.outputs}}
    return [
        found[name] if specs[name].scale is None
        else dequantize_linear(found[name], specs[name].scale, specs[name].zero_point)
        for name in in_order(source.outputs, io.outputs)
    ]


def in_order(ours, theirs):
    names, others = [spec.name for spec in ours], [spec.name for spec in theirs]
    return names if set(names) == set(others) else others


def compiled(source):
    import tempfile

    from nnpipe.core.artifact import Artifact
    from nnpipe.core.compiler import ModelCompiler
    from nnpipe.core.files import compute_sha256
    from nnpipe.core.registry import create_component

    folder = Path(tempfile.mkdtemp())
{exporting}
    names = in_order(source.inputs, artifact.io.inputs)
    samples = [dict(zip(names, sample)) for sample in zip(*arrays("inputs.npz"))]
    for number, described in enumerate(CHAIN["compilers"]):
        compiler = create_component(described, ModelCompiler)
        artifact = compiler.compile(artifact, folder / f"model{{number}}{{compiler.suffix}}", lambda: iter(samples))
    return artifact
"""
_AS_IT_IS = '    artifact = Artifact(MODEL, "onnx", source, sha256_of(MODEL))'
_AS_LAYERS = """    from nnpipe.modelwrappers import DeclaredModel

    with DeclaredModel(network=MODEL, scale=1.0).open(MODEL) as live:
        artifact = live.export(folder / "exported{suffix}", CHAIN["export"])"""


def has_standalone_script(chosen: PlannedRecipe) -> bool:
    """Return whether a script with the chain's framework alone is known."""
    stages = (*chosen.compilers, chosen.runtime)
    return _list_stage_names(chosen) in _ALONE and all(
        stage == type(stage)() for stage in stages if stage is not None
    )


def generate_reproducer(chosen: PlannedRecipe, chain: Mapping[str, Any], alone: bool) -> str:
    """Return the script.

    Parameters
    ----------
    chosen, chain
        The chain, and its description.
    alone
        Whether to use its framework alone; nnpipe otherwise.
    """
    claims = normalize_claims(claim for compiler in chosen.compilers for claim in compiler.claims())
    head = _HEAD.format(tolerance=Tolerances.from_json(chain["tolerances"]).close_for(claims))
    if alone:
        return head + _ALONE[_list_stage_names(chosen)] + _TAIL
    assert chosen.plan is not None
    declared = chosen.wrapper.weights_format != "onnx"
    exporting = _AS_LAYERS.format(suffix="." + chosen.plan.export) if declared else _AS_IT_IS
    told = {key: chain[key] for key in ("compilers", "runtime", "export")}
    return head + _NNPIPE.format(chain=pprint.pformat(told, width=110), exporting=exporting) + _TAIL


def _list_stage_names(chosen: PlannedRecipe) -> tuple[str, ...]:
    return tuple(type(stage).__name__ for stage in (*chosen.compilers, chosen.runtime))


_PACKAGES = (
    "openvino",
    "nncf",
    "onnxruntime",
    "iree-base-compiler",
    "iree-base-runtime",
    "apache-tvm",
    "tensorflow",
    "tensorflow-cpu",
    "ai-edge-litert",
    "torch",
    "executorch",
    "keras",
)
# after which a script is taken to hang, importing frameworks included
_LEAST, _SECONDS = 30.0, 300.0


def write_reproducer(
    to: Path,
    part: ONNXPart,
    values: TensorValues,
    chosen: PlannedRecipe,
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
    with replace_folder_atomically(to) as folder:
        part.write(folder / "model.onnx")
        np.savez(folder / "inputs.npz", **_index_arrays(stack_values(part.inputs, values)))
        np.savez(folder / "expected.npz", **_index_arrays(stack_values(part.outputs, values)))
        alone = has_standalone_script(chosen)
        script = generate_reproducer(chosen, chain, alone)
        write_text(folder / "reproduce.py", script)
        shown = _check_script(folder, symptom, hang_after)
        if alone and not shown:  # what nnpipe does besides matters
            alone = False
            write_text(folder / "reproduce.py", generate_reproducer(chosen, chain, False))
            shown = _check_script(folder, symptom, hang_after)
        write_text(
            folder / "issue.md", _format_issue(part, chosen, symptom, reference, alone, shown)
        )


def _index_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    # By position: names of tensors may be anything, and those of a zip file's members may not.
    return {str(place): array for place, array in enumerate(arrays.values())}


def _check_script(folder: Path, symptom: Symptom, hang_after: float) -> bool:
    """Run the script, and return whether it shows the fault."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    seconds = min(max(hang_after, _LEAST), _SECONDS) if symptom.kind == "hang" else _SECONDS
    try:
        done = subprocess.run(
            [sys.executable, "reproduce.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return symptom.kind == "hang"
    if symptom.kind == "crash":
        return done.returncode not in (0, 1)
    return symptom.kind != "hang" and done.returncode == 1


def _format_issue(
    part: ONNXPart,
    chosen: PlannedRecipe,
    symptom: Symptom,
    reference: str,
    alone: bool,
    shown: bool,
) -> str:
    facts = read_host_facts()
    stages = [
        type(each).__name__
        for each in (*chosen.compilers, *([chosen.runtime] if chosen.runtime else []))
    ]
    kinds = ", ".join(dict.fromkeys(node.op_type for node in part.model.graph.node))
    title = {
        "error": f"{symptom.what} for {kinds}",
        "crash": f"crash ({symptom.what}) on {kinds}",
        "hang": f"{kinds} never ends",
        "not finite": f"{kinds} gives NaN or infinity",
        "difference": f"wrong result of {kinds}",
    }[symptom.kind]
    versions = get_framework_versions((*_PACKAGES, "onnx", "numpy"))
    needs = (
        "It needs numpy and the framework alone."
        if alone
        else "It needs nnpipe: pip install nnpipe."
    )
    if not shown:
        needs += (
            " Here it did not show the fault outside of nnpipe's own process; please look at it "
            "before reporting."
        )
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
{_format_listing(part)}
```

## Versions

{chr(10).join(f"- {name} {version}" for name, version in versions.items())}
- Python {sys.version.split()[0]}, {facts["system"]["distribution"]}, {facts["system"]["machine"]}
- {facts["cpu"]["model"]}, {facts["cpu"]["logical_cores"]} cores
"""


def _format_listing(part: ONNXPart) -> str:
    import onnx

    graph = part.model.graph
    lines = [
        f"{side} {_format_value_info(value)}"
        for side in ("input", "output")
        for value in getattr(graph, side)
    ]
    lines += [f"constant {tensor.name}: {list(tensor.dims)}" for tensor in graph.initializer]
    lines += [onnx.printer.to_text(node) for node in graph.node]
    return "\n".join(line if len(line) < 400 else f"{line[:400]} ..." for line in lines)


def _format_value_info(value: Any) -> str:
    import onnx

    tensor = value.type.tensor_type
    shape = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    return f"{value.name}: {onnx.TensorProto.DataType.Name(tensor.elem_type)} {shape}"
