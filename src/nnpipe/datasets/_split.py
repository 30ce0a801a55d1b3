"""Stratified splits of samples into train, validation and test without leakage."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.dataset import SPLITS, Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text

# Digests of files, computed once and cached until a file changes.
#
# They are stored in the user's cache (``$XDG_CACHE_HOME/nnpipe``, or ``~/.cache/nnpipe``), one file
# for each folder of data.  If nothing can be written there, files are read every time.

_SCHEMA = 1
_LIMIT = 1 << 28
# ns; a file that changes twice within one tick of the clock looks unchanged
_SETTLED = 2_000_000_000
_BLOCK = 1 << 20

_Stamp = tuple[int, int, int, int]


def compute_file_digests(paths: Sequence[Path]) -> list[str]:
    """Return a digest of the content of each file; only files without a cached digest are read."""
    if not paths:
        return []
    whole = [path.absolute() for path in paths]
    folder = Path(os.path.commonpath([path.parent for path in whole]))
    store = _get_cache_path(folder)
    known = _read_cache(store)
    found, kept = [], {}
    now = time.time_ns()
    for path in whole:
        name, stamp = os.path.relpath(path, folder), _get_stamp(path)
        digest = (
            known[name][1] if name in known and known[name][0] == stamp else _compute_digest(path)
        )
        found.append(digest)
        if now - max(stamp[1], stamp[2]) > _SETTLED:
            kept[name] = (stamp, digest)
    if kept.items() - known.items():
        _write_cache(store, known | kept)
    return found


def _get_stamp(path: Path) -> _Stamp:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def _compute_digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _get_cache_path(folder: Path) -> Path:
    said = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(said) if Path(said).is_absolute() else Path.home() / ".cache"
    return (
        base
        / "nnpipe"
        / "contents"
        / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}.json"
    )


def _read_cache(store: Path) -> dict[str, tuple[_Stamp, str]]:
    try:
        if store.stat().st_size > _LIMIT:
            return {}
        said = parse_json(store.read_bytes())
        if said["schema"] != _SCHEMA:
            return {}
        return {
            str(name): ((int(size), int(changed), int(moved), int(node)), str(digest))
            for name, (size, changed, moved, node, digest) in said["files"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}  # missing or damaged: files are read


def _write_cache(store: Path, known: dict[str, tuple[_Stamp, str]]) -> None:
    files = {name: [*stamp, digest] for name, (stamp, digest) in known.items()}
    with suppress(OSError, UnicodeError):
        write_text(store, json.dumps({"schema": _SCHEMA, "files": files}))


TRAIN, VALIDATION, TEST = range(3)
"""Codes of the splits, in the order of :data:`nnpipe.core.dataset.SPLITS`."""

Indices = npt.NDArray[np.int64]

_WORDS = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "dev": VALIDATION,
    "test": TEST,
    "testing": TEST,
}
_BESIDE = frozenset(
    (
        "set",
        "data",
        "dataset",
        "split",
        "image",
        "images",
        "img",
        "imgs",
        "picture",
        "pictures",
        "sound",
        "sounds",
    )
)
_LETTERS = re.compile(r"[A-Za-z]+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def find_splits(names: Iterable[str]) -> dict[str, int]:
    """Return those names that are names of splits, each with the code of its split.

    Case and words such as "set" and "images" do not matter, nor does what all names of splits
    share.

    Examples
    --------
    >>> find_splits(["Training", "test_set", "valid", "cats"])
    {'Training': 0, 'test_set': 2, 'valid': 1}
    >>> find_splits(["seg_train", "seg_test"]), find_splits(["train station", "bus station"])
    ({'seg_train': 0, 'seg_test': 2}, {})
    """
    found: dict[str, int] = {}
    beside: dict[str, frozenset[str]] = {}
    for name in names:
        words = [word for part in _LETTERS.findall(name) for word in _split_words(part)]
        codes = [_WORDS[word] for word in words if word in _WORDS]
        if len(codes) == 1:
            found[name] = codes[0]
            beside[name] = frozenset(
                word for word in words if word not in _BESIDE and word not in _WORDS
            )
    shared = frozenset.intersection(*beside.values()) if len(beside) > 1 else frozenset()
    return {name: code for name, code in found.items() if beside[name] == shared}


def _split_words(letters: str) -> list[str]:
    """Return the words of letters such as "TrainImages", in lower case; "set" may follow in any
    case: "TRAINset".
    """
    whole = letters.lower()
    stem = whole.removesuffix("set")
    return [stem] if stem in _WORDS else [word.lower() for word in _WORD.findall(letters)]


def get_split_index(name: str) -> int:
    """Return the place of a split in :data:`nnpipe.core.dataset.SPLITS`.

    Raises
    ------
    ConfigError
        If there is no such split.
    """
    if name not in SPLITS:
        raise ConfigError(f"there is no split {name!r}; use one of {', '.join(SPLITS)}")
    return SPLITS.index(name)


def split_samples(
    strata: npt.NDArray[np.integer],
    official: npt.NDArray[np.integer] | None,
    groups: Callable[[], npt.NDArray[np.integer]],
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
) -> dict[str, Indices]:
    """Return the split of samples, which keeps the published split as far as there is one.

    A published test or validation split stays unchanged.  Missing splits are
    drawn from the training samples: first the test split, ``test_fraction`` of
    them, then the validation split, ``validation_fraction`` of the rest.

    Parameters
    ----------
    strata
        ``(n,)`` integers, such as classes; each keeps its share in every split.
    official
        ``(n,)`` published codes TRAIN, VALIDATION and TEST; ``None`` without a published split.
    groups
        Returns ``(n,)`` integers; samples with equal numbers are duplicates and
        stay together.  Called only if a split is drawn.
    validation_fraction, test_fraction
        Fractions from 0 to 1.
    seed
        The same seed gives the same split on every machine and numpy version.

    Returns
    -------
    dict
        Indices by split name, ``(m,)`` int64, ascending; disjoint, together all samples.
    """
    codes = np.zeros(len(strata), np.int8) if official is None else np.array(official, np.int8)
    for code, fraction, purpose in ((TEST, test_fraction, 1), (VALIDATION, validation_fraction, 2)):
        if fraction > 0 and not np.any(codes == code):
            pool = np.flatnonzero(codes == TRAIN)
            # Looking for duplicates reads every sample, which all or none of them do not need.
            if fraction < 1 and len(pool):
                pool = pool[draw(strata[pool], groups()[pool], fraction, 2 * seed + purpose)]
            codes[pool] = code
    return {
        name: np.flatnonzero(codes == code).astype(np.int64) for code, name in enumerate(SPLITS)
    }


def draw(
    strata: npt.NDArray[np.integer], groups: npt.NDArray[np.integer], fraction: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Choose ``round(n * fraction)`` samples; the number in each stratum differs from its share by
    less than one.

    Groups of duplicates are chosen as a whole or not at all.  With groups of
    several samples, a stratum can differ from its share by the size of a group.

    Parameters
    ----------
    strata, groups
        ``(n,)`` each, as in :func:`split_samples`.
    fraction
        Fraction from 0 to 1.
    seed
        Seed of the choice.

    Returns
    -------
    ndarray
        ``(n,)`` bool, true for chosen samples.
    """
    chosen = np.zeros(len(strata), np.bool_)
    if not len(strata):
        return chosen
    # A group that spans strata (one picture with two labels) counts for the stratum of its first
    # sample.
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    home = strata[first]
    sizes = np.bincount(group)
    keys = compute_random_keys(np.asarray(first, np.uint64), seed)
    taken = np.zeros(len(first), np.bool_)
    kinds = np.unique(home)
    members = [np.flatnonzero(home == kind) for kind in kinds]
    # Large groups first, so that small ones can fill the rest.
    for mine, quota in zip(
        members, _compute_quotas([int(sizes[m].sum()) for m in members], fraction), strict=True
    ):
        for index in mine[np.lexsort((keys[mine], -sizes[mine]))]:
            if sizes[index] <= quota:
                taken[index] = True
                quota -= int(sizes[index])
    chosen[:] = taken[group]
    return chosen


def _compute_quotas(counts: list[int], fraction: float) -> list[int]:
    """Return integers nearest to ``counts * fraction`` whose sum is the rounded total (largest
    remainders).
    """
    exact = [count * fraction for count in counts]
    quotas = [math.floor(share + 1e-9) for share in exact]
    lacking = round(sum(counts) * fraction) - sum(quotas)
    by_remainder = sorted(range(len(counts)), key=lambda i: (quotas[i] - exact[i], i))
    for i in by_remainder[: max(0, lacking)]:
        quotas[i] += 1
    return quotas


def compute_random_keys(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return pseudorandom 64-bit keys of numbers that never change (SplitMix64, Steele et al.
    2014).

    numpy's generators may change between versions; a split that published
    results depend on must not.
    """
    start = _finish(np.array([seed % (1 << 64)], np.uint64))
    return _finish(start + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


def _finish(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        # products of arrays wrap around without a warning
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def compute_array_groups(arrays: Iterable[npt.NDArray[np.generic]]) -> Indices:
    """Return group numbers that are equal for samples with equal bytes in all ``arrays``.

    Parameters
    ----------
    arrays
        Arrays ``(n, ...)``.

    Returns
    -------
    ndarray
        ``(n,)`` int64.
    """
    tables = [
        np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for array in arrays
    ]
    digests = (
        b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in rows)
        for rows in zip(*tables, strict=True)
    )
    return _index_keys(digests)


def compute_file_groups(paths: Iterable[Path]) -> Indices:
    """Return group numbers, ``(n,)`` int64, that are equal for files with equal content.

    Only files of equal length are read; their digests are cached until they change.
    """
    paths = list(paths)
    sizes = [path.stat().st_size for path in paths]
    counts = Counter(sizes)
    shared = [path for path, size in zip(paths, sizes, strict=True) if counts[size] > 1]
    known = dict(zip(shared, compute_file_digests(shared), strict=True))
    return _index_keys((size, known.get(path, "")) for path, size in zip(paths, sizes, strict=True))


def _index_keys(keys: Iterable[object]) -> Indices:
    seen: dict[object, int] = {}
    return np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64)


class DrawnSplitsDataset(Dataset):
    """Base of data sets whose splits are drawn, stratified and without leakage, as far as none
    are published.
    """

    abstract: ClassVar[bool] = True

    @property
    @abstractmethod
    def strata(self) -> npt.NDArray[np.integer]:
        """Integers ``(n,)``, such as classes; each keeps its share in every drawn split."""

    @property
    def official(self) -> npt.NDArray[np.integer] | None:
        """The published split, ``(n,)``: 0 for training, 1 for validation, 2 for test; ``None``
        without one.
        """
        return None

    @abstractmethod
    def groups(self) -> Indices:
        """Return integers ``(n,)``; samples with equal ones are duplicates, and are never in two
        drawn splits.
        """

    def split(self, name: str) -> Indices:
        """Return the indices of one split; duplicates are never in two drawn splits."""
        get_split_index(name)
        return np.array(self._splits[name])

    @cached_property
    def _splits(self) -> dict[str, Indices]:
        return split_samples(
            self.strata,
            self.official,
            self.groups,
            validation_fraction=self.validation_fraction,
            test_fraction=self.test_fraction,
            seed=self.split_seed,
        )
