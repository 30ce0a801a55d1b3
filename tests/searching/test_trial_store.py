"""Trials in memory keep the contract of stores, and configurations have keys."""

from __future__ import annotations

import pytest
from trial_store_contract import Make, TrialStoreContract

from nnpipe.core.errors import ConfigError
from nnpipe.searching.trial_store import MemoryTrials, build_configuration_key


class TestMemoryTrials(TrialStoreContract):
    @pytest.fixture
    def make(self) -> Make:
        return MemoryTrials


def test_a_lease_of_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than 0 seconds"):
        MemoryTrials(seconds=0)


def test_the_key_of_a_configuration_does_not_depend_on_the_order_of_names() -> None:
    assert build_configuration_key({"b": 1.5, "a": "x"}) == build_configuration_key(
        {"a": "x", "b": 1.5}
    )
    assert build_configuration_key({"a": 1}) != build_configuration_key({"a": "1"})
