"""Input pipelines: chains of sequences of batches, with sample ids, workers and exact resume."""
