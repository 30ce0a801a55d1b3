"""The golden conversations, as the files have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnpipe.protocols.conversation.frame import CRC32, HEADER, HEADER_SIZE, FrameKind
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.host import HostConversation
from nnpipe.protocols.conversation.target import TargetConversation

FOLDER = Path(__file__).parents[1] / "data" / "conversations"
FILES = sorted(path for path in FOLDER.glob("*.txt"))
FRAMED = [path for path in FILES if path.name != "serial.txt"]
TOKEN = b"a token that both sides know"


@dataclass(frozen=True)
class Frame:
    """One frame, or on a serial line one packet, and who said it."""

    direction: str
    data: bytes

    @property
    def kind(self) -> int:
        return self.data[2]

    @property
    def flags(self) -> int:
        return self.data[3]

    @property
    def number(self) -> int:
        return int.from_bytes(self.data[4:8], "little")

    @property
    def payload(self) -> bytes:
        return self.data[HEADER_SIZE:]


def read(path: Path) -> list[Frame]:
    """Read a file as ``docs/protocol.md`` describes it."""
    frames: list[Frame] = []
    for line in path.read_text("ascii" if path.name != "log.txt" else "utf-8").splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in ("<", ">"):
            frames.append(Frame(line[0], b""))
        if line.strip():
            last = frames.pop()
            frames.append(Frame(last.direction, last.data + bytes.fromhex(line.lstrip("<> "))))
    return frames


def token_of(path: Path) -> bytes | None:
    """The host's token, where the file names one."""
    said = [line for line in path.read_text("utf-8").splitlines() if line.startswith("# token: ")]
    return said[0].removeprefix("# token: ").encode() if said else None


def host_of(path: Path, frames: list[Frame]) -> HostConversation:
    """A host that would say what the file's host says; all it takes is in its HELLO."""
    hello = frames[0].payload
    number = HEADER.unpack_from(frames[0].data)[4]
    checks, largest = (int.from_bytes(hello[at : at + 4], "little") for at in (8, 12))
    extensions = int.from_bytes(hello[4:8], "little")
    limits = Limits(largest=largest, extensions=extensions, checks=checks)
    return HostConversation(limits, token_of(path), nonce=hello[16:], number=number)


def target_of(frames: list[Frame]) -> TargetConversation:
    """A target that would answer as the file's target does."""
    welcome = frames[1].payload
    if frames[1].kind != FrameKind.OK:
        return TargetConversation()
    extensions, largest, part = (
        int.from_bytes(welcome[at : at + 4], "little") for at in (4, 8, 12)
    )
    limits = Limits(largest, part, extensions, welcome[1] | CRC32.bit)
    return TargetConversation(limits, TOKEN if welcome[2] else None, nonce=welcome[16:])


def feed(conversation: HostConversation | TargetConversation, data: bytes) -> None:
    """Let a conversation hear a frame."""
    view = memoryview(data)
    while len(view):
        wanted = conversation.wanted()
        if not len(wanted):
            assert conversation.next_message() is None  # makes room for a long payload
            continue
        count = min(len(wanted), len(view))
        wanted[:count] = view[:count]
        conversation.received(count)
        view = view[count:]
