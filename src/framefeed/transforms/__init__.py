"""Kornia augmentations for batches of clips: equal for all frames of a clip, seeded for each sample.

Needs Kornia: ``pip install framefeed[transforms]``. It is imported with the first augmentation.
"""

from __future__ import annotations

from framefeed.transforms.augmentation import VideoAugmentation
from framefeed.transforms.identity import SampleLabel, SampleLabels, sample_label
from framefeed.transforms.standard import standard_video_augmentations

__all__ = [
    "SampleLabel",
    "SampleLabels",
    "VideoAugmentation",
    "sample_label",
    "standard_video_augmentations",
]
