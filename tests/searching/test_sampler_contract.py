"""Our samplers keep Optuna's contract of samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.tools.installed import needs

needs("optuna", "cmaes")
pytestmark = pytest.mark.slow

from optuna.testing.pytest_samplers import (  # noqa: E402
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from nnpipe.searching.own_samplers import (  # noqa: E402
    CMAESSampler,
    EvolutionSampler,
)


class TestEvolutionSampler(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], Any]:
        return lambda: EvolutionSampler(population=3, sample=2)


class TestCMAESSampler(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], Any]:
        return CMAESSampler
