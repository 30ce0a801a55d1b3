"""The contract of output decoders."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnpipe.core.component import Component
from nnpipe.core.evaluation import find_nonfinite_samples
from nnpipe.core.model_metadata import ModelMetadata
from nnpipe.core.output_decoder import OutputDecoder, get_decoder
from nnpipe.core.task import get_task
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.testing.component import ComponentContract


class OutputDecoderContract(ComponentContract):
    """What every output decoder must do; subclass it and define the fixtures ``decoder``, ``io``
    and ``outputs``.

    ``outputs`` are real outputs of two samples or more, and ``io`` the inputs and outputs of the
    model that gives them. A model whose inputs say more than ``io`` (a size that ``io`` leaves
    free) also defines ``inputs``.
    """

    @pytest.fixture
    def decoder(self) -> OutputDecoder:
        raise NotImplementedError("a subclass of OutputDecoderContract gives the fixture `decoder`")

    @pytest.fixture
    def io(self) -> IOSpec:
        raise NotImplementedError("a subclass of OutputDecoderContract gives the fixture `io`")

    @pytest.fixture
    def outputs(self) -> Batch:
        raise NotImplementedError("a subclass of OutputDecoderContract gives the fixture `outputs`")

    @pytest.fixture
    def inputs(self) -> tuple[InputProcessing, ...]:
        return ()

    @pytest.fixture
    def component(self, decoder: OutputDecoder) -> Component:
        return decoder

    def test_its_tasks_are_known(self, decoder: OutputDecoder) -> None:
        for name in decoder.tasks:
            assert get_task(name).name == name

    def test_it_travels_in_a_models_meaning(self, decoder: OutputDecoder) -> None:
        told = json.loads(json.dumps(ModelMetadata(decoder=decoder.describe()).to_json()))
        assert get_decoder(ModelMetadata.from_json(told)) == decoder
        assert type(decoder).__name__ in decoder.format_description()

    def test_each_sample_is_decoded_by_itself(
        self,
        decoder: OutputDecoder,
        io: IOSpec,
        outputs: Batch,
        inputs: tuple[InputProcessing, ...],
    ) -> None:
        kept = {name: array.copy() for name, array in outputs.items()}
        together = decoder.decode(outputs, io, inputs)
        count = len(next(iter(outputs.values())))
        assert count > 1
        for place in range(count):
            alone = decoder.decode(
                {name: array[place : place + 1] for name, array in outputs.items()}, io, inputs
            )
            assert alone.keys() == together.keys()
            for name, array in alone.items():
                assert len(together[name]) == count
                # A batch of different numbers of things is padded.
                own = together[name][place][tuple(map(slice, array.shape[1:]))]
                np.testing.assert_allclose(own, array[0], rtol=1e-5, atol=1e-6)
        for name, array in kept.items():
            np.testing.assert_array_equal(outputs[name], array)

    def test_no_samples_give_no_predictions(
        self,
        decoder: OutputDecoder,
        io: IOSpec,
        outputs: Batch,
        inputs: tuple[InputProcessing, ...],
    ) -> None:
        found = decoder.decode({name: array[:0] for name, array in outputs.items()}, io, inputs)
        assert all(len(array) == 0 for array in found.values())

    @pytest.mark.parametrize("number", [np.nan, np.inf])
    def test_what_is_not_finite_is_not_lost(
        self,
        decoder: OutputDecoder,
        io: IOSpec,
        outputs: Batch,
        inputs: tuple[InputProcessing, ...],
        number: float,
    ) -> None:
        count = len(next(iter(outputs.values())))
        spoilt = {}
        for name, array in outputs.items():
            spoilt[name] = array.copy()
            if array.dtype.kind == "f":
                spoilt[name][0] = number
        if all(array.dtype.kind != "f" for array in outputs.values()):
            return  # integers are always finite
        with np.errstate(all="ignore"):
            found = decoder.decode(spoilt, io, inputs)
        lost = decoder.without_answer(spoilt, count) | find_nonfinite_samples(found, count)
        assert lost.tolist() == [True] + [False] * (count - 1)
