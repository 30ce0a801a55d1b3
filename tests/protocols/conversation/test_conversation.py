from __future__ import annotations

import gc
import itertools
import sys
import weakref
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from talk import NONCES, PIPELINED, Talk, feed

from nnpipe.core.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from nnpipe.protocols.conversation.frame import (
    CRC32,
    HEADER_SIZE,
    ErrorCode,
    FrameFlag,
    FrameKind,
    pack_header,
)
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.payloads import ErrorPayload, pack_log
from nnpipe.protocols.conversation.rules import ALLOWED, RULES, ConversationState, Extension
from nnpipe.protocols.conversation.target import TargetConversation

TOKEN = b"a token that both sides know"
NO_LUCK = ErrorPayload(ErrorCode.RUNTIME, "no luck")


def talk_in(state: ConversationState, limits: Limits | None = None) -> Talk:
    """A conversation brought to a state."""
    talk = Talk(limits)
    if state is ConversationState.EMPTY:
        return talk
    if state is ConversationState.RECEIVING:
        talk.exchange(FrameKind.MODEL, bytes(40), bytes(8), FrameFlag.BEGIN)
        return talk
    talk.load()
    if state is ConversationState.READY:
        return talk
    talk.exchange(FrameKind.DATA, b"inputs")
    if state is ConversationState.LOADED:
        return talk
    talk.exchange(FrameKind.PROCESS, answer=bytes(32))
    return talk


SETTLED = (
    ConversationState.EMPTY,
    ConversationState.RECEIVING,
    ConversationState.READY,
    ConversationState.LOADED,
    ConversationState.DONE,
)
ASKED = [(FrameKind.MODEL, step) for step in (0, 1, 2)] + [
    (k, 0)
    for k in (FrameKind.DATA, FrameKind.PROCESS, FrameKind.OUTPUT, FrameKind.INFER, FrameKind.STATS)
]


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize(("kind", "step"), ASKED)
def test_the_table_decides_what_a_host_may_say_and_where_it_leads(
    state: ConversationState, kind: FrameKind, step: int
) -> None:
    talk = talk_in(state)
    assert talk.host.state is talk.target.state is state
    rule = ALLOWED.get((state, kind, step))
    if rule is None:
        with pytest.raises(LocalProtocolError, match=kind.name):
            talk.host.ask(kind, (), step)
        # One that says it nevertheless is not listened to.
        feed(talk.target, pack_header(kind, step, talk.target.number + 1, 0, 0))
        with pytest.raises(RemoteProtocolError):
            talk.target.next_message()
        assert talk.target.state is ConversationState.CLOSED
        return
    talk.exchange(kind, flags=step)
    assert talk.host.state is talk.target.state is (rule.on_ok or state)


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize(("kind", "step"), ASKED)
def test_an_error_leads_where_the_table_says_and_the_talk_goes_on(
    state: ConversationState, kind: FrameKind, step: int
) -> None:
    talk = talk_in(state)
    rule = ALLOWED.get((state, kind, step))
    if rule is None:
        return
    talk.asks(kind, flags=step)
    feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.RUNTIME, "no luck")))
    message = talk.host.next_message()
    assert message.kind is FrameKind.ERROR
    assert message.failure == ErrorPayload(ErrorCode.RUNTIME, "no luck")
    assert talk.host.state is talk.target.state is (rule.on_error or state)
    talk.load()
    assert talk.host.state is talk.target.state is ConversationState.READY


def test_process_is_answered_twice() -> None:
    talk = talk_in(ConversationState.LOADED)
    talk.asks(FrameKind.PROCESS)
    with pytest.raises(LocalProtocolError):
        talk.target.answer((bytes(32),))
    assert talk.answers(flags=FrameFlag.STARTED).flags == FrameFlag.STARTED
    assert talk.host.state is talk.target.state is ConversationState.RUNNING
    with pytest.raises(LocalProtocolError):
        talk.target.answer((), FrameFlag.STARTED)
    with pytest.raises(LocalProtocolError, match="wait"):
        talk.host.ask(FrameKind.STATS)
    assert talk.answers(bytes(32)).payload == bytes(32)
    assert talk.host.state is talk.target.state is ConversationState.DONE


def test_an_inference_that_fails_after_it_began_leads_back_to_ready() -> None:
    talk = talk_in(ConversationState.LOADED)
    talk.asks(FrameKind.PROCESS)
    talk.answers(flags=FrameFlag.STARTED)
    feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.RUNTIME, "")))
    assert talk.host.next_message().kind is FrameKind.ERROR
    assert talk.host.state is talk.target.state is ConversationState.READY
    talk.exchange(FrameKind.DATA, b"again")
    talk.exchange(FrameKind.PROCESS, answer=bytes(32))


def test_the_bytes_may_come_in_any_pieces() -> None:
    talk = talk_in(ConversationState.DONE)
    talk.asks(FrameKind.OUTPUT)
    stream = b"".join(talk.target.answer((bytes(range(256)) * 100,)))
    for at in range(0, len(stream), 7):
        assert talk.host.next_message() is None
        feed(talk.host, stream[at : at + 7])
    assert talk.host.next_message().payload == bytes(range(256)) * 100


def test_payloads_go_straight_to_the_memory_named_for_them() -> None:
    talk = talk_in(ConversationState.DONE)
    memory = bytearray(30_000)
    talk.host.place = lambda kind, length: memoryview(memory)[:length]
    talk.asks(FrameKind.OUTPUT)
    frames = talk.target.answer((bytes([7]) * 30_000,))
    feed(talk.host, frames[0])
    assert talk.host.next_message() is None
    # What is wanted now is the rest of the very memory that was named.
    wanted = talk.host.wanted()
    assert len(wanted) == 30_000
    wanted[:] = frames[1]
    assert memory == bytes([7]) * 30_000
    talk.host.received(30_000)
    assert talk.host.next_message().payload == memory


def test_only_one_request_at_a_time_unless_pipelining_was_agreed_on() -> None:
    talk = talk_in(ConversationState.READY, Limits(extensions=0))
    talk.host.ask(FrameKind.DATA, (b"x",))
    with pytest.raises(LocalProtocolError, match="wait"):
        talk.host.ask(FrameKind.PROCESS)


def test_a_target_answers_before_it_listens_on() -> None:
    talk = talk_in(ConversationState.READY)
    talk.asks(FrameKind.DATA, b"x")
    with pytest.raises(LocalProtocolError, match="answered"):
        talk.target.next_message()
    talk.answers()
    with pytest.raises(LocalProtocolError):
        talk.target.answer()
    with pytest.raises(LocalProtocolError):
        talk.target.error(ErrorPayload(ErrorCode.RUNTIME, ""))


# -- pipelining
# -------------------------------------------------------------------------------------


def pipeline(talk: Talk, count: int) -> None:
    for number in range(count):
        feed(talk.target, talk.host.ask(FrameKind.DATA, (bytes([number]),)))
        feed(talk.target, talk.host.ask(FrameKind.PROCESS))
        feed(talk.target, talk.host.ask(FrameKind.OUTPUT))


def serve_pipelined(talk: Talk, count: int, failing: tuple[int, FrameKind] | None = None) -> None:
    """The target answers; request number ``failing[0]`` of its kind fails."""
    seen = dict.fromkeys(FrameKind, -1)
    for _ in range(3 * count):
        message = talk.target.next_message()
        seen[message.kind] += 1
        if message.skipped:
            feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.SKIPPED, "")))
        elif failing == (seen[message.kind], message.kind):
            feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.RUNTIME, "")))
        elif message.kind is FrameKind.PROCESS:
            feed(talk.host, talk.target.answer((), FrameFlag.STARTED))
            feed(talk.host, talk.target.answer((bytes(32),)))
        else:
            content = bytes([seen[message.kind]]) if message.kind is FrameKind.OUTPUT else b""
            feed(talk.host, talk.target.answer((content,)))
    assert talk.target.next_message() is None


def hear(talk: Talk) -> list[tuple[FrameKind, FrameKind, bytes]]:
    heard = []
    while (message := talk.host.next_message()) is not None:
        said = (
            bytes(message.payload)
            if message.kind is FrameKind.OK and message.rule.kind is FrameKind.OUTPUT
            else b""
        )
        heard.append((message.rule.kind, message.kind, said))
    return heard


def test_pipelined_requests_are_answered_in_order() -> None:
    talk = talk_in(ConversationState.READY, PIPELINED)
    pipeline(talk, 3)
    serve_pipelined(talk, 3)
    outputs = [said for asked, _, said in hear(talk) if asked is FrameKind.OUTPUT]
    assert outputs == [b"\0", b"\1", b"\2"]
    assert talk.host.waiting == 0
    assert talk.host.state is talk.target.state is ConversationState.DONE


@pytest.mark.parametrize("failing", [FrameKind.DATA, FrameKind.PROCESS, FrameKind.OUTPUT])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_failure_voids_what_depends_on_it_and_nothing_else(
    failing: FrameKind, which: int
) -> None:
    talk = talk_in(ConversationState.READY, PIPELINED)
    pipeline(talk, 3)
    serve_pipelined(talk, 3, (which, failing))
    outputs = [(kind, said) for asked, kind, said in hear(talk) if asked is FrameKind.OUTPUT]
    good = [kind is FrameKind.OK for kind, _ in outputs]
    # A host that sent ahead must not take an old output for the one that failed.
    assert good == [number != which for number in range(3)]
    assert talk.host.waiting == 0
    assert talk.host.state is talk.target.state
    pipeline(talk, 1)
    serve_pipelined(talk, 1)
    assert hear(talk)[-1][:2] == (FrameKind.OUTPUT, FrameKind.OK)


# -- inferences in one request
# ----------------------------------------------------------------------


def infer_ahead(talk: Talk, failing: int | None = None) -> list[tuple[FrameKind, bytes]]:
    """Ask three times without waiting; gives what the host hears."""
    for number in range(3):
        feed(talk.target, talk.host.ask(FrameKind.INFER, (bytes([number]),)))
    for number in range(3):
        message = talk.target.next_message()
        assert (message.kind, bytes(message.payload), message.skipped) == (
            FrameKind.INFER,
            bytes([number]),
            False,
        )
        failed = number == failing
        feed(
            talk.host,
            talk.target.error(NO_LUCK)
            if failed
            else talk.target.answer((bytes(32), bytes([number]))),
        )
    assert talk.target.next_message() is None
    heard = []
    while (message := talk.host.next_message()) is not None:
        assert message.rule.kind is FrameKind.INFER
        heard.append(
            (message.kind, bytes(message.payload[32:]) if message.kind is FrameKind.OK else b"")
        )
    assert talk.host.waiting == 0
    assert talk.host.state is talk.target.state
    return heard


def test_an_inference_may_be_one_request() -> None:
    talk = talk_in(ConversationState.READY, PIPELINED)
    assert infer_ahead(talk) == [(FrameKind.OK, bytes([number])) for number in range(3)]
    assert talk.host.state is ConversationState.DONE
    assert talk.exchange(FrameKind.OUTPUT, answer=b"again").payload == b"again"


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_inference_that_fails_in_one_request_leaves_the_others_alone(failing: int) -> None:
    talk = talk_in(ConversationState.READY, PIPELINED)
    heard = infer_ahead(talk, failing)
    assert [kind is FrameKind.OK for kind, _ in heard] == [number != failing for number in range(3)]
    assert talk.host.state is (ConversationState.READY if failing == 2 else ConversationState.DONE)


def test_what_was_sent_behind_an_inference_that_failed_is_void() -> None:
    talk = talk_in(ConversationState.DONE, PIPELINED)
    for kind in (FrameKind.INFER, FrameKind.OUTPUT):
        feed(talk.target, talk.host.ask(kind))
    talk.target.next_message()
    feed(talk.host, talk.target.error(NO_LUCK))
    assert talk.target.next_message().skipped, (
        "an old output must not be taken for that of the inference"
    )
    feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.SKIPPED, "")))
    assert [talk.host.next_message().failure.code for _ in range(2)] == [
        ErrorCode.RUNTIME,
        ErrorCode.SKIPPED,
    ]
    assert talk.host.state is talk.target.state is ConversationState.READY


@pytest.mark.parametrize("extensions", [0, int(Extension.PIPELINING)])
def test_an_inference_in_one_request_must_be_agreed_on(extensions: int) -> None:
    talk = talk_in(ConversationState.READY, Limits(extensions=extensions))
    with pytest.raises(LocalProtocolError, match="INFER"):
        talk.host.ask(FrameKind.INFER, (b"x",))
    feed(talk.target, pack_header(FrameKind.INFER, 0, talk.target.number + 1, 0, 0))
    with pytest.raises(RemoteProtocolError, match="INFER"):
        talk.target.next_message()


def test_inferences_wait_for_each_other_without_pipelining() -> None:
    talk = talk_in(ConversationState.READY, Limits(extensions=int(Extension.INFER)))
    talk.host.ask(FrameKind.INFER, (b"x",))
    with pytest.raises(LocalProtocolError, match="wait"):
        talk.host.ask(FrameKind.INFER, (b"y",))


# -- bounds and violations
# --------------------------------------------------------------------------


@pytest.mark.parametrize("length", [33, 1 << 20, 0xFFFF_FFFF])
def test_a_stranger_cannot_claim_a_length(length: int) -> None:
    target = TargetConversation()
    feed(target, pack_header(FrameKind.HELLO, 0, 1, length, 0))
    with pytest.raises(RemoteProtocolError, match=f"{length:,}"):
        target.next_message()


@pytest.mark.parametrize(
    ("state", "kind", "step", "most"),
    [
        (ConversationState.READY, FrameKind.DATA, 0, 1000),
        (ConversationState.LOADED, FrameKind.PROCESS, 0, 0),
        (ConversationState.DONE, FrameKind.OUTPUT, 0, 0),
        (ConversationState.READY, FrameKind.INFER, 0, 1000),
        (ConversationState.READY, FrameKind.STATS, 0, 0),
        (ConversationState.READY, FrameKind.MODEL, 0, 1 << 20),
        (ConversationState.RECEIVING, FrameKind.MODEL, 1, 64 + 8),
        (ConversationState.RECEIVING, FrameKind.MODEL, 2, 0),
    ],
)
def test_lengths_are_bounded_by_kind(
    state: ConversationState, kind: FrameKind, step: int, most: int
) -> None:
    limits = Limits(largest=1000, part=64)
    for length, allowed in ((most, True), (most + 1, False), (0xFFFF_FFFF, False)):
        talk = talk_in(state, limits)
        feed(talk.target, pack_header(kind, step, talk.target.number + 1, length, 0))
        if allowed and length:
            assert talk.target.next_message() is None  # waits for the payload
        elif not allowed:
            with pytest.raises(RemoteProtocolError, match=f"{most:,}"):
                talk.target.next_message()
    talk = talk_in(state, limits)
    with pytest.raises(LocalProtocolError, match=f"{most:,}"):
        talk.host.ask(kind, (bytes(most + 1),), step)


def test_an_output_too_large_for_the_host_is_not_sent_and_not_taken() -> None:
    talk = talk_in(ConversationState.DONE, Limits(largest=1000))
    talk.asks(FrameKind.OUTPUT)
    with pytest.raises(LocalProtocolError):
        talk.target.answer((bytes(1001),))
    feed(talk.host, pack_header(FrameKind.OK, 0, talk.target.number, 1001, 0))
    with pytest.raises(RemoteProtocolError, match="1,001"):
        talk.host.next_message()
    talk = talk_in(ConversationState.DONE, Limits(largest=1000))
    talk.asks(FrameKind.INFER)
    with pytest.raises(LocalProtocolError):
        talk.target.answer((bytes(32), bytes(1001)))
    feed(talk.host, pack_header(FrameKind.OK, 0, talk.target.number, 1033, 0))
    with pytest.raises(RemoteProtocolError, match="1,033"):
        talk.host.next_message()


@pytest.mark.parametrize(
    "frame",
    [
        pack_header(FrameKind.OK, 0, 99, 0, 0),
        pack_header(FrameKind.OK, 1, 5, 0, 0),
        pack_header(FrameKind.OK, 0x80, 5, 0, 0),
        pack_header(FrameKind.ERROR, 1, 5, 4, 0),
        pack_header(FrameKind.ERROR, 0, 6, 4, 0),
        pack_header(FrameKind.DATA, 0, 5, 0, 0),
        pack_header(FrameKind.LOG, 0, 1, 4, 0),
        pack_header(FrameKind.LOG, 1, 0, 4, 0),
        pack_header(FrameKind.LOG, 0, 0, 5000, 0),
        pack_header(0, 0, 5, 0, 0),
        pack_header(200, 0, 5, 0, 0),
    ],
    ids=lambda frame: frame[2:8].hex(),
)
def test_a_host_refuses_what_a_target_must_not_say(frame: bytes) -> None:
    talk = talk_in(ConversationState.READY)
    talk.host.ask(FrameKind.STATS)  # number 5
    assert talk.target.number == 4
    feed(talk.host, frame)
    with pytest.raises(RemoteProtocolError):
        talk.host.next_message()
    with pytest.raises(LocalProtocolError, match="over"):
        talk.host.next_message()


@pytest.mark.parametrize(
    "frame",
    [
        pack_header(FrameKind.DATA, 0, 4, 0, 0),  # a duplicate
        pack_header(FrameKind.DATA, 0, 6, 0, 0),  # one before is missing
        pack_header(FrameKind.DATA, 1, 5, 0, 0),
        pack_header(FrameKind.STATS, 2, 5, 0, 0),
        pack_header(FrameKind.OK, 0, 5, 0, 0),
        pack_header(FrameKind.LOG, 0, 5, 0, 0),
        pack_header(0, 0, 5, 0, 0),
        pack_header(255, 0, 5, 0, 0),
        pack_header(FrameKind.HELLO, 0, 5, 0, 0),
        pack_header(FrameKind.AUTH, 0, 5, 0, 0),
        pack_header(FrameKind.MODEL, 3, 5, 0, 0),
    ],
    ids=lambda frame: frame[2:8].hex(),
)
def test_a_target_refuses_what_a_host_must_not_say(frame: bytes) -> None:
    talk = talk_in(ConversationState.READY)
    feed(talk.target, frame)
    with pytest.raises(RemoteProtocolError):
        talk.target.next_message()
    # It can still say why before it closes the line.
    feed(talk.host, talk.target.error(ErrorPayload(ErrorCode.PROTOCOL, "no"), fatal=True))
    message = talk.host.next_message()
    assert (message.kind, message.flags) == (FrameKind.ERROR, FrameFlag.FATAL)
    assert talk.host.state is ConversationState.CLOSED


@pytest.mark.parametrize("flags", [0, FrameFlag.FATAL])
def test_an_error_without_a_code_ends_the_conversation(flags: int) -> None:
    talk = talk_in(ConversationState.READY)
    talk.asks(FrameKind.STATS)
    feed(
        talk.host,
        [pack_header(FrameKind.ERROR, flags, talk.target.number, 3, CRC32.of([b"abc"])), b"abc"],
    )
    with pytest.raises(RemoteProtocolError, match="without a code"):
        talk.host.next_message()
    assert talk.host.state is ConversationState.CLOSED


def test_every_flipped_bit_of_an_exchange_is_noticed() -> None:
    def spoilt(frames: list[bytes], bit: int) -> bytes:
        data = bytearray(b"".join(frames))
        data[bit // 8] ^= 1 << bit % 8
        return bytes(data)

    talk = talk_in(ConversationState.READY, PIPELINED)
    size = len(b"".join(talk.host.ask(FrameKind.DATA, (b"some inputs",))))
    for bit in range(8 * size):
        talk = talk_in(ConversationState.READY, PIPELINED)
        feed(talk.target, spoilt(talk.host.ask(FrameKind.DATA, (b"some inputs",)), bit))
        with pytest.raises(RemoteProtocolError):
            talk.target.next_message()
        talk = talk_in(ConversationState.DONE, PIPELINED)
        talk.asks(FrameKind.OUTPUT)
        feed(talk.host, spoilt(talk.target.answer((b"the outputs",)), bit))
        with pytest.raises(RemoteProtocolError):
            talk.host.next_message()


def test_numbers_wrap_around() -> None:
    talk = Talk(number=0xFFFF_FFFF)
    talk.load()
    talk.exchange(FrameKind.DATA, b"x")
    assert talk.target.number == 3


def test_a_frame_left_over_from_another_conversation_is_not_taken() -> None:
    """Numbers begin at random, so an old answer does not fit."""
    numbers = {HostConversation().ask(FrameKind.HELLO, (bytes(32),))[0][4:8] for _ in range(50)}
    assert len(numbers) > 40


# -- log lines
# --------------------------------------------------------------------------------------


def test_log_lines_come_between_answers_where_agreed_on() -> None:
    talk = talk_in(ConversationState.LOADED, PIPELINED)
    talk.asks(FrameKind.PROCESS)
    feed(talk.host, talk.target.log(pack_log(20, "one")))
    feed(talk.host, talk.target.answer((), FrameFlag.STARTED))
    feed(talk.host, talk.target.log(pack_log(30, "two")))
    feed(talk.host, talk.target.answer((bytes(32),)))
    heard = [talk.host.next_message() for _ in range(4)]
    assert [message.kind for message in heard] == [
        FrameKind.LOG,
        FrameKind.OK,
        FrameKind.LOG,
        FrameKind.OK,
    ]
    assert talk.host.next_message() is None


def test_no_log_lines_where_not_agreed_on() -> None:
    talk = talk_in(ConversationState.READY, Limits(extensions=1))
    assert talk.target.log(pack_log(20, "unheard")) == []
    feed(talk.host, pack_header(FrameKind.LOG, 0, 0, 0, 0))
    with pytest.raises(RemoteProtocolError):
        talk.host.next_message()


# -- handshake
# --------------------------------------------------------------------------------------


def test_both_sides_agree_on_what_both_can_do() -> None:
    host = HostConversation(Limits(largest=5000, extensions=1, checks=3))
    target = TargetConversation(Limits(largest=7000, part=4096, extensions=3, checks=7))
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    host.next_message()
    for side, sendable in ((host, 7000), (target, 5000)):
        assert side.agreement.check.name == "xxh3"
        assert (side.agreement.extensions, side.agreement.part, side.agreement.sendable) == (
            1,
            4096,
            sendable,
        )
    assert host.state is target.state is ConversationState.EMPTY


def test_who_knows_the_token_is_let_in_and_can_be_sure_of_the_target() -> None:
    talk = Talk(token=TOKEN)
    assert talk.host.state is talk.target.state is ConversationState.EMPTY


def test_who_does_not_know_the_token_is_not_let_in() -> None:
    host, target = (
        HostConversation(token=b"another token entirely"),
        TargetConversation(token=TOKEN),
    )
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    host.next_message()
    feed(target, host.build_proof())
    message = target.next_message()
    with pytest.raises(AuthenticationError):
        target.answer_handshake(message)
    assert target.state is ConversationState.CLOSED


@pytest.mark.parametrize(
    "kind", [FrameKind.MODEL, FrameKind.DATA, FrameKind.STATS, FrameKind.HELLO]
)
def test_nothing_else_is_heard_before_the_proof(kind: FrameKind) -> None:
    host, target = HostConversation(token=TOKEN, number=1), TargetConversation(token=TOKEN)
    feed(target, host.build_hello())
    target.answer_handshake(target.next_message())
    feed(target, pack_header(kind, 0, 2, 0, 0))
    with pytest.raises(RemoteProtocolError):
        target.next_message()


def test_a_target_that_does_not_know_the_token_is_found_out() -> None:
    host, target = HostConversation(token=TOKEN), TargetConversation(token=b"some other token")
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    host.next_message()
    feed(target, host.build_proof())
    target.next_message()
    feed(host, target.answer((bytes(32),)))
    with pytest.raises(AuthenticationError, match="target"):
        host.next_message()


def test_a_proof_cannot_be_sent_back_as_ones_own() -> None:
    host, target = (
        HostConversation(token=TOKEN),
        TargetConversation(token=b"unknown to the impostor"),
    )
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    host.next_message()
    feed(target, host.build_proof())
    mirrored = target.next_message().payload
    feed(host, target.answer((mirrored,)))
    with pytest.raises(AuthenticationError):
        host.next_message()


def test_a_proof_holds_for_one_conversation_only() -> None:
    first, second = (HostConversation(token=TOKEN, number=1) for _ in range(2))
    overheard = None
    for host in (first, second):
        target = TargetConversation(token=TOKEN)
        feed(target, host.build_hello())
        feed(host, target.answer_handshake(target.next_message()))
        host.next_message()
        feed(target, overheard or host.build_proof())
        message = target.next_message()
        if overheard is None:
            target.answer_handshake(message)
            overheard = [
                pack_header(FrameKind.AUTH, 0, 2, 32, host.agreement.check.of((message.payload,))),
                message.payload,
            ]
        else:
            with pytest.raises(AuthenticationError):
                target.answer_handshake(message)


def test_a_man_in_the_middle_cannot_weaken_the_agreement() -> None:
    host = HostConversation(Limits(checks=3), token=TOKEN, number=1)
    target = TargetConversation(Limits(checks=3), token=TOKEN)
    _, payload = host.build_hello()
    weakened = bytearray(payload)
    weakened[8] = 1  # only crc32 is offered
    feed(target, [pack_header(FrameKind.HELLO, 0, 1, 32, 0x0), b""])
    assert target.next_message() is None
    target = TargetConversation(Limits(checks=3), token=TOKEN)
    import zlib

    feed(target, [pack_header(FrameKind.HELLO, 0, 1, 32, zlib.crc32(weakened)), bytes(weakened)])
    feed(host, target.answer_handshake(target.next_message()))
    host.next_message()
    feed(target, host.build_proof())
    message = target.next_message()
    with pytest.raises(AuthenticationError):
        target.answer_handshake(message)


def test_a_host_without_the_token_says_how_to_name_it() -> None:
    host, target = HostConversation(), TargetConversation(token=TOKEN)
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    with pytest.raises(AuthenticationError, match="--token-file"):
        host.next_message()


def test_a_host_with_a_token_does_not_trust_a_target_that_asks_for_none() -> None:
    host, target = HostConversation(token=TOKEN), TargetConversation()
    feed(target, host.build_hello())
    feed(host, target.answer_handshake(target.next_message()))
    with pytest.raises(AuthenticationError, match="asks for none"):
        host.next_message()


def test_versions_that_do_not_meet_are_named() -> None:
    target = TargetConversation()
    host = HostConversation()
    frames = host.build_hello()
    payload = b"\2\3" + bytes(frames[1][2:])
    import zlib

    feed(target, [pack_header(FrameKind.HELLO, 0, 1, 32, zlib.crc32(payload)), payload])
    message = target.next_message()
    with pytest.raises(RemoteProtocolError, match="versions 2 to 3"):
        target.answer_handshake(message)
    assert target.state is ConversationState.CLOSED


@pytest.mark.parametrize("changed", [0, 1, 2, 4, 7, 12])
def test_a_target_that_chooses_what_was_not_offered_is_refused(changed: int) -> None:
    host, target = (
        HostConversation(Limits(extensions=0, checks=1)),
        TargetConversation(Limits(extensions=0)),
    )
    feed(target, host.build_hello())
    _, payload = target.answer_handshake(target.next_message())
    spoilt = bytearray(payload)
    spoilt[changed] ^= 0x81
    import zlib

    feed(host, [pack_header(FrameKind.OK, 0, target.number, 32, zlib.crc32(spoilt)), bytes(spoilt)])
    with pytest.raises(RemoteProtocolError, match="not offer"):
        host.next_message()


def test_the_nonces_are_random_unless_given() -> None:
    assert HostConversation().build_hello()[1][16:] != HostConversation().build_hello()[1][16:]
    assert HostConversation(nonce=NONCES[0]).build_hello()[1][16:] == NONCES[0]


def test_every_state_but_the_last_can_be_left_and_every_rule_is_reachable() -> None:
    reached = {ConversationState.NEW}
    for _ in range(10):
        for rule in RULES:
            if reached & {*rule.states}:
                reached |= {state for state in (rule.on_ok, rule.on_error) if state}
        reached.add(ConversationState.GREETED) if ConversationState.NEW in reached else None
        reached.add(ConversationState.RUNNING) if ConversationState.LOADED in reached else None
    assert reached == {*ConversationState}
    assert all(
        any(rule.kind is kind for rule in RULES)
        for kind in (FrameKind.DATA, FrameKind.MODEL, FrameKind.PROCESS, FrameKind.OUTPUT)
    )
    assert len(ALLOWED) == sum(len(rule.states) for rule in RULES)
    assert HEADER_SIZE == 24
    assert not set(itertools.chain(*(rule.states for rule in RULES))) & {
        ConversationState.CLOSED,
        ConversationState.RUNNING,
    }


@pytest.mark.parametrize("make", [HostConversation, TargetConversation])
def test_a_conversation_is_freed_when_nobody_holds_it(
    make: type[HostConversation] | type[TargetConversation],
) -> None:
    # A server sees very many; what waits for the collector of cycles meanwhile leaves its memory in
    # pieces.
    gc.disable()
    try:
        conversation = make()
        conversation.wanted()[:24] = bytes(24)
        conversation.received(24)
        with pytest.raises(RemoteProtocolError):
            conversation.next_message()
        seen = weakref.ref(conversation)
        del conversation
        assert seen() is None
    finally:
        gc.enable()
