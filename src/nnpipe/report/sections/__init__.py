"""The sections of a report: from checked runs to tables, sentences and figures, as data."""
