"""Triton's interpreter, as the kernels need it. It is used where ``TRITON_INTERPRET=1`` when Triton is imported."""

from __future__ import annotations

import functools
import threading
from typing import Any

LOCK = threading.RLock()  # it works for one thread at a time


@functools.cache
def count_with_tensors() -> None:
    """Lets loops end at numbers that a kernel has loaded: to NumPy 2.4 the interpreter's are none."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_more(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_more


def use_kernels(cuda: Any, workshop: Any) -> None:
    """Has kernels run by the interpreter where loaders launch them.

    Args:
        cuda: The module ``framefeed.convert.cuda.launch``. Its kernels get larger parts of pictures: each part takes
            as long, whatever its size.
        workshop: The module ``framefeed.batch.workshop_cuda``. Little is decoded ahead, as it takes long.
    """
    count_with_tensors()
    run = cuda._run

    def run_alone(*arguments: Any) -> None:
        with LOCK:
            run(*arguments)

    cuda._run = run_alone
    cuda.PLAIN_TILE = cuda.SCALED_TILE = cuda.FINISH_TILE = (64, 128)
    cuda.COPY_TILE = (128, 256)
    workshop.FRAMES_AHEAD = 4
    workshop.MAX_SCRATCH_FRAMES = 8
    workshop.CudaWorkshop.frames_at_once = workshop.CudaWorkshop.frames_together = 16
