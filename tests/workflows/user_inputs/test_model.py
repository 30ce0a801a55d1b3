"""Exporting modules that a user gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnpipe
from nnpipe.core.errors import ConfigError
from nnpipe.formats.pt2 import read_program
from nnpipe.workflows.user_inputs.inputs import import_inputs

torch = pytest.importorskip("torch")


class Starred(torch.nn.Module):
    def forward(self, first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return sum(rest, first)


@pytest.mark.parametrize("count", [1, 3])
def test_a_module_that_takes_any_number_of_tensors_is_exported_for_any_number_of_samples(
    count: int, tmp_path: Path
) -> None:
    inputs = {f"x{place}": np.ones((4, 3), np.float32) for place in range(count)}

    ((_, path),) = import_inputs(Starred(), (inputs, np.zeros(4, np.int64)), tmp_path).models

    assert [spec.shape for spec in read_program(path).io.inputs] == [(None, 3)] * count


@pytest.mark.slow
def test_a_bfloat16_module_is_told_what_to_give_instead(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).bfloat16()
    data = np.zeros((3, 4), np.float32), np.zeros(3, int)
    with pytest.raises(
        ConfigError, match=r"bfloat16 .* .preparation={'dtype': 'float32'} in Python"
    ):
        nnpipe.compile(network, "onnx", tmp_path / "m.onnx", calibration=data)
    assert not (tmp_path / "m.onnx").exists()
    made = nnpipe.compile(
        network, "onnx", tmp_path / "m.onnx", calibration=data, preparation={"dtype": "float32"}
    )
    assert {spec.dtype for spec in made.io} == {"float32"}
