"""The settings of a sweep that say on which devices its candidates are measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.devices.device_file import USUAL, Fleet, fleet_of, read_devices
from nnpipe.workflows.devices.device_measuring import PATIENCE
from nnpipe.workflows.pipeline.entries import text_of
from nnpipe.workflows.sweep.grid import list_of

TARGET_KEYS = ("devices", "targets", "target_patience")


@dataclass(frozen=True)
class Targets:
    """The devices of a sweep.

    Parameters
    ----------
    devices
        The devices; without any, everything is measured on this machine.
    currency, leases
        As in :class:`~nnpipe.workflows.devices.device_file.Fleet`.
    patience
        How long a device that has gone away is waited for, in seconds.
    """

    devices: tuple[Device, ...] = ()
    currency: str = ""
    leases: str = ""
    patience: float = PATIENCE

    @classmethod
    def from_settings(cls, data: Mapping[str, Any]) -> Targets:
        """Return the devices that a sweep file names as ``targets``.

        Raises
        ------
        NNPipeError
            If a setting is wrong; the message names its place.
        """
        patience = data.get("target_patience", PATIENCE)
        if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not 0 <= patience <= 86_400:
            raise ConfigError(f"target_patience: expected seconds from 0 to 86,400, found {patience!r}")
        if data.get("targets") is None:
            if data.get("devices") is not None:
                raise ConfigError("devices: say under targets which of them to measure on, such as targets: [all]")
            return cls(patience=float(patience))
        words = [text_of(word, f"targets.{place}") for place, word in enumerate(list_of(data, "targets"))]
        fleet = _fleet(data.get("devices", str(USUAL)))
        return cls(fleet.chosen(words), fleet.currency, fleet.leases, float(patience))


def _fleet(given: Any) -> Fleet:
    if isinstance(given, str):
        return read_devices(Path(given))
    try:
        return fleet_of({"devices": given} if isinstance(given, list) else given)
    except NNPipeError as error:
        text = str(error)
        raise type(error)(text if text.startswith("devices") else f"devices.{text}") from None
