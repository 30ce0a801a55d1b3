from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.frame import CODES, HEADER_FIELDS, HEADER_SIZE, ErrorCode
from nnpipe.protocols.conversation.handshake import (
    HELLO_FIELDS,
    WELCOME_FIELDS,
    Limits,
    negotiate,
    read_agreement,
)
from nnpipe.protocols.conversation.payloads import (
    ERROR_FIELDS,
    LOG_FIELDS,
    MODEL_FIELDS,
    NO_GPU,
    ROW_FIELDS,
    STAMP_FIELDS,
    STATS_FIELDS,
    Counter,
    ErrorPayload,
    LoadedModel,
    ModelOffer,
    Stats,
    pack_count,
    pack_log,
    pack_row,
    pack_stamps,
    unpack_count,
    unpack_log,
    unpack_stamps,
)
from nnpipe.protocols.conversation.rules import FIXED_BOUNDS, Bound

ALL_FIELDS = (
    HEADER_FIELDS,
    HELLO_FIELDS,
    WELCOME_FIELDS,
    ERROR_FIELDS,
    MODEL_FIELDS,
    STAMP_FIELDS,
    STATS_FIELDS,
    ROW_FIELDS,
    LOG_FIELDS,
)


@pytest.mark.parametrize("fields", ALL_FIELDS, ids=lambda fields: fields[0].name)
def test_every_field_lies_at_a_multiple_of_its_size(fields: tuple) -> None:
    at = 0
    for field in fields:
        width = field.size if field.format[-1] not in "sB" else 1
        assert at % width == 0, field.name
        at += field.size
    assert at % 4 == 0


def test_the_header_has_24_bytes() -> None:
    assert HEADER_SIZE == 24


@given(st.sampled_from(ErrorCode), st.text(max_size=200).map(lambda text: text * 30))
def test_a_failure_survives_as_far_as_it_fits(code: ErrorCode, text: str) -> None:
    packed = ErrorPayload(code, text).pack()
    assert len(packed) <= FIXED_BOUNDS[Bound.TEXT]
    found = ErrorPayload.unpack(packed)
    assert found.code == code
    assert found.text.isprintable()
    if text.isprintable() and len(text.encode("utf-8", "replace")) < 4000:
        assert found.text == text
    assert "\n" not in str(found)


def test_every_code_is_explained() -> None:
    assert {*CODES} == {*ErrorCode}
    assert str(ErrorPayload(99, "what next")) == "code 99: what next"


def test_a_failure_cannot_play_tricks_on_a_terminal() -> None:
    assert ErrorPayload.unpack(ErrorPayload(1, "\x1b[2J\x07\nboo").pack()).text == " [2J  boo"


@given(st.binary(max_size=200))
def test_payloads_from_a_stranger_are_read_or_refused(payload: bytes) -> None:
    readers = (
        ErrorPayload.unpack,
        unpack_stamps,
        Stats.unpack,
        ModelOffer.unpack,
        LoadedModel.unpack,
        unpack_log,
        unpack_count,
        lambda data: read_agreement(data, Limits()),
        lambda data: negotiate(data, Limits(), False, bytes(16)),
    )
    for read in readers:
        with contextlib.suppress(RemoteProtocolError):
            read(payload)


def test_stamps_have_one_length_unless_outputs_follow() -> None:
    stamps = pack_stamps(1, 2, 3, 4)
    assert unpack_stamps(stamps) == unpack_stamps(stamps + bytes(8), alone=False) == (1, 2, 3, 4)
    for payload, alone in ((stamps + bytes(8), True), (stamps[:-1], True), (stamps[:-1], False)):
        with pytest.raises(RemoteProtocolError, match="have 32 bytes"):
            unpack_stamps(payload, alone)


@pytest.mark.parametrize(
    "json", [b"[]", b"{", b"1", b'{"a":' * 100_000, b"\xff\xfe", b"[" * 200_000]
)
def test_a_description_that_is_no_object_is_refused(json: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON"):
        ModelOffer.unpack(bytes(40) + json)


def test_offers_and_what_is_taken_survive() -> None:
    offer = ModelOffer(123, bytes(range(32)), {"format": "fake", "name": "müll"})
    assert ModelOffer.unpack(offer.pack()) == offer
    taken = LoadedModel(55, {"inputs": [], "outputs": []}, {"board": "a small one"})
    assert LoadedModel.unpack(taken.pack()) == taken
    assert LoadedModel.unpack(pack_count(7)) == LoadedModel(7, {})
    with pytest.raises(RemoteProtocolError, match="sense"):
        LoadedModel.unpack(pack_count(7) + b'{"io": 5}')


def test_stamps_that_run_backwards_are_refused() -> None:
    import struct

    assert unpack_stamps(struct.pack("<4Q", 1, 2, 3, 4)) == (1, 2, 3, 4)
    for wrong in ((2, 1, 3, 4), (1, 3, 2, 4), (1, 2, 4, 3)):
        with pytest.raises(RemoteProtocolError, match="backwards"):
            unpack_stamps(struct.pack("<4Q", *wrong))


def test_statistics_say_what_kind_of_counter_they_come_from() -> None:
    rows = pack_row(10, 20, 30, NO_GPU, 50.0, math.nan) + pack_row(11, 21, 31, 41, 51.0, 61.0)
    for counter in Counter:
        stats = Stats(counter, 1000, 5, 6, 7, 8, rows)
        assert Stats.unpack(stats.pack()) == stats
    table = stats.table()
    assert table["time"] == (10, 11)
    assert table["cpu_percent"] == (50.0, 51.0)
    assert table["gpu_bytes"] == (NO_GPU, 41)
    assert Stats(Counter.WALL, 0, 0, 0, 0, 0).table()["time"] == ()


def test_log_lines_survive_without_control_characters() -> None:
    assert unpack_log(pack_log(30, "a line")) == (30, "a line")
    assert unpack_log(pack_log(30, "a\x1b[1mline\n")) == (30, "a [1mline ")
    assert len(pack_log(30, "x" * 10_000)) <= FIXED_BOUNDS[Bound.TEXT]
