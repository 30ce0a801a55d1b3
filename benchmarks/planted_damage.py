"""How much damage in converted models ``verify`` finds, and whether it ever finds any in sound ones.

Models are converted by every chain of compilers below that is installed.  Damage is planted in one layer
of the file that comes out; where nothing shows what such a file computes on the way (OpenVINO, IREE, TVM,
ExecuTorch, Inductor), in the file that goes in, which is converted then.  Kinds of damage, in turn:

* ``swap``: the filters of two output channels; ``zero``: those of one are 0;
* ``noise``: 30 % of the weights' deviation is added to them;
* ``transpose``: height and width of a kernel; ``bias``: the bias is 0;
* ``scale``: a layer's weights have the wrong scale (integers only);
* ``duplicate``: a layer is computed twice, one behind the other (ONNX only).

Found is what gets the verdict "different" and a suspect, among the first three, within which the damaged
operation lies; narrowly, if that is no more than a layer and its normalisation.  Each sound conversion
is held against its source on several draws of samples.

Real models come from ``--data``, a folder with ``models/mnist-8.onnx`` and others, which are left out
where they are missing; a small network trained on the package's digits is always there.  Run ``python
benchmarks/planted_damage.py`` (half an hour on two cores) or with ``--quick`` (under 60 s).
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _planting import KINDS, Plant, layers_of, plant, scaled_in_tflite
from _table import EPYC, report

from nnpipe.analysis.agreement import Tolerances
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.errors import NNPipeError
from nnpipe.core.graph import Selector
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.digits import DigitsDataset
from nnpipe.scenarios._claiming import declared_claims
from nnpipe.scenarios._diverging import Divergence, divergence, judged
from nnpipe.scenarios._modelfiles import runtime_for, wrapper_of
from nnpipe.scenarios._verifying import Reference, bound, verified

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CALIBRATION, SAMPLES = 32, 24
GOAL = 0.98
NARROW = 2  # operations with weights of the source: a layer and its normalisation
IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)[:, :, None, None]

ONNX: tuple[tuple[str, ...], ...] = (
    (), ("ONNXRuntimeOptimizer",), ("ONNXFloat16",), ("ONNXStaticQuantizer",), ("ONNXDynamicQuantizer",),
    ("OpenVINOCompiler",), ("OpenVINOCompiler precision=int8",), ("OpenVINOCompiler precision=fp16",),
    ("IREECompiler",), ("TVMCompiler",),
)  # fmt: skip
TORCH: tuple[tuple[str, ...], ...] = (
    ("TorchFloat16",), ("TorchFloat16 precision=bfloat16",), ("TorchPT2EQuantizer",), ("TorchToTFLite",),
    ("TorchToTFLite target=float16",), ("TorchToTFLite target=dynamic",), ("TorchToTFLite target=int8",),
    ("ExecuTorchCompiler",), ("ExecuTorchCompiler precision=int8",), ("TorchInductorCompiler",),
)  # fmt: skip
KERAS: tuple[tuple[str, ...], ...] = tuple(
    (f"TFLiteCompiler target={target}",) for target in ("default", "float16", "dynamic", "int8")
)
TFLITE: tuple[tuple[str, ...], ...] = ((), ("OpenVINOCompiler",), ("OpenVINOCompiler precision=int8",))
QUICK = {(), ("ONNXRuntimeOptimizer",), ("ONNXFloat16",), ("ONNXStaticQuantizer",), ("ONNXDynamicQuantizer",)}


@dataclass(frozen=True)
class Model:
    """A trained model, samples as it takes them, and the ways it is converted by format of export."""

    name: str
    wrapper: ModelWrapper
    samples: np.ndarray[Any, Any]
    ways: Mapping[str, tuple[tuple[str, ...], ...]]

    def batches(self, numbers: Sequence[int]) -> list[Batch]:
        """Give samples as batches of one."""
        name = self.wrapper.io.inputs[0].name
        return [{name: self.samples[number : number + 1]} for number in numbers]


@dataclass(frozen=True)
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
        return declared_claims(self.artifact) or ("float",)


def models(data: Path, quick: bool) -> Iterator[Model]:
    """Give the models that are there, and say of the others that they are not."""
    digits = DigitsDataset()
    network = find("PyTorchDigitsCNN", ModelWrapper).from_json({})
    network.train(digits, TrainingOptions(num_epochs=2 if quick else 8))
    taken = [network.preprocess(raw) for raw, _ in digits.batches(digits.split("test")[:200], 1)]
    ways = {"onnx": ONNX, "torch-export": TORCH}
    yield Model("digits CNN", network, np.concatenate([next(iter(batch.values())) for batch in taken]), ways)
    found: list[tuple[str, str, str, Callable[[], np.ndarray[Any, Any]], dict[str, Any]]] = [
        ("MNIST", "ONNXModel", "models/mnist-8.onnx", lambda: _mnist(data), {"onnx": ONNX}),
        ("ResNet20", "PyTorchCIFARResNet", "models/torch_resnet/resnet20-12fca82f.th",
         lambda: (_cifar(data) / 255 - IMAGENET[0]) / IMAGENET[1], ways),
        ("ResNet8", "KerasModel", "models/mlperf_tiny_ic/pretrainedResnet.h5",
         lambda: np.ascontiguousarray(_cifar(data).transpose(0, 2, 3, 1)), {"keras": KERAS, "onnx": ONNX}),
        ("keyword", "TFLiteModel", "models/mlperf_tiny_kws/kws_ref_model_float32.tflite",
         lambda: _keywords(data), {"tflite": TFLITE}),
    ]  # fmt: skip
    for name, cls, file, samples, converted in found[: 1 if quick else None]:
        path = data / file
        if not path.is_file():
            print(f"left out: {name}, {file} is not below {data}")
            continue
        own = cls == "PyTorchCIFARResNet"
        wrapper = find(cls, ModelWrapper).from_json({} if own else {"model_path": str(path)})
        wrapper.load(path)
        yield Model(name, wrapper, samples(), converted)


def _mnist(data: Path) -> np.ndarray[Any, Any]:
    raw = gzip.decompress((data / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    return np.frombuffer(raw, np.uint8).reshape(-1, 1, 28, 28)[:400].astype(np.float32) / 255


def _cifar(data: Path) -> np.ndarray[Any, Any]:
    raw = gzip.decompress((data / "cifar10/test_000-499.bin.gz").read_bytes())
    return np.frombuffer(raw, np.uint8).reshape(-1, 3073)[:400, 1:].reshape(-1, 3, 32, 32).astype(np.float32)


def _keywords(data: Path) -> np.ndarray[Any, Any]:
    real = np.load(data / "vectors/kws_mfcc_tf.npz")["mfcc"].astype(np.float32)
    random = np.random.default_rng(0)  # five clips are few: others are theirs, moved in time and made louder
    moved = [np.roll(clip, random.integers(-8, 9), 0) * random.uniform(0.8, 1.2) for clip in real for _ in range(40)]
    return np.stack(moved).reshape(-1, 49, 10, 1).astype(np.float32)


def ways_of(model: Model, quick: bool) -> Iterator[tuple[Model, str, tuple[str, ...]]]:
    """Give the ways of converting a model: the format of its export, and the compilers behind."""
    for format, ways in model.ways.items():
        yield from ((model, format, way) for way in ways if not quick or way in QUICK)


def converted(
    model: Model, format: str, way: tuple[str, ...], folder: Path, random: np.random.Generator
) -> Converted | None:
    """Convert a model, unless the folder holds it converted; ``None``, and a word, where that does not work here."""
    start = folder / f"{model.name}{_suffix(format)}"
    exported = Artifact.read(start) if start.is_file() else model.wrapper.export(start, format)
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
    model: Model, chain: Sequence[ModelCompiler], artifact: Artifact, path: Path, random: np.random.Generator
) -> Artifact:
    for number, compiler in enumerate(chain):
        drawn = random.choice(len(model.samples), CALIBRATION, replace=False).tolist()
        here = path if number == len(chain) - 1 else path.with_name(f"{path.stem}-{number}{compiler.suffix}")
        artifact = compiler.compile(artifact, here, lambda drawn=drawn: model.batches(drawn))  # type: ignore[misc]
    return artifact


def opened(path: Path, format: str) -> ModelWrapper | None:
    """Open a file with what shows its insides, if anything does."""
    cls = wrapper_of(format)
    if cls is None:
        return None
    wrapper = cls.from_json({"model_path": str(path)})
    wrapper.load(path)
    return wrapper


def held(
    model: Model,
    artifact: Artifact,
    shown: tuple[Path, str],
    claims: Mapping[str, tuple[Claim, ...]],
    numbers: list[int],
) -> tuple[str, Divergence]:
    """Hold a file against its source as ``verify`` does: the verdict, and where they part."""
    samples = model.batches(numbers)
    try:
        return _held(model, artifact, shown, claims, samples)
    except NNPipeError as error:
        return f"unknown ({error})", Divergence((), ())


def _held(
    model: Model,
    artifact: Artifact,
    shown: tuple[Path, str],
    claims: Mapping[str, tuple[Claim, ...]],
    samples: list[Batch],
) -> tuple[str, Divergence]:
    with model.wrapper.session() as session:
        reference = Reference.of(session, model.wrapper.io, samples)
    inside = opened(artifact.path, artifact.format)
    session = inside.session() if inside else _loaded(artifact)
    with session:
        binding = bound(model.wrapper.io, session.io, {}, ())
        found = verified(session, reference, Tolerances(), binding, claims["whole"])
    other = opened(*shown)
    assert other is not None
    where = divergence(model.wrapper, other, binding, samples, claims["shown"])
    return str({**found, **judged(found, where)}["verdict"]), where


def _loaded(artifact: Artifact) -> Any:
    runtime: Runtime = runtime_for(artifact.path, artifact.format)
    return runtime.load(artifact)


def planted(made: Converted, kind: str, folder: Path, random: np.random.Generator) -> tuple[Plant, Artifact] | None:
    """Plant damage in what can be looked into, and convert what is left to convert."""
    inside = opened(made.artifact.path, made.artifact.format)
    start = made.artifact if inside else made.exported
    inside = inside or opened(start.path, start.format)
    assert inside is not None
    path = folder / f"damaged-{time.monotonic_ns()}{start.path.suffix}"
    found: Plant | None
    if kind == "scale" and start.format == "tflite":
        found = scaled_in_tflite(start.path, path, random)
    else:
        graph = inside.get_inference_graph()
        values = inside.get_intermediates(Selector(tensor="*"))
        axis = inside.channel_axis
        channels = {n: v.shape[axis if v.ndim > 2 else -1] for n, v in values.items() if v.ndim > 1}
        found = plant(inside, layers_of(graph, inside.get_weights(), channels), kind, random, path)
    if found is None or not _loads(path, start.format):
        return None
    damaged = replace(start, path=path, sha256=Artifact.of(path, start.format, start.io).sha256)
    if start is made.exported and made.chain:
        compiled = path.with_suffix(made.chain[-1].suffix)
        damaged = _compiled(made.model, made.chain, damaged, compiled, random)
    return found, damaged


def _loads(path: Path, format: str) -> bool:
    """Whether the damaged file can be run at all; one that cannot needs nobody to find the damage."""
    wrapper = opened(path, format)
    assert wrapper is not None
    try:
        wrapper.session().close()
    except NNPipeError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, ONNX only, two damages a conversion")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with real models (default: ../shared/data)")
    parser.add_argument("--damages", type=int, help="how many damages, and as many sound comparisons (100; quick: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of layers, channels, noise and samples")
    parser.add_argument("--only", nargs="+", default=[], help="names of models")
    parser.add_argument("--without", nargs="+", default=[], help="compilers to leave out")
    parser.add_argument("--folder", type=Path, help="keep sound conversions here, and use those that are there")
    parser.add_argument("--verbose", action="store_true", help="tell of each damage")
    given = parser.parse_args()
    count = given.damages or (20 if given.quick else 100)
    random = np.random.default_rng(given.seed)
    tally: dict[tuple[str, str], dict[str, int]] = {}
    ways = [
        way
        for model in models(given.data, given.quick)
        if not given.only or model.name in given.only
        for way in ways_of(model, given.quick)
        if not any(step.split(" ")[0] in given.without for step in way[2])
    ]
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        _run(ways, count, given.folder or Path(name), Path(name), random, tally, given.verbose)
    rows = [{"model": model, "conversion": way, **figures} for (model, way), figures in tally.items()]
    total = {key: sum(row[key] for row in tally.values()) for key in next(iter(tally.values()))}
    rows.append({"model": "all", "conversion": "", **total})
    found, false = total["found"] / max(total["damages"], 1), total["called different"]
    holds = found >= GOAL and false == 0 and total["damages"] >= count
    goal = f"at least {GOAL:.2f} of the damages different and named within three; of as many sound ones none different"
    return report(
        rows, name="planted_damage", value=found, unit="share of damages", reference=total["different"] / max(count, 1),
        ratio=found / GOAL, goal=goal, holds=holds, seen_on=EPYC,
        parts=[{"name": "sound called different", "value": false, "unit": "conversions", "reference": total["sound"],
                "ratio": false / max(total["sound"], 1), "goal": "0", "holds": false == 0,
                "seen_on": EPYC}],
    )  # fmt: skip


def _run(
    ways: list[Any], count: int, kept: Path, folder: Path, random: np.random.Generator,
    tally: dict[Any, dict[str, int]], verbose: bool,
) -> None:  # fmt: skip
    columns = ("damages", "different", "found", "narrowly", "sound", "called different")
    kinds: list[str] = []
    made: list[Converted | None] = [None] * len(ways)
    order: list[int] = []
    done = sound = 0
    for _ in range(20 * count):
        if done >= count and sound >= count:
            return
        order = order or random.permutation(len(ways)).tolist()
        kinds = kinds or random.permutation(KINDS).tolist()
        number = order.pop()
        one = made[number] = made[number] or converted(*ways[number], kept, random)
        if one is None:
            continue
        row = tally.setdefault((one.model.name, one.way), dict.fromkeys(columns, 0))
        inside = wrapper_of(one.artifact.format) is not None
        start = one.artifact if inside else one.exported
        claims = {"whole": one.claims, "shown": one.claims if inside else ("float",)}
        numbers = random.choice(len(one.model.samples), SAMPLES, replace=False).tolist()
        if sound < count:
            verdict, where = held(one.model, one.artifact, (start.path, start.format), claims, numbers)
            row["sound"] += 1
            row["called different"] += verdict == "different"
            sound += 1
            if verdict == "different" or verbose:
                low = max(where.levels, key=lambda level: level.over, default=None)
                print(f"sound: {one.model.name}, {one.way}: {verdict}; nearest: {low}", flush=True)
        if done < count:
            result = planted(one, kinds[-1], folder, random)
            if result is not None:
                kind, (found, damaged) = kinds.pop(), result
                verdict, where = held(one.model, damaged, (found.path, start.format), claims, numbers)
                naming = [suspect for suspect in where.suspects[:3] if found.culprits & set(suspect.there)]
                named = bool(naming)
                row["damages"] += 1
                row["different"] += verdict == "different"
                row["found"] += verdict == "different" and named
                row["narrowly"] += verdict == "different" and any(len(s.within) <= NARROW for s in naming)
                done += 1
                if verbose or not (verdict == "different" and named):
                    told = "; ".join(map(str, where.suspects[:3]))
                    print(
                        f"{kind} in {sorted(found.culprits)}: {one.model.name}, {one.way}: {verdict}: {told}",
                        flush=True,
                    )


if __name__ == "__main__":
    sys.exit(main())
