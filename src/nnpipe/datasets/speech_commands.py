"""Speech Commands: spoken words of one second, for keyword spotting."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.tensors import Batch
from nnpipe.datasets._class_folders import Listing, find_files, list_folders
from nnpipe.datasets._download import RemoteFile, fetch
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION, compute_random_keys
from nnpipe.datasets.extract import extract
from nnpipe.datasets.in_memory import check_indices
from nnpipe.datasets.wav_files import SUFFIXES, WavFilesDataset, read_clip

SILENCE, UNKNOWN, NOISE = "_silence_", "_unknown_", "_background_noise_"
"""Names of the two classes that are no words, and of the folder of noise."""

_LISTS = {"validation_list.txt": VALIDATION, "testing_list.txt": TEST}
_LIST_LIMIT = 64 << 20  # bytes
_MOST_WAVS = (1 << 27) - 1  # per class; a constant of the published split
_NOISE_SECONDS = 120
_MAX_BYTES = 8 << 30
# Checksum and size: tensorflow/datasets, datasets/speech_commands/checksums.tsv.
_ARCHIVE = RemoteFile(
    "speech_commands_v0.02.tar.gz",
    (
        "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
        "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    ),
    "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
    2_428_923_189,
)


class SpeechCommandsDataset(WavFilesDataset):
    """Google's Speech Commands (Warden, arXiv:1804.03209): ten spoken words, other words and
    silence.

    ``dataset_root`` holds one folder of wav files per word.  The split is that of
    ``validation_list.txt`` and ``testing_list.txt``; without them, it is drawn as they were, by a
    hash of the speaker in the file's name.

    The class ``_unknown_`` is a sample of the words that are not in ``words``; ``_silence_`` is a
    part of a recording in ``_background_noise_`` at a random volume.  Each is as large as its
    fraction of the wanted words of a split. Training samples are shifted in time and mixed with
    noise, as in TensorFlow's training script; what is drawn for a sample depends on ``split_seed``
    alone.

    A folder with ``_silence_`` or ``_unknown_`` in it is the published test set: all of it is the
    test split.
    """

    dataset_root: Path = argument(
        Path("data/speech_commands"), help="folder of the words' folders, or the archive's"
    )
    words: tuple[str, ...] = argument(
        ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes"),
        help="words to tell apart, in order of class number; all for every folder there is",
    )
    extra_classes: Literal["last", "first"] = argument(
        "last",
        help="whether _silence_ and _unknown_ come after the words, as in TensorFlow Datasets and "
        "MLPerf Tiny, or before them, as in TensorFlow's training script",
    )
    test_fraction: float = argument(
        0.1,
        help="part of the speakers for testing where there is no list",
        minimum=0.0,
        maximum=1.0,
    )
    silence_fraction: float = argument(
        0.1,
        help="samples of silence, as a fraction of the words' samples; 0 for no such class",
        minimum=0,
        maximum=10,
    )
    unknown_fraction: float = argument(
        0.1,
        help="samples of other words, as a fraction of the words' samples; 0 for no such class",
        minimum=0,
        maximum=10,
    )
    noise_fraction: float = argument(
        0.8,
        help="fraction of the training samples that are mixed with background noise",
        minimum=0,
        maximum=1,
    )
    noise_volume: float = argument(0.1, help="greatest volume of that noise", minimum=0, maximum=1)
    time_shift: float = argument(
        0.1, help="greatest shift of training samples in seconds", minimum=0, maximum=3600
    )

    def validate(self) -> None:
        """Check the words."""
        super().validate()
        if not self.words or len(set(self.words)) < len(self.words):
            raise ConfigError(
                f"words must be one or more different words, not {', '.join(self.words) or 'none'}"
            )
        for name in (SILENCE, UNKNOWN, NOISE):
            if name in self.words:
                raise ConfigError(f"{name} is no word; see silence_fraction and unknown_fraction")

    def download(self) -> None:
        """Download the archive, 2.4 GB, and extract it."""
        if not self.dataset_root.is_dir() or not list_folders(self.dataset_root):
            extract(fetch(_ARCHIVE, self.dataset_root), self.dataset_root, max_bytes=_MAX_BYTES)

    def origin(self) -> Mapping[str, Any]:
        """Return the source and the licence."""
        return {"name": "Speech Commands v0.02", "url": _ARCHIVE.urls[0], "licence": "CC BY 4.0"}

    def list_files(self) -> Listing:
        """Return the clips; those of silence without a recording have the folder of noise as
        their path.
        """
        root = self.dataset_root
        folders = {path.name: path for path in list_folders(root)} if root.is_dir() else {}
        found = {
            name: find_files(path, SUFFIXES) for name, path in folders.items() if name != NOISE
        }
        if not any(found.values()):
            raise DatasetError(
                f"{root} holds no folders of wav files, one for each word; add --download-dataset, "
                f"or unpack {_ARCHIVE.name} there"
            )
        spoken = sorted(name for name in found if name not in (SILENCE, UNKNOWN))
        words = tuple(spoken) if self.words == ("all",) else self.words
        for word in words:
            if not found.get(word):
                raise DatasetError(
                    f"{root / word} holds no wav files; --words names the words, there are: "
                    f"{', '.join(spoken)}"
                )
        others = [name for name in spoken if name not in words]
        if SILENCE in found or UNKNOWN in found:
            return self._build_test_listing(found, words)
        return self._draw_listing(found, words, others)

    def _build_test_listing(
        self, found: Mapping[str, Sequence[Path]], words: tuple[str, ...]
    ) -> Listing:
        names = self._list_class_names(words, SILENCE in found, UNKNOWN in found)
        paths = [path for name in names for path in found[name]]
        labels = [number for number, name in enumerate(names) for _ in found[name]]
        return Listing(
            tuple(paths), np.array(labels, np.int64), names, np.full(len(paths), TEST, np.int8)
        )

    def _draw_listing(
        self, found: Mapping[str, Sequence[Path]], words: tuple[str, ...], others: Sequence[str]
    ) -> Listing:
        names = self._list_class_names(
            words, self.silence_fraction > 0, self.unknown_fraction > 0 and bool(others)
        )
        numbers = {name: number for number, name in enumerate(names)}
        listed = self._read_lists()

        def find_split_codes(clips: Sequence[Path]) -> npt.NDArray[np.int8]:
            drawn = (self._find_split_code(path, listed) for path in clips)
            return np.fromiter(drawn, np.int8, len(clips))

        paths = [path for word in words for path in found[word]]
        labels = [numbers[word] for word in words for _ in found[word]]
        of_words = find_split_codes(paths)
        strange = sorted(
            (path for word in others for path in found[word]), key=lambda path: path.name
        )
        of_others = find_split_codes(strange)
        all_codes = list(of_words)
        order = np.argsort(
            compute_random_keys(np.arange(len(strange), dtype=np.uint64), self.split_seed),
            kind="stable",
        )
        for code in (TRAIN, VALIDATION, TEST):
            wanted = int(np.count_nonzero(of_words == code))
            if UNKNOWN in numbers:
                chosen = [strange[place] for place in order if of_others[place] == code]
                chosen = chosen[: math.ceil(wanted * self.unknown_fraction)]
                paths += chosen
                labels += [numbers[UNKNOWN]] * len(chosen)
                all_codes += [code] * len(chosen)
            if SILENCE in numbers:
                silent = math.ceil(wanted * self.silence_fraction)
                paths += [self.dataset_root / NOISE] * silent
                labels += [numbers[SILENCE]] * silent
                all_codes += [code] * silent
        return Listing(
            tuple(paths), np.array(labels, np.int64), names, np.array(all_codes, np.int8)
        )

    def _list_class_names(
        self, words: tuple[str, ...], silence: bool, unknown: bool
    ) -> tuple[str, ...]:
        extra = (*((SILENCE,) if silence else ()), *((UNKNOWN,) if unknown else ()))
        return (*words, *extra) if self.extra_classes == "last" else (*extra, *words)

    def _read_lists(self) -> dict[str, int] | None:
        """Return the code of each file that the two lists name; ``None`` if they are not there."""
        if not all((self.dataset_root / name).is_file() for name in _LISTS):
            return None
        found: dict[str, int] = {}
        for name, code in _LISTS.items():
            path = self.dataset_root / name
            try:
                if path.stat().st_size > _LIST_LIMIT:
                    raise DatasetError(f"{path} is too large for a list of files")
                found |= dict.fromkeys(path.read_text("utf-8-sig").split(), code)
            except (OSError, UnicodeDecodeError) as error:
                raise DatasetError(f"{path} cannot be read as a list of files: {error}") from None
        return found

    def _find_split_code(self, path: Path, listed: Mapping[str, int] | None) -> int:
        if listed is not None:
            return listed.get(f"{path.parent.name}/{path.name}", TRAIN)
        return compute_speaker_split(path.name, self.validation_fraction, self.test_fraction)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: sounds, which are changed at random for training, and their
        labels.
        """
        indices = check_indices(indices, len(self))
        clips = (
            np.stack([self._read_clip(int(index)) for index in indices])
            if len(indices)
            else (np.empty((0, self.clip_length), np.float32))
        )
        return {"sound": clips}, {"label": self.files.labels[indices]}

    def _read_clip(self, index: int) -> npt.NDArray[np.float32]:
        path, random = self.files.paths[index], np.random.default_rng([self.split_seed, index])
        if path == self.dataset_root / NOISE:
            return np.asarray(self._sample_noise(random) * random.uniform(0, 1), np.float32)
        assert self.files.official is not None
        if self.files.official[index] != TRAIN:
            return read_clip(path, self.sample_rate, self.clip_length)
        most = min(round(self.time_shift * self.sample_rate), self.clip_length - 1)
        shift = int(random.integers(-most, most + 1))
        sound = read_clip(path, self.sample_rate, self.clip_length, max(0, -shift))
        if shift > 0:
            sound = np.concatenate([np.zeros(shift, np.float32), sound[:-shift]])
        if random.uniform() < self.noise_fraction:
            mixture = sound + self._sample_noise(random) * np.float32(
                random.uniform(0, self.noise_volume)
            )
            sound = np.asarray(np.clip(mixture, -1, 1), np.float32)
        return sound

    def _sample_noise(self, random: np.random.Generator) -> npt.NDArray[np.float32]:
        """Return a random part of a random recording of noise; zeros if there are none."""
        if not self._recordings:
            return np.zeros(self.clip_length, np.float32)
        recording = self._recordings[int(random.integers(len(self._recordings)))]
        start = int(random.integers(len(recording) - self.clip_length + 1))
        return recording[start : start + self.clip_length]

    @cached_property
    def _recordings(self) -> list[npt.NDArray[np.float32]]:
        folder = self.dataset_root / NOISE
        if not folder.is_dir():
            return []
        length = max(self.clip_length, _NOISE_SECONDS * self.sample_rate)
        found = []
        for path in find_files(folder, SUFFIXES):
            sound = read_clip(path, self.sample_rate, length)
            held = np.flatnonzero(sound)
            found.append(sound[: max(self.clip_length, int(held[-1]) + 1 if len(held) else 0)])
        return found


def compute_speaker_split(name: str, validation_fraction: float, test_fraction: float) -> int:
    """Return the split of a file by the published rule, which keeps the clips of a speaker
    together.

    It is ``which_set`` of the data set's README: a hash of the file's name up to ``_nohash_``.

    Returns
    -------
    int
        The code of the split: 0 for training, 1 for validation, 2 for test.

    Examples
    --------
    >>> files = "0a7c2a8d_nohash_0.wav", "0a7c2a8d_nohash_7.wav"
    >>> len({compute_speaker_split(file, 0.1, 0.1) for file in files}) == 1
    True
    """
    speaker = re.sub(r"_nohash_.*$", "", name)
    number = int(
        hashlib.sha1(speaker.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest(),
        16,
    )
    percentage = (number % (_MOST_WAVS + 1)) * (100.0 / _MOST_WAVS)
    if percentage < 100 * validation_fraction:
        return VALIDATION
    return TEST if percentage < 100 * (validation_fraction + test_fraction) else TRAIN
