"""PyTorch programs whose weights are trained while they are rounded (torchao's PT2E quantisation)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def fold_normalisations(module: Any) -> None:
    """Fold batch normalisations into the convolutions and linear layers before them.

    torchao (0.18) does so itself before it observes a module, but not before it trains one: there, it expects
    normalisations that compute the statistics of batches, which a program for inference has no longer.
    """
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_

    _fuse_conv_bn_(module)
    _fuse_linear_bn_(module)


def begin_as_calibrated(trained: Any, calibrated: Any) -> None:
    """Copy the ranges of activations from a calibrated module into one that is to be trained, and hold them.

    So the training begins with what quantisation without training gives.  By itself, torchao begins with the range of
    the first batch and averages over hundreds more; and its ranges contain all values, where those of a calibration
    cut off values that are rare: a ResNet20 with three channels that are 300 times larger had 61 % right as
    calibrated, and only 41 % after 48 steps that began with ranges of all values.  Ranges of weights are always those
    of the present weights: averages would lag behind them and cut them off.

    Parameters
    ----------
    trained
        What ``prepare_qat_pt2e`` returns for a program.
    calibrated
        What ``prepare_pt2e`` returns for the same program, after it has been called on samples.
    """
    known = {node.args[0].name: observer for node, observer in _observers(calibrated)}
    for node, rounding in _observers(trained):
        own = rounding.activation_post_process
        if node.args[0].op == "get_attr":
            own.averaging_constant = 1.0
            continue
        scale, zero = known[node.args[0].name].calculate_qparams()
        own.min_val = ((rounding.quant_min - zero) * scale).reshape(())
        own.max_val = ((rounding.quant_max - zero) * scale).reshape(())
        rounding.scale.copy_(scale)
        rounding.zero_point.copy_(zero)
        rounding.disable_observer()


def _observers(module: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the nodes that observe a tensor, each with its module."""
    for node in module.graph.nodes:
        if node.op == "call_module" and hasattr(observer := module.get_submodule(node.target), "calculate_qparams"):
            yield node, observer
