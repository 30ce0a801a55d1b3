"""What is said about the energy of an inference: how much, by which sensor, and what was subtracted."""

from __future__ import annotations

import numpy as np

from nnpipe.measuring.energy_figure import energy_figure, energy_source
from nnpipe.measuring.quantities import quantity
from nnpipe.report.document import Block, Paragraph
from nnpipe.report.formatting import clean, count, digits, duration
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import ranged


def energy_blocks(candidate: Candidate) -> list[Block]:
    """Return a paragraph on the energy, or on why it is not known; an empty list if it was not asked for."""
    found = energy_figure(candidate.run)
    if found is None:
        return []
    if found.value is None:
        return [Paragraph(f"Energy is not known: {clean(found.reason, 500)}.", "note")]
    series = candidate.run.series["energy"]
    seconds = float(np.sum(series["duration_ns"])) / 1e9
    watts = float(np.sum(series["joules"])) / seconds if seconds > 0 else 0.0
    idle = "" if "idle power" in energy_source(candidate.run) else "; the idle power is included"
    return [
        Paragraph(
            f"An inference takes {ranged(quantity('energy'), found)}, as measured by "
            f"{clean(energy_source(candidate.run), 400)}{idle}. {count(found.count)} calls in runs of their own took "
            f"{duration(1e9 * seconds)}, at {digits(watts)} W in all."
        )
    ]
