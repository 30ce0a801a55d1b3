"""One attempt to download a file from one address, resuming the last attempt.

Servers are not trusted: statuses, lengths and ranges are checked against each
other and against the known size, bodies are truncated at that size, and a
stalled or very slow transfer ends the attempt.  The caller verifies the SHA-256
of the content.
"""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple

from nnpipe.datasets._http_client import HTTPClient, PermanentFailure, RangeRefused, TemporaryFailure
from nnpipe.datasets._partial_file import Partial
from nnpipe.datasets._progress import ByteProgress

_BLOCK = 1 << 16
_LEAST_BYTES_PER_TIMEOUT = 1 << 10
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNSATISFIED_RANGE = re.compile(r"bytes \*/([0-9]{1,18})")


class Receipt(NamedTuple):
    """How a file was received.  If whole and with a known length, wrong content is the address's fault."""

    from_start: bool  # one response contained the whole file, without an older part
    measured: bool  # its length was known, so that an interruption would be noticed


def transfer(line: HTTPClient, partial: Partial, *, size: int | None, limit: int, progress: ByteProgress) -> Receipt:
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
        length = _content_length(response)
        announced = None if length is None else start + length
        if size is not None and announced is not None and announced != size:
            raise TemporaryFailure(f"announces {announced} bytes instead of {size}")
        if size is None and announced is not None and announced > limit:
            raise PermanentFailure(f"announces {announced} bytes, more than the limit of {limit}")
        if start == 0:
            partial.begin(line.url, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        end = size if size is not None else announced
        progress.begin(start, end)
        _copy_body(line, response, partial, start, end, limit, progress)
    return Receipt(from_start=start == 0, measured=end is not None)


def _ask(line: HTTPClient, partial: Partial, size: int | None) -> tuple[Any, int]:
    """Return a response and the position of its body: the end of ``partial``, or 0.

    The response is ``None`` if the server states that nothing is left to send.
    """
    start = partial.length()
    if start:
        headers = {"Range": f"bytes={start}-"}
        if validator := partial.validator(line.url):
            headers["If-Range"] = validator
        try:
            response = line.ask(headers)
        except RangeRefused as refusal:
            # A known size was compared before, so the refusal means that the server's file differs.
            if size is None and _is_whole(refusal.content_range, start):
                return None, start
        else:
            if response.status == 200:
                return response, 0  # the range was ignored, or the file has changed: this is the whole file
            if response.status == 206 and _continues(response.headers.get("Content-Range"), start):
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
    line: HTTPClient, response: Any, partial: Partial, start: int, end: int | None, limit: int, progress: ByteProgress
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
            # The socket's timeout only detects silence; with a byte now and then, the transfer would never end.
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


def _continues(content_range: str | None, start: int) -> bool:
    match = _CONTENT_RANGE.fullmatch(content_range or "")
    if match is None or int(match[1]) != start or int(match[2]) < start:
        return False
    return match[3] == "*" or int(match[3]) == int(match[2]) + 1


def _is_whole(content_range: str | None, length: int) -> bool:
    match = _UNSATISFIED_RANGE.fullmatch(content_range or "")
    return match is not None and int(match[1]) == length


def _content_length(response: Any) -> int | None:
    text = response.headers.get("Content-Length")
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
