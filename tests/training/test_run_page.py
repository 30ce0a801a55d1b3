"""The run's page: it shows what is there, as text, and its links lead somewhere."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.training.run_page import write_run_page


class Page(HTMLParser):
    """Links, places and tags of a page; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def folder_of(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_file_is_linked_and_every_link_leads_to_one(tmp_path: Path) -> None:
    files = {
        "pictures__history.png": "",
        "pictures__worst-a b&c.png": "",
        "tables__history.csv": "epoch,loss\n1,0.25\n",
        "tables__epochs.txt": "epoch 1",
        "tables__model.json": json.dumps([{"layer": "<b>", "output": [1, 2]}]),
        "checkpoints__last.state": "x",
        "source__a.py": "y",
        "tables__e.npz": "w",
        ".hidden": "z",
    }
    page = write_run_page(folder_of(tmp_path, **files))
    found = Page(page.read_text())
    assert found.open == []
    targets = {unquote(address) for address in found.addresses if not address.startswith("#")}
    assert targets == {name.replace("__", "/") for name in files if name != ".hidden"}
    assert all((tmp_path / target).is_file() for target in targets)
    assert {address[1:] for address in found.addresses if address.startswith("#")} == set(found.ids)


BEGUN = {
    "wrapper": {"class": "some.where.CNN", "arguments": {}},
    "dataset": {"class": "a.b.DigitsDataset"},
}
STATUS = {
    "kind": "nnpipe run status",
    "schema": 1,
    "state": "completed",
    "epoch": 3,
    "epochs": 3,
    "step": 9,
    "changed": "",
    "process": 1,
    "machine": "m",
    "reason": "no better for 1 evaluation",
    "best_epoch": 2,
}
HISTORY = """epoch,step,data/train/loss,data/train/output/accuracy,data/validation/loss,data/validation/output/accuracy
1,3,0.9,0.5,0.8,0.6
2,6,0.5,0.7,0.4,0.925
3,9,0.4,0.8,0.5,0.9
"""


def test_what_came_out_stands_first(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path / "run-7",
        **{
            "run.json": json.dumps(BEGUN),
            "status.json": json.dumps(STATUS),
            "tables__history.csv": HISTORY,
            "pictures__confusion-data-validation-output.png": "",
            "tables__model.json": "[]",
            "pictures__zebra.png": "",
        },
    )
    text = write_run_page(folder).read_text()
    assert "<h1>CNN on DigitsDataset</h1>" in text
    assert "run-7" in text
    assert text.count("run-7") == 1
    assert "<summary>Settings</summary>" in text
    tiles = text[text.index('<dl class="tiles">') : text.index("<nav>")]
    assert "completed" in tiles
    assert "epoch 3 of 3" in tiles
    assert "92.50\u00a0%" in tiles  # of the best epoch, not of the last
    assert "After epoch 2, the best" in tiles
    assert tiles.index("Means over epoch 2, while the weights changed") < tiles.index(
        "accuracy, train"
    )
    assert tiles.index("accuracy, validation") < tiles.index("accuracy, train")
    assert "no better for 1 evaluation" in text
    headings = [part.partition("<")[0] for part in text.split("<h2>")[1:]]
    assert headings == [
        "Course of the training",
        "Confusion matrix: validation",
        "Model",
        "Zebra",
        "Other files",
    ]


def test_a_training_that_failed_says_so_first(tmp_path: Path) -> None:
    status = STATUS | {
        "state": "failed",
        "reason": "TrainingError: <b>the loss is not finite",
        "epoch": 1,
    }
    folder = folder_of(tmp_path, **{"status.json": json.dumps(status)})
    text = write_run_page(folder).read_text()
    assert (
        text.index("failed")
        < text.index("TrainingError: &lt;b&gt;the loss is not finite")
        < text.index("<nav>")
    )


def test_the_same_as_rows_and_as_a_text_is_shown_once(tmp_path: Path) -> None:
    rows = json.dumps([{"layer": "conv", "parameters": 288}])
    folder = folder_of(
        tmp_path,
        **{"tables__model.json": rows, "tables__model.txt": "layer  parameters\nconv  288\n"},
    )
    text = write_run_page(folder).read_text()
    assert text.count("288") == 1
    assert 'href="tables/model.txt"' in text


def test_what_belongs_to_one_question_stands_together(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        **{
            "pictures__worst-data-train.png": "",
            "pictures__worst-data-train-samples.png": "",
            "pictures__worst-data-validation.png": "",
            "pictures__worst-data-validation-samples.png": "",
        },
    )
    text = write_run_page(folder).read_text()
    assert [part.partition("<")[0] for part in text.split("<h2>")[1:]] == [
        "Worst samples: validation",
        "Worst samples: train",
    ]


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"wrapper": 3}', json.dumps(STATUS | {"state": "asleep"})]
)
def test_damaged_facts_hide_nothing(tmp_path: Path, damage: str) -> None:
    folder = folder_of(
        tmp_path / "name",
        **{"run.json": damage, "status.json": damage, "tables__history.csv": damage},
    )
    text = write_run_page(folder).read_text()
    assert "<h1>name</h1>" in text
    assert "not the status of a run" in text


def test_what_lies_in_the_folder_is_shown_as_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    folder = folder_of(
        tmp_path,
        **{
            "tables__a.txt": evil,
            "tables__b.json": json.dumps([{evil: {evil: evil}}]),
            "tables__c.csv": f"{evil}\n{evil}\n",
            "tables__d.json": f"[{evil}",
        },
    )
    text = write_run_page(folder).read_text()
    assert "script" not in Page(text).tags
    assert text.count("&lt;script&gt;") >= 6
    assert "d.json cannot be read" in text


def test_a_long_table_is_cut(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, **{"tables__a.json": json.dumps([{"n": n} for n in range(1000)])})
    text = write_run_page(folder).read_text()
    assert "the last 200 of 1,000 rows" in text
    assert Page(text).tags.count("tr") == 201


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: there is no such folder"):
        write_run_page(tmp_path / "none")


def test_the_figures_that_stand_first_are_those_of_the_weights_that_the_model_has(
    tmp_path: Path,
) -> None:
    final = [
        {
            "weights": "last",
            "epoch": 3,
            "data/validation/loss": 0.51,
            "data/validation/output/accuracy": 0.91,
        }
    ]
    folder = folder_of(
        tmp_path / "run",
        **{
            "status.json": json.dumps(STATUS),
            "tables__history.csv": HISTORY,
            "tables__final_weights.json": json.dumps(final),
        },
    )
    text = write_run_page(folder).read_text()
    tiles = text[text.index('<dl class="tiles">') : text.index("<nav>")]
    # of these weights, neither the best epoch's nor, with an average, the row's
    assert "91.00\u00a0%" in tiles
    assert "80.00\u00a0%" in tiles  # what is known of the training split is that epoch's
    assert "92.50" not in tiles
    has, means = (
        "The model has the last weights, of epoch 3",
        "Means over epoch 3, while the weights changed",
    )
    assert tiles.index(has) < tiles.index("91.00") < tiles.index(means) < tiles.index("80.00")
