"""Input pipelines: sequences of batches, chained, with the ids of their samples, workers, and exact resume."""
