"""A folder, and a real server that speaks S3's language, in a process of its own."""

from __future__ import annotations

import importlib.util
import itertools
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from nnpipe.storage.storage import open_storage

CROWDED = "crowded"
"""A bucket with 2,000 objects below ``team/datasets/x``."""

# 2,000 requests would take a minute; put into the server directly they take a second.
_SERVER = """
import sys
from moto.s3.models import s3_backends
from moto.server import main
backend = s3_backends["123456789012"]["aws"]
backend.create_bucket("crowded", "us-east-1")
for number in range(2000):
    backend.put_object("crowded", f"team/datasets/x/{number:04}", b"x")
for name in ("team/datasets/empty-folder/", "team/datasetsx/other"):
    backend.put_object("crowded", name, b"")
main(sys.argv[1:])
"""
_numbers = itertools.count()


@pytest.fixture(scope="session")
def server():
    missing = [name for name in ("s3fs", "moto", "flask") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(
            f"a local S3 server needs {', '.join(missing)}: pip install 'nnpipe[s3]' 'moto[server]'"
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            assert process.poll() is None, "moto's server ended by itself"
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    """Address of an empty bucket; boto's own variables name the server and the credentials."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "cook",
        "AWS_SECRET_ACCESS_KEY": "salt",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"kitchen-{next(_numbers)}"
    urllib.request.urlopen(
        urllib.request.Request(f"{server}/{bucket}", method="PUT"), timeout=60
    ).close()
    return f"s3://{bucket}"


@pytest.fixture(params=["folder", "s3"])
def address(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "store")
    return request.getfixturevalue("s3") + "/team/a"


@pytest.fixture
def storage(address):
    return open_storage(address)
