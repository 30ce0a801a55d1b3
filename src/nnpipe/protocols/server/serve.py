"""The server of a runtime, which serves one client after another.

The supervisor (this process) performs the handshakes and never loads a model.
For each client it forks a worker, which uses the connection directly.  The worker
writes its state to a page of shared memory.  So the supervisor can detect a runtime
that hangs, and tell the client if the runtime has crashed the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from nnpipe.core.child_processes import die_with_parent, run_forked
from nnpipe.core.errors import ConfigError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import Channel, Listener, RuntimeProtocol, ServerOptions
from nnpipe.measuring.counters import GPUs
from nnpipe.protocols.conversation.frame import ErrorCode, get_check_bits
from nnpipe.protocols.conversation.handshake import Limits
from nnpipe.protocols.conversation.payloads import ErrorPayload
from nnpipe.protocols.conversation.target import TargetConversation
from nnpipe.protocols.server.admission import Admission, PendingClient
from nnpipe.protocols.server.inference_service import InferenceService, read_target_facts
from nnpipe.protocols.server.model_store import ModelStore, remove_leftovers
from nnpipe.protocols.server.shared_page import Phase, SharedPage
from nnpipe.protocols.server.supervised_worker import SupervisedWorker
from nnpipe.protocols.server.worker import ClientWorker, refuse

_TICK = 0.1  # seconds between checks of a worker, and between samples of its resources
log = logging.getLogger("nnpipe")


def check_exposure(protocol: RuntimeProtocol, options: ServerOptions) -> None:
    """Raise an error if unknown clients could connect without a token.

    Raises
    ------
    ConfigError
        If other machines can reach the address, and neither a token nor ``insecure`` was given.
    """
    if protocol.is_exposed() and options.token_file is None and not options.insecure:
        raise ConfigError(
            "other machines can reach this address: name a file that holds a shared token "
            "(--token-file), or serve everybody with --insecure"
        )


def serve(
    protocol: RuntimeProtocol,
    runtime: Runtime,
    options: ServerOptions | None = None,
    *,
    ready: Callable[[Listener], None] = lambda listener: None,
    stopping: Callable[[], bool] = lambda: False,
    wake: int | None = None,
) -> None:
    """Serve a runtime until told to stop.

    Parameters
    ----------
    protocol
        The protocol and address at which to listen.
    runtime
        The runtime of the clients' models.
    options
        The options of the server.
    ready
        Called when clients can connect.
    stopping
        Called several times a second; the server stops when it returns true.
    wake
        A descriptor that becomes readable when ``stopping`` should be called.

    Raises
    ------
    ConfigError
        If other machines can connect, and neither a token nor ``insecure`` is given.
    TransportError
        If it is impossible to listen at the address.
    """
    options = options or ServerOptions()
    check_exposure(protocol, options)
    token = options.read_token()
    limits = Limits(largest=options.max_input_bytes, checks=get_check_bits())
    with contextlib.ExitStack() as stack:
        place = options.save_model_path
        if place is None:
            place = stack.enter_context(create_temporary_folder())
        else:
            remove_leftovers(place)
        listener = stack.enter_context(protocol.listen())
        reception = Admission(listener, limits, token, options.greeting_timeout)
        # opened once, since opening the driver for each client fragments memory
        gpus = stack.enter_context(GPUs())
        supervisor = _Supervisor(reception, runtime, options, place, limits, stopping, gpus)
        if wake is not None:
            reception.watch(wake)
        read_target_facts()
        try:
            ready(listener)
            supervisor.run()
        finally:
            supervisor.stop()
            reception.close(ErrorPayload(ErrorCode.STOPPING, ""))
            if options.save_model_path is not None:
                remove_leftovers(options.save_model_path)  # a worker that was killed could not


def serve_client(
    channel: Channel,
    conversation: TargetConversation,
    runtime: Runtime,
    options: ServerOptions,
    place: Path,
    board: SharedPage,
    stopping: Callable[[], bool] = lambda: False,
) -> str:
    """Serve one client in this process after its handshake, and return the reason for the end."""
    store = ModelStore(place, options.max_model_bytes, conversation.limits.part)
    service = InferenceService(runtime, options, store, board)
    return ClientWorker(
        channel, conversation, service, board, options.idle_timeout, stopping
    ).serve()


class _Supervisor:
    def __init__(
        self,
        reception: Admission,
        runtime: Runtime,
        options: ServerOptions,
        place: Path,
        limits: Limits,
        stopping: Callable[[], bool],
        gpus: GPUs,
    ) -> None:
        self._reception = reception
        self._runtime = runtime
        self._options = options
        self._place = place
        self._limits = limits
        self._stopping = stopping
        self._gpus = gpus
        self._worker: SupervisedWorker | None = None
        # accepted while the previous client's worker is ending
        self._next: PendingClient | None = None

    def run(self) -> None:
        while not self._stopping():
            if self._worker is not None and self._worker.look():
                self._end_worker()
            if self._worker is None and self._next is not None:
                waiting, self._next = self._next, None
                self._start(waiting)
                continue
            guest = self._reception.step(_TICK if self._worker is not None else 1.0, self._is_busy)
            if guest is None:
                continue
            if self._is_busy():
                self._reception.refuse(guest)
                continue
            if self._next is not None:
                self._next.channel.close()
            self._next = guest

    def _is_busy(self) -> bool:
        """Return whether a client is being served, or one is waiting for the previous client's
        worker to end.

        A waiting client that has left does not count.
        """
        waits = self._next is not None and not self._next.has_left()
        return waits or (self._worker is not None and not self._worker.has_left())

    def _start(self, guest: PendingClient) -> None:
        log.info("%s is being served", guest.name)
        self._reception.serving_since = time.monotonic()
        if not self._options.isolate or not hasattr(os, "fork"):
            board = SharedPage()
            reason = serve_client(
                guest.channel,
                guest.conversation,
                self._runtime,
                self._options,
                self._place,
                board,
                self._stopping,
            )
            log.info("%s: %s", guest.name, reason)
            board.close()
            self._reception.serving_since = None
            return
        board = SharedPage()
        board.begin(Phase.WAITING, guest.conversation.number)
        supervisor, pid = os.getpid(), _fork()
        if pid == 0:
            run_forked(lambda: self._run_worker(guest, board, supervisor))
        self._worker = SupervisedWorker(pid, guest, board, self._options, self._gpus)
        if self._worker.descriptor is not None:
            self._reception.watch(self._worker.descriptor)

    def _run_worker(self, guest: PendingClient, board: SharedPage, supervisor: int) -> None:
        """Serve a client in the worker process."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # Ctrl-C is handled by the supervisor, which ends the worker
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        die_with_parent(supervisor)
        self._reception.abandon()
        reason = serve_client(
            guest.channel, guest.conversation, self._runtime, self._options, self._place, board
        )
        log.info("%s: %s", guest.name, reason)

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        assert worker is not None
        self._reception.serving_since = None
        if worker.descriptor is not None:
            self._reception.unwatch(worker.descriptor)
        worker.close()

    def stop(self) -> None:
        """End the worker, and tell its client."""
        if self._worker is not None:
            self._worker.kill(ErrorPayload(ErrorCode.STOPPING, ""))
            self._end_worker()
        if self._next is not None:
            refuse(
                self._next.channel, self._next.conversation, ErrorPayload(ErrorCode.STOPPING, "")
            )


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns about threads; those here belong to numpy's BLAS, which handles a fork
        # itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fork()
