"""The page of a run, kept up to date, and an archive of the source code that trained its model."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import replace_atomically
from nnpipe.training.callbacks.callback import WritingCallback, get_run_folder, is_write_due
from nnpipe.training.run_page import write_run_page

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class RunPage(WritingCallback):
    """Write ``index.html``, which shows what the run's folder holds, after each epoch; less often
    after many.

    Callbacks are called in the order in which they are named: name this one last.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackReportingStartServer",)

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Write the page."""
        if is_write_due(fit):
            write_run_page(get_run_folder(fit).path)

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Write the page a last time, with files that other callbacks wrote at the end."""
        write_run_page(get_run_folder(fit).path)


_LARGEST = 1_000_000


class SourceSnapshot(WritingCallback):
    """Save the Python and settings files of some folders in ``source/source.zip`` when the training
    begins.

    Hidden folders, links and files over one megabyte are left out.  Equal files give an equal
    archive.

    Parameters
    ----------
    folders
        Folders or single files.
    endings
        Endings of the files to save.
    """

    frameworks = ("torch", "keras")
    formerly: ClassVar[tuple[str, ...]] = ("CallbackZipSources",)

    def __init__(
        self, folders: Sequence[str | Path], endings: Sequence[str] = (".py", ".yaml", ".toml")
    ) -> None:
        check_call(SourceSnapshot, locals())
        self.folders = tuple(Path(folder) for folder in folders)
        self.endings = tuple(endings)

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Write the archive."""
        super().on_fit_begin(fit)
        with replace_atomically(get_run_folder(fit).source) as target:
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                for number, folder in enumerate(self.folders):
                    if not folder.exists():
                        raise ConfigError(f"SourceSnapshot: {folder} is not there")
                    for path in self._find_files(folder):
                        # Folders may have equal names, so each has a number.
                        name = f"{number}-{folder.resolve().name}"
                        if path != folder:
                            name += f"/{path.relative_to(folder).as_posix()}"
                        archive.writestr(
                            zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED
                        )

    def _find_files(self, folder: Path) -> list[Path]:
        if folder.is_file():
            return [folder]
        return sorted(
            path
            for path in folder.rglob("*")
            if path.suffix in self.endings
            and path.is_file()
            and not path.is_symlink()
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
            and path.stat().st_size <= _LARGEST
        )
