"""The contract of input transforms."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError
from nnpipe.core.input_transform import InputTransform, transform_from
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.session import assert_one_line


class InputTransformContract(ComponentContract):
    """What every input transform must do; subclass it and define the fixtures ``transform`` and
    ``samples``.

    ``samples`` are two raw samples or more, of a shape that can be transformed; ``(n, ...)``.
    """

    @pytest.fixture
    def transform(self) -> InputTransform:
        raise NotImplementedError(
            "a subclass of InputTransformContract gives the fixture `transform`"
        )

    @pytest.fixture
    def samples(self) -> npt.NDArray[np.generic]:
        raise NotImplementedError(
            "a subclass of InputTransformContract gives the fixture `samples`"
        )

    @pytest.fixture
    def component(self, transform: InputTransform) -> Component:
        return transform

    def test_it_travels_in_a_models_meaning(self, transform: InputTransform) -> None:
        meaning = InputProcessing("x", transform=transform.describe())
        told = InputProcessing.from_json(json.loads(json.dumps(meaning.to_json()))).transform
        assert told is not None
        assert transform_from(told) == transform
        assert transform.format_description()
        assert "\n" not in transform.format_description()

    def test_each_sample_is_transformed_by_itself(
        self, transform: InputTransform, samples: npt.NDArray[np.generic]
    ) -> None:
        kept = samples.copy()
        together = transform.apply(samples)
        assert len(samples) > 1
        assert together.shape == (len(samples), *transform.shape(samples.shape[1:]))
        for place in range(len(samples)):
            alone = transform.apply(samples[place : place + 1])
            assert alone.dtype == together.dtype
            np.testing.assert_allclose(alone[0], together[place], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(samples, kept)

    def test_no_samples_give_none(
        self, transform: InputTransform, samples: npt.NDArray[np.generic]
    ) -> None:
        assert transform.apply(samples[:0]).shape == (0, *transform.shape(samples.shape[1:]))

    def test_samples_that_cannot_be_transformed_are_refused_in_one_line(
        self, transform: InputTransform, samples: npt.NDArray[np.generic]
    ) -> None:
        strange = (*samples.shape[1:], 3, 5, 7)
        with pytest.raises(ConfigError) as caught:
            transform.shape(strange)
        assert_one_line(caught.value)
