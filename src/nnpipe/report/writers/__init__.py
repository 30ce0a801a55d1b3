"""Writing reports: HTML, reStructuredText, Markdown, text for the terminal, and JSON."""
