"""The error that the low-level readers raise; the public readers turn it into an ArtifactError that names the file."""

from __future__ import annotations


class Damaged(ValueError):
    """An error about bytes that do not follow the format."""
