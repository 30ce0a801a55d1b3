"""A network of keras.applications."""

from __future__ import annotations

from typing import Any

from zoo.data import SIDE, Task, digits


def mobilenet_v3() -> Any:
    """MobileNetV3-Small of Keras with half its channels; images have channels last and pixels from 0 to 255."""
    import keras

    keras.utils.set_random_seed(0)
    found = digits()
    images = (found.inputs["image"].transpose(0, 2, 3, 1) + 1.5) * 85
    task = Task({"image": images.clip(0, 255)}, found.targets)
    model = keras.applications.MobileNetV3Small(
        input_shape=(SIDE, SIDE, 3), alpha=0.5, weights=None, classes=10, dropout_rate=0.1
    )
    inputs, labels = task.training
    rates = keras.optimizers.schedules.CosineDecay(3e-3, 5 * len(labels) // 32)
    model.compile(keras.optimizers.Adam(rates), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(inputs["image"], labels, batch_size=32, epochs=5, verbose=2)
    return model, task.test, task.calibration
