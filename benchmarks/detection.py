"""COCO's metrics of a detector at the size of COCO's validation set: 5,000 pictures, 36,000 boxes,
100 detections each.

* All seven metrics in at most 30 s of CPU time, and 1 GB of memory.
* pycocotools (matching in C) computes its twelve figures from the same boxes; the shared ones must
  be equal to 1e-9.
* The weighted metric, of which an interval needs 1,000, is timed as well.

Run ``python benchmarks/detection.py`` (about 1 min) or with ``--quick`` (a tenth of the pictures).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
from time import process_time
from typing import Any

import numpy as np
from _table import EPYC, report

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.tasks.detection.metrics import METRICS

CPU_GOAL, MEMORY_GOAL = 30.0, 1e9
CLASSES, DETECTIONS, BOXES = 80, 100, 7.2
SHARED = {
    "map": 0,
    "ap50": 1,
    "ap75": 2,
    "map_small": 3,
    "map_medium": 4,
    "map_large": 5,
    "ar100": 8,
}


def evaluation(pictures: int) -> Evaluation:
    """Boxes of a detector that finds most things, with many uncertain boxes besides."""
    random = np.random.default_rng(0)
    counts = random.poisson(BOXES, pictures)
    total = int(counts.sum())
    corner = random.uniform(0, 500, (total, 2))
    truth = np.concatenate([corner, 4 * np.exp(random.uniform(0, 4.5, (total, 2)))], axis=1)
    label = np.minimum(random.geometric(0.05, total), CLASSES) - 1
    owners = np.repeat(np.arange(pictures), counts)
    rows, given, scores = [], [], []
    for picture in range(pictures):
        own = np.flatnonzero(owners == picture)
        found = random.choice(own, min(3 * len(own), DETECTIONS)) if len(own) else own
        near = truth[found] * np.exp(random.normal(0, 0.12, (len(found), 4)))
        rest = DETECTIONS - len(found)
        far = np.concatenate(
            [random.uniform(0, 500, (rest, 2)), random.uniform(4, 300, (rest, 2))], axis=1
        )
        rows.append(np.concatenate([near, far]))
        given.append(np.concatenate([label[found], random.integers(0, CLASSES, rest)]))
        scores.append(np.concatenate([random.beta(2, 2, len(found)), random.beta(1, 8, rest)]))
    ragged = {
        "truth_boxes": Ragged(truth, counts),
        "truth_class": Ragged(label.astype(np.int32), counts),
        "truth_crowd": Ragged((random.random(total) < 0.01).astype(np.uint8), counts),
        "truth_area": Ragged(truth[:, 2] * truth[:, 3] * random.uniform(0.4, 1, total), counts),
        "boxes": Ragged.from_rows(rows),
        "scores": Ragged.from_rows(scores),
        "class": Ragged.from_rows([each.astype(np.int32) for each in given]),
    }
    return Evaluation("detection", {}, tuple(map(str, range(CLASSES))), ragged)


def by_nnpipe(pictures: int) -> dict[str, Any]:
    found = evaluation(pictures)
    before = process_time()
    figures = {metric.name: metric.compute(found) for metric in METRICS}
    spent = process_time() - before
    weights = (
        np.random.default_rng(1)
        .multinomial(pictures, np.full(pictures, 1 / pictures), 10)
        .astype(float)
    )
    statistic = METRICS[0].build_statistic(found)
    before = process_time()
    for each in weights:
        statistic(each)
    weighted = (process_time() - before) / len(weights)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"figures": figures, "cpu_s": spent, "weighted_s": weighted, "peak_bytes": peak}


def by_pycocotools(pictures: int) -> dict[str, Any]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    found = evaluation(pictures).ragged
    owners, label = found["truth_boxes"].owners.tolist(), found["truth_class"].values.tolist()
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": number} for number in range(pictures)],
        "categories": [{"id": number} for number in range(CLASSES)],
        "annotations": [
            {
                "id": i + 1,
                "image_id": owners[i],
                "category_id": label[i],
                "bbox": box,
                "area": area,
                "iscrowd": crowd,
            }
            for i, (box, area, crowd) in enumerate(
                zip(
                    found["truth_boxes"].values.tolist(),
                    found["truth_area"].values.tolist(),
                    found["truth_crowd"].values.tolist(),
                    strict=True,
                )
            )
        ],
    }
    columns = zip(
        found["boxes"].owners.tolist(),
        found["class"].values.tolist(),
        found["boxes"].values.tolist(),
        found["scores"].values.tolist(),
        strict=True,
    )
    given = [
        dict(zip(("image_id", "category_id", "bbox", "score"), row, strict=True)) for row in columns
    ]
    before = process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        judged = COCOeval(truth, truth.loadRes(given), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    spent = process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {name: float(judged.stats[place]) for name, place in SHARED.items()}
    return {"figures": figures, "cpu_s": spent, "peak_bytes": peak}


def apart(which: str, pictures: int) -> dict[str, Any]:
    """Run one of the two in a process of its own, whose memory is then its own."""
    command = [sys.executable, __file__, "--only", which, "--pictures", str(pictures)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="500 pictures instead of 5,000")
    parser.add_argument("--only", choices=["nnpipe", "pycocotools"], help=argparse.SUPPRESS)
    parser.add_argument("--pictures", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pictures = options.pictures or (500 if options.quick else 5000)
    if options.only:
        print(json.dumps((by_nnpipe if options.only == "nnpipe" else by_pycocotools)(pictures)))
        return 0
    ours, theirs = (apart(which, pictures) for which in ("nnpipe", "pycocotools"))
    for name, value in theirs["figures"].items():
        np.testing.assert_allclose(ours["figures"][name], value, rtol=0, atol=1e-9, err_msg=name)
    rows = [
        {"measure": "all metrics, CPU s", "nnpipe": ours["cpu_s"], "pycocotools": theirs["cpu_s"]},
        {
            "measure": "peak memory, GB",
            "nnpipe": ours["peak_bytes"] / 1e9,
            "pycocotools": theirs["peak_bytes"] / 1e9,
        },
        {"measure": "one weighted mAP, CPU s", "nnpipe": ours["weighted_s"], "pycocotools": "-"},
    ]
    return report(
        rows,
        name=f"COCO's metrics, {pictures:,} pictures with {DETECTIONS} detections each",
        value=ours["cpu_s"],
        unit="CPU s",
        reference=theirs["cpu_s"],
        ratio=theirs["cpu_s"] / ours["cpu_s"],
        goal=(
            f"at most {CPU_GOAL:g} CPU s and {MEMORY_GOAL / 1e9:g} GB, with pycocotools' figures "
            f"to 1e-9"
        ),
        holds=ours["cpu_s"] <= CPU_GOAL and ours["peak_bytes"] <= MEMORY_GOAL,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
