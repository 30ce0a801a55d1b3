"""What a graph of many nodes costs beyond the frameworks' own work: looked at, planned,
exported, run and verified.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _growth import growth
from _table import EPYC

_NODES = 4  # of one block: a linear layer, an activation, a sum and a normalisation

_WRITING = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + torch.relu(self.linear(x)))

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), *(Block() for _ in range(int(sys.argv[1]))), nn.Linear(8, 10))
batch = torch.export.Dim("batch", min=1)
example = (torch.rand(2, 8, 8, 1),)
torch.export.save(torch.export.export(network.eval(), example, dynamic_shapes=({0: batch},)), sys.argv[2])
"""

# The steps that the workers of ``inference_tester`` carry out, in one process.
_OURS = """
import sys, time
from dataclasses import replace
from pathlib import Path
from nnpipe.core.artifact import Artifact
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.modelwrappers.files.torch_export import TorchExportModel
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.workflows.candidates.measure import verify_here
from nnpipe.workflows.candidates.model_process import ModelRequestHandler
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import check_plan
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

path, folder = map(Path, sys.argv[1:])
wrapper, runtime = TorchExportModel(model_path=path, scale=16.0), ONNXRuntime()
wrapper.contents()
check_plan(wrapper, (), runtime)
spec = CandidateSpec("many nodes", wrapper, path, runtime=runtime, dataset=DigitsDataset())
loaded, asked = ModelRequestHandler(), {"candidate": replace(spec, runtime=None).to_json()}
made = loaded({"do": "export", "format": "onnx", "to": str(folder / "made.onnx"), **asked})
reference = loaded({"do": "run", "samples": 8, "to": str(folder / "reference.npz"), "runtime": None, **asked})
asked = {"candidate": replace(spec, artifact=Artifact.read(made)).to_json(), "reference": reference}
verdict = verify_here({**asked, "verify_options": VerifyOptions(verify_samples=8).to_json()})
assert verdict["verdict"] in ("same", "close"), verdict
print(time.process_time())
"""

_FRAMEWORKS = """
import sys, time
import onnxruntime, torch

path, folder = sys.argv[1:]
program = torch.export.load(path)
torch.onnx.export(program, (), folder + "/bare.onnx", dynamo=True, opset_version=18, verbose=False, external_data=False)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(folder + "/bare.onnx", options)
samples = torch.rand(8, 8, 8, 1)
with torch.no_grad():
    program.module(check_guards=False)(samples)
session.run(None, {session.get_inputs()[0].name: samples.numpy()})
print(time.process_time())
"""


def beyond(nodes: int) -> float:
    """Return the CPU seconds that nnpipe takes for a program of so many nodes, less those of the
    frameworks alone.
    """
    with tempfile.TemporaryDirectory(prefix="nnpipe-scale-") as folder:
        path = str(Path(folder, "many.pt2"))
        _told(_WRITING, str(nodes // _NODES), path)
        return float(_told(_OURS, path, folder)) - float(_told(_FRAMEWORKS, path, folder))


def _told(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr[-1000:])
    return (done.stdout.split() or [""])[-1]


def parts(quick: bool) -> list[dict[str, Any]]:
    """Judge a graph of 5,000 nodes, from ``.pt2`` to ONNX Runtime."""
    sizes = [40, 200] if quick else [500, 5000]
    costs = [beyond(nodes) for nodes in sizes]
    return [
        growth(
            "a graph of many nodes, beyond the frameworks", "CPU s", sizes, costs, 60, seen_on=EPYC
        )
    ]
