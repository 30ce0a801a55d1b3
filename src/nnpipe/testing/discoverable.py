"""The contract of classes that are found by name but are not components: callbacks, layers,
tasks of scripts.
"""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from nnpipe.core.discoverable import Discoverable
from nnpipe.core.registry import find
from nnpipe.testing.component import check_needs_no_framework


class DiscoverableContract:
    """What every class that is found by name must do; the contracts of callbacks, layers and tasks
    are based on this.

    They define the fixture ``discovered``: the class.
    """

    @pytest.fixture
    def discovered(self) -> type[Discoverable]:
        raise NotImplementedError(
            "a subclass of DiscoverableContract gives the fixture `discovered`"
        )

    def test_its_dotted_path_leads_to_it(self, discovered: type[Discoverable]) -> None:
        assert not discovered.__name__.startswith("_"), (
            "a class whose name starts with an underscore is not found"
        )
        assert "<locals>" not in discovered.__qualname__, (
            "declare the class in a module, not in a function"
        )
        import_module(discovered.__module__)
        assert find(discovered.get_dotted_path(), discovered) is discovered

    def test_it_has_a_summary(self, discovered: type[Discoverable]) -> None:
        assert discovered.summary(), "the class needs a docstring of its own"

    def test_its_options_are_described_once(self, discovered: type[Discoverable]) -> None:
        names = [option.name for option in discovered.options()]
        assert len(set(names)) == len(names)

    def test_it_names_the_packages_it_needs(self, discovered: type[Discoverable]) -> None:
        for need in discovered.requires:
            assert all(part.replace(".", "_").isidentifier() for part in need.split("|")), need
        assert inspect.getfile(discovered)

    def test_its_module_and_its_options_need_no_framework(
        self, discovered: type[Discoverable]
    ) -> None:
        check_needs_no_framework(discovered)
