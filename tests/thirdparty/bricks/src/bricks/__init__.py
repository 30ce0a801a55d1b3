"""One class of each kind that joins nnpipe; each lies in a module of its own."""
