"""Whether ``nnpipe explain`` names the layer that is to blame, and whether it ever blames one of a
sound model.

Trained networks are quantised to 8 bits by ONNX Runtime's own quantiser, and one of five faults is
planted:

* ``imbalance``: three channels of a layer are hundreds of times as large as the others, and what
  reads them makes up for it, so that the float network is unchanged;
* ``outlier``: one weight leaves no steps to the other weights of its layer, which has one scale;
* ``clipped range``: an activation has a tenth or a fifth of its range;
* ``wrong scale``: the weights of a layer have the scale of others;
* ``slow operation``: one of a dozen matrix products is in whole numbers, which the runtime
  multiplies one by one.

Found is what is among the first three lines that ``explain`` says of the accuracy (``--against``)
or of the time (``--runtime``).  Sound are the same networks as the quantisers, the conversion to 16
bits and the optimiser leave them, and networks of matrix products in floats.  A reason that holds
in a sound run, such as the share of conversions, blames nobody; a step that is called slow is
blamed.

The goal: at least 95 of 100 faults are found, and at most one of 20 sound models is blamed.

Run ``python benchmarks/explained_faults.py`` (about ten minutes on two cores), or with ``--quick``
(two networks and 20 faults, within a minute).  Trained models come from ``--data``, as for
``planted_damage.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _explained_faults import IN_FLOATS, IN_INTEGERS, Planted, numbered, products, slow
from _real_models import Model, models
from _table import DATA, EPYC, existing, report

import nnpipe as nnp
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NNPipeError
from nnpipe.core.registry import find
from nnpipe.runtimes.onnxruntime import ONNXRuntime
from nnpipe.workflows.candidates.model_files import read_artifact

EACH, QUICK_EACH = 20, 4
GOAL, MOST_BLAMED, FIRST = 0.95, 0.05, 3
CALIBRATION, SAMPLES, TRIES = 32, 16, 20
QUANTISER: tuple[str, Mapping[str, Any]] = ("ONNXStaticQuantizer", {})
ONE_SCALE: tuple[str, Mapping[str, Any]] = ("ONNXStaticQuantizer", {"per_channel": False})
SOUND = (QUANTISER, ONE_SCALE, ("ONNXDynamicQuantizer", {}), ("ONNXFloat16", {}))


class Subject:
    """A trained model as a file whose nodes have short names, and what is made of it."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.stem = model.name.replace(" ", "-")
        self.path = numbered(
            model.live.export(folder / f"{self.stem}-exported.onnx", "onnx").path, self.new("float")
        )
        self.integers = self.compiled(self.path, self.new("int8"), *QUANTISER)

    def new(self, name: str) -> Path:
        """Return the path of a new file."""
        return self.folder / f"{self.stem}-{name}.onnx"

    def compiled(self, path: Path, to: Path, name: str, arguments: Mapping[str, Any]) -> Path:
        """Compile a file, calibrated on the first samples."""
        compiler = find(name, ModelCompiler).from_json(dict(arguments))
        artifact = read_artifact(path, "onnx", ONNXRuntime())
        (spec,) = artifact.io.inputs
        batches = [{spec.name: each[None]} for each in self.model.samples[:CALIBRATION]]
        return compiler.compile(artifact, to, lambda: batches).path

    def told(self, path: Path, source: Path) -> list[str]:
        """Return what ``explain`` says of a file's accuracy on other samples, the worst first."""
        samples = self.model.samples[CALIBRATION : CALIBRATION + SAMPLES]
        return list(nnp.explain(path, against=source, data=samples, samples=SAMPLES).faults)


def planted(
    subject: Subject, kind: int, random: np.random.Generator, number: int
) -> Planted | None:
    """Plant a fault of one of the kinds of accuracy; ``None`` if the model has no place for it."""
    for _ in range(TRIES):
        if kind < len(IN_FLOATS):
            found = IN_FLOATS[kind](subject.path, subject.new(f"fault-{number}"), random)
            if found is not None:
                how = ONE_SCALE if found.kind == "outlier" else QUANTISER
                integers = subject.compiled(found.path, subject.new(f"fault-{number}-int8"), *how)
                return Planted(found.kind, integers, found.path, found.culprits)
        else:
            found = IN_INTEGERS[kind - len(IN_FLOATS)](
                subject.integers, subject.new(f"fault-{number}"), random
            )
            if found is not None:
                return Planted(found.kind, found.path, subject.path, found.culprits)
    return None


def looked_for(subjects: list[Subject], each: int, folder: Path) -> Iterator[tuple[str, bool]]:
    """Plant faults of all kinds; yield the kind, and whether a culprit is among what is told
    first.
    """
    random = np.random.default_rng(0)
    for kind in range(len(IN_FLOATS) + len(IN_INTEGERS)):
        for number in range(each):
            for place in range(len(subjects)):  # not every network has a place for each
                subject = subjects[(number + place) % len(subjects)]
                plant = planted(subject, kind, random, number)
                if plant is not None and plant.source is not None:
                    yield plant.kind, _found(subject.told(plant.path, plant.source), plant)
                    break
    for number in range(each):
        plant = slow(folder / f"slow-{number}.onnx", random)
        told = [" ".join((each.text, *each.layers)) for each in _reasons(plant.path)]
        yield plant.kind, _found(told, plant)


def _reasons(path: Path) -> tuple[Any, ...]:
    return nnp.explain(path, runtime="ONNXRuntime").reasons


def _found(told: list[str], plant: Planted) -> bool:
    found = any(culprit in line for line in told[:FIRST] for culprit in plant.culprits)
    if not found:
        print(
            f"missed: {plant.path.name}, {plant.kind} of {sorted(plant.culprits)}; told: "
            f"{told[:FIRST]}"
        )
    return found


def blamed(subjects: list[Subject], quick: bool, folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield sound models, and whether something in them is blamed."""
    for subject in subjects:
        for place, (name, arguments) in enumerate(SOUND[:2] if quick else SOUND):
            way = f"{subject.model.name} {name}{' with one scale' if arguments else ''}"
            try:
                made = subject.compiled(
                    subject.path, subject.new(f"sound-{place}"), name, arguments
                )
            except NNPipeError as error:
                print(f"left out: {way}: {str(error)[:160]}")
                continue
            yield way, _blames(way, subject.told(made, subject.path))
    random = np.random.default_rng(1)
    for number in range(2 if quick else 4):
        path = products(folder / f"sound-{number}.onnx", random, int(random.integers(9, 15)), None)
        way = f"matrix products {number}"
        yield way, _blames(way, [each.text for each in _reasons(path) if len(each.layers) == 1])


def _blames(way: str, told: list[str]) -> bool:
    if told:
        print(f"blamed though sound: {way}: {told}")
    return bool(told)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two networks, and 20 faults")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with trained models")
    options = parser.parse_args(argv)
    start = time.process_time()
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder = Path(place)
        subjects = [
            Subject(model, folder)
            for model in models(existing(options.data), options.quick)
            if "onnx" in model.ways
        ]
        found = list(looked_for(subjects, QUICK_EACH if options.quick else EACH, folder))
        sound = list(blamed(subjects, options.quick, folder))
    planted_of, found_of = (
        Counter(kind for kind, _ in found),
        Counter(kind for kind, right in found if right),
    )
    rows = [
        {"fault": kind, "planted": count, "found": found_of[kind]}
        for kind, count in planted_of.items()
    ]
    rows.append(
        {
            "fault": "none (sound models)",
            "planted": 0,
            "found": sum(accused for _, accused in sound),
        }
    )
    share = sum(found_of.values()) / len(found)
    accused = sum(accused for _, accused in sound) / len(sound)
    print(
        f"{len(found)} faults and {len(sound)} sound models in {time.process_time() - start:.0f} "
        f"CPU s"
    )
    parts = [
        {
            "name": "sound models that are blamed",
            "value": accused,
            "unit": "share",
            "reference": MOST_BLAMED,
            "ratio": accused / MOST_BLAMED,
            "goal": "at most one of 20",
            "holds": accused <= MOST_BLAMED,
            "seen_on": EPYC,
        },
    ]
    return report(
        rows,
        "faults whose culprit is told among the first three",
        share,
        "share",
        GOAL,
        share / GOAL,
        "at least 95 of 100, and at most one of 20 sound models blamed",
        share >= GOAL and accused <= MOST_BLAMED,
        parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
