"""Reports on result files as RST, HTML, Markdown and pictures.

:func:`nnpipe.report.render.render` turns runs into a
:class:`~nnpipe.report.document.Document`, which is data.
:func:`nnpipe.report.writers.rst.write_rst` and :func:`nnpipe.report.writers.html.write_html`
write it to files.
"""
