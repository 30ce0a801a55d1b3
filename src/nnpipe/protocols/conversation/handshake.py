"""The payloads of HELLO and AUTH: versions, extensions, limits, and proofs that both sides know
the token.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.frame import (
    CRC32,
    VERSION,
    Check,
    HeaderField,
    build_struct,
    find_check,
    select_check,
)
from nnpipe.protocols.conversation.rules import Extension

NONCE_SIZE = 16
HELLO_FIELDS = (
    HeaderField("oldest", "B", "oldest version of the protocol that the host speaks"),
    HeaderField("newest", "B", "newest version that it speaks"),
    HeaderField("reserved", "H", "0"),
    HeaderField("extensions", "I", "bits of the extensions that it would use"),
    HeaderField("checks", "I", "bits of the payload checks that it can compute"),
    HeaderField("largest", "I", "most bytes of payload that it takes"),
    HeaderField("nonce", f"{NONCE_SIZE}s", "random bytes, new in every conversation"),
)
WELCOME_FIELDS = (
    HeaderField("version", "B", "the version chosen"),
    HeaderField("check", "B", "bit of the payload check chosen, used from here on"),
    HeaderField(
        "proof_wanted", "B", "1 if the host must prove next that it knows the token, else 0"
    ),
    HeaderField("reserved", "B", "0"),
    HeaderField("extensions", "I", "bits of the extensions agreed on"),
    HeaderField("largest", "I", "most bytes of payload that the target takes"),
    HeaderField("part", "I", "most bytes of a model's file in one MODEL frame, a multiple of 8"),
    HeaderField("nonce", f"{NONCE_SIZE}s", "random bytes, new in every conversation"),
)
_HELLO, _WELCOME = build_struct(HELLO_FIELDS), build_struct(WELCOME_FIELDS)


@dataclass(frozen=True)
class Limits:
    """The limits and abilities of one side.

    Parameters
    ----------
    largest
        The largest size of the tensors in a received payload, in bytes.
    part
        The largest part of a model file in one frame, in bytes.
    extensions, checks
        The bits of the extensions and checksums that this side supports.
    """

    largest: int = 1 << 28
    part: int = 1 << 20
    extensions: int = int(Extension.PIPELINING | Extension.LOG | Extension.INFER)
    checks: int = CRC32.bit


@dataclass(frozen=True)
class HandshakeAgreement:
    """The agreement of both sides; ``sendable`` is the size of tensors, in bytes, that the other
    side accepts.
    """

    version: int = VERSION
    check: Check = CRC32
    extensions: int = 0
    sendable: int = 0
    part: int = 0
    proof_wanted: bool = False


class VersionMismatch(RemoteProtocolError):
    """The two sides support no common version of the protocol."""


def pack_hello(limits: Limits, nonce: bytes) -> bytes:
    """Return the payload of HELLO."""
    return _HELLO.pack(VERSION, VERSION, 0, limits.extensions, limits.checks, limits.largest, nonce)


def negotiate(
    hello_payload: bytes, limits: Limits, proof_wanted: bool, nonce: bytes
) -> tuple[bytes, HandshakeAgreement]:
    """Choose from the offer of a HELLO, and return the payload of the answer and the agreement.

    Raises
    ------
    VersionMismatch
        If the two sides support no common version.
    RemoteProtocolError
        If the HELLO is malformed.
    """
    if len(hello_payload) != _HELLO.size:
        raise RemoteProtocolError(f"a HELLO has {_HELLO.size} bytes, {len(hello_payload)} came")
    oldest, newest, _, extensions, checks, largest, _ = _HELLO.unpack(hello_payload)
    if not oldest <= VERSION <= newest:
        raise VersionMismatch(
            f"the host speaks versions {oldest} to {newest} of the protocol, this target speaks "
            f"{VERSION}; "
            "install matching versions of nnpipe on both sides"
        )
    check = select_check(checks & limits.checks)
    agreed = extensions & limits.extensions
    payload = _WELCOME.pack(
        VERSION, check.bit, proof_wanted, 0, agreed, limits.largest, limits.part, nonce
    )
    return payload, HandshakeAgreement(VERSION, check, agreed, largest, limits.part, proof_wanted)


def read_agreement(welcome_payload: bytes, limits: Limits) -> HandshakeAgreement:
    """Return the agreement from the answer to a HELLO.

    Raises
    ------
    RemoteProtocolError
        If the target chose something that was not offered.
    """
    try:
        version, bit, wanted, _, extensions, largest, part, _ = _WELCOME.unpack(welcome_payload)
    except struct.error:
        raise RemoteProtocolError(f"the answer to HELLO has {len(welcome_payload)} bytes") from None
    check = find_check(bit & limits.checks)
    if (
        version != VERSION
        or check is None
        or extensions & ~limits.extensions
        or wanted > 1
        or not part
        or part % 8
    ):
        raise RemoteProtocolError("the target chose what the host did not offer")
    return HandshakeAgreement(version, check, extensions, largest, part, bool(wanted))


def compute_proof(token: bytes, role: str, hello_payload: bytes, welcome_payload: bytes) -> bytes:
    """Return the HMAC-SHA256 (RFC 2104), keyed by the token, of the role and the handshake.

    The role prevents a proof from being reflected to its sender.  Including the
    whole handshake prevents a man in the middle from weakening the agreement.
    """
    return hmac.new(
        token, f"nnpipe {role}\0".encode() + hello_payload + welcome_payload, hashlib.sha256
    ).digest()


def is_same_proof(one: bytes, other: bytes) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(one, other)
