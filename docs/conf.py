"""How Sphinx makes the site from the pages in this folder and from what ``import nnpipe`` gives:
``make site``.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "site"), str(HERE.parent / "src")]

import nnpipe  # noqa: E402

project = "nnpipe"
author = "the nnpipe authors"
copyright = "the nnpipe authors"
version = release = nnpipe.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "pages", "api", "references"]
exclude_patterns = ["_build", "site", "**.ipynb_checkpoints"]
nitpicky = True

# Pages are Markdown as GitHub shows it: headings are anchors, and a colon fence is a note.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Notebooks carry their outputs; `make gallery` runs them anew.  A site needs no framework to be
# built.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "nnpipe"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
