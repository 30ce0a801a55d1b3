"""The writers of reports: HTML, reStructuredText, Markdown, text for the terminal, and JSON."""
