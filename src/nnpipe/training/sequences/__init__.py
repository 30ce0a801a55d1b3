"""Input pipelines: chains of sequences of batches, with sample ids, workers and exact resume.

The public names can be imported from here; each is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nnpipe.training.sequences._batch_work import TransformError as TransformError
    from nnpipe.training.sequences._batch_work import WorkerError as WorkerError
    from nnpipe.training.sequences.array import ArraySequence as ArraySequence
    from nnpipe.training.sequences.array import Characters as Characters
    from nnpipe.training.sequences.array import CharacterWindows as CharacterWindows
    from nnpipe.training.sequences.dataset import ApplyDeclaredTransforms as ApplyDeclaredTransforms
    from nnpipe.training.sequences.dataset import ApplyTransforms as ApplyTransforms
    from nnpipe.training.sequences.dataset import DatasetSequence as DatasetSequence
    from nnpipe.training.sequences.library_transforms import (
        AlbumentationsTransform as AlbumentationsTransform,
    )
    from nnpipe.training.sequences.library_transforms import (
        TorchvisionTransform as TorchvisionTransform,
    )
    from nnpipe.training.sequences.map import MapSequence as MapSequence
    from nnpipe.training.sequences.mixing import CutMix as CutMix
    from nnpipe.training.sequences.mixing import MixUp as MixUp
    from nnpipe.training.sequences.other_libraries import HuggingFaceSequence as HuggingFaceSequence
    from nnpipe.training.sequences.other_libraries import TensorFlowSequence as TensorFlowSequence
    from nnpipe.training.sequences.padding import AudioCollation as AudioCollation
    from nnpipe.training.sequences.padding import TextCollation as TextCollation
    from nnpipe.training.sequences.picture_transforms import ColourJitter as ColourJitter
    from nnpipe.training.sequences.picture_transforms import RandomAffine as RandomAffine
    from nnpipe.training.sequences.picture_transforms import RandomResizedCrop as RandomResizedCrop
    from nnpipe.training.sequences.picture_transforms import Resize as Resize
    from nnpipe.training.sequences.regroup import CollateSequence as CollateSequence
    from nnpipe.training.sequences.regroup import Grouped as Grouped
    from nnpipe.training.sequences.regroup import MaxSamples as MaxSamples
    from nnpipe.training.sequences.regroup import Rebatched as Rebatched
    from nnpipe.training.sequences.regroup import SubBatched as SubBatched
    from nnpipe.training.sequences.reservoir import ReservoirSequence as ReservoirSequence
    from nnpipe.training.sequences.samplers import ClassBalancedSampler as ClassBalancedSampler
    from nnpipe.training.sequences.samplers import LengthSampler as LengthSampler
    from nnpipe.training.sequences.samplers import RandomSampler as RandomSampler
    from nnpipe.training.sequences.samplers import Sampler as Sampler
    from nnpipe.training.sequences.samplers import SequentialSampler as SequentialSampler
    from nnpipe.training.sequences.samplers import SubsetSampler as SubsetSampler
    from nnpipe.training.sequences.samplers import WeightedSampler as WeightedSampler
    from nnpipe.training.sequences.sequence import Sequence as Sequence
    from nnpipe.training.sequences.torch_loader import TorchSequence as TorchSequence
    from nnpipe.training.sequences.transforms import AboveThreshold as AboveThreshold
    from nnpipe.training.sequences.transforms import AddNoise as AddNoise
    from nnpipe.training.sequences.transforms import Compose as Compose
    from nnpipe.training.sequences.transforms import Jointly as Jointly
    from nnpipe.training.sequences.transforms import RandomCrop as RandomCrop
    from nnpipe.training.sequences.transforms import RandomErase as RandomErase
    from nnpipe.training.sequences.transforms import RandomFlip as RandomFlip
    from nnpipe.training.sequences.transforms import RandomQuarterTurn as RandomQuarterTurn
    from nnpipe.training.sequences.transforms import Sometimes as Sometimes

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "_batch_work": ("TransformError", "WorkerError"),
        "array": ("ArraySequence", "CharacterWindows", "Characters"),
        "dataset": ("ApplyDeclaredTransforms", "ApplyTransforms", "DatasetSequence"),
        "library_transforms": ("AlbumentationsTransform", "TorchvisionTransform"),
        "map": ("MapSequence",),
        "mixing": ("CutMix", "MixUp"),
        "other_libraries": ("HuggingFaceSequence", "TensorFlowSequence"),
        "padding": ("AudioCollation", "TextCollation"),
        "picture_transforms": ("ColourJitter", "RandomAffine", "RandomResizedCrop", "Resize"),
        "regroup": ("CollateSequence", "Grouped", "MaxSamples", "Rebatched", "SubBatched"),
        "reservoir": ("ReservoirSequence",),
        "samplers": (
            "ClassBalancedSampler",
            "LengthSampler",
            "RandomSampler",
            "Sampler",
            "SequentialSampler",
            "SubsetSampler",
            "WeightedSampler",
        ),
        "sequence": ("Sequence",),
        "torch_loader": ("TorchSequence",),
        "transforms": (
            "AboveThreshold",
            "AddNoise",
            "Compose",
            "Jointly",
            "RandomCrop",
            "RandomErase",
            "RandomFlip",
            "RandomQuarterTurn",
            "Sometimes",
        ),
    },
)
