"""Pictures of the size that they have become the RGB that FFmpeg itself makes of them, whatever their format."""

from __future__ import annotations

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from convert.test_intermediate import STREAM
from framefeed.convert.cpu.rgb import Layout, RgbWriter
from framefeed.convert.transforms import Geometry

FORMATS = ["yuv420p", "yuv420p10le", "yuv420p12le", "yuv422p", "yuv422p10le", "yuv444p", "yuv444p12le", "yuv411p"]
FORMATS += ["yuv410p", "yuv440p", "yuva420p", "yuva422p10le", "nv12", "p010le", "yuyv422", "gray", "rgb24", "gbrp10le"]
FORMATS += ["rgb555le", "rgb565le"]
SIZES = [(48, 64), (180, 320), (181, 320), (145, 178), (145, 177), (17, 33), (181, 16), (2, 18), (3, 16)]


def picture(pix_fmt: str, height: int, width: int, seed: int) -> av.VideoFrame:
    """Blocks of random colours, whose borders lie between chroma samples."""
    random = np.random.default_rng(seed)
    frame = av.VideoFrame(width, height, pix_fmt)
    bits = frame.format.components[0].bits
    words = bits > 8 or pix_fmt in ("rgb555le", "rgb565le")
    for plane in frame.planes:
        across = plane.line_size // 2 if words else plane.line_size
        colors = random.integers(0, 1 << (bits if bits > 8 else 16 if words else 8), (plane.height // 5 + 1, across))
        samples = np.kron(colors, np.ones((5, 4), int))[: plane.height, :across]
        if pix_fmt == "p010le":
            samples <<= 6
        plane.update(samples.astype("<u2" if words else np.uint8).tobytes())
    return frame


def converted(frame: av.VideoFrame, layout: Layout) -> NDArray[np.uint8]:
    """What framefeed makes of it."""
    out = np.empty((3, frame.height, frame.width) if layout == "CHW" else (frame.height, frame.width, 3), np.uint8)
    RgbWriter(STREAM, layout, Geometry()).write(frame, out)
    return out if layout == "HWC" else out.transpose(1, 2, 0)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_rgb_is_that_of_ffmpeg(pix_fmt: str, layout: Layout) -> None:
    for seed, (height, width) in enumerate(SIZES):
        frame = picture(pix_fmt, height, width, seed)
        expected = frame.to_ndarray(format="rgb24", interpolation="BICUBIC")
        got = converted(frame, layout)
        # FFmpeg's fast converter leaves out the last pixels of such lines.
        wide = width // 16 * 16 if pix_fmt.startswith(("yuv420p", "yuva420p", "yuv422p")) and height % 2 == 0 else width
        error = np.abs(got[:, :wide].astype(int) - expected[:, :wide])
        assert error.max(initial=0) == 0, f"{pix_fmt} {width}x{height}: {error.max()}, {error.mean()}"
