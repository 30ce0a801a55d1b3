"""Errors that the readers of formats raise among themselves; callers get an ArtifactError that names the file."""

from __future__ import annotations


class Damaged(ValueError):
    """The bytes are not what they should be."""
