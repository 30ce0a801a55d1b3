"""Files that somebody else made do no harm: the quick run of ``fuzz/foreign_files.py``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs

FOREIGN_FILES = Path(__file__).parents[1] / "fuzz" / "foreign_files.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    sys.platform != "linux", reason="commands run in forked processes whose memory is limited"
)
def test_no_changed_file_makes_a_command_fail_as_none_may() -> None:
    needs("h5py", "onnx", "onnxruntime", "sqlalchemy")
    done = subprocess.run(
        [sys.executable, str(FOREIGN_FILES), "--quick"], capture_output=True, text=True, timeout=840
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    total = re.search(r"^(\d+) changed files .* 0 failures$", done.stdout, re.MULTILINE)
    assert total is not None
    assert int(total.group(1)) >= 20
