"""Functions for scripts of PyTorch that read samples and pass them to plugins."""

# mypy: ignore-errors
# ruff: noqa: F821

import inspect
from pathlib import Path


def shuffle_indices(count, seed):
    """Return the numbers below `count` in random order; a seed fixes the order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def as_input(values, shape, scale):
    """Return samples as floats, multiplied by a scale and reshaped."""
    values = values.float() * scale
    return values if shape is None else values.reshape(len(values), *shape)


def as_target(values):
    """Return targets as float32 if they are floats, and as int64 otherwise."""
    return values.float() if values.dtype.is_floating_point else values.long()


def read_table_data(path, target, delimiter, classes, shape, scale, fraction, seed):
    """Return samples from a CSV file, split for training and testing."""
    rows, truth = read_table(path, target, delimiter)
    targets = torch.tensor(truth)
    samples = as_input(torch.tensor(rows), shape, scale)
    return split_data((samples,), targets.long() if classes else targets, fraction, seed)


def read_image_data(folder, size, grey, scale, fraction, seed):
    """Return samples from a folder with one folder of images for each class, split."""
    files = list_image_files(folder)
    shape = (size[0], size[1], 1 if grey else 3)
    found = []
    for path, _ in files:
        pixels = read_image(path, size, grey).tobytes()
        found.append(torch.frombuffer(bytearray(pixels), dtype=torch.uint8))
    samples = as_input(torch.stack(found), shape, scale)
    return split_data((samples,), torch.tensor([c for _, c in files]), fraction, seed)


def load_sklearn_data(load, shape, scale, fraction, seed):
    """Return samples that come with scikit-learn, split for training and testing."""
    values, truth = load(return_X_y=True)
    samples = as_input(torch.tensor(values.tolist()), shape, scale)
    return split_data((samples,), as_target(torch.tensor(truth.tolist())), fraction, seed)


def process_data(process, data):
    """Return the samples that a plugin's process_dataset makes from the samples."""
    found = {}
    for part, (inputs, targets) in data.items():
        x, y = process(x=inputs[0].numpy(), y=targets.numpy())
        found[part] = ((torch.as_tensor(x).float(),), as_target(torch.as_tensor(y)))
    return found


def test_data(load, path):
    """Return inputs that a plugin reads, and expected outputs if it knows them."""
    data, *expected, _ = load(path=path)
    return {
        "inputs": (torch.as_tensor(data).float(),),
        "expected": expected[0] if expected else None,
    }


def show_outputs(process, samples):
    """Call a plugin that writes inputs and outputs into the folder `output`."""
    given = {
        "model_input": samples["inputs"][0].numpy(),
        "model_output": samples["outputs"].numpy(),
    }
    if "expected_output" in inspect.signature(process).parameters:
        expected = samples["expected"]
        is_tensor = isinstance(expected, torch.Tensor)
        given["expected_output"] = expected.numpy() if is_tensor else expected
    Path("output").mkdir(exist_ok=True)
    process(**given)
