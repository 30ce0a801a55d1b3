"""What scripts of PyTorch need.  Neither numpy nor anything else besides PyTorch is."""

# mypy: ignore-errors
# ruff: noqa: T201, F821

import array
import ast
import csv
import inspect
import json
import struct
import sys
import time
import zipfile
from pathlib import Path


def used_as(module, training, *inputs):
    """Compute a module as in training or as in inference, whatever its network does."""
    before = module.training
    module.train(training)
    try:
        return module(*inputs)
    finally:
        module.train(before)


def read_array(data):
    """Read an array as numpy stores it (.npy), without numpy."""
    if data[:6] != b"\x93NUMPY":
        sys.exit("no array of numpy's")
    start, width = (10, "<H") if data[6] == 1 else (12, "<I")
    (length,) = struct.unpack(width, data[8:start])
    header = ast.literal_eval(data[start : start + length].decode("latin1"))
    kinds = {
        "b1": torch.bool, "u1": torch.uint8, "i1": torch.int8, "i2": torch.int16,
        "i4": torch.int32, "i8": torch.int64, "f2": torch.float16, "f4": torch.float32,
        "f8": torch.float64,
    }  # fmt: skip
    kind = kinds.get(header["descr"].lstrip("<|="))
    if kind is None or header["fortran_order"]:
        sys.exit("an array of a kind that is not read here: " + header["descr"])
    values = bytearray(data[start + length :])
    shape = header["shape"]
    return torch.frombuffer(values, dtype=kind).reshape(shape) if values else torch.zeros(shape, dtype=kind)


def read_arrays(path):
    """Read all arrays of an .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            return {name.removesuffix(".npy"): read_array(archive.read(name)) for name in names}
    except (OSError, zipfile.BadZipFile) as error:
        sys.exit(f"{path}: {error}")


def read_weights(path):
    """Read the tensors of a .safetensors file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        sys.exit(f"{path}: {error}")
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, item in header.items():
        if name != "__metadata__":
            start, end = (8 + length + place for place in item["data_offsets"])
            kind = {"F32": torch.float32, "I64": torch.int64}[item["dtype"]]
            values = bytearray(data[start:end])
            found[name] = torch.frombuffer(values, dtype=kind).reshape(item["shape"])
    return found


def write_weights(path, network):
    """Write the tensors of a network to a .safetensors file."""
    header, parts, place = {}, [], 0
    for name, value in network.state_dict().items():
        whole = value.dtype == torch.int64
        letter, kind = ("q", "I64") if whole else ("f", "F32")
        part = array.array(letter, value.detach().cpu().flatten().tolist()).tobytes()
        shape, ends = list(value.shape), [place, place + len(part)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": ends}
        parts.append(part)
        place += len(part)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    partial.replace(path)


def load_weights(network, path):
    """Put stored weights into a network."""
    missing, unknown = network.load_state_dict(read_weights(path), strict=False)
    lost = [name for name in missing if not name.endswith("num_batches_tracked")]
    if lost or unknown:
        sys.exit(f"{path}: weights of another network: {[*lost, *unknown][:3]}")


def keep_weights(before, after, pairs):
    """Copy the weights of the layers that stayed from one network to another."""
    old, new = before.state_dict(), after.state_dict()
    for source, target in pairs:
        new[target] = old[source]
    after.load_state_dict(new)


def split_data(inputs, targets, fraction, seed):
    """Put aside some samples for testing, the same ones for a seed."""
    source = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(targets), generator=source)
    count = round(len(targets) * fraction)
    parts = {"test": order[:count], "train": order[count:]}
    return {name: (tuple(x[rows] for x in inputs), targets[rows]) for name, rows in parts.items()}


def as_input(values, shape, scale):
    """Give samples as floats of a shape, multiplied with a scale."""
    values = values.float() * scale
    return values if shape is None else values.reshape(len(values), *shape)


def as_target(values):
    """Give truth as classes where it is whole numbers, and as floats else."""
    return values.float() if values.dtype.is_floating_point else values.long()


def data_of_arrays(path, inputs, target, shape, scale, fraction, seed):
    """Read samples from an .npz file."""
    arrays = read_arrays(path)
    lost = [name for name in (*inputs, target) if name not in arrays]
    if lost:
        sys.exit(f"{path}: no array {lost[0]!r}; there are {', '.join(arrays)}")
    samples = tuple(as_input(arrays[name], shape, scale) for name in inputs)
    return split_data(samples, as_target(arrays[target]), fraction, seed)


def data_of_table(path, target, delimiter, classes, shape, scale, fraction, seed):
    """Read samples from a CSV file."""
    rows, truth = read_table(path, target, delimiter)
    targets = torch.tensor(truth)
    samples = as_input(torch.tensor(rows), shape, scale)
    return split_data((samples,), targets.long() if classes else targets, fraction, seed)


def data_of_images(folder, size, grey, scale, fraction, seed):
    """Read samples from a folder with a folder of images for each class."""
    files = image_files(folder)
    mode = "L" if grey else "RGB"
    shape = (size[0], size[1], 1 if grey else 3)
    found = []
    for path, _ in files:
        with Image.open(path) as image:
            pixels = image.convert(mode).resize((size[1], size[0])).tobytes()
        found.append(torch.frombuffer(bytearray(pixels), dtype=torch.uint8))
    samples = as_input(torch.stack(found), shape, scale)
    return split_data((samples,), torch.tensor([c for _, c in files]), fraction, seed)


def data_of_sklearn(load, shape, scale, fraction, seed):
    """Take samples that come with scikit-learn."""
    values, truth = load(return_X_y=True)
    samples = as_input(torch.tensor(values.tolist()), shape, scale)
    return split_data((samples,), as_target(torch.tensor(truth.tolist())), fraction, seed)


def data_by_plugin(process, data):
    """Pass samples through a plugin's process_dataset, which takes and gives arrays."""
    found = {}
    for part, (inputs, targets) in data.items():
        x, y = process(x=inputs[0].numpy(), y=targets.numpy())
        found[part] = ((torch.as_tensor(x).float(),), as_target(torch.as_tensor(y)))
    return found


def test_data(load, path):
    """Let a plugin read samples: inputs, and what to expect where the plugin knows."""
    data, *expected, _ = load(path=path)
    return {"inputs": (torch.as_tensor(data).float(),), "expected": expected[0] if expected else None}


def samples_of(data):
    """Give the samples for testing."""
    inputs, targets = data["test"]
    return {"inputs": inputs, "expected": targets}


def show_outputs(process, samples):
    """Let a plugin write what it makes of inputs and outputs into the folder output."""
    given = {"model_input": samples["inputs"][0].numpy(), "model_output": samples["outputs"].numpy()}
    if "expected_output" in inspect.signature(process).parameters:
        expected = samples["expected"]
        is_tensor = isinstance(expected, torch.Tensor)
        given["expected_output"] = expected.numpy() if is_tensor else expected
    Path("output").mkdir(exist_ok=True)
    process(**given)


def write_outputs(path, outputs):
    """Write what a network gave to a CSV file, one row a sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(outputs.reshape(len(outputs), -1).tolist())


def cross_entropy(outputs, targets):
    """Give the cross entropy of logits."""
    return F.cross_entropy(outputs, targets)


def cross_entropy_of_probabilities(outputs, targets):
    """Give the cross entropy of probabilities, such as a softmax gives."""
    return F.nll_loss(outputs.clamp_min(1e-7).log(), targets)


def binary_cross_entropy(outputs, targets):
    """Give the binary cross entropy of logits."""
    return F.binary_cross_entropy_with_logits(outputs, targets.float().reshape(outputs.shape))


def binary_cross_entropy_of_probabilities(outputs, targets):
    """Give the binary cross entropy of probabilities, such as a sigmoid gives."""
    kept = outputs.clamp(1e-7, 1 - 1e-7)
    return F.binary_cross_entropy(kept, targets.float().reshape(outputs.shape))


def mean_squared_error(outputs, targets):
    """Give the mean of squared differences."""
    return F.mse_loss(outputs, targets.float().reshape(outputs.shape))


def mean_absolute_error(outputs, targets):
    """Give the mean of absolute differences."""
    return F.l1_loss(outputs, targets.float().reshape(outputs.shape))


def huber(outputs, targets):
    """Give Huber's loss with a delta of one."""
    return F.huber_loss(outputs, targets.float().reshape(outputs.shape))


def accuracy(outputs, targets):
    """Give the share of samples whose class has the highest score."""
    return (outputs.argmax(-1) == targets).float().mean()


def binary_accuracy(outputs, targets):
    """Give the share of right answers of yes or no from probabilities."""
    return ((outputs > 0.5) == targets.reshape(outputs.shape).bool()).float().mean()


def binary_accuracy_of_logits(outputs, targets):
    """Give the share of right answers of yes or no from logits."""
    return ((outputs > 0) == targets.reshape(outputs.shape).bool()).float().mean()


def evaluate(network, data, loss, metrics, batch_size):
    """Give the loss and the metrics of a network on samples, as means over them."""
    inputs, targets = data
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    found = dict.fromkeys(("loss", *metrics), 0.0)
    network.eval()
    with torch.no_grad():
        for rows in torch.arange(len(targets)).split(batch_size):
            outputs = network(*(x[rows].to(device) for x in inputs))
            truth = targets[rows].to(device)
            for name, function in {"loss": loss, **metrics}.items():
                found[name] += function(outputs, truth).item() * len(rows) / len(targets)
    return found


def predict(network, inputs, batch_size):
    """Give what a network makes of samples."""
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    network.eval()
    found = []
    with torch.no_grad():
        for rows in torch.arange(len(inputs[0])).split(batch_size):
            found.append(network(*(x[rows].to(device) for x in inputs)).cpu())
    return torch.cat(found)


def computed(network, samples, batch_size):
    """Give samples with what a network makes of them."""
    return {**samples, "outputs": predict(network, samples["inputs"], batch_size)}


def judged(compiled, data, batch_size):
    """Give the loss and the metrics on the samples put aside."""
    network, loss, metrics = (compiled[name] for name in ("network", "loss", "metrics"))
    return evaluate(network, data["test"], loss, metrics, batch_size)


def train(compiled, data, epochs, batch_size, callbacks):
    """Train a network; a callback that gives true ends the training."""
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
        for rows in torch.randperm(len(targets)).split(batch_size):
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
        print(f"epoch {epoch + 1}/{epochs}: {told(figures)}", flush=True)
        ended = [callback(network, epoch + 1, epochs, figures) for callback in callbacks]
        if any(ended):
            break
    for callback in callbacks:
        if hasattr(callback, "finish"):
            callback.finish(figures)
    return network


class Checkpoint:
    """Writes the weights of the best epoch so far."""

    def __init__(self, path, monitor, largest):
        self.path, self.monitor, self.sign = path, monitor, 1 if largest else -1
        self.best = None

    def __call__(self, network, epoch, epochs, figures):
        value = self.sign * figures[self.monitor]
        if self.best is None or value > self.best:
            self.best = value
            write_weights(self.path, network)


class EarlyStopping:
    """Ends a training that gets no better."""

    def __init__(self, monitor, largest, patience, least):
        self.monitor, self.sign = monitor, 1 if largest else -1
        self.patience, self.least = patience, least
        self.best, self.waited = None, 0

    def __call__(self, network, epoch, epochs, figures):
        value = self.sign * figures[self.monitor]
        if self.best is None or value > self.best + self.least:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class TableLogger:
    """Writes the figures of each epoch to a CSV file."""

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
    """Writes the figures of each epoch for TensorBoard."""

    def __init__(self, folder):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def __call__(self, network, epoch, epochs, figures):
        for name, value in figures.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()


class Progress:
    """Tells whoever watches how far the training is."""

    def __init__(self, path):
        self.path = path
        report_progress(path, 0.0, {})

    def __call__(self, network, epoch, epochs, figures):
        report_progress(self.path, epoch / epochs, figures)

    def finish(self, figures):
        report_progress(self.path, 1.0, figures)


__all__ = ["Path", "time"]
