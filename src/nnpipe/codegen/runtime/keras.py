"""Functions for scripts of Keras: weights, samples, training, output and conversion."""

# mypy: ignore-errors
# ruff: noqa: F821

import inspect
import io
import shutil
import subprocess
import sys
from pathlib import Path


def read_array(data):
    """Return the array in the content of an .npy file."""
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def read_weights(path):
    """Return the arrays in a .safetensors file by name."""
    kinds = {"F32": np.float32, "I64": np.int64}
    stored = read_stored(path, kinds).items()
    return {name: np.frombuffer(data, kind).reshape(shape) for name, (kind, shape, data) in stored}


def set_layer_weights(network, weights, prefix):
    """Set the weights of the layers of a network, including nested networks."""
    for layer in network.layers:
        if isinstance(layer, keras.Model):
            set_layer_weights(layer, weights, f"{prefix}{layer.name}/")
            continue
        count = len(layer.weights)
        names = [f"{prefix}{layer.name}/{place}" for place in range(count)]
        if any(name not in weights for name in names):
            sys.exit(f"no stored weights for the layer {layer.name}")
        if names:
            layer.set_weights([weights[name] for name in names])


def find_layer(network, path):
    """Return the layer at a path of names in a network and its nested networks."""
    for name in path:
        network = network.get_layer(name)
    return network


def copy_weights(before, after, pairs):
    """Copy the weights in `pairs` from one network to another."""
    for path, source, target in pairs:
        weight = find_layer(before, path).weights[source]
        find_layer(after, path).weights[target].assign(weight)


def shuffle_indices(count, seed):
    """Return the numbers below `count` in random order; a seed fixes the order."""
    return np.random.default_rng(seed).permutation(count)


def as_input(values, shape, scale):
    """Return samples as floats, multiplied by a scale and reshaped."""
    values = np.asarray(values, np.float32) * np.float32(scale)
    return values if shape is None else values.reshape(len(values), *shape)


def as_target(values):
    """Return targets as float32 if they are floats, and as int64 otherwise."""
    values = np.asarray(values)
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64)


def read_table_data(path, target, delimiter, classes, shape, scale, fraction, seed):
    """Return samples from a CSV file, split for training and testing."""
    rows, truth = read_table(path, target, delimiter)
    targets = np.asarray(truth, np.int64 if classes else np.float32)
    return split_data((as_input(rows, shape, scale),), targets, fraction, seed)


def read_image_data(folder, size, grey, scale, fraction, seed):
    """Return samples from a folder with one folder of images for each class, split."""
    files = list_image_files(folder)
    found = [keras.utils.img_to_array(read_image(path, size, grey)) for path, _ in files]
    targets = np.asarray([number for _, number in files])
    return split_data((as_input(np.stack(found), None, scale),), targets, fraction, seed)


def load_sklearn_data(load, shape, scale, fraction, seed):
    """Return samples that come with scikit-learn, split for training and testing."""
    values, truth = load(return_X_y=True)
    return split_data((as_input(values, shape, scale),), as_target(truth), fraction, seed)


def process_data(process, data):
    """Return the samples that a plugin's process_dataset makes from the samples."""
    found = {}
    for part, (inputs, targets) in data.items():
        x, y = process(x=inputs[0], y=targets)
        found[part] = ((np.asarray(x, np.float32),), as_target(y))
    return found


def test_data(load, path):
    """Return inputs that a plugin reads, and expected outputs if it knows them."""
    data, *expected, _ = load(path=path)
    return {
        "inputs": (np.asarray(data, np.float32),),
        "expected": expected[0] if expected else None,
    }


def show_outputs(process, samples):
    """Call a plugin that writes inputs and outputs into the folder `output`."""
    given = {"model_input": samples["inputs"][0], "model_output": samples["outputs"]}
    if "expected_output" in inspect.signature(process).parameters:
        given["expected_output"] = samples["expected"]
    Path("output").mkdir(exist_ok=True)
    process(**given)


def create_progress_logger(path):
    """Return a callback that writes the progress of the training to a file."""
    figures = {}

    def report_start(logs=None):
        report_progress(path, 0.0, {})

    def report_epoch(epoch, logs=None):
        figures.update(
            {name.replace("val_", "test_"): value for name, value in (logs or {}).items()}
        )
        report_progress(path, (epoch + 1) / callback.params["epochs"], figures)

    def report_end(logs=None):
        report_progress(path, 1.0, figures)

    callback = keras.callbacks.LambdaCallback(
        on_train_begin=report_start, on_epoch_end=report_epoch, on_train_end=report_end
    )
    return callback


def unwrap_inputs(inputs):
    """Return a single input by itself, and several inputs as a list."""
    return inputs[0] if len(inputs) == 1 else list(inputs)


def compute_outputs(network, samples, batch_size):
    """Return samples with the outputs of a network for them."""
    inputs = unwrap_inputs(samples["inputs"])
    outputs = network.predict(inputs, batch_size=batch_size, verbose=0)
    return {**samples, "outputs": outputs}


def evaluate_model(network, data, batch_size):
    """Return the loss and the metrics on the test samples."""
    inputs, targets = data["test"]
    found = network.evaluate(
        unwrap_inputs(inputs), targets, batch_size=batch_size, return_dict=True, verbose=0
    )
    return {name: float(value) for name, value in found.items()}


def train(network, data, epochs, batch_size, callbacks):
    """Train a network, print its figures after each epoch, and return it."""
    inputs, targets = data["train"]
    test_inputs, test_targets = data["test"]
    network.fit(
        unwrap_inputs(inputs),
        targets,
        validation_data=(unwrap_inputs(test_inputs), test_targets),
        epochs=epochs,
        batch_size=batch_size,
        callbacks=callbacks,
        verbose=2,
    )
    return network


def create_table_logger(path):
    """Return a callback that writes the figures of each epoch to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return keras.callbacks.CSVLogger(path)


def create_board_logger(folder):
    """Return a callback that writes the figures of each epoch for TensorBoard."""
    return keras.callbacks.TensorBoard(log_dir=str(folder))


def quantize_model(network, inputs):
    """Return a network as a TensorFlow Lite model with 8-bit integers.

    It is calibrated with the inputs and takes one sample per call.
    """
    # The Edge TPU does not accept tensors with a free batch size.
    taken = [
        keras.Input(batch_shape=(1, *x.shape[1:]), dtype=x.dtype, name=x.name)
        for x in network.inputs
    ]
    fixed = keras.Model(taken, network(taken[0] if len(taken) == 1 else taken))
    converter = tf.lite.TFLiteConverter.from_keras_model(fixed)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.uint8
    converter.inference_output_type = tf.uint8

    def iterate_samples():
        for place in range(min(len(inputs[0]), 128)):
            yield [x[place : place + 1] for x in inputs]

    converter.representative_dataset = iterate_samples
    return converter.convert()


def write_model(path, data):
    """Write a file; after an error there is no incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".partial")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def check_edge_tpu_compiler():
    """End the script if Google's edgetpu_compiler is not installed."""
    if shutil.which("edgetpu_compiler") is None:
        sys.exit("edgetpu_compiler is not installed: https://coral.ai/docs/edgetpu/compiler/")


def compile_for_edge_tpu(path, folder):
    """Compile a model with Google's edgetpu_compiler, and return the new file's path."""
    command = ["edgetpu_compiler", "--out_dir", str(folder), str(path)]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        sys.exit(f"edgetpu_compiler failed with status {error.returncode}")
    return folder / f"{path.stem}_edgetpu.tflite"
