"""The library itself: a network with one hidden layer, in numpy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NAMES = ("hidden.weight", "hidden.bias", "output.weight", "output.bias")


class Network:
    """Two dense layers with a ReLU between them; ``parameters`` holds its weights by name."""

    def __init__(self, features: int, width: int, classes: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.parameters = {
            "hidden.weight": (
                rng.standard_normal((features, width)) * np.sqrt(2 / features)
            ).astype(np.float32),
            "hidden.bias": rng.uniform(-1, 1, width).astype(np.float32),
            "output.weight": (rng.standard_normal((width, classes)) / np.sqrt(width)).astype(
                np.float32
            ),
            "output.bias": np.zeros(classes, np.float32),
        }

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return ``(n, classes)`` of ``(n, features)``."""
        return forward(self.parameters, features)[1]

    def loss(self, features: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
        """Return cross-entropy and accuracy, both means over the samples."""
        loss, accuracy, _ = _judge(self.scores(features), labels)
        return loss, accuracy

    def step(
        self, features: np.ndarray, labels: np.ndarray, optimiser: Adam
    ) -> tuple[float, float]:
        """Take one training step; gives loss and accuracy from before it."""
        weight = self.parameters["output.weight"]
        hidden, scores = forward(self.parameters, features)
        loss, accuracy, slope = _judge(scores, labels)
        back = (slope @ weight.T) * (hidden > 0)
        gradients = (features.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0))
        optimiser.update(self.parameters, dict(zip(NAMES, gradients, strict=True)))
        return loss, accuracy


class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980)."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self._moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._steps = 0

    def update(
        self, parameters: dict[str, np.ndarray], gradients: Mapping[str, np.ndarray]
    ) -> None:
        """Replace the parameters by better ones."""
        self._steps += 1
        for name, gradient in gradients.items():
            first, second = self._moments.get(
                name, (np.zeros_like(gradient), np.zeros_like(gradient))
            )
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            self._moments[name] = first, second
            corrected = first / (1 - 0.9**self._steps), second / (1 - 0.999**self._steps)
            change = self.learning_rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
            parameters[name] = (parameters[name] - change).astype(np.float32)


def forward(
    parameters: Mapping[str, np.ndarray], features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden values ``(n, width)`` and the scores ``(n, classes)``."""
    hidden = np.maximum(features @ parameters["hidden.weight"] + parameters["hidden.bias"], 0)
    return hidden, hidden @ parameters["output.weight"] + parameters["output.bias"]


def check_layers(parameters: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Return the numbers of features and classes; raise ``ValueError`` unless the arrays make up
    a network.
    """
    if set(parameters) != set(NAMES):
        raise ValueError(
            f"expected the arrays {', '.join(NAMES)}, found {', '.join(parameters) or 'none'}"
        )
    shapes = [parameters[name].shape for name in NAMES]
    if [len(shape) for shape in shapes] != [2, 1, 2, 1]:
        raise ValueError(f"arrays of the shapes {shapes} are no layers")
    (features, width), (classes,) = shapes[0], shapes[3]
    if shapes != [(features, width), (width,), (width, classes), (classes,)]:
        raise ValueError(f"layers of the shapes {shapes} do not follow one another")
    return features, classes


def _judge(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, np.ndarray]:
    rows = np.arange(len(labels))
    shifted = scores - scores.max(1, keepdims=True)
    likelihood = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    loss = -np.mean(np.log(np.maximum(likelihood[rows, labels], 1e-12)))
    slope = likelihood.copy()
    slope[rows, labels] -= 1
    return (
        float(loss),
        float(np.mean(scores.argmax(1) == labels)),
        (slope / len(labels)).astype(np.float32),
    )
