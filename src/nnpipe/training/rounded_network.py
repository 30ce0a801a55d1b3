"""A network that learns while its numbers are rounded, so that a configuration needs no code."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import MissingDependency
from nnpipe.experiment.module import Module, Stateful
from nnpipe.training.network import Network


class RoundedNetwork(Module):
    """The layers of a network with 8-bit rounding behind weights and activations (Jacob et al., 2018).

    The ranges of the numbers are learned, too.  Layers of heads stay as they are.  It has the weights of the network,
    so that what is loaded there before the training is where it starts.

    Parameters
    ----------
    network
        The network.
    shape
        The shape of the first layer's input without the axis of samples.
    """

    def __init__(self, network: Network, shape: Sequence[int]) -> None:
        check_call(RoundedNetwork, locals())
        self.network = network
        self.shape = tuple(shape)

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Yield the module alone: the network's weights are its weights."""
        yield "module", self.module

    @cached_property
    def module(self) -> Any:
        """The ``torch.nn.Module``, which returns what that of the network returns."""
        from torch import nn

        whole = self.network.module
        found = copy.copy(whole)
        found._modules = {**whole._modules, "layers": self._rounding(nn.Sequential(*whole.layers))}
        return found

    def in_integers(self) -> Any:
        """Return the module as it is used after the training: with weights in integers.

        Raises
        ------
        MissingDependency
            If torchao is not installed.
        """
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        found = copy.copy(self.module)
        made = convert_pt2e(copy.deepcopy(self.module.layers))
        found._modules = {**found._modules, "layers": allow_exported_model_train_eval(made)}
        return found

    def _rounding(self, layers: Any) -> Any:
        import torch

        try:
            from torchao.quantization.pt2e import allow_exported_model_train_eval
            from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
            from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
        except ImportError:
            raise MissingDependency(
                "RoundedNetwork needs torchao, which is not installed: pip install 'torchao'"
            ) from None
        example, batch = torch.zeros(2, *self.shape), torch.export.Dim("batch", min=2)
        program = torch.export.export(layers.eval(), (example,), dynamic_shapes=({0: batch},)).module()
        config = x86.get_default_x86_inductor_quantization_config(is_qat=True)
        made = prepare_qat_pt2e(program, x86.X86InductorQuantizer().set_global(config))
        return _drawing_nothing(allow_exported_model_train_eval(made))


def _drawing_nothing(module: Any) -> Any:
    """Make a module change between training and evaluation without drawing random numbers.

    torchao looks for operations to exchange by examples that it draws each time.  A training that goes on within an
    epoch changes once more than one that was never interrupted: its later random numbers would be others.
    """
    from torch.random import fork_rng

    train = module.train

    def change(mode: bool = True) -> Any:
        with fork_rng(devices=[]):
            return train(mode)

    module.train, module.eval = change, lambda: change(False)
    return module
