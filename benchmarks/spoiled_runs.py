"""Whether runs that are spoilt on purpose are found out, with the right reason, and sound ones left
in peace.

    python benchmarks/spoiled_runs.py            # 20 sets of fifty spoilt and fifty sound runs
    python benchmarks/spoiled_runs.py --write DIR  # also write the first set as result files

In each set ten runs are throttled, ten loaded, ten too few, ten have a clock
that jumps, and ten drift.  Seeds are those of the command line; thresholds
were chosen on others (below 200).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _spoiling import SPOILT, run_of, sound
from _table import EPYC, report

from nnpipe.measuring.diagnosis import diagnose
from nnpipe.measuring.run import Run


def spoilt_runs(seed: int, each: int = 10) -> Iterator[tuple[str, str, Run]]:
    """Make spoilt runs: what spoilt them, in which way, and the run."""
    for number, (kind, (spoil, _)) in enumerate(SPOILT.items()):
        for index in range(each):
            random = np.random.default_rng([seed, number, index])
            scene = spoil(random)
            yield kind, scene.way, run_of(scene, random, f"{kind} {index}")


def sound_runs(seed: int, number: int = 50) -> Iterator[Run]:
    """Make sound runs."""
    for index in range(number):
        random = np.random.default_rng([seed, 99, index])
        yield run_of(sound(random), random, f"sound {index}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000, help="of the first set")
    parser.add_argument("--write", type=Path, help="folder for the first set, as result files")
    parser.add_argument("--quick", action="store_true", help="3 sets")
    parser.add_argument("--show", action="store_true", help="tell each run that was judged wrongly")
    arguments = parser.parse_args()
    found, suspected = [], []
    right: Counter[str] = Counter()
    false: Counter[str] = Counter()
    sets = 3 if arguments.quick else arguments.sets
    for seed in range(arguments.seed, arguments.seed + sets):
        hits = 0
        for kind, way, run in spoilt_runs(seed):
            kinds = {doubt.kind for doubt in diagnose(run)}
            hit = bool(kinds & SPOILT[kind][1])
            hits += hit
            right[kind] += hit
            if arguments.show and not hit:
                print(seed, run.title, way, len(run.series["inference"]), sorted(kinds))
            if arguments.write is not None and seed == arguments.seed:
                arguments.write.mkdir(parents=True, exist_ok=True)
                run.write(arguments.write / f"{run.title.replace(' ', '-')}.json")
        alarms = 0
        for run in sound_runs(seed):
            doubts = diagnose(run)
            alarms += bool(doubts)
            false.update(doubt.kind for doubt in doubts)
            if arguments.show and doubts:
                print(seed, run.title, len(run.series["inference"]), doubts)
            if arguments.write is not None and seed == arguments.seed:
                run.write(arguments.write / f"{run.title.replace(' ', '-')}.json")
        found.append(hits)
        suspected.append(alarms)
    print(
        f"{sets} sets of 50 spoilt and 50 sound runs, seeds {arguments.seed} to "
        f"{arguments.seed + sets - 1}"
    )
    for kind in SPOILT:
        print(
            f"  {kind:12} {right[kind]:5} of {10 * sets} found with the right reason "
            f"({right[kind] / sets / 10:.1%})"
        )
    print(
        f"  sound        {sum(suspected):5} of {50 * sets} suspected "
        f"({sum(suspected) / sets / 50:.2%}) {dict(false)}"
    )
    print(
        f"  spoilt found in a set: least {min(found)}, mean {np.mean(found):.2f}; at least 48 in "
        f"{sum(hits >= 48 for hits in found)} of {sets} sets"
    )
    print(
        f"  sound suspected in a set: most {max(suspected)}, mean {np.mean(suspected):.2f}; at "
        f"most 1 in {sum(alarms <= 1 for alarms in suspected)} of {sets} sets"
    )
    holds = min(found) >= 48 and max(suspected) <= 1
    return report(
        [],
        "spoilt runs found with the right reason",
        min(found),
        "of 50, worst set",
        48,
        min(found) / 48,
        f">= 48, and <= 1 sound run suspected ({max(suspected)} in the worst set)",
        holds,
        seen_on=EPYC,
    )


if __name__ == "__main__":
    sys.exit(main())
