"""Kornia's augmentations for batches of clips: all frames of a clip alike, and seeded for each sample.

Needs Kornia: ``pip install framefeed[transforms]``. It is loaded when the first augmentation is made.
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
