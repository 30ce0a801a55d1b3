"""Reports say what the runs hold, what is missing, and what cannot be trusted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.run import Run
from nnpipe.measuring.series import Series
from nnpipe.report.charts import Heatmap, Lines, Scatter
from nnpipe.report.document import (
    Cell,
    CommandLine,
    Document,
    Paragraph,
    Plot,
    Section,
    Table,
    Tiles,
)
from nnpipe.report.inputs.candidate import create_candidates
from nnpipe.report.render import render


def blocks(document: Document, kind=None):
    """All blocks, those of sections within sections too."""

    def within(section):
        for block in section.blocks:
            if isinstance(block, Section):
                yield from within(block)
            else:
                yield block

    found = [block for section in document.sections for block in within(section)]
    return found if kind is None else [block for block in found if isinstance(block, kind)]


def section(document, title):
    return next(part for part in document.sections if part.title == title)


def only(document, title):
    """The document with one section."""
    return Document(document.title, (section(document, title),))


def words(document):
    """All text of paragraphs, tables and tiles."""
    found = [block.text for block in blocks(document, Paragraph)]
    for table in blocks(document, Table):
        found += [table.caption, *table.header]
        found += [f"{cell.text} {cell.note}" for row in table.cells() for cell in row]
    for tiles in blocks(document, Tiles):
        found += [f"{tile.label} {tile.value} {tile.note}" for tile in tiles.items]
    return "\n".join(found)


def column(table, name):
    place = next(number for number, title in enumerate(table.header) if title.startswith(name))
    return [row[place] for row in table.cells()]


def comparison(runs) -> Table:
    return next(table for table in blocks(only(render(runs, "T"), "Comparison"), Table))


def with_series(run: Run, name: str, **columns) -> Run:
    return dataclasses.replace(run, series={**run.series, name: Series(columns)})


def with_evaluation(run: Run, task="classification", names=("a", "b"), **arrays) -> Run:
    return dataclasses.replace(run, evaluation=Evaluation(task, arrays, names))


def test_one_run_has_a_summary_and_all_sections_it_allows(make_run):
    document = render([make_run("The one")], "A title")
    assert [part.title for part in document.sections] == [
        "Summary",
        "Performance",
        "Classification",
        "Provenance",
    ]
    assert document.title == "A title"
    assert document.subtitle == "one candidate, measured 2026-01-02"
    names = [figure.name for figure in document.figures()]
    assert len(names) == len(set(names))
    assert all(figure.alt and figure.caption for figure in document.figures())


def test_statistics_in_the_report_are_those_of_the_samples(make_run):
    run = make_run(calls=5000)
    table = next(t for t in blocks(render([run], "T"), Table) if t.header[0] == "Inference time")
    found = {row[0].text: row[1].value for row in table.cells()}
    latency = run.series["inference"]["latency_ns"]
    assert found["median"] == np.median(latency)
    assert found["p99.9"] == np.quantile(latency, 0.999)
    assert found["mean"] == latency.mean()
    assert found["standard deviation"] == pytest.approx(latency.std(ddof=1))
    assert (found["fastest"], found["slowest"]) == (latency.min(), latency.max())


def test_a_percentile_that_samples_cannot_support_says_what_it_needs(make_run):
    table = next(
        t
        for t in blocks(render([make_run(calls=100)], "T"), Table)
        if t.header[0] == "Inference time"
    )
    found = {row[0].text: (row[1].text, row[2].text) for row in table.cells()}
    for name, least in (("p99", 299), ("p99.9", 2995)):
        text, needs = found[name]
        assert text == "–"
        # What is needed counts how far these calls depend on each other, too.
        assert (
            least
            <= int(needs.removeprefix("needs ").removesuffix(" calls").replace(",", ""))
            < 3 * least
        )
    assert found["p90"][0] != "–"


def test_several_runs_are_set_beside_each_other(make_run):
    runs = [make_run("slow", median_ns=900_000, size=400), make_run("fast", seed=1, size=100)]
    document = render(runs, "T")
    table = comparison(runs)
    assert [cell.text for cell in column(table, "Candidate")] == ["slow", "fast"]
    assert column(table, "Candidate")[0].note == "onnx · ONNXStaticQuantizer → ONNXRuntime"
    medians = column(table, "Median")
    assert medians[0].value == np.median(runs[0].series["inference"]["latency_ns"])
    assert [cell.best for cell in medians] == [False, True]
    assert [cell.best for cell in column(table, "Samples/s")] == [False, True]
    assert [cell.best for cell in column(table, "Size")] == [False, True]
    tiles = {tile.label: tile for tile in blocks(document, Tiles)[0].items}
    assert tiles["Fastest"].value == "fast"
    assert "times as fast as slow" in tiles["Fastest"].note
    assert tiles["Smallest"].value == "fast"
    charts = [type(figure.chart).__name__ for figure in only(document, "Comparison").figures()]
    assert charts == ["Distributions", "Scatter", "Bars"]


def test_accuracy_is_compared_sample_by_sample(make_run):
    truth = np.array([0, 0, 1, 1, 1, 0, 1, 0])
    first, second = np.array([0, 1, 1, 1, 0, 0, 1, 0]), np.array([0, 0, 1, 1, 1, 1, 1, 0])
    runs = [
        with_evaluation(make_run("first"), truth=truth, predicted=first),
        with_evaluation(make_run("second"), truth=truth, predicted=second),
    ]
    table = comparison(runs)
    assert [cell.value for cell in column(table, "Accuracy")] == [6 / 8, 7 / 8]
    assert [cell.value for cell in column(table, "Δ accuracy")] == [None, 1 / 8]
    assert [cell.value for cell in column(table, "Same as first")] == [None, 5 / 8]


def test_accuracies_on_different_samples_are_not_compared(make_run):
    runs = [make_run("first"), make_run("second", samples=100)]
    document = render(runs, "T")
    assert "Δ accuracy" not in comparison(runs).header
    assert not any(cell.best for cell in column(comparison(runs), "Accuracy"))
    assert "not all judged on the same samples and in the same way" in words(document)
    assert "second: classification, 100 samples" in words(document)
    assert "Best accuracy" not in words(document)
    assert "Spread" not in words(document)  # nor are their classes ranked
    alike = render([make_run("first"), make_run("second")], "T")
    assert any(table.header[-1] == "Spread" for table in blocks(alike, Table))


def test_a_difference_that_noise_explains_is_called_that(make_run):
    runs = [make_run("one", seed=1), make_run("two", seed=2)]
    tiles = {tile.label: tile for tile in blocks(render(runs, "T"), Tiles)[0].items}
    assert "not clearly ahead" in tiles["Fastest"].note
    assert "may be as good" in tiles["Best accuracy"].note


def test_equal_accuracies_have_no_winner(make_run):
    truth = np.arange(50) % 2
    runs = [
        with_evaluation(
            make_run(title, seed=seed, median_ns=50_000 / seed), truth=truth, predicted=truth
        )
        for seed, title in ((1, "slow"), (3, "fast"))
    ]
    text = words(render(runs, "T"))
    assert "Best accuracy all alike 100.00\u00a0% each" in text
    assert "fast is the fastest, and none has a better accuracy." in text


def test_what_is_beaten_in_time_and_accuracy_is_out_of_the_choice(make_run):
    truth = np.zeros(100, np.int64)
    runs = [
        with_evaluation(
            make_run(title, median_ns=ns),
            truth=truth,
            predicted=(np.arange(100) < wrong).astype(int),
        )
        for title, ns, wrong in (("good", 900_000, 1), ("fast", 100_000, 5), ("bad", 950_000, 7))
    ]
    assert "The choice is between good and fast: every other is beaten" in words(render(runs, "T"))
    assert "Each candidate has its point" in words(render(runs[:2], "T"))


def test_rows_of_the_confusion_matrix_are_the_truth(make_run):
    run = with_evaluation(
        make_run(),
        truth=np.array([0, 0, 0, 1]),
        predicted=np.array([1, 1, 0, 1]),
        names=("cat", "dog"),
    )
    document = render([run], "T")
    heatmap = next(
        figure.chart for figure in document.figures() if isinstance(figure.chart, Heatmap)
    )
    assert (heatmap.y_label, heatmap.x_label) == ("true class", "predicted class")
    np.testing.assert_array_equal(heatmap.counts, [[1, 2], [0, 1]])
    np.testing.assert_allclose(heatmap.shares, [[1 / 3, 2 / 3], [0, 1]])
    confusions = next(t for t in blocks(document, Table) if t.caption == "Most common confusions")
    assert [[cell.text for cell in row] for row in confusions.cells()] == [
        ["cat", "dog", "2", "66.7\u00a0%"]
    ]
    matrix = next(t for t in blocks(document, Table) if t.folded and t.header[0].startswith("true"))
    assert [[cell.text for cell in row] for row in matrix.cells()] == [
        ["cat", "1", "2"],
        ["dog", "·", "1"],
    ]


def test_the_classification_section_holds_all_metrics(make_run):
    text = words(only(render([make_run()], "T"), "Classification"))
    for name in (
        "Accuracy",
        "Top-5",
        "Mean precision",
        "Mean sensitivity",
        "G-mean",
        "F1",
        "Precision",
        "Support",
    ):
        assert name in text


def test_the_classification_section_shows_metrics_of_scores_where_they_were_kept(make_run):
    run = make_run()
    without = words(only(render([run], "T"), "Classification"))
    truth = run.evaluation.arrays["truth"]
    scores = np.full((len(truth), len(run.evaluation.class_names)), 0.1, np.float32)
    scores[np.arange(len(truth)), truth] = 3
    arrays = {**run.evaluation.arrays, "scores": scores}
    run = dataclasses.replace(run, evaluation=dataclasses.replace(run.evaluation, arrays=arrays))
    text = words(only(render([run], "T"), "Classification"))
    for name in ("Area under the ROC curve", "Average precision", "Expected calibration error"):
        assert name in text
        assert name not in without
    assert "1.0000" in text


@pytest.mark.parametrize("classes", [1, 2, 40, 41, 1000])
def test_any_number_of_classes_can_be_shown(make_run, classes):
    run = make_run(
        class_names=tuple(f"class {n}" for n in range(classes)), samples=3 * classes, accuracy=0.6
    )
    document = only(render([run], "T"), "Classification")
    heatmap = next(figure.chart for figure in document.figures())
    assert max(heatmap.shares.shape) <= 250
    assert (heatmap.counts is None) is (classes > 40)
    per_class = next(table for table in blocks(document, Table) if table.header[0] == "Class")
    assert len(per_class.rows) == min(classes, 40)
    if classes > 40:
        assert "40 classes with the least F1" in per_class.caption
        values = [cell.value for cell in column(per_class, "F1")]
        assert values == sorted(values)


def test_a_picture_of_many_classes_loses_no_confusion(make_run):
    truth = np.repeat(np.arange(900), 2)
    predicted = truth.copy()
    predicted[2 * 700] = 3
    names = tuple(str(number) for number in range(900))
    document = render(
        [with_evaluation(make_run(), truth=truth, predicted=predicted, names=names)], "T"
    )
    shares = next(
        figure.chart.shares for figure in document.figures() if isinstance(figure.chart, Heatmap)
    )
    off_diagonal = shares.copy()
    np.fill_diagonal(off_diagonal, 0)
    assert np.count_nonzero(off_diagonal) == 1
    assert off_diagonal.max() == 0.5


def test_what_was_not_measured_is_said(make_run):
    run = make_run("whole")
    untimed = dataclasses.replace(make_run("untimed"), series={})
    unjudged = dataclasses.replace(make_run("unjudged"), evaluation=None)
    text = words(render([run, untimed, unjudged], "T"))
    assert "No inference was timed" in text
    assert "No predictions were stored" in text
    assert "No GPU was measured" in text
    alone = render([unjudged], "T")
    assert [part.title for part in alone.sections] == ["Summary", "Performance", "Provenance"]


def test_another_task_is_not_taken_for_a_classification(make_run):
    other = with_evaluation(
        make_run("other"), task="regression", truth=np.zeros(5), predicted=np.ones(5)
    )
    text = words(render([make_run(), other], "T"))
    assert "'regression', which is no classification" in text
    assert "Mean absolute error" in text or "MAE" in text
    unknown = with_evaluation(make_run("unknown"), task="mind reading", error=np.zeros(5))
    assert "'mind reading', which is no classification" in words(render([make_run(), unknown], "T"))


def test_a_gpu_that_was_measured_is_shown(make_run):
    document = render([make_run(gpu=True)], "T")
    names = [figure.name for figure in document.figures()]
    assert {"cpu", "process-memory", "machine-memory", "gpu", "gpu-memory"} <= set(names)
    assert "No GPU" not in words(document)


def test_gaps_in_what_was_sampled_are_left_out(make_run):
    run = make_run()
    resources = dict(run.series["resources"].columns)
    resources["cpu_percent"] = np.full(len(resources["time_ns"]), np.nan)
    document = render([with_series(run, "resources", **resources)], "T")
    chart = next(figure.chart for figure in document.figures() if figure.name == "cpu")
    assert [line.label for line in chart.lines] == ["machine"]
    assert all(np.isfinite(line.y).all() for line in chart.lines)


def test_host_wire_and_target_times_are_set_apart(make_run):
    document = render([make_run(wire=True)], "T")
    table = next(t for t in blocks(document, Table) if t.header[0] == "Where the time goes")
    assert [row[0].text for row in table.cells()] == ["host", "wire", "target"]
    chart = next(figure.chart for figure in document.figures() if figure.name == "host-wire-target")
    assert [label for label, _ in chart.layers] == ["target", "wire", "host"]
    assert "host-wire-target" not in [figure.name for figure in render([make_run()], "T").figures()]


def test_a_round_trip_is_never_called_an_inference(make_run):
    runs = [make_run("here"), make_run("there", wire=True)]
    table = comparison(runs)
    there = runs[1].series["inference"]
    assert column(table, "Median")[1].value == np.median(there["target_ns"])
    assert [cell.value for cell in column(table, "Round trip")] == [
        None,
        np.median(there["latency_ns"]),
    ]
    assert not any(
        name.startswith("Round trip") for name in comparison([make_run("a"), make_run("b")]).header
    )
    alone = next(
        t for t in blocks(render([runs[1]], "T"), Table) if t.header[0] == "Inference time"
    )
    assert {row[0].text: row[1].value for row in alone.cells()}["median"] == np.median(
        there["target_ns"]
    )


def test_charts_of_many_samples_are_small(make_run):
    document = render([make_run(calls=50_000)], "T")
    for figure in document.figures():
        if isinstance(figure.chart, Lines):
            assert all(len(line.x) <= 400 for line in figure.chart.lines)


def test_provenance_tells_how_the_data_were_read(make_run):
    run = dataclasses.replace(
        make_run("The one"),
        preparation={"read": ["splits: Training is train", "2 classes: a, <b>"]},
    )
    document = only(render([run], "T"), "Provenance")
    assert "The data were read so: splits: Training is train; 2 classes: a, <b>." in words(document)
    for strange in ({"read": 5}, {"read": [None, {}]}, {"read": "a"}):
        assert render([dataclasses.replace(run, preparation=strange)], "T")


def test_provenance_leads_back_to_the_first_model(make_run):
    document = only(render([make_run("The one")], "T"), "Provenance")
    assert "'The one'" in blocks(document, CommandLine)[0].text
    text = words(document)
    for fact in (
        "0123456789abcdef" * 4,
        "fedcba98" * 8,
        "per_channel=yes",
        "A CPU at 3 GHz",
        "performance",
        "1.31.0",
    ):
        assert fact in text
    assert "before.load_average" in text


def test_facts_that_differ_are_told_from_those_that_do_not(make_run):
    tables = {
        t.caption: t
        for t in blocks(render([make_run("a", seed=1), make_run("b", seed=2)], "T"), Table)
    }
    same, differing = (
        tables["Machine, the same for all candidates"],
        tables["Machine, where the candidates differ"],
    )
    assert "cpu.model" in [row[0].text for row in same.cells()]
    assert [row[0].text for row in differing.cells()] == ["before.load_average"]
    assert differing.header == ("Fact", "a", "b")


def test_circumstances_that_spoil_figures_are_named(make_run):
    run = make_run("first")
    other = dataclasses.replace(
        make_run("second"),
        host={"cpu": {"model": "Another CPU", "logical_cores": 2, "governor": "powersave"}},
    )
    resources = dict(run.series["resources"].columns)
    resources["machine_cpu_percent"] = np.full(len(resources["time_ns"]), 99.0)
    busy = with_series(run, "resources", **resources)
    warnings = [
        b.text for b in blocks(render([busy, other], "T"), Paragraph) if b.tone == "warning"
    ]
    assert any("CPU, CPU governor, CPU cores allowed differ" in text for text in warnings)
    distrusted = next(
        text
        for text in warnings
        if text.startswith("There is reason to distrust the times of first. ")
    )
    assert "oaded: other processes kept 1 of 2 cores busy" in distrusted
    assert "loaded" in column(comparison([busy, other]), "Doubts")[0].text
    assert any("governor was powersave" in text for text in warnings)
    sound = make_run("sound", calls=2000, median_ns=200_000)
    assert not [b for b in blocks(render([sound], "T"), Paragraph) if b.tone == "warning"]


def test_what_is_said_of_many_is_said_once(make_run):
    few = [make_run(f"few {seed}", seed=seed, calls=30) for seed in range(7)]
    sound = make_run("sound", calls=2000, median_ns=200_000)
    document = render([sound, *few], "T")
    warnings = [b.text for b in blocks(document, Paragraph) if b.tone == "warning"]
    assert warnings == [
        "7 of 8 candidates have times that there is reason to distrust: too few (7)."
    ]
    table = next(t for t in blocks(document, Table) if t.header == ("Candidate", "Reason"))
    assert table.folded
    assert [row[0].text for row in table.cells()] == [f"few {seed}" for seed in range(7)]
    assert all(row[1].text.startswith("Too few: 30 calls") for row in table.cells())


def test_the_front_is_told_with_how_sure_it_is(make_run):
    truth = np.zeros(1000, np.int64)

    def made(title, ns, wrong):
        # Of each, the first so many samples are wrong: what is hard for one is hard for all.
        predicted = (np.arange(1000) < wrong).astype(int)
        return with_evaluation(
            make_run(title, median_ns=ns, calls=3000), truth=truth, predicted=predicted
        )

    runs = [
        made("good", 900_000, 10),
        made("fast", 100_000, 50),
        made("bad", 950_000, 70),
        made("same", 101_000, 50),
    ]
    document = render(runs, "T")
    scatter = next(
        figure.chart for figure in document.figures() if figure.name == "accuracy-against-time"
    )
    assert scatter.front
    assert [point.on_front for point in scatter.points] == [True, True, False, False]
    shares = [cell.value for cell in column(comparison(runs), "Front")]
    assert shares[0] == 1
    assert shares[1] > 0.9
    assert shares[2] < 0.01
    assert 0 < shares[3] < 0.5
    for point, run in zip(scatter.points, runs, strict=True):
        low, high = point.x_interval
        assert low < point.x < high
        assert (high - low) * 1000 < np.ptp(
            np.quantile(run.series["inference"]["latency_ns"], (0.25, 0.75))
        )


def test_size_is_drawn_against_accuracy_where_that_is_a_choice(make_run):
    def names(*wanted):
        truth = np.zeros(100, np.int64)
        runs = [
            with_evaluation(
                make_run(str(n), size=size),
                truth=truth,
                predicted=(np.arange(100) < wrong).astype(int),
            )
            for n, (size, wrong) in enumerate(wanted)
        ]
        return [figure.name for figure in render(runs, "T").figures()]

    assert "accuracy-against-size" in names((1000, 9), (2000, 5), (3000, 5))
    # the smallest is the best
    assert "accuracy-against-size" not in names((1000, 5), (2000, 5), (3000, 9))
    assert "accuracy-against-size" not in names((1000, 9), (1001, 5), (1002, 5))
    assert "accuracy-against-size" not in names((1000, 9), (2000, 5))


def test_what_looks_like_warm_up_is_told_and_the_rest_is_shown_beside_it(make_run):
    run = make_run(calls=2000, median_ns=200_000)
    latency = run.series["inference"]["latency_ns"].copy()
    latency[:100] *= 3
    run = with_series(
        run, "inference", **{**run.series["inference"].columns, "latency_ns": latency}
    )
    found = [t for t in blocks(render([run], "T"), Table) if t.header[0] == "Inference time"]
    assert [table.caption.partition(";")[0] for table in found] == [
        "2,000 timed calls",
        "Without the first 100 calls, which look like warm-up: 1,900 calls",
    ]
    means = [
        next(row[1].value for row in table.cells() if row[0].text == "mean") for table in found
    ]
    assert means == [latency.mean(), latency[100:].mean()]
    warnings = [b.text for b in blocks(render([run], "T"), Paragraph) if b.tone == "warning"]
    assert any("the first 100 of 2,000 calls look like warm-up" in text for text in warnings)


def test_numbers_of_a_comparison_come_with_counts_and_intervals(make_run):
    table = comparison([make_run("one", calls=5000), make_run("two", seed=1, calls=5000)])
    assert [cell.text for cell in column(table, "Calls")] == ["5,000", "5,000"]
    for name in ("Median", "p90", "Mean", "Samples/s"):
        cells = next(column(table, header) for header in table.header if header.startswith(name))
        for cell in cells:
            low, _, high = cell.note.partition(" to ")
            assert (
                float(low.replace(",", ""))
                <= float(cell.text.replace(",", ""))
                <= float(high.replace(",", ""))
            )


def test_runs_of_one_name_are_told_apart(make_run):
    table = comparison(
        [
            make_run("same"),
            make_run("same", seed=1),
            make_run("\x00\n", seed=2),
            make_run("", seed=3),
        ]
    )
    assert [cell.text for cell in column(table, "Candidate")] == [
        "same",
        "same (2)",
        "\ufffd",
        "untitled",
    ]


def test_candidates_keep_their_colour_in_all_charts(make_run):
    unjudged = dataclasses.replace(make_run("first"), evaluation=None)
    document = render([unjudged, make_run("second", seed=1), make_run("third", seed=2)], "T")
    scatter = next(
        figure.chart for figure in document.figures() if isinstance(figure.chart, Scatter)
    )
    assert [(point.label, point.colour) for point in scatter.points] == [
        ("second", 1),
        ("third", 2),
    ]


def test_what_no_run_has_cannot_be_asked_for(make_run):
    unjudged = dataclasses.replace(make_run(), evaluation=None)
    with pytest.raises(ConfigError, match="'classification' needs judged predictions of that task"):
        render([unjudged], "T", ["performance", "classification"])
    with pytest.raises(ConfigError, match="no report type 'performence'; did you mean performance"):
        render([unjudged], "T", ["performence"])
    with pytest.raises(ConfigError, match="at least one result file"):
        render([], "T")


IMPOSSIBLE = {
    "a negative latency": lambda run: with_series(
        run, "inference", start_ns=np.array([0]), latency_ns=np.array([-1]), samples=np.array([1])
    ),
    "no latency": lambda run: with_series(run, "inference", start_ns=np.array([0, 1])),
    "a count of samples in words": lambda run: dataclasses.replace(
        run, verification={"samples": "many"}
    ),
    "a class agreement below zero": lambda run: dataclasses.replace(
        run, verification={"same_class": -1}
    ),
    "an infinite load": lambda run: with_series(
        run, "resources", time_ns=np.array([0]), cpu_percent=np.array([np.inf])
    ),
    "a load time in words": lambda run: dataclasses.replace(run, timing={"load_ns": "soon"}),
    "a negative size": lambda run: dataclasses.replace(run, artifact={"size": -1}),
    "a size beyond floats": lambda run: dataclasses.replace(run, artifact={"size": 10**400}),
    "a class that does not exist": lambda run: with_evaluation(
        run, truth=np.array([0]), predicted=np.array([7])
    ),
    "no truth": lambda run: with_evaluation(run, predicted=np.array([0])),
    "classes in fractions": lambda run: with_evaluation(
        run, truth=np.array([0.5]), predicted=np.array([0])
    ),
    "more classes than memory": lambda run: with_evaluation(
        run, names=(), truth=np.array([2**40]), predicted=np.array([0])
    ),
    "ranks that are no column": lambda run: with_evaluation(
        run, truth=np.array([0]), predicted=np.array([0]), rank=np.array([[0]])
    ),
}


def verification(verdict, same_class=60):
    return {"verdict": verdict, "reason": "the reason", "samples": 64, "same_class": same_class}


def test_agreement_with_the_source_is_shown(make_run):
    run = dataclasses.replace(make_run(), verification=verification("close"))
    tiles = [tile for block in blocks(render([run], "T"), Tiles) for tile in block.items]
    assert ("Agreement with the source", "close", "60 of 64 samples") in [
        (tile.label, tile.value, tile.note) for tile in tiles
    ]
    table = next(
        block
        for block in blocks(render([make_run("A"), run], "T"), Table)
        if "As its source" in block.header
    )
    place = table.header.index("As its source")
    assert [row[place].text for row in table.cells()] == ["–", "close"]
    assert not any(
        "As its source" in block.header
        for block in blocks(render([make_run(), make_run()], "T"), Table)
    )


def test_a_model_that_departs_from_its_source_is_warned_of(make_run):
    runs = [
        dataclasses.replace(make_run(v), verification=verification(v))
        for v in ("same", "different", "unknown")
    ]
    told = {
        block.tone: block.text
        for block in blocks(render(runs, "T"), Paragraph)
        if "made from" in block.text
    }
    assert told["warning"].startswith("There is reason to distrust the predictions of different.")
    assert told["note"].startswith("unknown could not be held against")
    assert "same" not in told["warning"]
    alone = blocks(render(runs[1:2], "T"), Paragraph)
    assert any(block.tone == "warning" and "the reason" in block.text for block in alone)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_figures_are_one_line_that_names_their_file(make_run, name):
    with pytest.raises(ArtifactError, match=r"^broken\.json: ") as caught:
        render(
            [make_run(), IMPOSSIBLE[name](make_run())], "T", sources=["good.json", "broken.json"]
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "components",
    [
        {"runtime": 3},
        {"compilers": [None, "x"], 7: []},
        {"dataset": {"class": None, "arguments": [1]}},
        {"a": {}},
    ],
)
def test_strange_components_and_facts_are_shown_as_they_are(make_run, components):
    run = dataclasses.replace(
        make_run(),
        components=components,
        artifact={"parent": 5, "format": ["x"]},
        host={"cpu": [1, {"a": {"b": 2}}]},
    )
    render([run, make_run("other")], "T")


def test_endless_facts_end(make_run):
    wide = {str(number): {str(inner): inner for inner in range(300)} for number in range(300)}
    table = next(
        t
        for t in blocks(render([dataclasses.replace(make_run(), host=wide)], "T"), Table)
        if t.caption == "Machine"
    )
    assert len(table.rows) == 200
    assert isinstance(table.rows[0][0], (str, Cell))


def test_figures_are_named_for_files(make_run):
    names = [
        figure.name for figure in render([make_run("a/../../b"), make_run("c")], "T").figures()
    ]
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)
    assert len(names) == len(set(names))
    assert all(isinstance(figure, Plot) for figure in render([make_run()], "T").figures())


def test_equal_accuracies_make_no_picture(make_run):
    same = [
        make_run("A", seed=1, accuracy=1.0),
        make_run("B", seed=2, accuracy=1.0, median_ns=80_000),
    ]
    names = {figure.name for figure in render(same, "T").figures()}
    assert "inference-times" in names
    assert "accuracy-against-time" not in names
    other = [make_run("A", seed=1, accuracy=0.9), make_run("B", seed=2, median_ns=80_000)]
    assert "accuracy-against-time" in {figure.name for figure in render(other, "T").figures()}


def test_pictures_of_many_candidates_stay_small(make_run):
    document = render([make_run(f"candidate {n}", seed=n, calls=50) for n in range(30)], "T")
    drawn = {figure.name: figure for figure in document.figures()}
    assert len(drawn["inference-times"].chart.rows) == 24
    assert "6 more are in the table" in drawn["inference-times"].caption
    assert len(drawn["model-sizes"].chart.bars) == 24


def test_facts_and_classes_of_many_candidates_are_no_wide_tables(make_run):
    document = render([make_run(f"candidate {n}", seed=n, calls=50) for n in range(30)], "T")
    widths = [
        len(table.header) for table in blocks(document, Table) if "Doubts" not in table.header
    ]
    assert max(widths) <= 11  # the confusion matrix of ten classes
    facts = [
        table for table in blocks(document, Table) if "where the candidates differ" in table.caption
    ]
    assert len(facts) == 30


def test_few_candidates_are_told_at_once_and_many_are_folded(make_run):
    for number, folded in ((2, False), (3, True)):
        runs = [make_run(f"candidate {n}", seed=n, calls=50) for n in range(number)]
        section = render(runs, "T", ["performance"]).sections[1]
        parts = [block for block in section.blocks if isinstance(block, Section)]
        assert [part.folded for part in parts] == [folded] * number
        assert parts[0].note.startswith("median ")


def test_candidates_of_one_title_are_told_apart_by_their_files(make_run):
    runs = [make_run("same", seed=n) for n in range(3)]
    sources = [Path("here/int8.json"), Path("float.json"), Path("there/int8.json")]
    assert [c.name for c in create_candidates(runs, sources)] == [
        "same (int8)",
        "same (float)",
        "same (int8) (2)",
    ]
    assert [c.name for c in create_candidates(runs)] == ["same", "same (2)", "same (3)"]
    assert [c.name for c in create_candidates(runs, [Path("one.json")] * 3)] == [
        "same",
        "same (2)",
        "same (3)",
    ]
