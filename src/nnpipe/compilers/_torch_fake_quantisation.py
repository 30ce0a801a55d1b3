"""PyTorch programs whose weights are trained while they are rounded (torchao's PT2E quantisation)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def fold_normalisations(module: Any) -> None:
    """Fold batch normalisations into the convolutions and linear layers before them.

    torchao (0.18) does so itself before it observes a module, but not before it trains one: there, it expects
    normalisations that compute the statistics of batches, which a program for inference has no longer.
    """
    from torchao.quantization.pt2e.utils import _fuse_conv_bn_, _fuse_linear_bn_

    _fuse_conv_bn_(module)
    _fuse_linear_bn_(module)


def observe(prepared: Any, batches: Iterable[Any], call: Callable[[Any, Any], Any]) -> None:
    """Set the ranges of a module that is to be trained, from samples in floats.

    torchao begins with the range of the first batch and averages over the next hundreds; here, each batch counts alike.
    Ranges of weights are always those of the present weights: averages would lag behind the weights and cut them off.

    Parameters
    ----------
    prepared
        What ``prepare_qat_pt2e`` returns.
    batches
        Batches as large as those of the training.
    call
        Calls a module on a batch.
    """
    import torch
    from torchao.quantization.pt2e import disable_fake_quant, enable_fake_quant

    activations = []
    for node in prepared.graph.nodes:
        if node.op == "call_module":
            observer: Any = getattr(prepared.get_submodule(node.target), "activation_post_process", None)
            if not hasattr(observer, "averaging_constant"):
                continue
            if node.args[0].op == "get_attr":
                observer.averaging_constant = 1.0
            else:
                activations.append((observer, observer.averaging_constant))
    prepared.apply(disable_fake_quant)
    with torch.no_grad():
        for number, batch in enumerate(batches, 1):
            for observer, _ in activations:
                observer.averaging_constant = 1 / number
            call(prepared, batch)
    prepared.apply(enable_fake_quant)
    for observer, usual in activations:
        observer.averaging_constant = usual
