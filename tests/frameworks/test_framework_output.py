"""What is turned away while frameworks work comes back, however threads overlap."""

from __future__ import annotations

import logging
import os
import sys
import threading

from nnpipe.frameworks.runtime_failures import suppress_output


def test_two_threads_at_once_put_everything_back() -> None:
    before = logging.root.manager.disable, sys.stdout, sys.stderr, os.fstat(2).st_ino
    inside, other = threading.Event(), threading.Event()

    def first() -> None:
        with suppress_output():
            inside.set()
            other.wait(0.3)  # the second would come in by then, if it could

    def second() -> None:
        assert inside.wait(10)
        with suppress_output():
            other.set()
            threads[0].join(0.3)  # and stay until the first has left

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert other.is_set()
    assert (logging.root.manager.disable, sys.stdout, sys.stderr, os.fstat(2).st_ino) == before
