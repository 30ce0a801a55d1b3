"""What the tests of several compilers start from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.testing.model_files import write_torch_network

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A small network that PyTorch exported."""
    return write_torch_network(tmp_path_factory.mktemp("source") / "network.pt2")
