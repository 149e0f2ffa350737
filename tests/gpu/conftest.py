"""Tests that need a GPU. Without one they are skipped, or run by Triton's interpreter where TRITON_INTERPRET=1."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
MISSING = "needs CUDA" if HAS_TRITON else "needs Triton"

# Nothing here can even be imported without Triton.
collect_ignore = [] if HAS_TRITON else ["test_kernels.py"]


def _count_with_tensors() -> None:
    """Lets loops end at numbers that a kernel has loaded: to NumPy 2.4 the interpreter's are none."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_more(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_more


if INTERPRETED:
    _count_with_tensors()


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run: the GPU, or the CPU under Triton's interpreter."""
    if INTERPRETED:
        return torch.device("cpu")
    if not (HAS_TRITON and torch.cuda.is_available()):
        pytest.skip(MISSING)
    return torch.device("cuda", torch.cuda.current_device())
