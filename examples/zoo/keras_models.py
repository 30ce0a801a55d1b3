"""A network of keras.applications."""

from __future__ import annotations

from zoo.data import SIDE, TEST, Task, digits
from zoo.training import Trained, accuracy


def mobilenet_v3() -> Trained:
    """MobileNetV3-Small of Keras with half its channels; images have channels last and pixels
    from 0 to 255.
    """
    import keras

    keras.utils.set_random_seed(0)
    found = digits()
    images = (found.inputs["image"].transpose(0, 2, 3, 1) + 1.5) * 85
    task = Task({"image": images.clip(0, 255)}, found.targets)
    model = keras.applications.MobileNetV3Small(
        input_shape=(SIDE, SIDE, 3), alpha=0.5, weights=None, classes=10, dropout_rate=0.1
    )
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # with the usual 0.999, the averages would still be those of the first weights
            layer.momentum = 0.9
    inputs, labels = task.training
    rates = keras.optimizers.schedules.CosineDecay(3e-3, 6 * len(labels) // 32)
    model.compile(
        keras.optimizers.Adam(rates), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.fit(inputs["image"], labels, batch_size=32, epochs=6, verbose=2)
    pictures, wanted = task.part(0, TEST)
    return Trained(
        model, task.test, task.calibration, accuracy(model.predict(pictures["image"]), wanted)
    )
