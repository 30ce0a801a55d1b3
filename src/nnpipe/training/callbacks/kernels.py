"""The kernels of a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.training.callbacks._sample_access import as_image, show_images
from nnpipe.training.callbacks.writing_callback import WritingCallback, new_figure, save_figure

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class Kernels(WritingCallback):
    """Draw the kernels of the first two-dimensional convolution after each epoch, into ``pictures/kernels.png``.

    Kernels of 1 or 3 input channels are drawn as they are, others as the mean over the channels.

    Parameters
    ----------
    count
        Number of kernels to draw.
    """

    draws = True
    describes_weights = True
    formerly: ClassVar[tuple[str, ...]] = ("CallbackExportConvolutionKernel",)

    def __init__(self, count: int = 32) -> None:
        check_call(Kernels, locals())
        self.count = count

    def on_epoch_end(self, fit: Fit) -> None:
        """Draw the kernels, if there are any."""
        import torch

        convolutions = ((n, m) for n, m in fit.model.named_modules() if isinstance(m, torch.nn.Conv2d))
        name, layer = next(convolutions, (None, None))
        if layer is None:
            return
        weights = layer.weight.detach().float().cpu().numpy()[: self.count]
        if weights.shape[1] not in (1, 3):
            weights = weights.mean(1, keepdims=True)
        images = []
        for kernel in weights:
            large = np.kron(kernel, np.ones((1, 4, 4)))  # small kernels are enlarged
            image = as_image(large)
            if image is not None:
                images.append(image)
        columns = min(8, len(images))
        picture = new_figure(max(5.0, 1.0 * columns), 0.4 + 1.2 * -(-len(images) // columns))
        show_images(picture, images, [str(n) for n in range(len(images))], columns)
        picture.suptitle(f"kernels of {name or 'the model'}, each from its least value to its greatest", fontsize=9)
        save_figure(fit, "kernels", picture)
