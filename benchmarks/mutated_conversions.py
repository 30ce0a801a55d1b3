"""Whether ``verify`` calls sound conversions different, misses damaged ones, or names causes that
are none.

Real networks are changed as trainings and people change them: normalisations with any epsilon, or
with scales of 0; and networks in 8-bit integers are sources as they are.  They are converted
(folded or not, in floats, half precision and integers), and their ONNX files are reordered and
renamed.  All these are sound, and none may be called "different".  In half of the conversions,
damage is planted as in ``planted_damage.py``; at least 98 of 100 must be "different".  Damage that
changes no output is not counted, but told of.

Whatever is called a cause must make the outputs equal on samples that it was not found with, too.
This is so if the damaged operation is part of it: without the damage, the file is the sound
conversion.  Every other cause is undone again, on other samples.

Real models come from ``--data``; those that are missing are left out, and a small network trained
on the package's digits is always there.  Run ``python benchmarks/mutated_conversions.py`` (1,000
comparisons, half an hour on two cores), or with ``--quick`` (under 60 s).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from _planting import KINDS, Plant
from _real_models import Model, models
from _sound_mutations import OF_FILES, OF_SOURCES, mutate_onnx, mutate_source
from _table import DATA, EPYC, existing, report
from planted_damage import Converted, converted, opened, planted, verdict_on

from nnpipe.analysis.agreement import Tolerances, compare
from nnpipe.analysis.suspect_operations import Suspect
from nnpipe.core.artifact import INTEGERS as INTEGER_CLAIMS
from nnpipe.core.artifact import Artifact, get_lowest_precision
from nnpipe.core.errors import NNPipeError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.workflows.candidates.model_files import find_runtime
from nnpipe.workflows.verification.compare_outputs import iter_outputs

GOAL, COUNT, QUICK = 0.98, 1000, 24
# the greatest share of the difference that may be left without its cause
LEFT, LEFT_BY_INTEGERS = 0.01, 0.1
CLEAR = 4.0  # times the error of the sound conversion, with which damage is most of a difference
SAMPLES, SEEN = 8, 16  # that are compared, and on which damage must change an output
WAYS = {
    "onnx": (
        (),
        ("ONNXRuntimeOptimizer",),
        ("ONNXFloat16",),
        ("ONNXStaticQuantizer",),
        ("ONNXDynamicQuantizer",),
    ),
    "torch-export": ((), ("TorchToTFLite",)),
    "keras": (("TFLiteCompiler target=default",),),
    "tflite": ((), ("CCompiler",), ("OpenVINOCompiler",)),
}
INTEGERS = {
    "keyword in int8": "models/mlperf_tiny_kws/kws_ref_model.tflite",
    "ResNet8 in int8": "models/mlperf_tiny_ic/pretrainedResnet_quant.tflite",
}
COLUMNS = (
    "sound",
    "called different",
    "damaged",
    "different",
    "causes",
    "false causes",
    "without effect",
)


@dataclass
class Mutations:
    """One run, and what has been counted so far."""

    folder: Path
    random: np.random.Generator
    verbose: bool
    rows: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    planted: Counter[str] = field(default_factory=Counter)
    sound: tuple[Converted, list[Any]] | None = None

    @property
    def done(self) -> int:
        """The number of comparisons that count."""
        return sum(row["sound"] + row["damaged"] for row in self.rows.values())

    def count(self, made: Converted, mutated: str, damages: int) -> None:
        """Compare a sound conversion with its source, mutated in the ways of its format, and
        then damaged.
        """
        row = self.rows.setdefault((made.model.name, made.way), Counter())
        for kind in OF_FILES if made.artifact.format == "onnx" else OF_FILES[:1]:
            found, _ = verdict_on(made, self._mutated(made, kind), self._drawn(made))
            row["sound"] += 1
            row["called different"] += found["verdict"] not in ("same", "close")
            if found["verdict"] not in ("same", "close") or self.verbose:
                print(
                    f"sound ({mutated}, {kind}): {made.model.name}, {made.way}: {_told(found)}",
                    flush=True,
                )
        for _ in range(damages if made.shows else 0):
            self._damage(made, mutated, row)

    def _mutated(self, made: Converted, kind: str) -> Artifact:
        if kind == OF_FILES[0]:
            return made.artifact
        path = self.folder / f"mutated-{self.random.integers(1 << 40):x}.onnx"
        mutate_onnx(made.artifact.path, path, kind, self.random)
        return replace(
            made.artifact, path=path, sha256=Artifact.create(path, "onnx", made.artifact.io).sha256
        )

    def _drawn(self, made: Converted) -> list[int]:
        found: list[int] = self.random.choice(
            len(made.model.samples), SAMPLES, replace=False
        ).tolist()
        return found

    def _damage(self, made: Converted, mutated: str, row: Counter[str]) -> None:
        for kind in sorted(
            self.random.permutation(KINDS).tolist(), key=lambda kind: self.planted[kind]
        ):
            result = planted(made, kind, self.folder, self.random)
            if result is None:
                continue
            plant, damaged = result
            self.planted[kind] += 1
            if (
                compare(self._outputs_of(made), _outputs(made, damaged)).max_relative
                <= Tolerances().same_tolerance
            ):
                row["without effect"] += 1
            else:
                self._judge(made, mutated, plant, damaged, row)
            damaged.path.unlink(missing_ok=True)
            return

    def _outputs_of(self, made: Converted) -> list[Any]:
        """Return the outputs of a sound conversion; those of the last one are kept."""
        if self.sound is None or self.sound[0] is not made:
            self.sound = made, _outputs(made, made.artifact)
        return self.sound[1]

    def _judge(
        self, made: Converted, mutated: str, plant: Plant, damaged: Artifact, row: Counter[str]
    ) -> None:
        found, where = verdict_on(made, damaged, self._drawn(made))
        row["damaged"] += 1
        row["different"] += found["verdict"] == "different"
        causes = [suspect for suspect in where.suspects if suspect.effect == "all"]
        false = []
        if causes:
            drawn = self._drawn(made)
            other, again = verdict_on(made, damaged, drawn)
            undone = {
                name
                for each in again.suspects
                if _is_undone(each, made)
                for name in _operations(each)
            }
            # Where the conversion itself makes most of the difference, no cause of the rest can be
            # undone.
            seen = _error_of(other) > CLEAR * _error_of(verdict_on(made, made.artifact, drawn)[0])
            seen &= _error_of(other) > Tolerances().same_tolerance
            false = [
                each.name
                for each in causes
                if seen
                and plant.culprits.isdisjoint(each.there)
                and undone.isdisjoint(_operations(each))
            ]
            row["causes"] += len(causes)
            row["false causes"] += len(false)
        if self.verbose or false or found["verdict"] != "different":
            what = f"{plant.kind} in {sorted(plant.culprits)} ({mutated})"
            print(
                f"{what}: {made.model.name}, {made.way}: {_told(found)}; not again: {false}",
                flush=True,
            )


def _error_of(found: dict[str, Any]) -> float:
    return max(float(tensor["mean_relative"]) for tensor in found["tensors"])


def _is_undone(suspect: Suspect, made: Converted) -> bool:
    """Return whether the outputs are the source's without a suspect, but for what the conversion
    may change.
    """
    limit = LEFT_BY_INTEGERS if get_lowest_precision(made.claims) in INTEGER_CLAIMS else LEFT
    return suspect.effect == "all" or (
        suspect.effect == "" and suspect.left is not None and suspect.left <= limit
    )


def _operations(suspect: Suspect) -> set[str]:
    """Return the operations that a suspect stands for."""
    return {*suspect.within, suspect.level.operation}


def _told(found: dict[str, Any]) -> str:
    return f"{found['verdict']}: {str(found['reason'])[:300]}"


def _outputs(made: Converted, artifact: Artifact) -> list[Any]:
    """Return what a file gives for the first samples."""
    batches = made.model.batches(range(min(SEEN, len(made.model.samples))))
    inside = opened(artifact.path, artifact.format)
    with (
        inside.session()
        if inside
        else find_runtime(artifact.path, artifact.format).load(artifact) as session
    ):
        return list(iter_outputs(session, session.io, _named(batches, session.io.inputs[0].name)))


def _named(batches: Sequence[Any], name: str) -> list[Any]:
    return [{name: next(iter(batch.values()))} for batch in batches]


def sources(
    data: Path, quick: bool, folder: Path, random: np.random.Generator
) -> Iterator[tuple[str, Model, str]]:
    """Yield mutated models without end, with what was done to them and the format of their
    export.
    """
    known = [model for model in models(data, quick) if not quick or model.name == "digits CNN"]
    integers = [] if quick else list(_integers(data, {model.name: model for model in known}))
    weights = {model.name: model.live.get_weights() for model in known}
    turn = 0
    while True:
        for model in known:
            formats = [format for format in model.ways if format in WAYS]
            mutable = "torch-export" in formats or "keras" in formats
            kind = OF_SOURCES[turn % len(OF_SOURCES)] if mutable else OF_SOURCES[0]
            model.live.set_weights(weights[model.name])
            mutate_source(model.live, kind, random) if mutable else None
            start = _source_of(model, folder, turn)
            for format in formats:
                yield kind, start, format
        for model in integers:
            yield "integers", model, "tflite"
        turn += 1


def _source_of(model: Model, folder: Path, turn: int) -> Model:
    """Return a model that is traced at each look, as a file that states its graph."""
    if "torch-export" not in model.ways:
        return model
    artifact = model.live.export(
        folder / f"{model.name}-{turn}-source.pt2".replace(" ", "-"), "torch-export"
    )
    live = opened(artifact.path, artifact.format)
    assert live is not None
    return replace(model, live=live, origin=model.live)


def _integers(data: Path, known: dict[str, Model]) -> Iterator[Model]:
    for name, file in INTEGERS.items():
        path, like = data / file, known.get(name.split(" ")[0])
        if not path.is_file() or like is None:
            print(f"left out: {name}, {file} is not below {data}")
            continue
        live = find("TFLiteModel", ModelWrapper).from_json({"model_path": str(path)}).open(path)
        spec = live.io.inputs[0]
        scale, zero = np.float32(spec.scale), int(np.asarray(spec.zero_point).ravel()[0])
        samples = np.clip(np.rint(like.samples / scale) + zero, -128, 127).astype(np.int8)
        yield Model(name, live, samples, {"tflite": ()})


def run(mutations: Mutations, data: Path, quick: bool, count: int) -> None:
    """Count mutated conversions until there are enough."""
    made: dict[tuple[str, str, tuple[str, ...]], Converted | None] = {}
    for number, (kind, model, format) in enumerate(
        sources(data, quick, mutations.folder, mutations.random)
    ):
        for way in WAYS[format]:
            here = mutations.folder / f"{number}"
            here.mkdir(exist_ok=True)
            key = (model.name, format, way)
            if kind != "integers" or key not in made:
                try:
                    made[key] = converted(model, format, way, here, mutations.random)
                except NNPipeError as error:
                    print(f"left out: {model.name}, {format} {' '.join(way)}: {error}", flush=True)
                    made[key] = None
            if (one := made[key]) is not None:
                mutations.count(one, kind, 3 if one.artifact.format == "onnx" else 2)
            if mutations.done >= count:
                return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"the network on digits alone, {QUICK} comparisons"
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder with real models (default: ../shared/data)"
    )
    parser.add_argument(
        "--count", type=int, help=f"how many comparisons ({COUNT:,}; quick: {QUICK})"
    )
    parser.add_argument("--seed", type=int, default=0, help="of mutations, damage and samples")
    parser.add_argument("--verbose", action="store_true", help="tell of each comparison")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutated-") as name:
        mutations = Mutations(Path(name), np.random.default_rng(given.seed), given.verbose)
        count = given.count or (QUICK if given.quick else COUNT)
        try:
            run(mutations, existing(given.data), given.quick, count)
        except KeyboardInterrupt:
            print(f"ended after {mutations.done} of {count} comparisons", flush=True)
    return _reported(mutations, count)


def _reported(mutations: Mutations, count: int) -> int:
    rows: list[dict[str, Any]] = [
        {"model": model, "conversion": way, **{key: row[key] for key in COLUMNS}}
        for (model, way), row in sorted(mutations.rows.items())
    ]
    total = {key: sum(row[key] for row in rows) for key in COLUMNS}
    rows.append({"model": "all", "conversion": "", **total})
    share = total["different"] / max(total["damaged"], 1)
    none_false = total["called different"] == 0 and total["false causes"] == 0
    parts = [
        {
            "name": name,
            "value": total[key],
            "unit": "",
            "reference": total[of],
            "ratio": total[key] / max(total[of], 1),
            "goal": "0",
            "holds": total[key] == 0,
            "seen_on": EPYC,
        }
        for name, key, of in (
            ("sound called different", "called different", "sound"),
            ("false causes", "false causes", "causes"),
        )
    ]
    print(
        f"kinds: {', '.join(f'{kind} {number}' for kind, number in sorted(mutations.planted.items()))}"
    )
    return report(
        rows,
        name="mutated_conversions",
        value=share,
        unit="share of damages",
        reference=mutations.done,
        ratio=share / GOAL,
        goal=f"{GOAL:.2f} of the damages different, no sound one, and no cause that is none",
        holds=share >= GOAL and none_false and mutations.done >= count,
        parts=parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
