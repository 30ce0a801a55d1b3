"""Formats: what a model file says about itself, read without the framework that made it.

A target has one runtime and nothing else, and a file from outside may say
anything.  These readers need numpy alone (those of HDF5 h5py as well), look only at what they need, check
every length against the file's, and raise :class:`ArtifactError` that names
the file.
"""
