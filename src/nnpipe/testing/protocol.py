"""The contract of runtime protocols."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import NNPipeError, NotSupported, TargetError, TransportError
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Channel, Listener, RuntimeProtocol, ServerOptions
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.protocols.client.session import open_session
from nnpipe.protocols.conversation.frame import get_check_bits
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.serve import serve_client
from nnpipe.protocols.server.shared_page import SharedPage
from nnpipe.protocols.server.worker import perform_handshake
from nnpipe.testing.channel import ChannelContract, Channels, receive
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.fakes import FakeRuntime, compute_expected, write_fake_model
from nnpipe.testing.session import assert_one_line

IO = IOSpec(
    (TensorSpec("image", (None, 3, 5), "uint8"), TensorSpec("mask", (7,), "float32")),
    (TensorSpec("scores", (None, 11), "float32"), TensorSpec("label", (3,), "int16")),
)


def create_batch(samples: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random inputs for :data:`IO`."""
    random = np.random.default_rng(seed)
    return {
        "image": random.integers(0, 256, (samples, 3, 5), np.uint8),
        "mask": random.standard_normal(7).astype(np.float32),
    }


class RuntimeProtocolContract(ComponentContract, ChannelContract):
    """What every runtime protocol must do; subclass it and define the fixture ``protocol``.

    If :meth:`connect` needs information that only the listener has (a port that the
    system chose), also define ``serving``.
    """

    @pytest.fixture
    def protocol(self) -> RuntimeProtocol:
        raise NotImplementedError(
            "a subclass of RuntimeProtocolContract gives the fixture `protocol`"
        )

    @pytest.fixture
    def component(self, protocol: RuntimeProtocol) -> Component:
        return protocol

    @pytest.fixture
    def serving(self, protocol: RuntimeProtocol) -> Iterator[tuple[Listener, RuntimeProtocol]]:
        """Yield a listener, and the protocol that connects to it."""
        with protocol.listen() as listener:
            yield listener, protocol

    @pytest.fixture
    def channels(self, serving: tuple[Listener, RuntimeProtocol]) -> Iterator[Channels]:
        with connect_pair(*serving) as both:
            yield both

    def test_nobody_comes_within_the_time_allowed(
        self, serving: tuple[Listener, RuntimeProtocol]
    ) -> None:
        begun = time.monotonic()
        assert serving[0].accept(0.05) is None
        assert time.monotonic() - begun < 2

    def test_one_client_after_another(self, serving: tuple[Listener, RuntimeProtocol]) -> None:
        for _ in range(3):
            with connect_pair(*serving) as (host, target):
                host.send([b"hello"])
                assert receive(target, 5) == b"hello"

    def test_connecting_where_nobody_listens_fails_in_one_line(
        self, serving: tuple[Listener, RuntimeProtocol]
    ) -> None:
        listener, protocol = serving
        listener.close()
        with pytest.raises(TransportError) as caught:
            protocol.connect()
        assert "\n" not in str(caught.value)

    def test_a_model_runs_at_the_other_end(
        self, serving: tuple[Listener, RuntimeProtocol], tmp_path: Path
    ) -> None:
        listener, protocol = serving
        model = write_fake_model(tmp_path, IO, padding=5000)
        with serve_in_thread(listener, FakeRuntime()), open_session(protocol, model) as session:
            for seed in range(3):
                batch = create_batch(seed + 1, seed)
                assert_equal_outputs(session.infer(batch), compute_expected(IO, batch))
                session.put(batch)
                session.run()
                assert_equal_outputs(session.get(), compute_expected(IO, batch))
            assert session.stats()["inferences"] == 6

    def test_a_failing_model_leaves_the_line_usable(
        self, serving: tuple[Listener, RuntimeProtocol], tmp_path: Path
    ) -> None:
        listener, protocol = serving
        failing = write_fake_model(tmp_path, IO, fault="raise", after=1)
        with serve_in_thread(listener, FakeRuntime()):
            with open_session(protocol, failing) as session:
                session.infer(create_batch())
                with pytest.raises(TargetError, match="told to fail"):
                    session.infer(create_batch())
            with open_session(protocol, write_fake_model(tmp_path, IO)) as session:
                assert_equal_outputs(
                    session.infer(create_batch()), compute_expected(IO, create_batch())
                )


def assert_equal_outputs(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Assert that two sets of outputs are equal."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@contextmanager
def connect_pair(listener: Listener, protocol: RuntimeProtocol) -> Iterator[Channels]:
    """Connect and accept; yield the host's and the target's end."""
    accepted: list[Channel | None] = []
    thread = threading.Thread(target=lambda: accepted.append(listener.accept(10.0)))
    thread.start()
    try:
        host = protocol.connect()
    except BaseException:
        thread.join()
        for channel in filter(None, accepted):
            channel.close()
        raise
    thread.join()
    target = accepted[0]
    assert target is not None
    with host, target:
        yield host, target


@contextmanager
def serve_in_thread(
    listener: Listener, runtime: Runtime, options: ServerOptions | None = None
) -> Iterator[list[str]]:
    """Serve in a thread of this process; yield a list that receives the reason why each
    conversation ended.
    """
    import tempfile

    stopping = threading.Event()
    reasons: list[str] = []
    options = options or ServerOptions()

    def serve_clients(folder: str) -> None:
        while not stopping.is_set():
            channel = listener.accept(0.02)
            if channel is None:
                continue
            limits = Limits(largest=options.max_input_bytes, checks=get_check_bits())
            conversation = TargetConversation(limits, options.read_token())
            try:
                perform_handshake(channel, conversation, 5.0)
            except NNPipeError as error:
                reasons.append(str(error))
                channel.close()
                continue
            board = SharedPage()
            reasons.append(
                serve_client(
                    channel, conversation, runtime, options, Path(folder), board, stopping.is_set
                )
            )
            board.close()

    with tempfile.TemporaryDirectory() as folder:
        thread = threading.Thread(target=serve_clients, args=(folder,), daemon=True)
        thread.start()
        try:
            yield reasons
        finally:
            stopping.set()
            thread.join(20)
            assert not thread.is_alive(), "the server in this process does not end"


class EmulatedProtocolContract(ComponentContract):
    """What every runtime protocol to such a target must do; subclass it and define the fixtures.

    ``protocol``
        The protocol.
    ``other``
        The protocol to a second target; by default the same, which then leads to a target of its
        own each time.
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
        raise NotImplementedError(
            "a subclass of EmulatedProtocolContract gives the fixture `protocol`"
        )

    @pytest.fixture
    def other(self, protocol: RuntimeProtocol) -> RuntimeProtocol:
        return protocol

    @pytest.fixture
    def model(self) -> Artifact:
        raise NotImplementedError(
            "a subclass of EmulatedProtocolContract gives the fixture `model`"
        )

    @pytest.fixture
    def refused(self) -> Artifact:
        raise NotImplementedError(
            "a subclass of EmulatedProtocolContract gives the fixture `refused`"
        )

    @pytest.fixture
    def batches(self) -> Sequence[Batch]:
        raise NotImplementedError(
            "a subclass of EmulatedProtocolContract gives the fixture `batches`"
        )

    @pytest.fixture
    def expected(self) -> Sequence[Batch]:
        raise NotImplementedError(
            "a subclass of EmulatedProtocolContract gives the fixture `expected`"
        )

    @pytest.fixture
    def component(self, protocol: RuntimeProtocol) -> Component:
        return protocol

    def test_it_is_no_server(self, protocol: RuntimeProtocol) -> None:
        with pytest.raises(NotSupported) as caught:
            protocol.listen()
        assert_one_line(caught.value)

    def test_a_model_runs_in_one_session_after_another(
        self,
        protocol: RuntimeProtocol,
        model: Artifact,
        batches: Sequence[Batch],
        expected: Sequence[Batch],
    ) -> None:
        for _ in range(2):
            with open_session(protocol, model) as session:
                for batch, wanted in zip(batches, expected, strict=True):
                    assert_equal_outputs(session.infer(batch), dict(wanted))
                    session.put(batch)
                    session.run()
                    session.run()
                    assert_equal_outputs(session.get(), dict(wanted))
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
            assert_equal_outputs(first.get(), dict(expected[0]))
            assert_equal_outputs(second.get(), dict(expected[1]))

    def test_a_model_that_it_does_not_take_is_refused_in_one_line(
        self, protocol: RuntimeProtocol, refused: Artifact
    ) -> None:
        with pytest.raises(TargetError) as caught, open_session(protocol, refused):
            pass
        assert_one_line(caught.value)
