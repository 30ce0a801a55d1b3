"""Two models on the same samples: differences hold their stated level, and oracles agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.analysis.quality_intervals import compare_accuracies, compute_mcnemar_p_value

stats = ImportedWhenUsed("scipy.stats")


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (0, 1), (5, 5), (3, 14), (120, 80), (2000, 2100)]
)
def test_mcnemar_is_the_binomial_test_on_the_samples_that_differ(gained, lost):
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert compute_mcnemar_p_value(gained, lost) == pytest.approx(expected)
    assert compute_mcnemar_p_value(gained, lost) == compute_mcnemar_p_value(lost, gained)


def test_a_paired_difference_depends_on_the_samples_that_differ():
    difference, low, high = compare_accuracies(gained=12, lost=2, samples=360)
    assert difference == pytest.approx(10 / 360)
    assert 0 < low < difference < high
    even = compare_accuracies(gained=7, lost=7, samples=360)
    assert even[0] == 0
    assert even[1] == pytest.approx(-even[2])
    nothing = compare_accuracies(gained=0, lost=0, samples=10)
    assert nothing[1] < 0 < nothing[2]
    assert compare_accuracies(gained=0, lost=1, samples=1)[1] >= -1


@pytest.mark.parametrize(("gain", "loss"), [(0.02, 0.02), (0.1, 0.03), (0.0, 0.15), (0.3, 0.3)])
def test_the_interval_of_a_paired_difference_holds_the_true_one_about_95_times_in_100(gain, loss):
    samples, held, log = 60, 0.0, np.log
    for gained in range(samples + 1):
        for lost in range(samples + 1 - gained):
            _, low, high = compare_accuracies(gained, lost, samples)
            if low <= gain - loss <= high:
                # The exact probability of these counts: the trinomial distribution.
                ways = math.lgamma(samples + 1) - sum(
                    math.lgamma(count + 1) for count in (gained, lost, samples - gained - lost)
                )
                chances = ((gained, gain), (lost, loss), (samples - gained - lost, 1 - gain - loss))
                if all(chance > 0 or not count for count, chance in chances):
                    held += math.exp(
                        ways + sum(count * log(chance) for count, chance in chances if count)
                    )
    assert held > 0.93
