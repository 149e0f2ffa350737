"""Pictures that make a decoder change its size are what they are said to be."""

from __future__ import annotations

from typing import Any

import av
import pytest

from framefeed.decode.nvdec.detours import find_detour


@pytest.mark.parametrize(
    ("kind", "pix_fmt"),
    [(("h264", "420", 8), "yuv420p"), (("hevc", "420", 8), "yuv420p"), (("hevc", "420", 10), "yuv420p10le")],
)
def test_one_picture_of_another_size(kind: tuple[str, str, int], pix_fmt: str) -> None:
    first = find_detour(*kind, (1920, 1088))
    assert first is not None
    other = find_detour(*kind, (first.side, first.side))
    assert other is not None and other.side != first.side
    for detour in (first, other):
        context: Any = av.CodecContext.create(kind[0], "r")
        units = [*context.parse(detour.content), *context.parse(None)]
        pictures = [picture for unit in [*units, None] for picture in context.decode(unit)]
        assert [(picture.width, picture.height, picture.format.name) for picture in pictures] == [
            (detour.side, detour.side, pix_fmt)
        ]
        assert (context.coded_width, context.coded_height) == (detour.side, detour.side)


def test_kinds_without() -> None:
    assert find_detour("vp9", "420", 8, (64, 64)) is None
    assert find_detour("hevc", "444", 8, (64, 64)) is None
