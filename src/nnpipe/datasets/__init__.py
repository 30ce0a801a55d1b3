"""Data sets: each module is one, and every one passes :class:`nnpipe.testing.dataset.DatasetContract`."""
