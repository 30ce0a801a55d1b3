"""Requests of bytes from one address, over HTTP or from a local file."""

from __future__ import annotations

import email.utils
import http.client
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
from typing import Any

import nnpipe

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
        with self._failures():
            if urllib.parse.urlsplit(self.url).scheme == "file":
                return _LocalResponse(self.url, headers)
            everything = {"User-Agent": f"nnpipe/{nnpipe.__version__}", "Accept-Encoding": "identity", **headers}
            try:
                return _opener().open(urllib.request.Request(self.url, headers=everything), timeout=self.timeout)
            except (ValueError, OverflowError) as error:
                raise PermanentFailure(f"leads to an address that cannot be used ({error})") from None

    def read(self, response: Any, count: int) -> bytes:
        """Return at least one and at most ``count`` bytes of the body; none at its end.

        Raises
        ------
        TemporaryFailure
            If the connection fails.
        """
        with self._failures():
            return bytes(response.read1(count))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:
                raise RangeRefused(error.headers.get("Content-Range")) from None
            cause = f"{error.code} {error.reason}"
            if error.code in _PASSING_STATUSES:
                raise TemporaryFailure(cause, _retry_after(error.headers.get("Retry-After"))) from None
            raise PermanentFailure(cause) from None
        except http.client.IncompleteRead:
            raise TemporaryFailure("broke off in the middle of a chunk") from None
        except http.client.HTTPException as error:
            raise TemporaryFailure(f"does not speak HTTP properly ({type(error).__name__})") from None
        except OSError as error:
            reason = getattr(error, "reason", error)  # URLError wraps the error of the socket
            if isinstance(reason, TimeoutError):
                raise TemporaryFailure(f"silent for {self.timeout:g} s") from None
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise PermanentFailure(f"its certificate is not to be trusted ({reason.verify_message})") from None
            raise TemporaryFailure(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__) from None


def _opener() -> urllib.request.OpenerDirector:
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
        location = urllib.parse.quote(location, encoding="iso-8859-1", errors="replace", safe=string.punctuation)
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


def _retry_after(text: str | None) -> float:
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
            self._handle = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path)).open("rb")  # noqa: SIM115 -- closed by close()
        except (OSError, ValueError) as error:
            raise PermanentFailure(getattr(error, "strerror", None) or str(error)) from None
        total = self._handle.seek(0, 2)
        start = int(headers["Range"][len("bytes=") : -1]) if "Range" in headers else 0
        if start >= total > 0:
            self._handle.close()
            raise RangeRefused(f"bytes */{total}")
        self._handle.seek(start)
        self.status = 206 if start else 200
        self.headers = {"Content-Length": str(total - start), "Content-Range": f"bytes {start}-{total - 1}/{total}"}

    def __enter__(self) -> _LocalResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._handle.close()

    def read1(self, count: int) -> bytes:
        return self._handle.read(count)
