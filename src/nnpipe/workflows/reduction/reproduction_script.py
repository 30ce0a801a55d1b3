"""The script of a reproducer, which compiles and runs the model: with its framework alone where that is known."""

from __future__ import annotations

import pprint
from collections.abc import Mapping
from typing import Any

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.claims import checked
from nnpipe.workflows.ways import Planned

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

    from nnpipe.core.batch_conversion import adapt
    from nnpipe.core.quantization import dequantize_linear
    from nnpipe.core.registry import component_from
    from nnpipe.core.runtime import Runtime
    from nnpipe.formats.onnx import read_onnx

    source = read_onnx(MODEL).io()
    if not made:
        made.append(component_from(CHAIN["runtime"], Runtime).load(compiled(source)))
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
    from nnpipe.core.files import sha256_of
    from nnpipe.core.registry import component_from

    folder = Path(tempfile.mkdtemp())
{exporting}
    names = in_order(source.inputs, artifact.io.inputs)
    samples = [dict(zip(names, sample)) for sample in zip(*arrays("inputs.npz"))]
    for number, described in enumerate(CHAIN["compilers"]):
        compiler = component_from(described, ModelCompiler)
        artifact = compiler.compile(artifact, folder / f"model{{number}}{{compiler.suffix}}", lambda: iter(samples))
    return artifact
"""
_AS_IT_IS = '    artifact = Artifact(MODEL, "onnx", source, sha256_of(MODEL))'
_AS_LAYERS = """    from nnpipe.modelwrappers import DeclaredModel

    with DeclaredModel(network=MODEL, scale=1.0).open(MODEL) as live:
        artifact = live.export(folder / "exported{suffix}", CHAIN["export"])"""


def scripts_alone(chosen: Planned) -> bool:
    """Return whether a script with the chain's framework alone is known."""
    stages = (*chosen.compilers, chosen.runtime)
    return _names(chosen) in _ALONE and all(stage == type(stage)() for stage in stages if stage is not None)


def script_of(chosen: Planned, chain: Mapping[str, Any], alone: bool) -> str:
    """Return the script.

    Parameters
    ----------
    chosen, chain
        The chain, and its description.
    alone
        Whether to use its framework alone; nnpipe otherwise.
    """
    claims = checked(claim for compiler in chosen.compilers for claim in compiler.claims())
    head = _HEAD.format(tolerance=Tolerances.from_json(chain["tolerances"]).close_for(claims))
    if alone:
        return head + _ALONE[_names(chosen)] + _TAIL
    assert chosen.plan is not None
    declared = chosen.wrapper.weights_format != "onnx"
    exporting = _AS_LAYERS.format(suffix="." + chosen.plan.export) if declared else _AS_IT_IS
    told = {key: chain[key] for key in ("compilers", "runtime", "export")}
    return head + _NNPIPE.format(chain=pprint.pformat(told, width=110), exporting=exporting) + _TAIL


def _names(chosen: Planned) -> tuple[str, ...]:
    return tuple(type(stage).__name__ for stage in (*chosen.compilers, chosen.runtime))
