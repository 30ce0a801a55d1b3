from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from saying import said_by_nnpipe

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.report.document import Tiles
from nnpipe.report.inputs.sweep_file import SweepFile
from nnpipe.report.quantity_text import format_figure
from nnpipe.report.sections.sweep import build_sweep_section
from nnpipe.scenarios import render_report, sweep
from nnpipe.workflows.journal import lock_folder
from nnpipe.workflows.sweep import run as sweep_run
from nnpipe.workflows.sweep.file import Sweep

ROOT = Path(__file__).parents[2]
SWEEPER = Path(__file__).with_name("sweeper.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SWEEPER.parent))
        from nearest import write_model
    return write_model(tmp_path_factory.mktemp("model") / "nearest.onnx")


def settings(model: Path, **changes):
    return {
        "output": "out",
        "dataset": "DigitsDataset",
        "models": [
            {
                "title": "nearest",
                "class": "ONNXModel",
                "path": str(model),
                "arguments": {"scale": 16.0},
            }
        ],
        "compilers": [[], "ONNXFloat16"],
        "runtimes": [{"class": "ONNXRuntime", "vary": {"io_binding": [False, True]}}],
        "measure": {"measure_seconds": 0.05},
        "verify": {"verify_samples": 0},
        "constraints": ["latency_p90 <= 1 s", "accuracy_loss <= 0.15", "size <= 4 MB"],
    } | changes


def written(folder: Path, given: dict) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(given), "utf-8")
    return path


def test_every_combination_is_a_point_of_its_own(model):
    found = Sweep.from_settings(settings(model, threads=[1, 2], batch_sizes=[1, 8]))
    # as trained, and (as exported, float16) x (binding or not) x threads; each with two batch sizes
    assert len(found.points) == 2 * (1 + 2 * 2 * 2)
    assert len({point.title for point in found.points}) == len(found.points)
    assert not found.impossible


def test_what_is_installed_is_looked_up_no_more_often_for_more_points(model, monkeypatch):
    reads = []
    plain = importlib.metadata.entry_points

    def counting(**selection):
        reads.append(selection)
        return plain(**selection)

    monkeypatch.setattr("importlib.metadata.entry_points", counting)
    many = [{"class": "ONNXRuntime", "arguments": {"num_threads": n}} for n in range(1, 101)]
    found = Sweep.from_settings(
        settings(model, runtimes=[*many, "LiteRTRuntime"], batch_sizes=[1, 2, 3])
    )
    assert len(found.points) == 3 * (1 + 2 * 100)
    assert len(found.impossible) == 3 * 2
    assert len(reads) == 1


def test_what_does_not_fit_is_told_and_left_out(model):
    found = Sweep.from_settings(settings(model, runtimes=["ONNXRuntime", "LiteRTRuntime"]))
    assert {title for title in found.impossible if "LiteRTRuntime" in title} == set(
        found.impossible
    )
    assert all("onnx" in reason for reason in found.impossible.values())
    assert len(found.points) == 3


def test_vary_makes_the_product_of_its_lists(model):
    vary = {"per_channel": [True, False], "activation_type": ["int8", "uint8"]}
    stage = {"class": "ONNXStaticQuantizer", "vary": vary}
    found = Sweep.from_settings(settings(model, compilers=[[stage, "ONNXRuntimeOptimizer"]]))
    assert len(found.points) == 1 + 4 * 2
    quantised = [point.compilers[0].to_json() for point in found.points if point.compilers]
    chosen = {"activation_type": "int8", "per_channel": False}
    assert len([each for each in quantised if chosen.items() <= each.items()]) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": []}, "models: expected a list"),
        ({"runtimes": ["NoRuntime"]}, r"runtimes\.0.*NoRuntime"),
        (
            {"runtimes": ["LiteRTRuntime"], "as_trained": False, "constraints": []},
            "not one of the 2 combinations",
        ),
        ({"constraints": ["latency_p90 <= 5"]}, r"constraints\.0.*say the unit"),
        ({"constraints": ["size <= 1 MB", "size >= 2 MB"]}, "exclude each other"),
        ({"objectives": ["sped"]}, r"objectives\.0.*unknown metric"),
        ({"objectives": []}, "objectives: expected a list"),
        ({"choose": 3}, "choose: expected a text"),
        ({"confidence": 1}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"confirmations": 0}, "confirmations: expected a whole number above zero"),
        ({"as_trained": False}, "accuracy_loss: cannot be told for nearest"),
        ({"batch_sizes": [0]}, r"batch_sizes\.0"),
        ({"threads": [1.5]}, r"threads\.0"),
        ({"colour": "red"}, "unknown key 'colour'"),
        (
            {"runtimes": [{"class": "ONNXRuntime", "vary": {"io_binding": True}}]},
            r"runtimes\.0\.vary",
        ),
        (
            {"runtimes": [{"class": "ONNXRuntime", "vary": {"io_binding": [1, 2]}}]},
            r"runtimes\.0.*io_binding",
        ),
        (
            {
                "runtimes": [
                    {
                        "class": "ONNXRuntime",
                        "arguments": {"device": "cpu"},
                        "vary": {"device": ["cpu"]},
                    }
                ]
            },
            "both under arguments and under vary",
        ),
        ({"batch_sizes": list(range(1, 60_000))}, "more than the 100,000"),
    ],
)
def test_a_bad_file_is_told_in_one_line(model, changes, message):
    with pytest.raises(NNPipeError, match=message) as caught:
        Sweep.from_settings(settings(model, **changes))
    assert "\n" not in str(caught.value)


def test_two_models_of_one_name_are_refused(model):
    given = settings(model)
    with pytest.raises(ConfigError, match="two are called 'nearest'"):
        Sweep.from_settings(given | {"models": given["models"] * 2})


def test_a_dry_run_measures_nothing(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweep.main([str(written(tmp_path, settings(model))), "--dry-run"]) == 0
    assert "5 points, 0 impossible" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_there_are_told_before_anything_is_trained(
    model, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_run, "train_once", None)
    models = [
        {"title": "trained", "class": "PyTorchDigitsCNN", "training": {"num_epochs": 1}},
        {"title": "found", "class": "ONNXModel", "path": "gone.onnx"},
    ]
    assert sweep.main([str(written(tmp_path, settings(model, models=models)))]) == 2
    told = capsys.readouterr().err
    assert "found: gone.onnx: no such file; name the file of its weights as path" in told
    assert "Traceback" not in told


def test_a_folder_serves_one_sweep_at_a_time(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with lock_folder(tmp_path / "out"):
        assert sweep.main([str(written(tmp_path, settings(model)))]) == 2
    assert "another sweep is at work here" in capsys.readouterr().err


def run_sweeper(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    paths = [str(SWEEPER.parent), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, str(SWEEPER), "sweep.yaml", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )


def finished(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Do as the sweeper does, in this process."""
    with pytest.MonkeyPatch.context() as patch, said_by_nnpipe() as (out, err):
        patch.syspath_prepend(str(SWEEPER.parent))
        from sweeper import measured_alike

        patch.setattr(sweep_run, "measure_apart", measured_alike)
        patch.chdir(folder)
        status = sweep.main(["sweep.yaml", *arguments])
    return status, out.getvalue(), err.getvalue()


def found_in(folder: Path) -> dict[str, bytes]:
    """Return everything that a sweep has written but for the compiled models, which no compiler
    makes twice alike.
    """
    out = folder / "out"
    files = [*out.glob("*.json"), *out.glob("results/*.json"), *out.glob("confirmations/*.json")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    written(folder, settings(model))
    status, out, err = finished(folder)
    assert status == 0, err
    return folder, out


def test_what_qualifies_is_chosen_and_certified(undisturbed):
    folder, out = undisturbed
    summary = json.loads((folder / "out" / "sweep.json").read_text("utf-8"))
    certificate = json.loads((folder / "out" / "certificate.json").read_text("utf-8"))
    qualified = [point for point in summary["points"] if point["qualifies"]]
    best = min(qualified, key=lambda point: point["figures"]["latency_median"]["value"])
    assert summary["chosen"] == certificate["title"] == best["title"]
    assert f"chosen by latency_median: {best['title']}" in out
    assert all(
        claim["holds"] and claim["low"] <= claim["value"] <= claim["high"]
        for claim in certificate["claims"]
    )
    assert [each["title"] for each in summary["failed"]] == [
        "nearest · ONNXRuntime(io_binding=True)"
    ]
    assert "planted failure" in out


def test_page_terminal_and_certificate_tell_one_number_with_its_doubts(undisturbed):
    folder, out = undisturbed
    certificate = json.loads((folder / "out" / "certificate.json").read_text("utf-8"))
    found = SweepFile.from_json(json.loads((folder / "out" / "sweep.json").read_text("utf-8")))
    assert found.again is not None
    certified = {each["metric"]: each for each in certificate["figures"]}
    assert set(certified) == {metric.name for metric in found.metrics}
    for claim in certificate["claims"]:
        each = certified[claim["metric"]]
        assert [claim[key] for key in ("value", "low", "high")] == [
            each[key] for key in ("value", "low", "high")
        ]
    for metric in found.metrics:
        each, known = certified[metric.name], found.again.figures[metric.name]
        assert (each["value"], each["low"], each["high"]) == (known.value, known.low, known.high)
        assert (each["unit"], each["title"]) == (metric.unit, metric.title)
    text = format_figure(found.choose, found.again.figures[found.choose.name])
    tiles = {
        t.label: t
        for block in build_sweep_section(found).blocks
        if isinstance(block, Tiles)
        for t in block.items
    }
    assert text in tiles["Ship"].note
    assert f"measured again: {found.choose.title} {text}" in out
    assert [doubt["kind"] for doubt in certificate["doubts"]] == [
        kind for kind, _ in found.again.doubts
    ]
    assert tiles["Doubts about it"].value == (
        ", ".join(kind for kind, _ in found.again.doubts) or "none"
    )
    for doubt in certificate["doubts"]:
        assert f"doubt: {doubt['kind']}: {doubt['reason']}" in out


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on_to_the_same_result(model, undisturbed, tmp_path):
    folder, _ = undisturbed
    written(tmp_path, settings(model))
    rng = random.Random(20)
    for _ in range(4):
        process = run_sweeper(tmp_path)
        try:
            process.communicate(timeout=rng.uniform(0.5, 3.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    before = found_in(tmp_path)
    status, _, err = finished(tmp_path)
    assert status == 0, err
    after = found_in(tmp_path)
    # A file that a worker was writing when it was killed has a name that begins with a dot.
    done = {name: content for name, content in before.items() if re.match(r"results/[^.]", name)}
    assert {name: after[name] for name in done} == done
    expected = found_in(folder)
    assert sorted(after) == sorted(expected)
    for name, content in expected.items():
        assert _comparable(after[name]) == _comparable(content), name


def _comparable(content: bytes) -> object:
    """Leave out where files lie, and the checksums of what a compiler made."""

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {
                k: without(v)
                for k, v in value.items()
                if k not in ("path", "sha256", "parent", "host", "doubts")
            }
        return [without(item) for item in value] if isinstance(value, list) else value

    return without(json.loads(content))


def test_a_sweep_ends_with_a_report_that_can_be_made_again(undisturbed, tmp_path, capsys):
    pytest.importorskip("jinja2", reason="Jinja2 writes the page")
    folder, out = undisturbed
    assert out.splitlines()[-1].startswith(
        "report: out/report.html (in the browser), out/report.rst and"
    )
    again = tmp_path / "again.rst"
    title = "nnpipe sweep"
    assert render_report.main([str(folder / "out" / "sweep.json"), title, str(again)]) == 0
    chosen = json.loads((folder / "out" / "sweep.json").read_text("utf-8"))["chosen"]
    for text in (again.read_text("utf-8"), (folder / "out" / "report.rst").read_text("utf-8")):
        assert "What to ship\n============" in text
        assert f"{chosen} is the one to ship" in text.replace("\\", "")
        assert "planted failure" in text
    assert "<svg" in again.with_suffix(".html").read_text("utf-8")


def test_what_failed_is_tried_again_only_when_asked(undisturbed, tmp_path):
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "again")
    status, _, err = finished(tmp_path / "again")
    assert status == 0
    assert "[" not in err  # no point was measured
    status, _, err = finished(tmp_path / "again", "--retry-failed")
    assert status == 0
    assert err.count("planted failure") == 1


@pytest.mark.parametrize("also", [pytest.param((), marks=pytest.mark.slow), ("confirmations",)])
def test_compiled_models_that_were_cleaned_away_are_made_again(undisturbed, tmp_path, also):
    shutil.copytree(undisturbed[0], tmp_path / "cleaned")
    out = tmp_path / "cleaned" / "out"
    before = json.loads((out / "certificate.json").read_text("utf-8"))
    for name in ("models", *also):
        shutil.rmtree(out / name)
    status, told, err = finished(tmp_path / "cleaned")
    assert status == 0, told + err
    after = json.loads((out / "certificate.json").read_text("utf-8"))
    assert after["title"] == before["title"]
    model = out / after["artifact"]["path"]
    assert hashlib.sha256(model.read_bytes()).hexdigest() == after["artifact"]["sha256"]
    assert [path.name for path in (out / "models").glob(f"{model.stem}*{model.suffix}")] == [
        model.name
    ]


def test_a_model_that_comes_out_otherwise_is_measured_and_verified_anew(undisturbed, tmp_path):
    shutil.copytree(undisturbed[0], tmp_path / "other")
    out = tmp_path / "other" / "out"
    (confirmation,) = (out / "confirmations").glob("*.json")
    for path in (confirmation, out / "results" / confirmation.name):
        text = path.read_text("utf-8")
        digest = json.loads(text)["artifact"]["sha256"]
        path.write_text(text.replace(digest, "0" * 64), "utf-8")
    status, _, err = finished(tmp_path / "other")
    assert status == 0, err
    assert "measuring the best again" in err
    certificate = json.loads((out / "certificate.json").read_text("utf-8"))
    assert certificate["artifact"]["sha256"] == digest


def test_no_more_are_measured_again_than_is_allowed_and_each_has_a_reason(
    undisturbed, tmp_path, monkeypatch
):
    shutil.copytree(undisturbed[0], tmp_path / "unlucky")
    out = tmp_path / "unlucky" / "out"
    shutil.rmtree(out / "confirmations")
    monkeypatch.setenv("UNLUCKY", "yes")
    status, told, _ = finished(tmp_path / "unlucky", "confirmations=1")
    assert status == sweep.NONE_QUALIFIES
    assert len([*(out / "confirmations").glob("*.json")]) == 1
    listed = told.split("no candidate qualifies:\n")[1].splitlines()[:4]
    reasons = [line.split(": ", 1)[1] for line in listed]
    assert all(reasons), listed
    assert (
        sum(
            "did not hold when measured again: latency_p90 <= 1 s: fails" in reason
            for reason in reasons
        )
        == 1
    )
    assert sum("was not measured again" in reason for reason in reasons) >= 1


def test_where_none_qualifies_each_is_told_what_kills_it(model, undisturbed, tmp_path):
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "strict")
    status, out, _ = finished(
        tmp_path / "strict", "constraints=[latency_p90 <= 1 us, size <= 4 MB]"
    )
    assert status == sweep.NONE_QUALIFIES
    assert out.count("latency_p90 <= 1 us: fails, ") == 4
    assert "size <= 4 MB: fails" not in out
    assert not (tmp_path / "strict" / "out" / "certificate.json").exists()


def test_what_cannot_be_told_says_how_much_more_would_tell(model, undisturbed, tmp_path):
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "close")
    summary = json.loads((folder / "out" / "sweep.json").read_text("utf-8"))
    slowest = max(point["figures"]["latency_median"]["high"] for point in summary["points"])
    bound = max(p["figures"]["latency_median"]["value"] for p in summary["points"]) + 1e-9
    assert bound < slowest
    _, out, _ = finished(
        tmp_path / "close", f"constraints=[latency_median <= {bound * 1e6:.3f} us]"
    )
    assert "undecided: Median" in out


SPOILS = {
    "hash": lambda c: c["artifact"].update(sha256="0" * 64),
    "right": lambda c: c.update(right=c["right"] + 1),
    "bound": lambda c: c["claims"][2].update(bound=1.0),
}


@pytest.mark.slow  # tests/workflows/sweep is of what certificates hold
@pytest.mark.parametrize(
    ("seconds", "spoils"), [(0.5, ["right"]), (4.0, [*SPOILS])], ids=["brief", "long"]
)
def test_a_real_sweep_ends_in_a_certificate_that_holds_without_nnpipe(
    model, tmp_path, monkeypatch, seconds, spoils
):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.chdir(tmp_path)
    # A busy machine has moods of half a second: a second of calls can be too few to tell a
    # percentile, as it should.
    given = settings(
        model, compilers=[[]], runtimes=["ONNXRuntime"], measure={"measure_seconds": seconds}
    )
    given["constraints"][0] = "latency_median <= 1 s"
    assert sweep.main([str(written(tmp_path, given)), "--verbosity", "warning"]) == 0
    script = ROOT / "examples" / "check_certificate.py"
    command = [sys.executable, str(script), "out/certificate.json", "--seconds", "0.2"]
    # Where nnpipe cannot be imported: isolated from PYTHONPATH and blocked by name.
    blocked = (
        f"import sys, runpy; sys.modules['nnpipe'] = None; sys.argv = {command[1:]!r};"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("holds") >= 5
    certificate = json.loads(Path("out/certificate.json").read_text("utf-8"))
    for spoil in spoils:
        spoiled = json.loads(json.dumps(certificate))
        SPOILS[spoil](spoiled)
        Path("out/spoiled.json").write_text(json.dumps(spoiled), "utf-8")
        done = subprocess.run(
            [sys.executable, str(script), "out/spoiled.json", "--seconds", "0.05"],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout
