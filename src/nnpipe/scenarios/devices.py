"""Look after the devices of devices.yaml: list them, ping them, show what they are, and try them
out.

  nnpipe devices list                    all devices, with what they cost, and who uses them
  nnpipe devices ping pi-5 jetson        whether their servers answer, all at the same time
  nnpipe devices facts arm               what the machines with the tag arm are
  nnpipe devices test                    let all run a tiny model, and check what they compute
  nnpipe devices schema                  a JSON Schema of such files, for editors

A NAME is the name of a device or a tag, which stands for all devices that have it.
The exit status is 0 if all answer, and compute rightly, and 1 if one does not.

    currency: EUR
    devices:
      - name: laptop                     # without a protocol: this machine
        cost_per_hour: 0.05
      - name: pi-5
        protocol: {class: NetworkProtocol, arguments: {host: pi-5.lan, port: 12345}}
        remote: {token_file: token}
        description: Raspberry Pi 5, 8 GB
        cost_per_piece: 80
        tags: [arm, linux]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.files import write_text
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.device_options import (
    add_devices,
    format_device_facts,
    format_devices_table,
    format_inspections_table,
)
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.workflows.devices.device import ALL, read_devices
from nnpipe.workflows.devices.device_measuring import list_device_users
from nnpipe.workflows.devices.inspection import FAILED, UNTRIED, Inspection, ping, try_out
from nnpipe.workflows.devices.schema import build_devices_schema

_ACTIONS = ("list", "ping", "facts", "test", "schema")
NOT_ALL = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe devices ACTION [NAME ...]``."""
    return execute(_run_action, argv, "devices")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="devices and tags (default: all devices)"
    )
    add_devices(parser)
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="also write what was found here"
    )


def _run_action(argv: Sequence[str] | None) -> int:
    options = parse(argv, "devices", __doc__ or "", (), _add_options).options
    if options.action == "schema":
        print(json.dumps(build_devices_schema(), indent=2))
        return 0
    fleet = read_devices(options.devices)
    chosen = fleet.find_devices(options.names or [ALL], options.action)
    if options.action == "list":
        print(format_devices_table(fleet, chosen, list_device_users(fleet)))
        _write(options.json, [each.to_json() for each in chosen])
        return 0
    found = ping(chosen) if options.action == "ping" else try_out(chosen)
    print(
        "\n".join(map(format_device_facts, found))
        if options.action == "facts"
        else format_inspections_table(found)
    )
    _write(options.json, [_serialize_inspection(each) for each in found])
    bad = (FAILED, UNTRIED) if options.action == "test" else (FAILED,)
    return NOT_ALL if any(each.state in bad for each in found) else 0


def _serialize_inspection(each: Inspection) -> dict[str, object]:
    return {
        "name": each.device.name,
        "server": each.server,
        "state": each.state,
        "reason": each.reason,
        "seconds": each.seconds,
        "facts": dict(each.facts),
        "median_ns": each.median_ns,
    }


def _write(path: Path | None, found: list[dict[str, object]]) -> None:
    if path is not None:
        write_text(path, json.dumps({"devices": found}, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
