"""The contract of servers of the protocol, in whichever language: what a host sees of them."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import TargetError
from nnpipe.core.runtime_protocol import RuntimeProtocol
from nnpipe.core.tensors import Batch
from nnpipe.protocols.client.session import RemoteSession, open_session
from nnpipe.protocols.conversation.frame import HEADER_SIZE, ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import (
    ModelOffer,
    Stats,
    TensorLayout,
    pack_count,
    unpack_stamps,
)
from nnpipe.protocols.conversation.rules import ALLOWED, FIXED_BOUNDS, ConversationState, Extension
from nnpipe.testing.protocol import assert_equal_outputs
from nnpipe.testing.raw_host import (
    BEGIN,
    END,
    PART,
    PATIENCE,
    RawHost,
    connect_host,
    connect_host_in_state,
    connect_ready_host,
    create_model_batch,
    create_model_payload,
    is_refused,
)

_STATES = (
    ConversationState.EMPTY,
    ConversationState.READY,
    ConversationState.LOADED,
    ConversationState.DONE,
)
_REQUESTS = [
    *((kind, 0) for kind in FrameKind if kind is not FrameKind.MODEL),
    *((FrameKind.MODEL, step) for step in (BEGIN, PART, END, 3)),
]
_PARTIAL = (1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1)


class ServerContract:
    """What every server must do; subclass it and define the fixtures ``serving``, ``model`` and
    ``reference``.

    The server that runs must serve one client at a time, without a token.  Its model has inputs and
    outputs of fixed shapes, and its outputs follow from its inputs alone.
    """

    @pytest.fixture
    def serving(self) -> RuntimeProtocol:
        """Return the protocol that connects to a server that runs."""
        raise NotImplementedError("a subclass of ServerContract gives the fixture `serving`")

    @pytest.fixture
    def model(self) -> Artifact:
        raise NotImplementedError("a subclass of ServerContract gives the fixture `model`")

    @pytest.fixture
    def reference(self) -> Callable[[Batch], dict[str, np.ndarray]]:
        """Return a function from a batch to the outputs that the model must have."""
        raise NotImplementedError("a subclass of ServerContract gives the fixture `reference`")

    @pytest.fixture
    def serves(
        self,
        serving: RuntimeProtocol,
        model: Artifact,
        reference: Callable[[Batch], dict[str, np.ndarray]],
    ) -> Callable[[], None]:
        """Return a function that asserts that the next client is served rightly."""

        def check() -> None:
            batch = create_model_batch(model, 7)
            with _retry_while_busy(lambda: open_session(serving, model)) as session:
                assert_equal_outputs(session.infer(batch), reference(batch))

        return check

    @pytest.mark.parametrize("extensions", range(8))
    def test_a_model_computes_the_same_in_every_way_of_asking(
        self,
        serving: RuntimeProtocol,
        model: Artifact,
        reference: Callable[[Batch], dict[str, np.ndarray]],
        extensions: int,
    ) -> None:
        batches = [create_model_batch(model, seed) for seed in range(4)]
        limits = Limits(extensions=extensions)
        with _retry_while_busy(lambda: open_session(serving, model, limits=limits)) as session:
            for batch in batches:
                assert_equal_outputs(session.infer(batch), reference(batch))
            for batch in batches:
                session.put(batch)
                for _ in range(2):  # the same inputs once more
                    session.run()
                    assert_equal_outputs(session.get(), reference(batch))
            for found, batch in zip(session.stream(batches), batches, strict=True):
                assert_equal_outputs(found, reference(batch))
            assert session.stats()["inferences"] == 16
            assert session.io.to_json() == model.io.to_json()

    def test_stamps_and_clock_follow_one_another(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        with connect_ready_host(serving, model, Extension.INFER) as host:
            before = Stats.unpack(host.ask(FrameKind.STATS, b"", FrameFlag.CLOCK).payload)
            stamps = unpack_stamps(
                host.ask(FrameKind.INFER, create_model_payload(model, 0)).payload, alone=False
            )
            after = Stats.unpack(host.ask(FrameKind.STATS).payload)
        assert before.rows == b""
        assert before.answered <= stamps[0] <= stamps[3] <= after.received
        assert (before.inferences, after.inferences) == (0, 1)

    def test_requests_that_are_not_allowed_end_the_conversation(
        self, serving: RuntimeProtocol, model: Artifact, serves: Callable[[], None]
    ) -> None:
        for state in _STATES:
            for kind, flags in _REQUESTS:
                rule = ALLOWED.get((state, int(kind), int(flags)))
                if rule is None or rule.extension is not None:
                    with connect_host_in_state(serving, model, state) as host:
                        assert is_refused(host, kind, b"", flags), (
                            f"{kind.name}, {flags} in {state.value}"
                        )
        serves()

    def test_kinds_and_flags_that_mean_nothing_end_it_too(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        for kind, flags in (
            (0, 0),
            (12, 0),
            (FrameKind.DATA, 1),
            (FrameKind.STATS, 2),
            (FrameKind.PROCESS, 0x80),
        ):
            with connect_host_in_state(serving, model, ConversationState.LOADED) as host:
                assert is_refused(host, kind, b"", flags)

    def test_a_length_beyond_its_bound_is_refused_before_a_payload_comes(
        self, serving: RuntimeProtocol, model: Artifact, serves: Callable[[], None]
    ) -> None:
        for (state, kind, step), rule in ALLOWED.items():
            if state not in (*_STATES, ConversationState.NEW) or rule.extension is not None:
                continue
            with connect_host_in_state(serving, model, state) as host:
                most = FIXED_BOUNDS.get(rule.ask_bound, 0xFFFF_FFFE)
                host.send_request(kind, b"", step, length=most + 1)
                answer = host.answer()
                assert (answer.fatal, answer.code) == (True, ErrorCode.PROTOCOL), (
                    state,
                    kind,
                    step,
                )
                assert host.has_ended()
        serves()

    @pytest.mark.parametrize("at", [0, 1, 2, 4, 8, 12, 16, 20, HEADER_SIZE, HEADER_SIZE + 5])
    def test_a_changed_bit_ends_the_conversation(
        self, serving: RuntimeProtocol, model: Artifact, serves: Callable[[], None], at: int
    ) -> None:
        payload = create_model_payload(model, 0)
        with connect_host_in_state(serving, model, ConversationState.READY) as host:
            sent = bytearray(host.frame(FrameKind.DATA, payload))
            sent[at] ^= 4
            host.send(bytes(sent))
            answer = host.answer()
            assert (answer.fatal, answer.code) == (True, ErrorCode.PROTOCOL)
            assert host.has_ended()
        serves()

    @pytest.mark.parametrize("step", [0, 2, -1])
    def test_a_number_out_of_order_ends_the_conversation(
        self, serving: RuntimeProtocol, model: Artifact, step: int
    ) -> None:
        with connect_host_in_state(serving, model, ConversationState.READY) as host:
            host.number = host.number - 1 + step & 0xFFFFFFFF
            assert is_refused(host, FrameKind.STATS)

    def test_another_version_is_named(self, serving: RuntimeProtocol) -> None:
        for versions in ((2, 3), (0, 0)):
            with RawHost(serving) as host:
                answer = host.ask(FrameKind.HELLO, bytes(versions) + bytes(30))
                assert (answer.fatal, answer.code) == (True, ErrorCode.VERSION)

    @pytest.mark.parametrize("length", [0, 31])
    def test_a_hello_of_another_length_is_refused(
        self, serving: RuntimeProtocol, length: int
    ) -> None:
        with RawHost(serving) as host:
            assert is_refused(host, FrameKind.HELLO, bytes(length))

    def test_each_conversation_has_a_nonce_of_its_own(self, serving: RuntimeProtocol) -> None:
        nonces = set()
        for _ in range(5):
            with connect_host(serving) as (_, welcome):
                nonces.add(welcome[16:])
        assert len(nonces) == 5

    def test_inputs_of_another_size_are_refused_and_the_right_ones_taken(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        right = create_model_payload(model, 0)
        with connect_ready_host(serving, model, Extension.INFER) as host:
            for wrong in (b"", right[:-1]):
                for kind in (FrameKind.DATA, FrameKind.INFER):
                    answer = host.ask(kind, wrong)
                    assert (answer.fatal, answer.code) == (False, ErrorCode.TENSORS)
                assert host.ask(FrameKind.INFER, right).kind is FrameKind.OK

    def test_requests_sent_ahead_of_a_failure_are_passed_over(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        with connect_ready_host(serving, model, Extension.PIPELINING) as host:
            for payload in (
                create_model_payload(model, 0),
                b"wrong",
                create_model_payload(model, 1),
            ):
                host.send_request(FrameKind.DATA, payload)
                host.send_request(FrameKind.PROCESS)
                host.send_request(FrameKind.OUTPUT)
            codes = [host.answer().code for _ in range(4 + 3 + 4)]
        failed = [ErrorCode.TENSORS, ErrorCode.SKIPPED, ErrorCode.SKIPPED]
        assert codes == [0] * 4 + failed + [0] * 4

    def test_without_pipelining_nothing_is_passed_over(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        with connect_ready_host(serving, model, Extension.INFER) as host:
            assert host.ask(FrameKind.DATA, b"wrong").code == ErrorCode.TENSORS
            assert is_refused(host, FrameKind.PROCESS)

    def test_outputs_that_the_host_does_not_take_are_not_sent(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        size = TensorLayout(model.io.outputs).size or 0
        for largest, code in ((size - 1, ErrorCode.TENSORS), (size, 0)):
            with connect_ready_host(serving, model, Extension.INFER, largest) as host:
                assert host.ask(FrameKind.INFER, create_model_payload(model, 0)).code == code

    def test_a_model_that_is_not_what_its_hash_says_is_refused(
        self, serving: RuntimeProtocol, model: Artifact, serves: Callable[[], None]
    ) -> None:
        """A server that has its models already may refuse at once; the others when the file is
        complete.
        """
        content = bytes(40)
        offer = ModelOffer(
            len(content), hashlib.sha256(b"another").digest(), {"format": model.format}
        ).pack()
        with connect_host_in_state(serving, model, ConversationState.EMPTY) as host:
            answers = [host.ask(FrameKind.MODEL, offer, BEGIN)]
            if not answers[0].code:
                answers.append(host.ask(FrameKind.MODEL, pack_count(0) + content, PART))
                answers.append(host.ask(FrameKind.MODEL, b"", END))
            assert answers[-1].code in (ErrorCode.MODEL, ErrorCode.DAMAGED, ErrorCode.NATIVE_CODE)
            assert not answers[-1].fatal
            assert host.load(model).kind is FrameKind.OK
        serves()

    @pytest.mark.parametrize("length", [0, 39])
    def test_an_offer_that_is_too_short_ends_the_conversation(
        self, serving: RuntimeProtocol, model: Artifact, length: int
    ) -> None:
        with connect_host_in_state(serving, model, ConversationState.EMPTY) as host:
            assert is_refused(host, FrameKind.MODEL, bytes(length), BEGIN)

    def test_a_model_can_be_loaded_again(self, serving: RuntimeProtocol, model: Artifact) -> None:
        payload = create_model_payload(model, 0)
        with connect_ready_host(serving, model, Extension.INFER) as host:
            first = [host.ask(FrameKind.INFER, payload).payload[32:] for _ in range(2)]
            assert host.load(model).kind is FrameKind.OK
            assert host.ask(FrameKind.STATS, b"", FrameFlag.CLOCK).payload[32:40] == pack_count(0)
            assert [host.ask(FrameKind.INFER, payload).payload[32:] for _ in range(2)] == first

    def test_a_second_client_is_told_that_the_first_is_served(
        self, serving: RuntimeProtocol, model: Artifact
    ) -> None:
        with connect_ready_host(serving, model, Extension.INFER) as first:
            for _ in range(3):
                with RawHost(serving) as second:
                    answer = second.perform_handshake()
                    assert (answer.fatal, answer.code) == (True, ErrorCode.BUSY)
                    assert second.has_ended()
                assert (
                    first.ask(FrameKind.INFER, create_model_payload(model, 0)).kind is FrameKind.OK
                )

    def test_clients_that_say_nothing_keep_nobody_out(
        self, serving: RuntimeProtocol, serves: Callable[[], None]
    ) -> None:
        silent = [RawHost(serving) for _ in range(80)]
        serves()
        for host in silent:
            host.close()

    @pytest.mark.parametrize(
        "kind", [FrameKind.HELLO, FrameKind.MODEL, FrameKind.DATA, FrameKind.STATS]
    )
    def test_a_client_may_leave_in_the_middle_of_a_frame(
        self, serving: RuntimeProtocol, model: Artifact, serves: Callable[[], None], kind: FrameKind
    ) -> None:
        state = ConversationState.NEW if kind is FrameKind.HELLO else ConversationState.READY
        for size in _PARTIAL:
            with connect_host_in_state(serving, model, state) as host:
                host.send(host.frame(kind, bytes(0 if kind is FrameKind.STATS else 32))[:size])
        serves()

    def test_a_frame_may_come_in_pieces(self, serving: RuntimeProtocol, model: Artifact) -> None:
        with connect_host_in_state(serving, model, ConversationState.READY) as host:
            sent = host.frame(FrameKind.DATA, create_model_payload(model, 0))
            for piece in (*(sent[at : at + 1] for at in range(40)), sent[40:]):
                host.send(piece)
            assert host.answer().kind is FrameKind.OK

    def test_noise_gets_an_error_and_the_next_client_is_served(
        self, serving: RuntimeProtocol, serves: Callable[[], None]
    ) -> None:
        chance = random.Random(0)
        for noise in (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            *(chance.randbytes(n) for n in (24, 100, 5000)),
        ):
            with RawHost(serving) as host:
                host.send(noise)
                assert host.answer().fatal
                assert host.has_ended()
        serves()


def _retry_while_busy(action: Callable[[], RemoteSession]) -> RemoteSession:
    """Return a session; the server may still be busy with the client before."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except TargetError as error:
            if error.code != ErrorCode.BUSY or time.monotonic() > until:
                raise
        time.sleep(0.02)
