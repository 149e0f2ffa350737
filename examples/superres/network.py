"""The network: a correction to bicubic enlargement, from a few frames at once."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional


def bicubic(pictures: torch.Tensor, scale: int) -> torch.Tensor:
    """(N, 3, height, width), enlarged the plain way; values stay in 0..1."""
    return functional.interpolate(pictures, scale_factor=scale, mode="bicubic", align_corners=False).clamp(0, 1)


def psnr(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio in decibels, of each picture of a batch with values in 0..1."""
    return -10 * (found - wanted).double().square().flatten(1).mean(1).clamp(min=1e-10).log10()


class SuperResolution(nn.Module):
    """Small frames of a sequence -> the middle one, large.

    All frames go into the first layer side by side. The last layer gives ``scale * scale`` values for each pixel and
    channel, which become a picture of the large size, and is zero at first: training begins with what bicubic
    enlargement gives.

    Args:
        frames: Frames of a sequence.
        channels: Width of the layers between.
        scale: How much larger.
    """

    def __init__(self, frames: int = 5, channels: int = 32, scale: int = 4) -> None:
        super().__init__()
        self.scale = scale
        widths = [3 * frames, channels, channels, channels]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        last = nn.Conv2d(channels, 3 * scale * scale, 3, padding=1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.body = nn.Sequential(*layers, last, nn.PixelShuffle(scale))

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        """(N, frames, 3, height, width) with values in 0..1 -> (N, 3, scale * height, scale * width)."""
        middle = clip[:, clip.shape[1] // 2]
        # In full precision: the correction is small beside the picture.
        return bicubic(middle.float(), self.scale) + self.body(clip.flatten(1, 2) - 0.5).float()
