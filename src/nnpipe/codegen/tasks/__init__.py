"""What a script can do: one class a task, found by importing this package."""

from nnpipe.codegen.tasks import calling, data, loggers, models, outputs, training

__all__ = ["calling", "data", "loggers", "models", "outputs", "training"]
