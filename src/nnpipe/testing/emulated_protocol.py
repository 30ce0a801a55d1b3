"""The contract of runtime protocols whose target is not served by nnpipe, such as a board with firmware of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import NotSupported, TargetError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.core.tensors import Batch
from nnpipe.protocols.client.session import open_session
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.protocol import same
from nnpipe.testing.session import assert_one_line


class EmulatedProtocolContract(ComponentContract):
    """What every runtime protocol to such a target must do; subclass it and define the fixtures.

    ``protocol``
        The protocol.
    ``other``
        The protocol to a second target; by default the same, which then leads to a target of its own each time.
    ``model``
        A model that the target takes.
    ``refused``
        A model that it does not take.
    ``batches``
        Inputs of the model: at least two batches.
    ``expected``
        The outputs for each of them.
    """

    @pytest.fixture
    def protocol(self) -> RuntimeProtocol:
        raise NotImplementedError("a subclass of EmulatedProtocolContract gives the fixture `protocol`")

    @pytest.fixture
    def other(self, protocol: RuntimeProtocol) -> RuntimeProtocol:
        return protocol

    @pytest.fixture
    def model(self) -> Artifact:
        raise NotImplementedError("a subclass of EmulatedProtocolContract gives the fixture `model`")

    @pytest.fixture
    def refused(self) -> Artifact:
        raise NotImplementedError("a subclass of EmulatedProtocolContract gives the fixture `refused`")

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        raise NotImplementedError("a subclass of EmulatedProtocolContract gives the fixture `batches`")

    @pytest.fixture
    def expected(self) -> Sequence[Batch]:
        raise NotImplementedError("a subclass of EmulatedProtocolContract gives the fixture `expected`")

    @pytest.fixture
    def component(self, protocol: RuntimeProtocol) -> Component:
        return protocol

    def test_it_is_no_server(self, protocol: RuntimeProtocol) -> None:
        with pytest.raises(NotSupported) as caught:
            protocol.listen()
        assert_one_line(caught.value)

    def test_a_model_runs_in_one_session_after_another(
        self, protocol: RuntimeProtocol, model: Artifact, batches: Sequence[Batch], expected: Sequence[Batch]
    ) -> None:
        for _ in range(2):
            with open_session(protocol, model) as session:
                for batch, wanted in zip(batches, expected, strict=True):
                    same(session.infer(batch), dict(wanted))
                    session.put(batch)
                    session.run()
                    session.run()
                    same(session.get(), dict(wanted))
                assert session.stats()["inferences"] == 3 * len(batches)

    def test_two_targets_do_not_disturb_each_other(
        self,
        protocol: RuntimeProtocol,
        other: RuntimeProtocol,
        model: Artifact,
        batches: Sequence[Batch],
        expected: Sequence[Batch],
    ) -> None:
        with open_session(protocol, model) as first, open_session(other, model) as second:
            first.put(batches[0])
            second.put(batches[1])
            second.run()
            first.run()
            same(first.get(), dict(expected[0]))
            same(second.get(), dict(expected[1]))

    def test_a_model_that_it_does_not_take_is_refused_in_one_line(
        self, protocol: RuntimeProtocol, refused: Artifact
    ) -> None:
        with pytest.raises(TargetError) as caught, open_session(protocol, refused):
            pass
        assert_one_line(caught.value)
