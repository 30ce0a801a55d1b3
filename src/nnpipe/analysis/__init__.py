"""Analysis with numpy alone: quality metrics of predictions, and comparisons of models."""
