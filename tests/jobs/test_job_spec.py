"""What a job is to do becomes a command line, without anything being run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.jobs.job_spec import JobSpec

ROOT = Path(__file__).resolve().parents[2]
DECLARES = (
    "import argparse\np = "
    "argparse.ArgumentParser()\np.add_argument('--progress')\np.add_argument('--resume')\n"
)


def script(folder: Path, text: str, *arguments: str) -> JobSpec:
    (folder / "train.py").write_text(text)
    return JobSpec(file=folder / "train.py", arguments=arguments, python="py", directory=folder)


def test_a_script_gets_its_arguments(tmp_path: Path) -> None:
    assert script(tmp_path, "pass", "--a", "b c").build_command("x.py", "p") == [
        "py",
        "-u",
        "x.py",
        "--a",
        "b c",
    ]


@pytest.mark.parametrize(
    ("given", "again", "wanted"),
    [
        ((), False, ["--progress", "p"]),
        ((), True, ["--progress", "p", "--resume"]),
        (("--progress", "mine"), True, ["--progress", "mine", "--resume"]),
        (("--progress=mine", "--resume"), True, ["--progress=mine", "--resume"]),
    ],
)
def test_a_script_gets_what_it_declares(
    tmp_path: Path, given: tuple[str, ...], again: bool, wanted: list[str]
) -> None:
    work = script(tmp_path, DECLARES, *given)
    assert work.can_resume
    assert work.build_command("x.py", "p", again=again) == ["py", "-u", "x.py", *wanted]


def test_reading_a_script_runs_nothing(tmp_path: Path) -> None:
    work = script(tmp_path, "raise SystemExit('run')\n" + DECLARES)
    work.check()
    assert work.can_resume
    assert not script(tmp_path, "print('add_argument(--resume)')").can_resume


def test_pipelines_and_experiments_are_carried_out_by_nnpipe(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    pipeline = JobSpec(file=ROOT / "examples" / "digits.yaml", arguments=["a=1"], python="py")
    experiment = JobSpec(file=ROOT / "examples" / "experiment.yaml", python="py")
    assert (pipeline.is_pipeline, experiment.is_pipeline) == (True, False)
    assert pipeline.build_command("d.yaml", "p", again=True) == [
        "py",
        "-m",
        "nnpipe",
        "run",
        "d.yaml",
        "a=1",
    ]
    assert experiment.build_command("e.yaml") == ["py", "-m", "nnpipe", "experiment", "e.yaml"]
    assert pipeline.can_resume


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.py", b"\0"),
        ("train.py", b"\xff"),
        ("train.py", b"(" * 5000),
        ("train.py", b"x = \\"),
        ("train.yaml", b"a: ["),
        ("train.yaml", b"\xff\xfe"),
        ("train.json", b"{"),
        ("train.yaml", b"- 1"),
    ],
)
def test_what_is_neither_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(NNPipeError, match=name.replace(".", r"\.")) as caught:
        JobSpec(file=tmp_path / name).check()
    assert "\n" not in str(caught.value)


def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    work = JobSpec(
        file=Path("a.py"),
        arguments=["1"],
        outputs=["o"],
        directory=Path("d"),
        environment={"A": "b"},
        python="py",
        grace=1.5,
        send=[Path("x")],
        storage="s",
    )
    assert JobSpec.from_json(work.to_json()) == dataclasses.replace(
        work, environment={}, variables=["A"]
    )
    whole = work.with_absolute_paths()
    assert (whole.file, whole.directory, whole.send) == (
        tmp_path / "a.py",
        tmp_path / "d",
        [tmp_path / "x"],
    )
    assert whole.storage == str(tmp_path / "s")
    assert (
        JobSpec(file=Path("a.py"), storage="s3://b/p").with_absolute_paths().storage == "s3://b/p"
    )
