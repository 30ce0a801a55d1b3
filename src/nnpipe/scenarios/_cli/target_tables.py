"""Formatting of targets on boards as tables and text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import NOTHING, clean
from nnpipe.report.writers.terminal import to_text
from nnpipe.scenarios._cli.target_words import host_of
from nnpipe.workflows.boards.agent.service import SYSTEMD
from nnpipe.workflows.boards.install import Installed, InstallPlan, TargetState

_KINDS = {SYSTEMD: "a service of the user's systemd, started with the board"}
_PLAIN = "a plain process, since the user has no systemd; it does not start with the board"


def plan_text(plan: InstallPlan) -> str:
    """Return what an installation does, a line for each step."""
    settings, facts = plan.settings, plan.facts
    replaces = " (there is one, which is replaced)" if settings.name in facts.targets else ""
    lines = {
        "board": f"{plan.board.address}: {facts.platform}, {facts.free / 1e9:.1f} GB free",
        "folder": f"~/.nnpipe/targets/{settings.name}{replaces}",
        "packages": ", ".join(("nnpipe", *plan.packages)),
        "token": f"{plan.token_file}{'' if plan.token_exists else ', which is made'}",
        "server": shlex.join(["nnpipe", "inference_server", *settings.arguments()]),
        "runs as": _KINDS.get(facts.service, _PLAIN),
    }
    return "\n".join(f"{name:9} {text}" for name, text in lines.items())


def installed_text(done: Installed) -> str:
    """Return what was installed, and the device for the file of devices."""
    plan, state = done.plan, done.state
    lines = [f"{state.name} is served at {state.address} of {plan.board.address} (process {state.pid})", ""]
    if not done.survives_logout:
        user = plan.board.connection.target[-1].rpartition("@")[0] or "USER"
        lines[1:1] = [f"it ends when {user} logs out of the board, unless: sudo loginctl enable-linger {user}"]
    return "\n".join([*lines, "for devices.yaml:", _device(plan)])


def states_table(states: Sequence[TargetState]) -> str:
    """Return a table of targets."""
    rows = [
        (
            each.name, each.runtime, each.address, "stopped" if each.pid is None else f"runs ({each.pid})",
            each.service, each.since, each.version, clean(each.last, 100) or NOTHING,
        )
        for each in states
    ]  # fmt: skip
    header = ("target", "runtime", "address", "state", "as", "installed", "nnpipe", "last line of its log")
    return to_text(Table(header, tuple(tuple(Cell(text) for text in row) for row in rows)))


def _device(plan: InstallPlan) -> str:
    protocol = plan.settings.protocol
    if protocol.exposed():
        name, arguments = "NetworkProtocol", {"host": host_of(plan.board), "port": protocol.port}
    else:
        name, arguments = "SSHProtocol", {"host": plan.board.address, "port": protocol.port}
        arguments |= {} if plan.board.python == "python3" else {"python": plan.board.python}
    device = {
        "name": host_of(plan.board), "protocol": {"class": name, "arguments": arguments},
        "remote": {"token_file": str(plan.token_file)}, "runtimes": [type(plan.settings.runtime).__name__],
    }  # fmt: skip
    return f"  - {json.dumps(device)}"
