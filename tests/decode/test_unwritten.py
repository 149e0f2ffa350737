"""Where pictures are marked: every block that a decoder may leave out has a mark."""

from __future__ import annotations

import numpy as np
import pytest

from framefeed.decode.cpu.unwritten import Blocks, _in_blocks, _Memory


@pytest.mark.parametrize("height", [16, 32, 48, 96, 120, 144, 240, 360, 480, 576, 720, 1080])
@pytest.mark.parametrize("filtered", [False, True])
def test_each_block_of_a_frame_and_of_a_field_is_marked(height: int, filtered: bool) -> None:
    width, line, padded = 72, 96, -(-height // 32) * 32
    memory = np.zeros((padded, line), np.uint8)
    places = _in_blocks(
        _Memory(memory.ctypes.data, line, memory.nbytes), Blocks(16, fields=True, filtered=filtered), width, height, 1
    )
    assert places is not None
    places[0].fill(2**64 - 1)
    marked = np.any(memory[:, : -(-width // 16) * 16].reshape(padded, -1, 16), axis=2, keepdims=True)[:, :, 0]
    rows = -(-height // 16)
    assert marked[: 16 * rows].reshape(rows, 16, -1).any(1).all()
    for field in range(2):
        lines = marked[field::2]
        for top in range(0, height // 2, 16):
            assert lines[top : top + 16].any(0).all()
    assert not marked[16 * rows :].any()
