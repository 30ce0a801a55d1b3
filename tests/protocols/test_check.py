from __future__ import annotations

import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.protocols import _check
from nnpipe.protocols._check import BLOCK, CHECKS, CRC32, FOLD, XXH3, available, best, by_bit

SIZES = (0, 1, 7, 8, 9, 4096, 8192, 8193, 8200, 12_345, 150_528, BLOCK - 8, BLOCK, BLOCK + 1, 2 * BLOCK + 4096)


def fold_by_the_book(data: bytes) -> int:
    """The fold as its description says, word by word."""
    if len(data) <= 8192:
        return zlib.crc32(data)
    data += bytes(-len(data) % 8)
    low = high = 0
    for begin in range(0, len(data), BLOCK):
        a, b = [0] * 512, [0] * 511
        block = data[begin : begin + BLOCK]
        for i in range(len(block) // 8):
            word = int.from_bytes(block[8 * i : 8 * i + 8], "little")
            a[i % 512] ^= word
            b[i % 511] ^= word
        low = zlib.crc32(b"".join(word.to_bytes(8, "little") for word in a), low)
        high = zlib.crc32(b"".join(word.to_bytes(8, "little") for word in b), high)
    return low | high << 32


def checks() -> list[_check.Check]:
    return [check for check in CHECKS if check.bit & available()]


@pytest.mark.parametrize("size", [size for size in SIZES if size <= BLOCK + 1])
def test_the_fold_is_what_its_description_says(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert FOLD.of([data]) == fold_by_the_book(data)


def test_crc32_is_that_of_zlib_and_ethernet() -> None:
    assert CRC32.of([b"123456789"]) == 0xCBF43926
    assert FOLD.of([b"123456789"]) == 0xCBF43926


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
def test_parts_make_no_difference(check: _check.Check, size: int) -> None:
    data = random.Random(size).randbytes(size)
    whole = check.of([data])
    assert 0 <= whole < 1 << 64
    assert check.of([memoryview(data)]) == whole
    for pieces in (2, 3, 50):
        cuts = sorted(random.Random(pieces).choices(range(size + 1), k=pieces))
        parts = [data[a:b] for a, b in itertools.pairwise([0, *cuts, size])]
        assert check.of(parts) == whole


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
def test_nothing_has_the_check_zero(check: _check.Check) -> None:
    assert check.of([]) == check.of([b""]) == check.of([b"", b""]) == 0


@pytest.mark.parametrize("size", [1, 100, 8192, 9000, 20_000])
def test_the_fold_finds_every_single_flipped_bit(size: int) -> None:
    data = bytearray(random.Random(size).randbytes(size))
    right = FOLD.of([bytes(data)])
    bits = range(8 * size) if size < 1000 else random.Random(0).sample(range(8 * size), 2000)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        assert FOLD.of([bytes(data)]) != right
        data[bit // 8] ^= 1 << bit % 8


@given(st.integers(8193, BLOCK + 20_000), st.data())
def test_the_fold_finds_up_to_three_flipped_bits(size: int, data: st.DataObject) -> None:
    content = bytearray(size)
    content[:8] = b"contents"
    right = FOLD.of([bytes(content)])
    # The nastiest ones lie in columns that meet.
    steps = st.sampled_from([0, 8 * 512, 8 * 511, 16 * 512, 16 * 511, 1, 8])
    first = data.draw(st.integers(0, size - 1))
    places = {(first, data.draw(st.integers(0, 7)))}
    for _ in range(data.draw(st.integers(0, 2))):
        places.add(((first + data.draw(steps)) % size, data.draw(st.integers(0, 7))))
    for byte, bit in places:
        content[byte] ^= 1 << bit
    assert FOLD.of([bytes(content)]) != right


@given(st.integers(8193, 100_000), st.integers(0, 99_999), st.integers(0, 99_999))
def test_the_fold_finds_words_that_changed_places(size: int, one: int, other: int) -> None:
    content = bytearray(random.Random(size).randbytes(size))
    a, b = one % (size // 8) * 8, other % (size // 8) * 8
    right = FOLD.of([bytes(content)])
    content[a : a + 8], content[b : b + 8] = content[b : b + 8], content[a : a + 8]
    assert (FOLD.of([bytes(content)]) != right) == (a != b)


def test_the_best_of_what_both_have_is_chosen() -> None:
    assert best(CRC32.bit) is CRC32
    assert best(CRC32.bit | FOLD.bit) is FOLD
    assert best(CRC32.bit | FOLD.bit | XXH3.bit) is XXH3
    assert best(0) is CRC32
    assert by_bit(FOLD.bit) is FOLD
    assert by_bit(3) is None


def test_an_algorithm_is_offered_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_check, "xxhash", None)
    assert available() == CRC32.bit | FOLD.bit
    assert available(["crc32"]) == CRC32.bit
