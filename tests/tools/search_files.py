"""Made-up results of searches, as the content of their files."""

from __future__ import annotations

from typing import Any

import numpy as np


def made_up_search(
    trials: int = 60, *, objectives: int = 1, uncertain: bool = False
) -> dict[str, Any]:
    """A search of four parameters, one of which exists in some trials only, with pruned and
    failed trials.
    """
    random = np.random.default_rng(0)
    names = {"accuracy": "maximize", "size <b>": "minimize", "latency": "minimize"}
    chosen = dict(list(names.items())[:objectives])
    rows = []
    for number in range(trials):
        rate, units = float(10 ** random.uniform(-5, -1)), int(random.integers(8, 512))
        configuration: dict[str, Any] = {
            "rate": rate,
            "units": units,
            "optimiser": str(random.choice(["adam", "sgd", "<i>odd</i>"])),
            "bias": True,
        }
        if configuration["optimiser"] == "sgd":
            configuration["momentum"] = float(random.uniform(0, 0.9))
        accuracy = 0.95 - 0.02 * (np.log10(rate) + 2.5) ** 2
        values = {
            "accuracy": accuracy,
            "size <b>": 4.0 * units,
            "latency": units / 7 + random.random(),
        }
        row: dict[str, Any] = {
            "number": number,
            "state": "finished",
            "configuration": configuration,
            "seconds": 1.0 + number / 100,
            "values": {name: values[name] for name in chosen},
            "reports": [[step, accuracy * (1 - 0.5**step)] for step in range(1, 6)],
        }
        if number % 7 == 3:
            row |= {
                "state": "pruned",
                "values": {"accuracy": accuracy / 2},
                "reports": row["reports"][:2],
            }
        elif number % 11 == 5:
            row |= {
                "state": "failed",
                "values": {},
                "message": "MemoryError: <script>alert(1)</script>",
            }
        elif uncertain:
            row["intervals"] = {
                name: [value * 0.97, value * 1.03] for name, value in row["values"].items()
            }
        rows.append(row)
    shares = [
        {"name": name, "share": share, "low": 0.9 * share, "high": min(1.1 * share, 1.0)}
        for name, share in {
            "rate": 0.7,
            "units": 0.2,
            "momentum": 0.06,
            "optimiser": 0.04,
            "bias": 0.0,
        }.items()
    ]
    return {
        "schema": 1,
        "kind": "nnpipe search",
        "title": "Widths",
        "objectives": chosen,
        "parameters": {
            "rate": {"low": 1e-5, "high": 0.1, "log": True, "told": "from 1e-05 to 0.1, by ratios"},
            "units": {"low": 8, "high": 512, "log": False, "told": "whole numbers"},
            "optimiser": {
                "choices": ["adam", "sgd", "<i>odd</i>"],
                "told": "adam, sgd, <i>odd</i>",
            },
            "momentum": {
                "low": 0,
                "high": 0.9,
                "log": False,
                "told": "from 0 to 0.9, when optimiser == 'sgd'",
            },
            "bias": {"choices": [False, True], "told": "false, true"},
        },
        "facts": {"Sampler": "tpe"},
        "importance": {
            name: {
                "trials": trials,
                "remark": "",
                "additive": shares,
                "ped_anova": shares,
                "fanova": [],
            }
            for name in chosen
        },
        "trials": rows,
    }
