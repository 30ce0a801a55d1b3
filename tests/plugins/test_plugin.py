"""A plugin is checked whole, then run, and its faults are told with their place."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.plugins import plugin as module
from nnpipe.plugins.plugin import load_plugin

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_plugin.py"


@pytest.fixture
def write(tmp_path):
    def write(source: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(source)
        return str(path)

    return write


def test_nothing_runs_where_a_problem_is(write, tmp_path):
    name = write(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef process_dataset(x): pass\n")
    with pytest.raises(
        ConfigError, match=r"process_dataset: expected .* found .*; .*load_test_data: expected"
    ):
        load_plugin(name, ["load_test_data"])
    assert not (tmp_path / "ran").exists()


def test_a_users_file_is_run_with_a_warning(write, caplog):
    with caplog.at_level(logging.WARNING):
        plugin = load_plugin(
            write(
                "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int\n"
                "def process_dataset(x, y): return x + A(1).b, y\n"
            )
        )
    assert "is run as code, with all your rights" in caplog.text
    assert plugin.process_dataset(1, 2) == (2, 2)


@pytest.mark.parametrize(
    ("given", "data"),
    [("[7], 2", ([7], 2, None)), ("[7], [8], 2", ([7], 2, [8]))],
)
def test_test_data_with_and_without_what_to_expect(write, given, data):
    found = load_plugin(write(f"def load_test_data(path): return {given}")).load_test_data(
        Path("x")
    )
    assert (found.data, found.steps, found.expected) == data


@pytest.mark.parametrize("given", ["None", "[7]", "[7], 0", "[7], 1.5", "[7], True", "1, 2, 3, 4"])
def test_test_data_of_other_kinds_are_told(write, given):
    with pytest.raises(ConfigError, match=r"mine\.py: load_test_data gave"):
        load_plugin(write(f"def load_test_data(path): return {given}")).load_test_data(Path("x"))


def test_faults_in_a_plugin_are_told_with_their_line(write):
    plugin = load_plugin(write("def process_dataset(x, y):\n    return 1 / 0\n"))
    with pytest.raises(
        ConfigError, match=r"process_dataset failed: ZeroDivisionError: .*line 2 of mine\.py"
    ):
        plugin.process_dataset(1, 2)
    with pytest.raises(
        ConfigError, match=r"running the file failed: ZeroDivisionError: .*line 1 of mine\.py"
    ):
        load_plugin(write("1 / 0\ndef process_dataset(x, y): pass\n"))
    with pytest.raises(ConfigError, match="expected it to return x and y"):
        load_plugin(write("def process_dataset(x, y): return x\n")).process_dataset(1, 2)


def test_files_that_cannot_be_plugins(write, tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_plugin(str(tmp_path / "nowhere.py"))
    with pytest.raises(ConfigError, match="larger than"):
        load_plugin(write("#" * (1 << 20) + "\n"))
    with pytest.raises(ConfigError, match="there is no plugin 'nowhere'; give a file"):
        load_plugin("nowhere")


def test_official_plugins_are_found_by_name_without_a_warning(monkeypatch, caplog, tmp_path):
    (tmp_path / "official_functions.py").write_text("def process_dataset(x, y): return y, x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entries = [EntryPoint("swap", "official_functions", module.ENTRY_POINTS)]
    monkeypatch.setattr(module.importlib.metadata, "entry_points", lambda group: entries)
    assert load_plugin("swap").process_dataset(1, 2) == (2, 1)
    assert "run as code" not in caplog.text
    with pytest.raises(ConfigError, match="did you mean swap"):
        load_plugin("swop")


def test_a_plugin_finds_its_own_folder_wherever_it_is_called(write, tmp_path, monkeypatch):
    write(
        "from pathlib import Path\ndef process_model_output(model_input, model_output):\n"
        "    Path('output/where.txt').write_text(__file__)\n"
    )
    monkeypatch.chdir(tmp_path)
    (where,) = load_plugin("mine.py").process_model_output(1, 2, folder=tmp_path / "elsewhere")
    assert Path(where.read_text()) == tmp_path / "mine.py"


def test_the_example_does_all_three(tmp_path):
    plugin = load_plugin(
        str(EXAMPLE), ["process_dataset", "load_test_data", "process_model_output"]
    )
    image = np.stack([np.full((8, 8, 1), value, np.uint8) for value in (2, 12)])
    np.testing.assert_array_equal(plugin.process_dataset(image, [0, 1])[0][:, 0, 0, 0], [14, 12])
    np.savez(tmp_path / "test.npz", image=image, label=np.array([0, 1]))
    test = plugin.load_test_data(tmp_path / "test.npz")
    assert test.steps == 1
    here = Path.cwd()
    written = plugin.process_model_output(
        test.data, np.array([[0.9, 0.1], [0.8, 0.2]]), test.expected, folder=tmp_path
    )
    assert [path.name for path in written] == ["mistakes.png", "mistakes.txt", "scans.csv"]
    assert written[1].read_text() == "1 taken for 0\n"
    assert written[2].read_text().splitlines()[1:] == ["0,0,0.9", "1,0,0.8"]
    picture = pytest.importorskip("PIL.Image", reason="Pillow is not installed").open(written[0])
    assert (picture.size, picture.mode, picture.getpixel((0, 0))) == (
        (8, 8),
        "L",
        255 - 12 * 255 // 16 - 1,
    )
    assert Path.cwd() == here
