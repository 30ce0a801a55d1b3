"""The class names of a model, from a text file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import DatasetError
from nnpipe.core.naming import nearest

_LIMIT = 16 << 20


@dataclass(frozen=True)
class ClassList:
    """Class names in order of their numbers."""

    path: Path
    names: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> ClassList:
        """Read a text file with one name per line.

        Raises
        ------
        DatasetError
            If there is no such file, or it is not a list of names.
        """
        try:
            if path.stat().st_size > _LIMIT:
                raise DatasetError(f"{path} is too large for a list of classes")
            lines = path.read_text("utf-8-sig").splitlines()
        except FileNotFoundError:
            raise DatasetError(f"{path} is not there; --class-list names a text file with one class a line") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path} cannot be read as a list of classes: {error}") from None
        names = tuple(line.strip() for line in lines)
        while names and not names[-1]:
            names = names[:-1]
        if not names:
            raise DatasetError(f"{path} names no classes")
        return cls(path, names)

    def number(self, folder: str) -> int:
        """Return the class of a folder, which is named by number, by name, or by the name's part before a comma.

        Raises
        ------
        DatasetError
            If no class of the list matches, or several do.
        """
        if folder.isdecimal() and folder.isascii():
            if int(folder) < len(self.names):
                return int(folder)
            raise DatasetError(f"the folder {folder} is no class of {self.path}, which names {len(self.names)} from 0")
        for names in (self.names, tuple(name.partition(",")[0] for name in self.names)):
            found = [number for number, name in enumerate(names) if name == folder]
            if len(found) > 1:
                raise DatasetError(
                    f"the folder {folder!r} may be class {' or '.join(map(str, found))} of {self.path}; "
                    "call it by its number"
                )
            if found:
                return found[0]
        hint = nearest(folder, (name.partition(",")[0] for name in self.names))
        raise DatasetError(f"the folder {folder!r} is no class of {self.path}{hint}")
