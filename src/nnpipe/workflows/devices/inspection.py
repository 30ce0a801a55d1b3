"""Looking after devices: whether they answer, what they are, and whether they compute rightly."""

from __future__ import annotations

import base64
import contextlib
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import NNPipeError, TargetError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.registry import components
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.frameworks.c_source import FORMAT, write_c_source
from nnpipe.measuring.host import get_framework_versions, read_host_facts
from nnpipe.workflows.candidates.deployment import Deployment
from nnpipe.workflows.devices.device import Device
from nnpipe.workflows.journal import get_error_message

if TYPE_CHECKING:
    from nnpipe.protocols.client.connection import Connection

# Each is one operator that subtracts ``second`` from ``first``, as a file of that format: deflated,
# in base 85.
_FILES = {
    "onnx": (
        "c-rG&7h<p~<5J*aP0K7QF5zM;PEF3wOA+Eq$xKU2ElSNxPE}$KE=>|*Opg+WDiY%3;^ANv;^1Q9U<6{8C<(YWG?^qBE+m7{Wt~{K7zB6$E}I"
        "we"
    ),
    "tflite": (
        "c-mc1OA5j;5Pj8xf}wPgMHjt5cY>b5mCG*NRcKQvNQJhCa^ZozO`VxcKbr8!%;de~&7=VG%k^ZDz#@jBd=FkB<(QEYjsdWRUx6@y*Eo(G#{{D"
        "<?CHj6EhpRvchy)?M{+XvK-_4qBaJl<WqZv=G5x!)1zKlc55ie}y~!8%k%%u~D5|EeUFX`;VWnm6N4ZveABx_U&$jyK8R^Z>W||ZG-HE1dx_<"
        "cKFLU8O7hUEpXJ3Qy9LN"
    ),
}
_SHAPE = (1, 4)
# The same by hand, so that every version of nnpipe writes the same file: servers know models in C
# by their hash.
_IN_C = """/* Made by nnpipe: first - second. */
#include <stdint.h>

#define NN_ARENA_BYTES 48
static union { int64_t whole; float numbers[12]; uint8_t bytes[NN_ARENA_BYTES]; } nn_arena;

void *nn_input(int32_t number) { return number == 0 || number == 1 ? nn_arena.bytes + 16 * number : 0; }
const void *nn_output(int32_t number) { return number == 0 ? nn_arena.bytes + 32 : 0; }
void nn_reset(void) {}
void nn_run(void) {
    for (int32_t n = 0; n < 4; n++) nn_arena.numbers[8 + n] = nn_arena.numbers[n] - nn_arena.numbers[4 + n];
}
"""


def write_trial_models(folder: Path, formats: Collection[str] = ()) -> Iterator[Artifact]:
    """Yield a model in each of the formats that there is one for; without ``formats``, in all."""
    for name, packed in _FILES.items():
        if not formats or name in formats:
            path = folder / f"difference.{name}"
            path.write_bytes(zlib.decompress(base64.b85decode(packed)))
            names = (
                ("first", "second", "difference")
                if name == "onnx"
                else ("t_first", "t_second", "t_difference")
            )
            first, second, difference = (TensorSpec(each, _SHAPE, "float32") for each in names)
            yield Artifact.create(path, name, IOSpec((first, second), (difference,)))
    if not formats or FORMAT in formats:
        path = folder / f"difference.{FORMAT}"
        first, second, difference = (
            TensorSpec(each, _SHAPE, "float32") for each in ("first", "second", "difference")
        )
        io = IOSpec((first, second), (difference,))
        write_c_source(
            path, _IN_C, io, {"arena_bytes": 48, "arena_lower_bound": 48, "constant_bytes": 0}
        )
        yield Artifact.create(path, FORMAT, io)


def make_trial_batch(artifact: Artifact, seed: int) -> tuple[Batch, np.ndarray]:
    """Return inputs of a test model, and its output: float32 ``(1, 4)``, which is exact in any
    runtime.
    """
    drawn = np.random.default_rng(seed).integers(-100, 100, (2, *_SHAPE)).astype(np.float32)
    return {spec.name: value for spec, value in zip(artifact.io.inputs, drawn, strict=True)}, drawn[
        0
    ] - drawn[1]


FREE, BUSY, UNTRIED, FAILED = "free", "busy", "not tried", "failed"
_MOST_AT_ONCE = 64
_INFERENCES = 20


@dataclass(frozen=True)
class Inspection:
    """What a server of a device answered.

    Parameters
    ----------
    device
        The device.
    server
        The runtimes that this server is for, as text; empty if it is the only one of the device.
    state
        ``free``, ``busy`` with another client, ``not tried`` since there is no model for it, or
        ``failed``.
    reason
        Why it failed, or what it said.
    seconds
        How long it took to reach it.
    facts
        What the machine tells about itself; empty if it was not asked or does not tell.
    median_ns
        The median time of an inference of the self test on the device, in nanoseconds, if it counts
        time.
    """

    device: Device
    server: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    median_ns: float | None = None

    @property
    def title(self) -> str:
        """The name of the device, with that of the server if it has several."""
        return f"{self.device.name} ({self.server})" if self.server else self.device.name


def ping(devices: Sequence[Device]) -> list[Inspection]:
    """Connect to every server of devices, all at the same time, and return what each answered."""
    return _inspect_all(devices, _check_connection)


def try_out(devices: Sequence[Device]) -> list[Inspection]:
    """Let every server of devices run a tiny model, all at the same time, and compare the outputs
    with the right ones.

    What the machines tell about themselves comes with it, since they do so when they have loaded a
    model.
    """
    return _inspect_all(devices, _run_trial_models)


def _inspect_all(
    devices: Sequence[Device], look: Callable[[Device, str, Deployment], Inspection]
) -> list[Inspection]:
    servers = [(each, *server) for each in devices for server in each.list_deployments().items()]
    with ThreadPoolExecutor(min(max(len(servers), 1), _MOST_AT_ONCE)) as pool:
        known = dict(
            zip(
                [(each.name, title) for each, title, _ in servers],
                pool.map(lambda server: look(*server), servers),
                strict=True,
            )
        )
    found = []
    for each in devices:
        if each.here:
            found.append(Inspection(each, "", FREE, "this machine", facts=_describe_machine()))
        found += [known[each.name, title] for title in each.list_deployments()]
    return found


def _describe_machine() -> dict[str, Any]:
    return {"host": read_host_facts(), "frameworks": get_framework_versions()}


def _check_connection(device: Device, server: str, deployment: Deployment) -> Inspection:
    begin = time.monotonic()
    state, reason = fetch_state(deployment)
    return Inspection(device, server, state, reason, time.monotonic() - begin)


def fetch_state(deployment: Deployment) -> tuple[str, str]:
    """Connect to a server, and return its state, and why it failed or what it said."""
    from nnpipe.protocols.conversation.frame import ErrorCode

    try:
        with _open_connection(deployment):
            return FREE, ""
    except TargetError as error:
        return (BUSY if error.code == ErrorCode.BUSY else FAILED), get_error_message(error)
    except NNPipeError as error:
        return FAILED, get_error_message(error)


@contextlib.contextmanager
def _open_connection(deployment: Deployment) -> Iterator[Connection]:
    from nnpipe.protocols.client.connection import Connection
    from nnpipe.protocols.conversation.host import HostConversation

    conversation = HostConversation(token=deployment.remote.read_token())
    with contextlib.closing(Connection(deployment.protocol.connect(), conversation)) as connection:
        connection.perform_handshake()
        yield connection


def _fetch_counter(deployment: Deployment) -> dict[str, Any]:
    """Return what a server counts, which it tells without a model."""
    from nnpipe.protocols.conversation.frame import FrameFlag, FrameKind
    from nnpipe.protocols.conversation.payloads import Stats

    with _open_connection(deployment) as connection:
        stats = Stats.unpack(connection.ask(FrameKind.STATS, (), FrameFlag.CLOCK))
    return {"counter": stats.counter.name.lower(), "rate": stats.rate}


def _run_trial_models(device: Device, server: str, deployment: Deployment) -> Inspection:
    from nnpipe.protocols.conversation.frame import ErrorCode

    reached = _check_connection(device, server, deployment)
    if reached.state != FREE:
        return reached
    refusals, forbidden = [], ""
    with create_temporary_folder() as folder:
        for model in write_trial_models(folder, _fetch_formats(device, deployment)):
            try:
                return _run(reached, deployment, model)
            except TargetError as error:
                refusals.append(get_error_message(error))
                if error.code == ErrorCode.BUSY:  # somebody came in between
                    return Inspection(
                        device, server, BUSY, get_error_message(error), reached.seconds
                    )
                if error.code == ErrorCode.NATIVE_CODE:
                    forbidden = get_error_message(error)
                elif error.code != ErrorCode.MODEL:
                    break
            except NNPipeError as error:
                refusals.append(get_error_message(error))
                break
    if refusals and not forbidden:
        return Inspection(device, server, FAILED, "; ".join(refusals), reached.seconds)
    why = forbidden or "there is no tiny model in a format that its runtimes take"
    try:
        return Inspection(device, server, UNTRIED, why, reached.seconds, _fetch_counter(deployment))
    except NNPipeError as error:
        return Inspection(device, server, FAILED, get_error_message(error), reached.seconds)


def _fetch_formats(device: Device, deployment: Deployment) -> set[str]:
    """Return the formats that the runtimes of a server take; empty if these are not known."""
    served = [path for path, protocol in device.runtimes.items() if protocol == deployment.protocol]
    return {
        format
        for cls in components(Runtime)
        if cls.get_dotted_path() in served
        for format in cls.accepts
    }


def _run(reached: Inspection, deployment: Deployment, model: Any) -> Inspection:
    from nnpipe.protocols.client.session import open_session

    with open_session(deployment.protocol, model, deployment.remote) as session:
        for seed in range(_INFERENCES):
            batch, right = make_trial_batch(model, seed)
            (found,) = session.infer(batch).values()
            if not np.array_equal(np.asarray(found).reshape(right.shape), right):
                shown = f"{np.asarray(found).ravel().tolist()} instead of {right.ravel().tolist()}"
                return Inspection(
                    reached.device, reached.server, FAILED, f"it computes {shown}", reached.seconds
                )
        columns, stats = session.columns(_INFERENCES), session.stats()
    known = {key: stats[key] for key in ("counter", "rate") if key in stats} | dict(
        stats.get("target", {})
    )
    times = columns.get("target_ns")
    return Inspection(
        reached.device,
        reached.server,
        FREE,
        f"{_INFERENCES} inferences of {model.format} are right",
        reached.seconds,
        known,
        None if times is None or not len(times) else float(np.median(times)),
    )
