"""Other libraries have CUDA contexts of their own, and leave them behind."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest
import torch

import clips
from framefeed import ProcessDesc, VideoDataset, VideoDecoder, VideoLoader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.mark.parametrize("destroyed", [False, True])
def test_a_context_that_another_library_left_behind(clip_folder: Path, destroyed: bool) -> None:
    cuda = torch.device("cuda", torch.cuda.current_device())
    path = clips.make("h264_b_pyramid", clip_folder)
    expected = VideoDecoder(path, device=cuda).get_frames_at([20, 3]).data.cpu()
    driver = ctypes.CDLL("libcuda.so.1")
    theirs = ctypes.c_void_p()
    assert driver.cuCtxCreate_v2(ctypes.byref(theirs), 0, cuda.index or 0) == 0
    try:
        if destroyed:  # by another thread: it stays this one's current context
            thread = threading.Thread(target=driver.cuCtxDestroy_v2, args=(theirs,))
            thread.start()
            thread.join()
        found = VideoDecoder(path, device=cuda).get_frames_at([20, 3]).data
        dataset = VideoDataset([str(path)], processing={"frames": ProcessDesc(type="byte")}, device=cuda)
        batches = [batch["frames"] for batch in VideoLoader(dataset, 4, shuffle=True, drop_last=False)]
    finally:
        current = ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(current), cuda.index or 0)
        driver.cuCtxSetCurrent(current)
        if not destroyed:
            driver.cuCtxDestroy_v2(theirs)
    assert torch.equal(found.cpu(), expected)
    assert sum(len(batch) for batch in batches) == len(dataset)
