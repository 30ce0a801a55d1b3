"""A kernel is found among a file's bytes, however it lies there, and what is not in its place is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

from nnpipe.analysis.compiled_weights import Kernel, KernelMatch, held_in
from nnpipe.core.claims import Claim

RANDOM = np.random.default_rng(3)
KERNELS = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((12, 8, 3, 3), (16, 12, 3, 3), (10, 64))]
ORDERS = {4: [(0, 1, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0)], 2: [(0, 1), (0, 1), (1, 0)]}


def file_of(kernels: list[Any], order: int = 0, shift: int = 0, seed: int = 0) -> bytes:
    """Lay kernels one behind the other, in an order of axes, among bytes of something else."""
    random = np.random.default_rng(seed)
    parts = [random.bytes(shift)]
    for kernel in kernels:
        turned = np.ascontiguousarray(kernel.transpose(ORDERS[kernel.ndim][order]))
        parts += [turned.tobytes(), random.bytes(4 * int(random.integers(1, 40)) // turned.itemsize * turned.itemsize)]
    return b"".join(parts)


def looked_up(kernels: list[Any], content: bytes, claim: Claim = "float") -> list[KernelMatch]:
    wanted = [Kernel(f"op{n}", kernel, (0,)) for n, kernel in enumerate(KERNELS)]
    assert len(wanted) == len(kernels)
    return held_in(content, wanted, (claim,))


def rounded(kernel: Any) -> Any:
    """As integers, the largest weight of each channel being 127."""
    largest = np.abs(kernel).reshape(len(kernel), -1).max(1).reshape(-1, *[1] * (kernel.ndim - 1))
    return np.rint(kernel / np.where(largest == 0, 1, largest) * 127).astype(np.int8)


@settings(deadline=None, max_examples=examples(20))
@given(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9))
def test_sound_kernels_are_found_in_any_order_scale_and_place(order: int, shift: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scaled = [k * random.uniform(0.2, 5, (len(k), *[1] * (k.ndim - 1))).astype(np.float32) for k in KERNELS]
    for held, kernel in zip(looked_up(scaled, file_of(scaled, order, shift, seed)), KERNELS, strict=True):
        assert held.channels == len(kernel)
        assert (held.placed, held.wrong) == (tuple(range(len(kernel))), ())


@pytest.mark.parametrize(("claim", "made"), [("int8", rounded), ("float16", lambda k: k.astype(np.float16))])
def test_rounded_kernels_are_found(claim: Claim, made: Any) -> None:
    for order in range(3):
        there = [made(kernel) for kernel in KERNELS]
        for held, kernel in zip(looked_up(there, file_of(there, order), claim), KERNELS, strict=True):
            assert (len(held.placed), held.wrong) == (len(kernel), ())


@pytest.mark.parametrize("claim", ["float", "int8"])
def test_exchanged_silent_and_other_channels_are_told_apart(claim: Claim) -> None:
    spoilt = [kernel.copy() for kernel in KERNELS]
    spoilt[0][[2, 7]] = spoilt[0][[7, 2]]
    spoilt[1][4] = 0
    spoilt[2][5] = RANDOM.standard_normal(64)
    there = [rounded(kernel) if claim == "int8" else kernel for kernel in spoilt]
    swapped, silent, other = looked_up(there, file_of(there), claim)
    assert swapped.moved == {2: 7, 7: 2}
    assert swapped.wrong == (2, 7)
    assert silent.silent == (4,)
    assert other.other == (5,)


def test_a_kernel_with_height_and_width_exchanged_lies_in_another_order() -> None:
    there = [KERNELS[0].transpose(0, 1, 3, 2), *KERNELS[1:]]
    turned, straight, _ = looked_up(there, file_of(there))
    assert turned.order.index(1) > turned.order.index(2)
    assert straight.order.index(1) < straight.order.index(2)


def test_a_kernel_that_is_not_there_is_not_found() -> None:
    there = [RANDOM.standard_normal(KERNELS[0].shape).astype(np.float32), *KERNELS[1:]]
    lost, *others = looked_up(there, file_of(there))
    assert lost.channels == 12
    assert lost.found == ()
    assert all(not held.wrong and len(held.placed) == held.channels for held in others)


@pytest.mark.parametrize("claim", ["float", "int8"])
def test_a_kernel_with_noise_in_all_channels_is_found_and_wrong(claim: Claim) -> None:
    noise = 0.3 * RANDOM.standard_normal(KERNELS[0].shape).astype(np.float32)
    spoilt = [KERNELS[0] + noise, *KERNELS[1:]]
    there = [rounded(kernel) if claim == "int8" else kernel for kernel in spoilt]
    noisy, *others = looked_up(there, file_of(there), claim)
    assert noisy.other == tuple(range(12))
    assert all(not held.wrong and len(held.placed) == held.channels for held in others)


def test_a_kernel_whose_input_channels_were_scaled_is_as_it_should_be() -> None:
    factors = RANDOM.uniform(0.3, 3, (1, 8, 1, 1)).astype(np.float32)  # the layer before is scaled the other way round
    there = [rounded(kernel) for kernel in (KERNELS[0] * factors, *KERNELS[1:])]
    aligned, *_ = looked_up(there, file_of(there), "int8")
    assert (len(aligned.placed), aligned.wrong) == (12, ())


def test_a_first_layer_in_half_the_range_of_integers_is_found() -> None:
    there = [rounded(KERNELS[0] / 1.0), *map(rounded, KERNELS[1:])]
    there[0] = np.rint(there[0] / 127 * 63.5).astype(np.int8)
    halved, *_ = looked_up(there, file_of(there), "int8")
    assert (len(halved.placed), halved.wrong) == (12, ())


def test_integers_of_a_source_whose_range_does_not_fit_their_type_are_all_looked_for() -> None:
    kernel = RANDOM.integers(-120, 120, (16, 9)).astype(np.int8)
    spoilt = kernel.copy()
    spoilt[5] = 0
    (held,) = held_in(file_of([spoilt]), [Kernel("op", kernel, (0,))], ("int8",))
    assert (held.channels, held.silent) == (16, (5,))


def test_integers_tell_whether_each_channel_has_a_scale_of_its_own() -> None:
    for made, scaled in ((rounded, True), (lambda kernel: np.rint(kernel / np.abs(kernel).max() * 127), False)):
        kernels = [
            made(kernel * np.linspace(0.1, 1, len(kernel)).reshape(-1, *[1] * (kernel.ndim - 1))) for kernel in KERNELS
        ]
        there = [kernel.astype(np.int8) for kernel in kernels]
        assert [held.scaled for held in looked_up(there, file_of(there), "int8")] == [scaled] * 3


def test_channels_that_do_nothing_are_not_looked_for() -> None:
    dead = KERNELS[0].copy()
    dead[3] *= 1e-6
    (held,) = held_in(file_of([np.where(np.abs(dead) < 1e-5, 0, dead)]), [Kernel("op", dead, (0,))])
    assert (held.channels, held.wrong) == (11, ())


@pytest.mark.parametrize("claim", ["float", "int8"])
def test_channels_that_look_alike_are_in_their_own_places(claim: Claim) -> None:
    angles = np.arange(32)[:, None] / 10000 ** (np.arange(32) / 31)
    places = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(
        np.float32
    )  # of positions; slow ones alike
    gains = np.ones(500, np.float32).tobytes()  # of normalisations: they look like slow ones, too
    (held,) = held_in(gains + places.tobytes(), [Kernel("add", places, (1,))], (claim,))
    assert (held.moved, held.wrong) == ({}, ())
    swapped = places.copy()
    swapped[:, [2, 5]] = swapped[:, [5, 2]]
    (held,) = held_in(swapped.tobytes(), [Kernel("add", places, (1,))], (claim,))
    assert held.moved == {2: 5, 5: 2}
