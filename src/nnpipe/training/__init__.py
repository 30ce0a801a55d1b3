"""Training models: a trainer, outputs with losses and metrics, input pipelines, callbacks and checkpoints."""
