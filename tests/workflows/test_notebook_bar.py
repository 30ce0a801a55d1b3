"""Progress bars in notebooks."""

from __future__ import annotations

import pytest

from nnpipe.workflows.progress import format_bar_html, is_notebook


def test_a_bar_says_how_far_how_fast_and_how_long() -> None:
    shown = format_bar_html("epoch 1/3 <x>", 25, 100, 5.0)
    assert "epoch 1/3 &lt;x&gt;" in shown
    assert '<progress value="25" max="100">' in shown
    assert "25 of 100, 5.0 per second, 15 s left" in shown
    assert "7, 3.5 per second" in format_bar_html("sent", 7, None, 2.0)
    assert "0 of 0" in format_bar_html("nothing", 0, 0, 0.0)


def test_a_test_is_no_notebook() -> None:
    assert not is_notebook()


@pytest.mark.slow
def test_a_notebook_keeps_one_line_for_a_loop() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cell = nbformat.v4.new_code_cell(
        "import time\nfrom nnpipe.workflows.progress import show_progress\n"
        "seen = [time.sleep(0.25) or n for n in show_progress(range(4), 'epoch')]\nassert seen == "
        "[0, 1, 2, "
        "3]"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    (output,) = notebook.cells[0].outputs
    assert "4 of 4" in output["data"]["text/html"]
