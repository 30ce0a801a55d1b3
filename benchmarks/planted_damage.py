"""How much damage in converted models ``verify`` finds, and whether it ever finds any in sound
ones.

Five models are converted by every chain of compilers that is installed, and damage is planted in
one layer of the file that comes out.  Files for OpenVINO, IREE, TVM, ExecuTorch and Inductor show
nothing of what they compute on the way ("closed" in the table): there, damage is planted in the
file that goes in, which is then converted, and ``verify`` gets the result and nothing of the file
in between, as if the last step had done it: only outputs can tell, and nothing is named.  Kinds of
damage:

* ``swap``: the filters of two output channels; ``zero``: those of one are 0;
* ``noise``: 30 % of the weights' deviation is added to them;
* ``transpose``: height and width of a kernel; ``bias``: the bias is 0;
* ``scale``: a layer's weights have the wrong scale (integers only);
* ``duplicate``: a layer is computed twice, one behind the other.

They are dealt evenly over models, chains and kinds; chains that take long to compile get one each,
the others more.  Found is what gets the verdict "different" and a suspect, among the first three,
within which the damaged operation lies; narrowly, if that is no more than a layer and its
normalisation.  Of closed files, no operation can be named, and "different" is enough.  Each sound
conversion is held against its source as often as a damaged one, on other samples each time.

Real models come from ``--data``, a folder with ``models/mnist-8.onnx`` and others, which are left
out where they are missing; a small network trained on the package's digits is always there.  Run
``python benchmarks/planted_damage.py`` (half an hour on two cores; ``--folder`` keeps sound
conversions for the next run) or with ``--quick`` (under 60 s).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _planting import KINDS, Plant, layers_of, plant, scaled_in_tflite
from _real_models import Model, models, ways_of
from _table import DATA, EPYC, existing, report

from nnpipe.analysis.agreement import Tolerances
from nnpipe.analysis.weight_changes import WeightComparison
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.registry import find
from nnpipe.modelwrappers.files.file_formats import find_wrapper
from nnpipe.workflows.candidates.model_files import find_runtime
from nnpipe.workflows.verification.binding import match_tensors
from nnpipe.workflows.verification.claims import get_declared_claims, infer_number_format
from nnpipe.workflows.verification.compare_inside import compare_inside
from nnpipe.workflows.verification.compare_outputs import Reference, verify_outputs
from nnpipe.workflows.verification.first_difference import Divergence, update_verdict

CALIBRATION, SAMPLES = 32, 24
GOAL = 0.98
NARROW = 2  # operations with weights of the source: a layer and its normalisation
SLOW = {"IREECompiler", "TVMCompiler", "TorchInductorCompiler", "ExecuTorchCompiler"}
COLUMNS = ("damages", "different", "found", "narrowly", "sound", "called different")
Way = tuple[Model, str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Converted:
    """A sound conversion: the file exported, what was made of it, and how."""

    model: Model
    chain: tuple[ModelCompiler, ...]
    exported: Artifact
    artifact: Artifact

    @property
    def way(self) -> str:
        """The conversion in words."""
        names = [f"{type(c).__name__} {c.variant()}" for c in self.chain]
        return f"{self.exported.format} {' '.join(names)}".strip()

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What the conversion claims."""
        return get_declared_claims(self.artifact) or ("float",)

    @property
    def shows(self) -> bool:
        """Whether what came out shows what it computes on the way."""
        return find_wrapper(self.artifact.format) is not None

    @property
    def start(self) -> Artifact:
        """Return the file that damage is planted in."""
        return self.artifact if self.shows else self.exported


def converted(
    model: Model, format: str, way: tuple[str, ...], folder: Path, random: np.random.Generator
) -> Converted | None:
    """Convert a model, unless the folder holds it converted; ``None``, and a word, where that
    does not work here.
    """
    start = folder / f"{model.name}{_suffix(format)}"
    exported = (
        Artifact.read(start)
        if start.is_file()
        else (model.origin or model.live).export(start, format)
    )
    try:
        chain = tuple(_compiler(step) for step in way)
        name = re.sub(r"\W+", "-", " ".join((model.name, format, *way)))
        kept = folder / f"{name}{chain[-1].suffix}" if chain else start
        if kept.is_file():
            return Converted(model, chain, exported, Artifact.read(kept))
        artifact = _compiled(model, chain, exported, kept, random)
    except NNPipeError as error:
        print(f"left out: {model.name}, {format} {' '.join(way)}: {str(error)[:160]}", flush=True)
        return None
    return Converted(model, chain, exported, artifact)


def _suffix(format: str) -> str:
    return {"onnx": ".onnx", "torch-export": ".pt2", "keras": ".keras", "tflite": ".tflite"}[format]


def _compiler(step: str) -> ModelCompiler:
    name, _, argument = step.partition(" ")
    return find(name, ModelCompiler).from_json(dict([argument.split("=")]) if argument else {})


def _compiled(
    model: Model,
    chain: Sequence[ModelCompiler],
    artifact: Artifact,
    path: Path,
    random: np.random.Generator,
) -> Artifact:
    for number, compiler in enumerate(chain):
        drawn = random.choice(len(model.samples), CALIBRATION, replace=False).tolist()
        here = (
            path
            if number == len(chain) - 1
            else path.with_name(f"{path.stem}-{number}{compiler.suffix}")
        )
        artifact = compiler.compile(artifact, here, lambda drawn=drawn: model.batches(drawn))  # type: ignore[misc]
    return artifact


def opened(path: Path, format: str) -> LiveModel | None:
    """Open a file with what shows its insides, if anything does."""
    cls = find_wrapper(format)
    if cls is None:
        return None
    return cls.from_json({"model_path": str(path)}).open(path)


def held(made: Converted, artifact: Artifact, numbers: list[int]) -> tuple[str, Divergence]:
    """Hold a file against its source as ``verify`` does: the verdict, and where they part."""
    try:
        found, where = verdict_on(made, artifact, numbers)
        return str(found["verdict"]), where
    except NNPipeError as error:
        return f"unknown ({error})", Divergence((), ())


def verdict_on(
    made: Converted, artifact: Artifact, numbers: list[int]
) -> tuple[dict[str, Any], Divergence]:
    """Hold a file against its source as ``verify`` does: the verdict with its reason, and where
    they part.
    """
    source, samples = made.model.live, made.model.batches(numbers)
    with source.session() as session:
        reference = Reference.from_session(session, source.io, samples, infer_number_format(source))
    claims = reference.with_own_numbers(made.claims)
    inside = opened(artifact.path, artifact.format)
    with (
        inside.session()
        if inside
        else find_runtime(artifact.path, artifact.format).load(artifact) as session
    ):
        binding = match_tensors(source.io, session.io, {}, ())
        found = verify_outputs(session, reference, Tolerances(), binding, claims)
    where: Divergence | str = ""
    weights: WeightComparison | str = ""
    if inside:
        where, weights = compare_inside(source, inside, binding, samples, claims)
    where = Divergence((), ()) if isinstance(where, str) else where
    return {
        **found,
        **update_verdict(found, where, None if isinstance(weights, str) else weights),
    }, where


def planted(
    made: Converted, kind: str, folder: Path, random: np.random.Generator
) -> tuple[Plant, Artifact] | None:
    """Plant damage in what can be looked into, and convert what is left to convert; ``None``
    where it cannot be.
    """
    start = made.start
    inside = opened(start.path, start.format)
    assert inside is not None
    path = folder / f"damaged-{time.monotonic_ns()}{start.path.suffix}"
    found: Plant | None
    if kind == "scale" and start.format == "tflite":
        found = scaled_in_tflite(start.path, path, random)
    else:
        graph = inside.get_inference_graph()
        values = inside.get_intermediates(Selector(tensor="*"))
        axis = inside.wrapper.channel_axis
        channels = {n: v.shape[axis if v.ndim > 2 else -1] for n, v in values.items() if v.ndim > 1}
        found = plant(inside, layers_of(graph, inside.get_weights(), channels), kind, random, path)
    if found is None or not _loads(path, start.format):
        return None
    damaged = replace(start, path=path, sha256=Artifact.create(path, start.format, start.io).sha256)
    if not made.shows:
        damaged = _compiled(
            made.model, made.chain, damaged, path.with_suffix(made.chain[-1].suffix), random
        )
    return found, damaged


def _loads(path: Path, format: str) -> bool:
    """Return whether the damaged file can be run at all; one that cannot needs nobody to find
    the damage.
    """
    model = opened(path, format)
    assert model is not None
    try:
        model.session().close()
    except NNPipeError:
        return False
    return True


@dataclass
class Benchmark:
    """One run, and what has been counted so far."""

    ways: Sequence[Way]
    kept: Path
    folder: Path
    random: np.random.Generator
    verbose: bool

    def __post_init__(self) -> None:
        self.tally: dict[Converted, dict[str, int]] = {}
        self.planted: Counter[str] = Counter()
        self.here: Counter[tuple[str, str, str]] = Counter()
        self.made: dict[int, Converted | None] = {}

    def run(self, count: int) -> None:
        """Plant so much damage, and hold as many sound conversions against their sources."""
        rounds = 0
        while sum(self.planted.values()) < count and rounds < count:
            for number in self.random.permutation(len(self.ways)).tolist():
                if sum(self.planted.values()) >= count:
                    break
                slow = bool(SLOW & {step.split(" ")[0] for step in self.ways[number][2]})
                one = None if slow and rounds else self._converted(number)
                if one is not None and self._damaged(one):
                    self._sound(one)
            rounds += 1

    def _converted(self, number: int) -> Converted | None:
        if number not in self.made:
            self.made[number] = converted(*self.ways[number], self.kept, self.random)
        return self.made[number]

    def _row(self, made: Converted) -> dict[str, int]:
        return self.tally.setdefault(made, dict.fromkeys(COLUMNS, 0))

    def _numbers(self, made: Converted) -> list[int]:
        found: list[int] = self.random.choice(
            len(made.model.samples), SAMPLES, replace=False
        ).tolist()
        return found

    def _sound(self, made: Converted) -> None:
        verdict, where = held(made, made.artifact, self._numbers(made))
        row = self._row(made)
        row["sound"] += 1
        row["called different"] += verdict == "different"
        if verdict == "different" or self.verbose:
            low = max(where.levels, key=lambda level: level.over, default=None)
            told = f"{where}" if where.suspects else f"nearest: {low}"
            print(f"sound: {made.model.name}, {made.way}: {verdict}: {told}", flush=True)

    def _damaged(self, made: Converted) -> bool:
        """Plant what has been planted least often, here and in all, of what can be planted here."""
        name = made.model.name
        order = sorted(
            self.random.permutation(KINDS).tolist(),
            key=lambda kind: (
                self.here[name, made.way, kind],
                self.planted[kind],
                self.here[name, "", kind],
            ),
        )
        for kind in order:
            result = planted(made, kind, self.folder, self.random)
            if result is not None:
                self.planted[kind] += 1
                self.here[name, made.way, kind] += 1
                self.here[name, "", kind] += 1
                self._judge(made, *result)
                return True
        return False

    def _judge(self, made: Converted, plant: Plant, damaged: Artifact) -> None:
        verdict, where = held(made, damaged, self._numbers(made))
        naming = []
        for suspect in where.suspects[:3]:
            if plant.culprits & set(suspect.there):
                naming.append(len(suspect.within))
        row, different = self._row(made), verdict == "different"
        row["damages"] += 1
        row["different"] += different
        row["found"] += different and (bool(naming) or not made.shows)
        row["narrowly"] += different and any(width <= NARROW for width in naming)
        if self.verbose or not (different and (naming or not made.shows)):
            told = "; ".join(map(str, where.suspects[:3]))
            print(
                f"{plant.kind} in {sorted(plant.culprits)}: {made.model.name}, {made.way}: "
                f"{verdict}: {told}",
                flush=True,
            )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return the table, with sums of what shows its values, of what does not, and of all."""
        order = sorted(
            self.tally.items(),
            key=lambda item: (item[0].model.name, not item[0].shows, item[0].way),
        )
        for made, figures in order:
            shown = "open" if made.shows else "closed"
            yield {"model": made.model.name, "conversion": made.way, "file": shown, **figures}
        for name, wanted in (("open", [True]), ("closed", [False]), ("all", [True, False])):
            of = [row for made, row in self.tally.items() if made.shows in wanted]
            if of:
                sums = {key: sum(row[key] for row in of) for key in COLUMNS}
                yield {
                    "model": "all",
                    "conversion": "",
                    "file": "" if name == "all" else name,
                    **sums,
                }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two models, ONNX only, two damages a conversion"
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder with real models (default: ../shared/data)"
    )
    parser.add_argument(
        "--damages",
        type=int,
        help="how many damages, and as many sound comparisons (100; quick: 20)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of layers, channels, noise and samples"
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of models")
    parser.add_argument("--without", nargs="+", default=[], help="compilers to leave out")
    parser.add_argument(
        "--with",
        nargs="+",
        default=[],
        dest="wanted",
        help="compilers of which one is in each chain",
    )
    parser.add_argument(
        "--folder", type=Path, help="keep sound conversions here, and use those that are there"
    )
    parser.add_argument("--verbose", action="store_true", help="tell of each damage")
    given = parser.parse_args()
    count = given.damages or (20 if given.quick else 100)
    ways = [
        way
        for model in models(existing(given.data), given.quick)
        if not given.only or model.name in given.only
        for way in ways_of(model, given.quick)
        for steps in [{step.split(" ")[0] for step in way[2]}]
        if not steps & set(given.without) and (not given.wanted or steps & set(given.wanted))
    ]
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        random = np.random.default_rng(given.seed)
        benchmark = Benchmark(ways, given.folder or Path(name), Path(name), random, given.verbose)
        benchmark.run(count)
    return _reported(benchmark, count)


def _reported(benchmark: Benchmark, count: int) -> int:
    rows = list(benchmark.rows())
    sums = {row["file"]: row for row in rows if row["model"] == "all"}
    total = sums[""]
    found, false = total["found"] / max(total["damages"], 1), total["called different"]
    goal = (
        f"at least {GOAL:.2f} of the damages different and named within three; of as many sound "
        f"ones none different"
    )
    parts = [
        {
            "name": f"{kind} files",
            "value": row["found"] / row["damages"],
            "unit": "share of damages",
            "reference": row["different"] / row["damages"],
            "ratio": row["found"] / row["damages"] / GOAL,
            "goal": f"{GOAL:.2f}",
            "holds": row["found"] >= GOAL * row["damages"],
            "seen_on": EPYC,
        }
        for kind, row in sums.items()
        if kind and row["damages"]
    ]
    parts.append(
        {
            "name": "sound called different",
            "value": false,
            "unit": "conversions",
            "reference": total["sound"],
            "ratio": false / max(total["sound"], 1),
            "goal": "0",
            "holds": false == 0,
            "seen_on": EPYC,
        }
    )
    print(
        f"kinds: {', '.join(f'{kind} {number}' for kind, number in sorted(benchmark.planted.items()))}"
    )
    return report(
        rows,
        name="planted_damage",
        value=found,
        unit="share of damages",
        reference=total["different"] / max(count, 1),
        ratio=found / GOAL,
        goal=goal,
        holds=found >= GOAL and false == 0 and total["damages"] >= count,
        parts=parts,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
