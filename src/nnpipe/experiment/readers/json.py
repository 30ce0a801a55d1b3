"""JSON files."""

from __future__ import annotations

from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader, stack_values, transpose_rows


class JSONReader(DataReader):
    """Reads a list of objects, an object of lists, or from ``.jsonl`` one object on each line."""

    def _read(self) -> dict[str, Column]:
        self._check_size(20 * self.path.stat().st_size, "the text as objects")
        try:
            text = self.path.read_text("utf-8")
            if self.path.suffix.lower() == ".jsonl":
                data: Any = [parse_json(line) for line in text.splitlines() if line.strip()]
            else:
                data = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"no JSON: {error}") from error
        if isinstance(data, dict) and all(isinstance(column, list) for column in data.values()):
            return {name: stack_values(column) for name, column in data.items()}
        if isinstance(data, list) and all(isinstance(row, dict) for row in data):
            return transpose_rows(data)
        raise DatasetError("expected a list of objects, or an object of lists")
