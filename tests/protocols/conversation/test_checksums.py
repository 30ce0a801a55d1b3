from __future__ import annotations

import itertools
import random

import pytest

from nnpipe.protocols.conversation.frame import (
    CHECKS,
    CRC32,
    XXH3,
    Check,
    find_check,
    get_check_bits,
    select_check,
)

SIZES = (0, 1, 7, 8, 9, 240, 241, 4096, 8192, 8193, 12_345, 150_528, 2_000_001)


def test_crc32_is_that_of_zlib_and_ethernet() -> None:
    assert CRC32.of([b"123456789"]) == 0xCBF43926


def test_xxh3_is_that_of_its_specification() -> None:
    assert XXH3.of([b"a"]) == 0xE6C632B61E964E1F
    assert XXH3.of([b"abc"]) == 0x78AF5F94892F3950


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_parts_make_no_difference(check: Check, size: int) -> None:
    data = random.Random(size).randbytes(size)
    whole = check.of([data])
    assert 0 <= whole < 1 << 64
    assert check.of([memoryview(data)]) == whole
    for pieces in (2, 3, 50):
        cuts = sorted(random.Random(pieces).choices(range(size + 1), k=pieces))
        parts = [data[a:b] for a, b in itertools.pairwise([0, *cuts, size])]
        assert check.of(parts) == whole


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_nothing_has_the_check_zero(check: Check) -> None:
    assert check.of([]) == check.of([b""]) == check.of([b"", b""]) == 0


@pytest.mark.parametrize("size", [1, 100, 8192, 20_000])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_single_flipped_bit_is_found(check: Check, size: int) -> None:
    data = bytearray(random.Random(size).randbytes(size))
    right = check.of([bytes(data)])
    bits = range(8 * size) if size < 1000 else random.Random(0).sample(range(8 * size), 2000)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        assert check.of([bytes(data)]) != right
        data[bit // 8] ^= 1 << bit % 8


def test_the_best_of_what_both_have_is_chosen() -> None:
    assert select_check(CRC32.bit) is CRC32
    assert select_check(CRC32.bit | XXH3.bit) is XXH3
    assert select_check(0) is CRC32
    assert find_check(XXH3.bit) is XXH3
    assert find_check(3) is None


def test_crc32_is_always_offered() -> None:
    assert get_check_bits() == CRC32.bit | XXH3.bit
    assert get_check_bits([]) == get_check_bits(["crc32"]) == CRC32.bit
    assert get_check_bits(["xxh3"]) == CRC32.bit | XXH3.bit
