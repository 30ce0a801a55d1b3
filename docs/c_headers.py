"""The headers for targets in C, which state in C what the protocol's tables say in Python."""

from __future__ import annotations

import textwrap

from nnpipe.protocols.conversation.frame import (
    HEADER_FIELDS,
    HEADER_SIZE,
    MAGIC,
    VERSION,
    ErrorCode,
    FrameFlag,
    FrameKind,
    HeaderField,
)
from nnpipe.protocols.conversation.payloads import ROW_SIZE
from nnpipe.protocols.conversation.rules import (
    FIXED_BOUNDS,
    RULES,
    Bound,
    ConversationState,
    Extension,
    Rule,
)

_WIDTH = 100


def ctype(field: HeaderField) -> tuple[str, str]:
    """Give the C type of a field, and the bounds of an array."""
    names = {
        "B": "uint8_t",
        "H": "uint16_t",
        "I": "uint32_t",
        "Q": "uint64_t",
        "f": "float",
        "s": "uint8_t",
    }
    count = field.format[:-1]
    return names[field.format[-1]], f"[{count}]" if count else ""


def frame() -> str:
    """Give the frame's header and the numbers that go with it in C99."""
    lines = [f"    {ctype(field)[0]:<8} {field.name}{ctype(field)[1]};" for field in HEADER_FIELDS]
    lines = [
        f"{line:<32}/* {field.meaning} */" for line, field in zip(lines, HEADER_FIELDS, strict=True)
    ]
    return "\n".join(
        (
            "#include <stdint.h>",
            "",
            "struct nnpipe_header {",
            *lines,
            "};",
            "",
            *_enum("kind", [f"NNPIPE_{kind.name} = {kind.value}" for kind in FrameKind]),
            *_enum("code", [f"NNPIPE_CODE_{code.name} = {code.value}" for code in ErrorCode]),
            f"typedef char nnpipe_header_has_no_gaps[sizeof(struct nnpipe_header) == {HEADER_SIZE} "
            f"? 1 : -1];\n",
        )
    )


def protocol_header() -> str:
    """Give ``nnpipe_protocol.h``: frames, flags, states and extensions."""
    flags = [f"NNPIPE_FLAG_{name} = {int(flag):#x}" for name, flag in FrameFlag.__members__.items()]
    states = [f"NNPIPE_STATE_{state.name}" for state in ConversationState]
    extensions = [
        f"NNPIPE_{extension.name}_EXTENSION = {extension.value}" for extension in Extension
    ]
    sizes = [f"NNPIPE_MAGIC = {MAGIC:#x}", f"NNPIPE_VERSION = {VERSION}", f"NNPIPE_HEADER_BYTES = "
        f"{HEADER_SIZE}",
             f"NNPIPE_ROW_BYTES = {ROW_SIZE}"]  # fmt: skip
    body = "\n".join(
        [
            frame(),
            *_enum("flag", flags),
            *_enum("state", states),
            *_enum("extension", extensions),
            *_enum("", sizes),
            "",
        ]
    )
    return _guarded("NNPIPE_PROTOCOL_H", body)


def rules_header() -> str:
    """Give ``nnpipe_rules.h``: which request is allowed when, how large its payload may be, and
    what follows.
    """
    names = ["", *(kind.name for kind in FrameKind)]
    body = "\n".join(
        (
            '#include "nnpipe_protocol.h"',
            "",
            *_enum("bound", [f"NNPIPE_BOUND_{bound.name}" for bound in Bound]),
            "",
            "struct nnpipe_rule {",
            "    uint8_t kind, step, on_ok, on_error, bound, extension;",
            "    uint16_t states; /* bits of the states in which it is allowed */",
            "};",
            "",
            "enum { NNPIPE_SAME_STATE = 0xff };",
            "",
            "static const struct nnpipe_rule nnpipe_rules[] = {",
            *map(_row, RULES),
            "};",
            "",
            "/* Bytes at most by bound; 0 where they follow from the handshake. */",
            "static const uint32_t nnpipe_bounds[] = {",
            "    " + ", ".join(str(FIXED_BOUNDS.get(bound, 0)) for bound in Bound),
            "};",
            "",
            "static const char *const nnpipe_kind_names[] = {",
            *textwrap.wrap(", ".join(f'"{name}"' for name in names), _WIDTH - 4, initial_indent="    ",
                           subsequent_indent="    "),
            "};",
            "",
        )
    )  # fmt: skip
    return _guarded("NNPIPE_RULES_H", body)


def _row(rule: Rule) -> str:
    order = list(ConversationState)
    after = [
        f"NNPIPE_STATE_{state.name}" if state else "NNPIPE_SAME_STATE"
        for state in (rule.on_ok, rule.on_error)
    ]
    bits = sum(1 << order.index(state) for state in rule.states)
    extension = f"NNPIPE_{rule.extension.name}_EXTENSION" if rule.extension else "0"
    return (
        f"    {{NNPIPE_{rule.kind.name}, {int(rule.step)}, {after[0]}, {after[1]}, "
        f"NNPIPE_BOUND_{rule.ask_bound.name}, {extension}, {bits:#05x}}},"
    )


def _enum(name: str, members: list[str]) -> list[str]:
    head = f"enum nnpipe_{name}" if name else "enum"
    return textwrap.wrap(f"{head} {{ {', '.join(members)} }};", _WIDTH, subsequent_indent="    ")


def _guarded(guard: str, body: str) -> str:
    return (
        f"/* Written by docs/refresh.py. */\n#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"
    )
