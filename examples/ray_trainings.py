"""Train one network at several learning rates, each where a Ray cluster has room, and keep the
best.

pip install '.[torch,s3]' 'ray[default]'                       # on each machine of the cluster
python examples/ray_trainings.py --storage s3://our-models/vision --rates 0.0005 0.002 0.008

Without a cluster Ray starts one on this machine.  To hand it to a cluster, from a checkout of
nnpipe:

ray job submit --address http://HEAD:8265 --working-dir . -- \\
    python examples/ray_trainings.py --storage s3://our-models/vision

A machine that is lost costs the trainings that ran on it; they are begun again elsewhere.
"""

import argparse
import tempfile
from pathlib import Path

import ray


@ray.remote(num_cpus=1, max_retries=2)
def train(rate, epochs, storage):
    """Train at one learning rate, publish weights and description, and give the accuracy on the
    validation split.
    """
    from nnpipe.core.artifact import get_sidecar_path
    from nnpipe.core.training import TrainingOptions
    from nnpipe.datasets.digits import DigitsDataset
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN
    from nnpipe.storage.storage import open_storage

    dataset = DigitsDataset()
    dataset.prepare()
    model = PyTorchDigitsCNN().for_dataset(dataset.spec).open()
    history = model.train(dataset, TrainingOptions(num_epochs=epochs, learning_rate=rate))
    name = f"ray/rate-{rate:g}/model.pt"
    with tempfile.TemporaryDirectory() as folder:
        artifact = model.save(Path(folder, "model.pt"))
        shelf = open_storage(storage)
        for path in (get_sidecar_path(artifact.path), artifact.path):
            shelf.put("training-results", f"ray/rate-{rate:g}/{path.name}", path, replace=True)
    return history.epochs[-1]["validation_accuracy"], name


def main():
    """Start the trainings, and tell of each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--storage", required=True, help="folder that all machines share, or s3://BUCKET/PREFIX"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0005, 0.002, 0.008])
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    ray.init()  # finds the cluster by RAY_ADDRESS
    waiting = {train.remote(rate, options.epochs, options.storage): rate for rate in options.rates}
    found = []
    while waiting:
        (ended,), _ = ray.wait(list(waiting))
        rate = waiting.pop(ended)
        accuracy, name = ray.get(ended)
        found.append((accuracy, rate, name))
        print(f"rate {rate:g}: {accuracy:.4f}, training-results/{name}", flush=True)
    accuracy, rate, name = max(found)
    print(
        f"best: rate {rate:g} with {accuracy:.4f}; nnpipe storage get training-results/{name} --at "
        f"{options.storage}"
    )


if __name__ == "__main__":
    main()
