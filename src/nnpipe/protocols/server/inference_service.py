"""The service for one client: receive a model, load it, and run it."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.artifact import BUILT_BYTES, Artifact
from nnpipe.core.errors import NNPipeError, SpecMismatch
from nnpipe.core.runtime import Runtime
from nnpipe.core.runtime_protocol import ServerOptions
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.measuring.host import get_framework_versions, read_host_facts
from nnpipe.protocols.conversation.conversation import Message
from nnpipe.protocols.conversation.frame import Buffer, ErrorCode, FrameFlag, FrameKind
from nnpipe.protocols.conversation.payloads import (
    Counter,
    LoadedModel,
    ModelOffer,
    Stats,
    TensorLayout,
    pack_count,
    to_json,
    unpack_count,
)
from nnpipe.protocols.server.model_store import ModelStore, Refusal
from nnpipe.protocols.server.shared_page import SharedPage

_PATH = re.compile(r"(?<![\w./\\:~-])(?:[A-Za-z]:[\\/]|/)[^\s'\"<>|:;,()\[\]{}]+")


def remove_folders(text: str, *folders: Path) -> str:
    """Return a text in which the paths of files on this machine are shortened to their names.

    Names of a model's parts that look like paths (``/conv1/Conv``) are kept,
    since they do not begin with a folder of this machine.

    Parameters
    ----------
    text
        The message.
    folders
        Further folders to remove, whose names may contain any character, such as spaces.
    """
    known = {
        os.fspath(folder.absolute())
        for folder in (*folders, Path.home(), Path.cwd(), Path(sys.prefix))
    }
    known |= {os.path.realpath(folder) for folder in known} | {tempfile.gettempdir()}
    for folder in sorted(known, key=len, reverse=True):
        if len(Path(folder).parts) > 1:
            text = text.replace(folder + os.sep, "")
    return _PATH.sub(_shorten_path, text)


def _shorten_path(found: re.Match[str]) -> str:
    path = found[0]
    parts = re.split(r"[\\/]+", path.rstrip("\\/"))
    if path.startswith("/") and not (len(parts) > 2 and Path("/", parts[1]).is_dir()):
        return path
    return parts[-1]


_NS = 1_000_000_000
_KEEP = 1 << 26  # bytes of input memory that is kept for the next DATA
log = logging.getLogger("nnpipe")


@functools.cache
def read_target_facts() -> dict[str, Any]:
    """Return facts about this machine and its packages; read once, before a server's first
    client.
    """
    return {"host": read_host_facts(), "frameworks": get_framework_versions()}


class InferenceService:
    """Carries out the requests of the protocol with a runtime.

    A request that fails raises :class:`Refusal`; the next one may succeed.

    Parameters
    ----------
    runtime
        The runtime of the models.
    options
        The options of the server.
    store
        The store of the models.
    board
        The shared page on which the supervisor sees the worker's state.

    Attributes
    ----------
    actions
        The function for each request, except PROCESS and INFER; it returns the payload of the OK.
    """

    def __init__(
        self, runtime: Runtime, options: ServerOptions, store: ModelStore, board: SharedPage
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._store = store
        self._board = board
        self._offer: ModelOffer | None = None
        self._session: InferenceSession | None = None
        self._inputs: TensorLayout | None = None
        self._outputs: TensorLayout | None = None
        self._memory = memoryview(b"")
        self._inferences = 0
        self._load_ns = 0
        self.actions: dict[FrameKind, Callable[[Message], list[Buffer]]] = {
            FrameKind.DATA: self._put_inputs,
            FrameKind.OUTPUT: lambda message: self.get(),
            FrameKind.STATS: self._pack_stats,
            FrameKind.MODEL: self._receive_model,
        }

    def place(self, kind: FrameKind, length: int) -> memoryview:
        """Return the memory for inputs or for a part of a model."""
        if kind is FrameKind.MODEL:
            return self._store.buffer(length)
        memory = self._memory
        if length > len(memory):
            memory = np.empty(length, np.uint8).data
            if length <= _KEEP:
                self._memory = memory
        return memory[:length]

    def process(self) -> tuple[int, int]:
        """Run the model, and return the counter just before and just after."""
        session = self._session
        assert session is not None
        collecting = gc.isenabled()
        gc.disable()
        try:
            session.prepare_run()
            started = time.perf_counter_ns()
            session.run()
            stopped = time.perf_counter_ns()
        except Exception as error:
            raise _create_refusal(error) from error
        finally:
            if collecting:
                gc.enable()
        self._inferences += 1
        return started, stopped

    def put(self, payload: bytes | memoryview) -> None:
        """Set the inputs."""
        assert self._session is not None
        assert self._inputs is not None
        try:
            batch = self._inputs.unpack(payload)
            self._session.put(batch)
        except SpecMismatch as error:
            raise Refusal(ErrorCode.TENSORS, str(error)) from None
        except Exception as error:
            raise _create_refusal(error) from error

    def get(self) -> list[Buffer]:
        """Return the outputs, as parts of a payload."""
        assert self._session is not None
        assert self._outputs is not None
        try:
            batch = self._session.get()
            self._session.io.check_outputs(batch)
            return list(self._outputs.pack(batch))
        except Exception as error:
            raise _create_refusal(error) from error

    def remove_private_paths(self, text: str) -> str:
        """Return a text without the information that only this machine's log may contain."""
        return remove_folders(text, *self._store.folders)

    def _put_inputs(self, message: Message) -> list[Buffer]:
        self.put(message.payload)
        return []

    def _pack_stats(self, message: Message) -> list[Buffer]:
        received = time.perf_counter_ns()
        rows = b"" if message.flags & FrameFlag.CLOCK else self._board.read_new_rows()
        stats = Stats(
            Counter.WALL,
            _NS,
            received,
            time.perf_counter_ns(),
            self._inferences,
            self._load_ns,
            rows,
        )
        return [stats.pack()]

    def _receive_model(self, message: Message) -> list[Buffer]:
        if message.flags == FrameFlag.BEGIN:
            self._unload()
            self._offer = ModelOffer.unpack(message.payload)
            self._check_format(self._offer.description)
            return [pack_count(self._store.begin(self._offer))]
        if message.flags == FrameFlag.PART:
            payload = memoryview(message.payload)
            if len(payload) < 8:
                raise Refusal(ErrorCode.MODEL, "a part without an offset came")
            self._store.add(unpack_count(payload[:8]), payload[8:])
            return []
        assert self._offer is not None
        artifact = self._finish_model(self._offer)
        return [self._load(artifact).pack()]

    def _check_format(self, description: Mapping[str, Any]) -> None:
        format = description.get("format")
        runtime = type(self._runtime).__name__
        if not isinstance(format, str) or format not in self._runtime.accepts:
            accepted = " or ".join(self._runtime.accepts)
            raise Refusal(
                ErrorCode.MODEL, f"{runtime} here runs {accepted}, the model is {format!r}"
            )
        if format in self._runtime.native_code and not self._options.allow_native_code_from_clients:
            raise Refusal(
                ErrorCode.NATIVE_CODE,
                f"{format!r}; if all clients are trusted, start the server with "
                f"--allow-native-code-from-clients",
            )

    def _finish_model(self, offer: ModelOffer) -> Artifact:
        kept = self._store.finish()
        said = offer.description
        try:
            artifact = Artifact(
                kept.path,
                said["format"],
                IOSpec.from_json(said["io"]),
                kept.sha256,
                tuple((str(name), str(version)) for name, version in said.get("frameworks", ())),
                str(said.get("target", "cpu")),
            )
            self._store.describe(kept, to_json(artifact.to_json()))
        except (NNPipeError, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
            raise Refusal(ErrorCode.MODEL, f"its description is not usable: {error}") from None
        return dataclasses.replace(artifact, path=kept.loadable)

    def _load(self, artifact: Artifact) -> LoadedModel:
        log.info("loading the model: %s, %s bytes", artifact.format, f"{artifact.size:,}")
        try:
            begun = time.perf_counter_ns()
            session = self._runtime.load(artifact)
            self._load_ns = time.perf_counter_ns() - begun
            try:
                self._inputs, self._outputs = (
                    TensorLayout(session.io.inputs),
                    TensorLayout(session.io.outputs),
                )
                self._check_size(self._inputs)
            except BaseException:
                session.close()
                raise
        except Refusal:
            raise
        except NNPipeError as error:
            log.warning("the model cannot be loaded: %s", error)
            raise Refusal(ErrorCode.MODEL, str(error)) from error
        except Exception as error:
            raise _create_refusal(error) from error
        self._session = session
        self._inferences = 0
        log.info("loaded in %.3f s", self._load_ns / 1e9)
        about = read_target_facts() | {"runtime": hide_settings_secrets(self._runtime.describe())}
        if (built := session.stats().get(BUILT_BYTES)) is not None:
            about[BUILT_BYTES] = built
        return LoadedModel(self._load_ns, session.io.to_json(), about)

    def _check_size(self, inputs: TensorLayout) -> None:
        if inputs.size is not None and inputs.size > self._options.max_input_bytes:
            raise Refusal(
                ErrorCode.MEMORY,
                f"its inputs take {inputs.size:,} bytes, this server takes "
                f"{self._options.max_input_bytes:,}",
            )

    def _unload(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        """Release the model, and stop an upload."""
        self._unload()
        self._store.close()


def _create_refusal(error: Exception) -> Refusal:
    if isinstance(error, MemoryError):
        return Refusal(ErrorCode.MEMORY, str(error))
    text = str(error) if isinstance(error, NNPipeError) else f"{type(error).__name__}: {error}"
    if not isinstance(error, NNPipeError):
        log.warning("the runtime failed: %s", text, exc_info=error)
    return Refusal(ErrorCode.RUNTIME, text)
