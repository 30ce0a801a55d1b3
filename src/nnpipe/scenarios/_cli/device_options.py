"""Options that say where models run: on devices or on targets, and tables of devices."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from nnpipe.core.arguments import list_arguments
from nnpipe.core.errors import ConfigError
from nnpipe.core.runtime_protocol import RemoteOptions, RuntimeProtocol
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import NOTHING, clean
from nnpipe.report.writers.tables import to_text
from nnpipe.scenarios._cli.command import ParsedCommand
from nnpipe.workflows.candidates.deployment import Deployment, check_reached
from nnpipe.workflows.devices.device import USUAL, Device, Fleet, read_devices
from nnpipe.workflows.devices.inspection import Inspection


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the file of devices."""
    parser.add_argument(
        "--devices",
        type=Path,
        default=USUAL,
        metavar="FILE",
        help=f"the file of devices (default: {USUAL})",
    )


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Declare the options that select devices."""
    parser.add_argument(
        # some data have targets, too, and an option for them
        "--target-devices",
        "--targets",
        metavar="NAMES",
        help=(
            "compare on these devices: names and tags joined by commas, or all (default: this "
            "machine)"
        ),
    )
    add_devices(parser)


def select_targets(options: argparse.Namespace) -> Fleet | None:
    """Return the selected devices; ``None`` if none are named.

    Raises
    ------
    NNPipeError
        If the file of devices is wrong, or has no such device.
    """
    if options.target_devices is None:
        return None
    return read_devices(options.devices).only(options.target_devices.split(","), "--targets")


_LEFT = ("system", "python")
_PACKAGES = 40


def format_devices_table(fleet: Fleet, devices: Sequence[Device], held: Mapping[str, str]) -> str:
    """Return a table of devices; ``held`` says, by name, who has a device since when."""
    rows = [
        (
            each.name,
            each.address,
            each.description,
            each.format_price(fleet.currency),
            " ".join(each.tags),
            *((held.get(each.name, "free"),) if fleet.leases else ()),
        )
        for each in devices
    ]
    header = (
        "device",
        "reached by",
        "what it is",
        "cost",
        "tags",
        *(("in use",) if fleet.leases else ()),
    )
    return _format_table(header, rows)


def format_inspections_table(found: Sequence[Inspection]) -> str:
    """Return a table of what devices answered."""
    rows = []
    for each in found:
        took = NOTHING if each.device.here else f"{1e3 * each.seconds:.1f} ms"
        median = NOTHING if each.median_ns is None else f"{each.median_ns / 1e3:,.1f} us"
        rows.append((each.title, each.state, took, median, clean(each.reason, 200)))
    return _format_table(("device", "state", "reached in", "inference", "what it said"), rows)


def format_device_facts(each: Inspection) -> str:
    """Return what a device tells about itself, a line for each fact."""
    lines = [each.title]
    if not each.facts:
        return (
            f"{each.title}\n  not known: "
            f"{clean(each.reason, 300) or 'it tells nothing about itself'}"
        )
    # What a target tells may be anything.
    host, packages = (_to_mapping(each.facts.get(name)) for name in ("host", "frameworks"))
    cpu, memory, gpus = _to_mapping(host.get("cpu")), host.get("memory_bytes"), host.get("gpus")
    told = {
        "board": host.get("board"),
        "processor": cpu.get("model"),
        "cores": cpu.get("logical_cores"),
        "memory": f"{memory / 2**20:,.0f} MiB" if isinstance(memory, int) else None,
        **{name: host.get(name) for name in _LEFT},
        "gpus": ", ".join(str(_to_mapping(gpu).get("name")) for gpu in gpus)
        if isinstance(gpus, list)
        else None,
        "counter": each.facts.get("counter"),
        "packages": ", ".join(
            f"{name} {version}" for name, version in list(packages.items())[:_PACKAGES]
        ),
    }
    lines += [
        f"  {name}: {clean(_format_text(value), 400)}" for name, value in told.items() if value
    ]
    return "\n".join(lines)


def _to_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _format_text(value: Any) -> str:
    return (
        " ".join(f"{part}" for part in value.values() if part)
        if isinstance(value, dict)
        else str(value)
    )


def _format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without the columns that say nothing."""
    kept = [place for place in range(len(header)) if place == 0 or any(row[place] for row in rows)]
    cells = tuple(tuple(Cell(row[place] or NOTHING) for place in kept) for row in rows)
    return to_text(Table(tuple(header[place] for place in kept), cells))


_OPTION = "--protocol-cls"
PROTOCOL = (_OPTION, RuntimeProtocol)
"""The option that names a protocol, for :func:`~nnpipe.scenarios._cli.command.parse`."""


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the protocol to a target."""
    parser.add_argument(
        _OPTION,
        metavar="PROTOCOL",
        help=(
            "run the model on a target: dotted path or name of the RuntimeProtocol that leads to "
            "its server"
        ),
    )


def create_deployment(parsed: ParsedCommand, *, reach: bool = True) -> Deployment | None:
    """Return the deployment that a command line selects; ``None`` if the model runs on this
    machine.

    With ``reach``, the connection to the target is tested.

    Raises
    ------
    ConfigError
        If options of a target are given without a target, or its token cannot be read.
    NNPipeError
        If the target does not answer, or refuses the token.
    """
    remote = RemoteOptions.from_argparse(parsed.options)
    if not parsed.classes[_OPTION]:
        given = [
            a.flag for a in list_arguments(RemoteOptions) if getattr(remote, a.name) != a.default
        ]
        if given:
            raise ConfigError(
                f"{', '.join(given)} is for targets: name the protocol to one with {_OPTION}"
            )
        return None
    protocol = cast(RuntimeProtocol, parsed.make(_OPTION))
    protocol.check_installed()
    deployment = Deployment(protocol, remote)
    if reach:
        check_reached(deployment)
    return deployment
