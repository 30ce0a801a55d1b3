"""The sections of a report, which turn checked runs into tables, sentences and plots, as data."""
