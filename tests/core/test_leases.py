from __future__ import annotations

import threading
from pathlib import Path

from nnpipe.core.leases import LeasedFolder, remove_abandoned_folders


def test_a_folder_is_there_though_others_clear_away_what_nobody_has_locked(tmp_path: Path) -> None:
    stop = threading.Event()

    def clear() -> None:
        while not stop.is_set():
            remove_abandoned_folders(tmp_path, "x-")

    others = [threading.Thread(target=clear) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        for _ in range(200):
            with LeasedFolder(tmp_path, "x-") as folder:
                (folder / "file").write_text("x")
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert list(tmp_path.iterdir()) == []
