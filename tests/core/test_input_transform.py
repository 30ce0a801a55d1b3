"""Transforms belong to a model's description, and are applied before the other steps."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.core.errors import ComponentNotFound, ConfigError
from nnpipe.core.input_transform import transform_from, transform_of_words
from nnpipe.core.preprocessing import check_samples, preprocess
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import TensorSpec
from nnpipe.transforms import MFCC, LogMel

SOUND = TensorSpec("sound", (None, 16000), "float32")
NOISE = np.random.default_rng(0).standard_normal((2, 16000)).astype(np.float32)


def test_options_are_read_by_the_kinds_of_the_arguments():
    found = transform_of_words(
        "MFCC", ("num_coefficients=10", "lower-hz=20", "fft_length=none", "normalise=peak")
    )
    assert found == MFCC(num_coefficients=10, lower_hz=20.0, normalise="peak")
    # For these arguments, none is a choice, and not the default of the convention.
    assert transform_of_words("LogMel", ("padding=none", "mel_norm=none")) == LogMel(
        padding="none", mel_norm="none"
    )
    for options, message in (
        (("num_mels",), "'num_mels' is no option; write NAME=VALUE"),
        (("num_mels=many",), "MFCC.num_mels: .*'many'"),
        (("num_mel=40",), "did you mean num_mels"),
        (("num_mels=0",), "0 is below the minimum 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            transform_of_words("MFCC", options)
    with pytest.raises(ComponentNotFound, match="MFFC"):
        transform_of_words("MFFC", ())


def test_a_file_names_a_transform_that_is_installed():
    meaning = InputProcessing("x", transform=MFCC(num_coefficients=10).describe())
    again = InputProcessing.from_json(meaning.to_json())
    assert again == meaning
    assert transform_from(again.transform) == MFCC(num_coefficients=10)
    assert again.format_description().startswith("MFCC, 10 coefficients of 40 mel bands")
    assert "as they are" not in again.format_description()
    with pytest.raises(ComponentNotFound):
        transform_from({"class": "os.system", "arguments": {}})
    assert (
        InputProcessing("x", transform={"class": "acme.Wavelets", "arguments": {}})
        .format_description()
        .startswith("Wavelets")
    )


@pytest.mark.parametrize(
    "given",
    [
        "MFCC",
        {"class": "MFCC"},
        {"class": 3, "arguments": {}},
        {"class": "a", "arguments": {}, "more": 1},
    ],
)
def test_a_malformed_transform_is_refused(given):
    with pytest.raises(ConfigError, match="transform of 'x' should be a class and arguments"):
        InputProcessing.from_json({"name": "x", "transform": given})


def test_the_transform_comes_before_scaling_and_quantising():
    transform = MFCC(num_coefficients=10)
    plain = transform.apply(NOISE)
    taken = TensorSpec("x", (None, 49, 10, 1), "int8", scale=0.5, zero_point=3)
    meaning = InputProcessing("x", scale=2, transform=transform.describe())
    check_samples("model", SOUND, taken, meaning)
    found = preprocess("model", {"sound": NOISE}, (taken,), {"x": meaning})["x"]
    wanted = np.clip(np.rint(plain / 2 / 0.5) + 3, -128, 127)[..., None]
    assert found.dtype == np.int8
    assert np.abs(found - wanted).max() <= 1  # numbers on the edge between two steps


def test_axes_in_another_order_are_refused():
    meaning = InputProcessing("x", transform=LogMel().describe())
    with pytest.raises(
        ConfigError, match=r"takes samples of \(40, 49\); logarithm of 40 mel bands .* \(49, 40\)"
    ):
        check_samples("model", SOUND, TensorSpec("x", (None, 40, 49), "float32"), meaning)
    check_samples("model", SOUND, TensorSpec("x", (None, 1, 49, 40), "float32"), meaning)
    check_samples("model", SOUND, TensorSpec("x", (None, 1960), "float32"), meaning)
