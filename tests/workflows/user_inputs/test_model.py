"""Exporting modules that a user gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnpipe.formats.pt2 import read_program
from nnpipe.workflows.user_inputs.inputs import given

torch = pytest.importorskip("torch")


class Starred(torch.nn.Module):
    def forward(self, first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return sum(rest, first)


@pytest.mark.parametrize("count", [1, 3])
def test_a_module_that_takes_any_number_of_tensors_is_exported_for_any_number_of_samples(
    count: int, tmp_path: Path
) -> None:
    inputs = {f"x{place}": np.ones((4, 3), np.float32) for place in range(count)}

    ((_, path),) = given(Starred(), (inputs, np.zeros(4, np.int64)), tmp_path).models

    assert [spec.shape for spec in read_program(path).io.inputs] == [(None, 3)] * count
