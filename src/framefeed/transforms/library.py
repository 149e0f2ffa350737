"""Lazy import of Kornia."""

from __future__ import annotations

import functools
from typing import Any

from framefeed.errors import MissingBackend

__all__ = ["kornia_augmentation"]


@functools.cache
def kornia_augmentation() -> Any:
    """Imports ``kornia.augmentation``.

    Raises:
        MissingBackend: Kornia is not installed, or cannot be loaded.
    """
    try:
        import kornia.augmentation
    except ImportError as error:
        raise MissingBackend(
            "kornia",
            f"cannot be loaded ({error}); augmentations need Kornia and Python 3.11: pip install framefeed[transforms]",
        ) from error
    return kornia.augmentation
