"""Readers of model files that do not need the framework that wrote the file.

A target has one runtime and nothing else, and a file from outside may hold
anything.  These readers need numpy only (those of HDF5 files also need h5py),
read only what they need, check every length against the size of the file, and
raise an :class:`ArtifactError` that names the file.
"""
