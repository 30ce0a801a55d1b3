"""Counting dots in pictures: a task that nnpipe does not know, in a package of its own."""
