"""A standard set of augmentations."""

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
    """Returns a horizontal flip, small affine change, colour jitter and blur, for ``VideoAugmentation(*these)``.

    Args:
        flip: Probability of a flip.
        degrees: Largest rotation, either way.
        translate: Largest shift, as a fraction of the size.
        scale: Largest change of size, as a fraction.
        color: Largest change of brightness, contrast and saturation, as a fraction.
        hue: Largest change of hue, as a fraction of the circle.
        blur: Probability of a blur.

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
