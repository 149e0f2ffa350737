"""A usual set of augmentations, as an example of what can be put together."""

from __future__ import annotations

from typing import Any

from framefeed.transforms.library import kornia_augmentation

__all__ = ["standard_video_augmentations"]


def standard_video_augmentations(
    *,
    flip: float = 0.5,
    degrees: float = 5.0,
    translate: float = 0.05,
    scale: float = 0.05,
    color: float = 0.2,
    hue: float = 0.02,
    blur: float = 0.2,
) -> list[Any]:
    """Flip left to right, small affine change, colour jitter and blur, for ``VideoAugmentation(*these)``.

    Args:
        flip: Share of the clips that are flipped.
        degrees: Clips are turned by up to so much, either way.
        translate: They are moved by up to this part of their size.
        scale: They are made larger or smaller by up to this part.
        color: Brightness, contrast and saturation change by up to this part.
        hue: Hue changes by up to this part of the circle.
        blur: Share of the clips that are blurred.

    Raises:
        MissingBackend: Kornia is not installed.
    """
    kornia = kornia_augmentation()
    return [
        kornia.RandomHorizontalFlip(p=flip),
        kornia.RandomAffine(
            degrees, translate=(translate, translate), scale=(1 - scale, 1 + scale), padding_mode="border", p=1.0
        ),
        kornia.ColorJitter(color, color, color, hue, p=1.0),
        kornia.RandomGaussianBlur((5, 5), (0.3, 1.5), p=blur),
    ]
