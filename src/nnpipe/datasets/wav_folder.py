"""A directory of sounds, with one folder per class."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.datasets._class_folders import Listing, class_folders
from nnpipe.datasets.wav_files import SUFFIXES, WavFilesDataset


class WavFolderDataset(WavFilesDataset):
    """Your own sounds: one folder of wav files per class, optionally below train, validation and test.

    With ``ROOT/CLASS/*.wav``, the split follows the fractions.  With ``ROOT/train/CLASS/*.wav`` and so on, the folders
    define it.  Class names are sorted; ``class_list`` names the file with the model's classes and their order, if it
    has others.  Files are PCM of 8 to 32 bits or floats, of any sample rate and number of channels.
    """

    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders then have these "
        "names or numbers",
    )

    def listing(self) -> Listing:
        """Return the sound files in the folders."""
        return class_folders(self.dataset_root, SUFFIXES, "wav files", self.class_list)
