"""Functions and callbacks for scripts of PyTorch that train and evaluate networks."""

# mypy: ignore-errors
# ruff: noqa: D102, F821, T201

import csv


def run_in_mode(module, training, *inputs):
    """Return a module's output in the mode of training or inference, then restore its mode."""
    before = module.training
    module.train(training)
    try:
        return module(*inputs)
    finally:
        module.train(before)


def evaluate(network, data, loss, metrics, batch_size):
    """Return the loss and the metrics of a network as means over samples.

    The loss includes the penalties of regularisers.
    """
    inputs, targets = data
    penalty = getattr(network, "penalty", None)
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    found = dict.fromkeys(("loss", *metrics), 0.0)
    network.eval()
    with torch.no_grad():
        for rows in torch.arange(len(targets)).split(batch_size):
            outputs = network(*(x[rows].to(device) for x in inputs))
            truth = targets[rows].to(device)
            for name, function in {"loss": loss, **metrics}.items():
                found[name] += function(outputs, truth).item() * len(rows) / len(targets)
            if penalty is not None:
                found["loss"] += penalty().item() * len(rows) / len(targets)
    return found


def predict(network, inputs, batch_size):
    """Return the outputs of a network for samples."""
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    network.eval()
    found = []
    with torch.no_grad():
        for rows in torch.arange(len(inputs[0])).split(batch_size):
            found.append(network(*(x[rows].to(device) for x in inputs)).cpu())
    return torch.cat(found)


def compute_outputs(network, samples, batch_size):
    """Return samples with the outputs of a network for them."""
    return {**samples, "outputs": predict(network, samples["inputs"], batch_size)}


def evaluate_model(compiled, data, batch_size):
    """Return the loss and the metrics on the test samples."""
    network, loss, metrics = (compiled[name] for name in ("network", "loss", "metrics"))
    return evaluate(network, data["test"], loss, metrics, batch_size)


def shuffle_batches(count, size):
    """Return the indices of samples in random order, in batches."""
    parts = list(torch.randperm(count).split(size))
    if size > 1 and len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]  # batch normalisation needs two samples
    return parts


def train(compiled, data, epochs, batch_size, callbacks):
    """Train a network and return it; a callback that returns true ends the training."""
    network, loss = compiled["network"], compiled["loss"]
    optimiser, metrics = compiled["optimiser"], compiled["metrics"]
    device = next(network.parameters()).device
    penalty = getattr(network, "penalty", None)
    constrain = getattr(network, "constrain", None)
    inputs, targets = data["train"]
    figures = {}
    for epoch in range(epochs):
        network.train()
        total = 0.0
        for rows in shuffle_batches(len(targets), batch_size):
            optimiser.zero_grad()
            outputs = network(*(x[rows].to(device) for x in inputs))
            value = loss(outputs, targets[rows].to(device))
            if penalty is not None:
                value = value + penalty()
            value.backward()
            optimiser.step()
            if constrain is not None:
                constrain()
            total += value.item() * len(rows) / len(targets)
        tested = evaluate(network, data["test"], loss, metrics, batch_size)
        figures = {"loss": total, **{f"test_{name}": value for name, value in tested.items()}}
        print(f"epoch {epoch + 1}/{epochs}: {as_text(figures)}", flush=True)
        ended = [callback(network, epoch + 1, epochs, figures) for callback in callbacks]
        if any(ended):
            break
    for callback in callbacks:
        if hasattr(callback, "finish"):
            callback.finish(figures)
    return network


class Checkpoint:
    """A callback that writes the weights of the best epoch so far."""

    def __init__(self, path, monitor, largest):
        self.path, self.monitor, self.sign = path, monitor, 1 if largest else -1
        self.best = -float("inf")

    def __call__(self, network, epoch, epochs, figures):
        value = self.sign * figures[self.monitor]
        if value > self.best:
            self.best = value
            write_weights(self.path, network)


class EarlyStopping:
    """A callback that ends a training whose figures no longer improve."""

    def __init__(self, monitor, largest, patience, least):
        self.monitor, self.sign = monitor, 1 if largest else -1
        self.patience, self.least = patience, least
        self.best, self.waited = -float("inf"), 0

    def __call__(self, network, epoch, epochs, figures):
        value = self.sign * figures[self.monitor]
        if value > self.best + self.least:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class TableLogger:
    """A callback that writes the figures of each epoch to a CSV file."""

    def __init__(self, path):
        self.path = path

    def __call__(self, network, epoch, epochs, figures):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w" if epoch == 1 else "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if epoch == 1:
                writer.writerow(["epoch", *figures])
            writer.writerow([epoch, *figures.values()])


class BoardLogger:
    """A callback that writes the figures of each epoch for TensorBoard."""

    def __init__(self, folder):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def __call__(self, network, epoch, epochs, figures):
        for name, value in figures.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()


class Progress:
    """A callback that writes the progress of the training to a file."""

    def __init__(self, path):
        self.path = path
        report_progress(path, 0.0, {})

    def __call__(self, network, epoch, epochs, figures):
        report_progress(self.path, epoch / epochs, figures)

    def finish(self, figures):
        report_progress(self.path, 1.0, figures)
