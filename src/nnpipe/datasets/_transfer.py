"""One attempt to bring a file from one address, going on where the last attempt ended.

Nothing a server says is believed: statuses, lengths and ranges are checked
against each other and against the size that is known, bodies are cut at that
size, and silence or a trickle ends the attempt.  Whether the bytes are the
right ones is decided by the caller, by their SHA-256.
"""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple

from nnpipe.datasets._http_client import HTTPClient, Lasting, Passing, RangeRefused
from nnpipe.datasets._partial_file import Partial
from nnpipe.datasets._progress import ByteProgress

_BLOCK = 1 << 16
_LEAST_BYTES_PER_TIMEOUT = 1 << 10
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNSATISFIED_RANGE = re.compile(r"bytes \*/([0-9]{1,18})")


class Receipt(NamedTuple):
    """How a file came.  When it came whole and measured, wrong content is the address's fault."""

    from_start: bool  # one response held all of it; nothing is left of an older part
    measured: bool  # its length was known, so that it cannot have broken off unnoticed


def transfer(line: HTTPClient, partial: Partial, *, size: int | None, limit: int, progress: ByteProgress) -> Receipt:
    """Bring ``partial`` to its full length over ``line``.

    Parameters
    ----------
    line
        The address to ask.
    partial
        Gets the bytes; what it holds already is asked for no more.
    size
        The file's length in bytes, None when unknown.
    limit
        No more bytes than these are taken when ``size`` is unknown.
    progress
        Is told of every block.

    Returns
    -------
    Receipt
        What the content can be blamed on, if it is wrong.

    Raises
    ------
    Passing, Lasting
        The attempt failed; ``partial`` keeps what came.
    OSError
        The local disk failed.
    """
    response, start = _ask(line, partial, size)
    if response is None:
        return Receipt(from_start=False, measured=True)
    with response:
        length = _content_length(response)
        announced = None if length is None else start + length
        if size is not None and announced is not None and announced != size:
            raise Passing(f"announces {announced} bytes instead of {size}")
        if size is None and announced is not None and announced > limit:
            raise Lasting(f"announces {announced} bytes, more than the limit of {limit}")
        if start == 0:
            partial.begin(line.url, response.headers.get("ETag"), response.headers.get("Last-Modified"))
        end = size if size is not None else announced
        progress.begin(start, end)
        _copy_body(line, response, partial, start, end, limit, progress)
    return Receipt(from_start=start == 0, measured=end is not None)


def _ask(line: HTTPClient, partial: Partial, size: int | None) -> tuple[Any, int]:
    """A response whose body goes on where ``partial`` ends, or else begins at 0.

    None stands for the response when the server says that nothing is left to send.
    """
    start = partial.length()
    if start:
        headers = {"Range": f"bytes={start}-"}
        if validator := partial.validator(line.url):
            headers["If-Range"] = validator
        try:
            response = line.ask(headers)
        except RangeRefused as refusal:
            # A known size was compared before; then the refusal means that the server's file is another.
            if size is None and _is_whole(refusal.content_range, start):
                return None, start
        else:
            if response.status == 200:
                return response, 0  # the range was ignored, or the file has changed: this is all of it
            if response.status == 206 and _continues(response.headers.get("Content-Range"), start):
                return response, start
            response.close()
    try:
        response = line.ask({})
    except RangeRefused:
        raise Passing("refuses a range where none was asked for") from None
    if response.status != 200:
        response.close()
        raise Passing(f"answers {response.status} where the whole file was asked for")
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
            # The timeout of the socket only sees silence; a byte now and then would hold us for ever.
            window_bytes += len(block)
            elapsed = time.monotonic() - window_start
            if elapsed > line.timeout:
                if window_bytes < _LEAST_BYTES_PER_TIMEOUT:
                    raise Passing(f"sends only {window_bytes} bytes in {elapsed:.0f} s")
                window_start, window_bytes = time.monotonic(), 0
    if end is None and position > limit:
        partial.discard()
        raise Lasting(f"sends more than the limit of {limit} bytes")
    if end is not None and position < end:
        raise Passing(f"broke off after {position} of {end} bytes")


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
