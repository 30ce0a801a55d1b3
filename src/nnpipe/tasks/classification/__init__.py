"""Classification: one class of several for each sample."""
