"""One attempt to download a file from one address, resuming the last attempt.

Servers are not trusted: statuses, lengths and ranges are checked against each
other and against the known size, bodies are truncated at that size, and a
stalled or very slow transfer ends the attempt.  The caller verifies the SHA-256
of the content.
"""

from __future__ import annotations

import email.utils
import errno
import http.client
import json
import os
import re
import ssl
import string
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import nnpipe
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import write_text
from nnpipe.datasets._progress import ByteProgress

SCHEMES = ("http", "https", "file")
_MAX_REDIRECTS = 5
_PASSING_STATUSES = {408, 425, 429, 500, 502, 503, 504}


class TemporaryFailure(Exception):
    """Raised for a temporary failure, after which another attempt may succeed.

    ``retry_after`` is the pause in s that the server asked for, or 0.
    """

    def __init__(self, cause: str, retry_after: float = 0.0):
        super().__init__(cause)
        self.retry_after = retry_after


class PermanentFailure(Exception):
    """Raised for a permanent failure: further attempts with this address are useless."""


class RangeRefused(Exception):
    """Raised for status 416; ``content_range`` is the server's header, if any."""

    def __init__(self, content_range: str | None):
        super().__init__(content_range)
        self.content_range = content_range


class HTTPClient:
    """A client for one address.  No connection is open between calls.

    Parameters
    ----------
    url
        An ``http``, ``https`` or ``file`` address.
    timeout
        Time in s without data after which a call fails.
    """

    def __init__(self, url: str, timeout: float):
        self.url = url
        self.timeout = timeout

    def ask(self, headers: dict[str, str]) -> Any:
        """Return the response to a GET request, a context manager with ``status`` and ``headers``.

        Raises
        ------
        TemporaryFailure, PermanentFailure, RangeRefused
            If the request fails.
        """
        with self._convert_errors():
            if urllib.parse.urlsplit(self.url).scheme == "file":
                return _LocalResponse(self.url, headers)
            everything = {
                "User-Agent": f"nnpipe/{nnpipe.__version__}",
                "Accept-Encoding": "identity",
                **headers,
            }
            try:
                return _build_opener().open(
                    urllib.request.Request(self.url, headers=everything), timeout=self.timeout
                )
            except (ValueError, OverflowError) as error:
                raise PermanentFailure(
                    f"leads to an address that cannot be used ({error})"
                ) from None

    def read(self, response: Any, count: int) -> bytes:
        """Return at least one and at most ``count`` bytes of the body; none at its end.

        Raises
        ------
        TemporaryFailure
            If the connection fails.
        """
        with self._convert_errors():
            return bytes(response.read1(count))

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:
                raise RangeRefused(error.headers.get("Content-Range")) from None
            cause = f"{error.code} {error.reason}"
            if error.code in _PASSING_STATUSES:
                raise TemporaryFailure(
                    cause, _parse_retry_after(error.headers.get("Retry-After"))
                ) from None
            raise PermanentFailure(cause) from None
        except http.client.IncompleteRead:
            raise TemporaryFailure("broke off in the middle of a chunk") from None
        except http.client.HTTPException as error:
            raise TemporaryFailure(
                f"does not speak HTTP properly ({type(error).__name__})"
            ) from None
        except OSError as error:
            reason = getattr(error, "reason", error)  # URLError wraps the error of the socket
            if isinstance(reason, TimeoutError):
                raise TemporaryFailure(f"silent for {self.timeout:g} s") from None
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise PermanentFailure(
                    f"its certificate is not to be trusted ({reason.verify_message})"
                ) from None
            raise TemporaryFailure(
                getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            ) from None


def _build_opener() -> urllib.request.OpenerDirector:
    # Not build_opener(), which adds ftp: and file: handlers that a redirect could reach.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirects(urllib.request.BaseHandler):
    """Follows a few redirects over http and https, but never from https to http.

    urllib's handler reads the whole body of a redirect, which may be endless.
    """

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.close()
        location = headers.get("Location")
        if not location:
            raise PermanentFailure(f"redirects ({code}) to nowhere")
        location = urllib.parse.quote(
            location, encoding="iso-8859-1", errors="replace", safe=string.punctuation
        )
        target = urllib.parse.urljoin(req.full_url, location)
        old, new = urllib.parse.urlsplit(req.full_url).scheme, urllib.parse.urlsplit(target).scheme
        if new not in {"http", "https"} or (old == "https" and new == "http"):
            raise PermanentFailure(f"redirects from {old} to {new}, which is refused")
        followed = getattr(req, "followed", 0) + 1
        if followed > _MAX_REDIRECTS:
            raise PermanentFailure(f"redirects more than {_MAX_REDIRECTS} times")
        request: Any = urllib.request.Request(target, headers=req.headers)
        request.followed = followed
        return self.parent.open(request, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _parse_retry_after(text: str | None) -> float:
    """Return the pause in s of a ``Retry-After`` header (RFC 9110, 10.2.3); 0 if it is invalid."""
    if not text:
        return 0.0
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, moment - time.time())


class _LocalResponse:
    """The response of a ``file:`` address, which supports ranges."""

    def __init__(self, url: str, headers: dict[str, str]):
        try:
            path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
            self._handle = path.open("rb")
        except (OSError, ValueError) as error:
            raise PermanentFailure(getattr(error, "strerror", None) or str(error)) from None
        total = self._handle.seek(0, 2)
        start = int(headers["Range"][len("bytes=") : -1]) if "Range" in headers else 0
        if start >= total > 0:
            self._handle.close()
            raise RangeRefused(f"bytes */{total}")
        self._handle.seek(start)
        self.status = 206 if start else 200
        self.headers = {
            "Content-Length": str(total - start),
            "Content-Range": f"bytes {start}-{total - 1}/{total}",
        }

    def __enter__(self) -> _LocalResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._handle.close()

    def read1(self, count: int) -> bytes:
        return self._handle.read(count)


class PartialFile:
    """``.NAME.partial`` in the destination's folder, with a JSON record beside it.

    Both belong to nnpipe, which may truncate, remove and overwrite them.  The
    record holds the address and the validators (``ETag``, ``Last-Modified``) of
    the response, so that a server resumes only if its file has not changed
    (RFC 9110, 13.1.5, ``If-Range``).
    """

    def __init__(self, destination: Path):
        self.path = destination.with_name(f".{destination.name}.partial")
        self._note = destination.with_name(f".{destination.name}.partial.json")

    def length(self) -> int:
        """Return the number of bytes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def discard(self) -> None:
        """Remove the bytes and the record."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def begin(self, url: str, etag: str | None, modified: str | None) -> None:
        """Start over without bytes, and record the origin of those to come."""
        self.discard()
        write_text(self._note, json.dumps({"url": url, "etag": etag, "modified": modified}) + "\n")

    def get_validator(self, url: str) -> str | None:
        """Return the value of ``If-Range`` for ``url``; ``None`` if no usable validator was
        recorded.
        """
        try:
            note = parse_json(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict) or note.get("url") != url:
            return None
        etag, modified = note.get("etag"), note.get("modified")
        # A weak ETag does not guarantee equal bytes, so If-Range must not contain one.
        if isinstance(etag, str) and etag.startswith('"') and etag.isprintable():
            return etag
        return modified if isinstance(modified, str) and modified.isprintable() else None

    def open(self) -> BinaryIO:
        """Open for appending."""
        return open(self.path, "ab")

    def publish(self, destination: Path) -> None:
        """Move the finished file to its final name, atomically and never over another file.

        Raises
        ------
        FileExistsError
            If a file of that name has appeared in the meantime.
        """
        with open(self.path, "rb+") as handle:
            os.fsync(handle.fileno())
        try:
            os.link(self.path, destination)  # unlike a rename, this never replaces
        except FileExistsError:
            raise FileExistsError(
                errno.EEXIST, "came there during the download", str(destination)
            ) from None
        except OSError:
            self.path.rename(destination)  # a file system without hard links
        else:
            self.path.unlink()
        self._note.unlink(missing_ok=True)


_BLOCK = 1 << 16
_LEAST_BYTES_PER_TIMEOUT = 1 << 10
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNSATISFIED_RANGE = re.compile(r"bytes \*/([0-9]{1,18})")


class Receipt(NamedTuple):
    """How a file was received.

    If whole and with a known length, wrong content is the address's fault.
    """

    from_start: bool  # one response contained the whole file, without an older part
    measured: bool  # its length was known, so that an interruption would be noticed


def transfer(
    line: HTTPClient, partial: PartialFile, *, size: int | None, limit: int, progress: ByteProgress
) -> Receipt:
    """Complete ``partial`` with data from ``line``.

    Parameters
    ----------
    line
        The client of the address.
    partial
        The partial file; bytes that it holds are not requested again.
    size
        Length of the file in bytes; ``None`` if not known.
    limit
        Greatest number of bytes to accept if ``size`` is not known.
    progress
        Shows every block.

    Returns
    -------
    Receipt
        How the file was received, to find the cause of wrong content.

    Raises
    ------
    TemporaryFailure, PermanentFailure
        If the attempt failed; ``partial`` keeps the received bytes.
    OSError
        If writing to the disk failed.
    """
    response, start = _ask(line, partial, size)
    if response is None:
        return Receipt(from_start=False, measured=True)
    with response:
        length = _parse_content_length(response)
        announced = None if length is None else start + length
        if size is not None and announced is not None and announced != size:
            raise TemporaryFailure(f"announces {announced} bytes instead of {size}")
        if size is None and announced is not None and announced > limit:
            raise PermanentFailure(f"announces {announced} bytes, more than the limit of {limit}")
        if start == 0:
            partial.begin(
                line.url, response.headers.get("ETag"), response.headers.get("Last-Modified")
            )
        end = size if size is not None else announced
        progress.begin(start, end)
        _copy_body(line, response, partial, start, end, limit, progress)
    return Receipt(from_start=start == 0, measured=end is not None)


def _ask(line: HTTPClient, partial: PartialFile, size: int | None) -> tuple[Any, int]:
    """Return a response and the position of its body: the end of ``partial``, or 0.

    The response is ``None`` if the server states that nothing is left to send.
    """
    start = partial.length()
    if start:
        headers = {"Range": f"bytes={start}-"}
        if validator := partial.get_validator(line.url):
            headers["If-Range"] = validator
        try:
            response = line.ask(headers)
        except RangeRefused as refusal:
            # A known size was compared before, so the refusal means that the server's file differs.
            if size is None and _is_whole(refusal.content_range, start):
                return None, start
        else:
            if response.status == 200:
                # the range was ignored, or the file has changed: this is the whole file
                return response, 0
            if response.status == 206 and _is_continuation(
                response.headers.get("Content-Range"), start
            ):
                return response, start
            response.close()
    try:
        response = line.ask({})
    except RangeRefused:
        raise TemporaryFailure("refuses a range where none was asked for") from None
    if response.status != 200:
        response.close()
        raise TemporaryFailure(f"answers {response.status} where the whole file was asked for")
    return response, 0


def _copy_body(
    line: HTTPClient,
    response: Any,
    partial: PartialFile,
    start: int,
    end: int | None,
    limit: int,
    progress: ByteProgress,
) -> None:
    position, window_start, window_bytes = start, time.monotonic(), 0
    with partial.open() as out:
        while end is None or position < end:
            block = line.read(response, _BLOCK if end is None else min(_BLOCK, end - position))
            if not block:
                break
            out.write(block)
            position += len(block)
            progress.advance(len(block))
            if end is None and position > limit:
                break
            # The socket's timeout only detects silence; with a byte now and then, the transfer
            # would never end.
            window_bytes += len(block)
            elapsed = time.monotonic() - window_start
            if elapsed > line.timeout:
                if window_bytes < _LEAST_BYTES_PER_TIMEOUT:
                    raise TemporaryFailure(f"sends only {window_bytes} bytes in {elapsed:.0f} s")
                window_start, window_bytes = time.monotonic(), 0
    if end is None and position > limit:
        partial.discard()
        raise PermanentFailure(f"sends more than the limit of {limit} bytes")
    if end is not None and position < end:
        raise TemporaryFailure(f"broke off after {position} of {end} bytes")


def _is_continuation(content_range: str | None, start: int) -> bool:
    match = _CONTENT_RANGE.fullmatch(content_range or "")
    if match is None or int(match[1]) != start or int(match[2]) < start:
        return False
    return match[3] == "*" or int(match[3]) == int(match[2]) + 1


def _is_whole(content_range: str | None, length: int) -> bool:
    match = _UNSATISFIED_RANGE.fullmatch(content_range or "")
    return match is not None and int(match[1]) == length


def _parse_content_length(response: Any) -> int | None:
    text = response.headers.get("Content-Length")
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
