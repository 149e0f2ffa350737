"""Videos whose pictures a GPU's decoder would change are not given to it, whatever their container."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

import clips
import standin
from framefeed import UnsupportedCodec, VideoDecoder
from framefeed.decode.nvdec import capabilities
from framefeed.testing.samples import write_clip
from standin import StandIn


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with standin.installed(monkeypatch) as used:
        yield used


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("h264_mbaff", "interlaced"),
        ("h264_mbaff_ts", "interlaced"),
        ("h264_paff_mp4", "interlaced"),
        ("h264_paff_mkv", "interlaced"),
        ("h264_paff_ts", "interlaced"),
        ("h264_lossless", "profile 244"),
        ("h264_size_change_ts", "headers change"),
        ("h264_raw", "without time stamps"),
        ("mpeg2_interlaced", "possible: h264"),
    ],
)
def test_refused(name: str, reason: str, gpu: StandIn, clip_folder: Path) -> None:
    index = VideoDecoder(clips.make(name, clip_folder)).index
    with pytest.raises(UnsupportedCodec, match=reason):
        capabilities.check_supported(index, 0)


@pytest.mark.parametrize("name", ["h264_b_pyramid", "h264_ts", "h264_m2ts", "h264_avi", "h264_nut", "hevc_open_gop"])
def test_taken(name: str, gpu: StandIn, clip_folder: Path) -> None:
    capabilities.check_supported(VideoDecoder(clips.make(name, clip_folder)).index, 0)


@pytest.mark.parametrize(
    ("codec", "side", "is_refused"),
    [
        (codec, side, side in ("left", "top"))
        for codec in ("h264", "hevc")
        for side in ("left", "top", "right", "bottom")
    ],
)
def test_pictures_that_are_cut_off(codec: str, side: str, is_refused: bool, gpu: StandIn, tmp_path: Path) -> None:
    """A decoder on a GPU cuts off at the right and at the bottom, whatever is said."""
    whole, cut = tmp_path / "whole.ts", tmp_path / "cut.ts"
    encoder = {"h264": "libx264", "hevc": "libx265"}[codec]
    write_clip(whole, codec=encoder, frames=12, gop=6, width=96, height=64)
    with av.open(whole) as source, av.open(cut, "w") as target:
        stream = source.streams.video[0]
        edit = av.BitStreamFilterContext(f"{codec}_metadata=crop_{side}=16", stream)
        out = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            for each in edit.filter(packet if packet.size else None):
                each.stream = out
                target.mux(each)
    index = VideoDecoder(cut).index
    # At the left, FFmpeg's decoders cut off multiples of 64 pixels only.
    size = {"left": (96, 64), "right": (80, 64)}.get(side, (96, 48))
    assert (index.stream.width, index.stream.height) == size
    if is_refused:
        with pytest.raises(UnsupportedCodec, match="cut off at the left or at the top"):
            capabilities.check_supported(index, 0)
    else:
        capabilities.check_supported(index, 0)


@pytest.mark.parametrize("start_code", [b"\0\0\1", b"\0\0\0\1"])
def test_any_start_code(start_code: bytes, clip_folder: Path) -> None:
    """Parameter sets lie in transport streams as they lay in what was coded."""
    stream = VideoDecoder(clips.make("h264_mbaff_ts", clip_folder)).index.stream
    units = [unit for unit in stream.extradata.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1") if unit]

    def obstacle(extradata: bytes) -> str:
        return capabilities._h264_obstacle(dataclasses.replace(stream, extradata=extradata))

    assert "interlaced" in obstacle(b"".join(start_code + unit for unit in units))
    assert "not told" in obstacle(start_code + units[-1])
    assert "not told" in obstacle(b"")


@pytest.mark.parametrize(("codec", "tag"), [("libx264", b"avc1"), ("libx265", b"hev1")])
@pytest.mark.parametrize("size", [(90, 60), (128, 80), (96, 64)])
def test_sizes_that_only_the_container_has(
    codec: str, tag: bytes, size: tuple[int, int], gpu: StandIn, tmp_path: Path
) -> None:
    """Of H.264, FFmpeg may cut pictures to such a size; hardware would be told to scale them."""
    path = write_clip(tmp_path / "clip.mp4", codec=codec, frames=6, width=96, height=64)
    data = bytearray(path.read_bytes())
    at = data.index(tag, data.index(b"stsd")) + 4 + 24
    assert data[at : at + 4] == b"".join(side.to_bytes(2, "big") for side in (96, 64))
    data[at : at + 4] = b"".join(side.to_bytes(2, "big") for side in size)
    path.write_bytes(data)
    index = VideoDecoder(path).index
    if (index.stream.width, index.stream.height) != (96, 64):
        assert codec == "libx264"
        with pytest.raises(UnsupportedCodec, match=rf"its container says {size[0]}x{size[1]} .* 96x64"):
            capabilities.check_supported(index, 0)
    else:
        capabilities.check_supported(index, 0)
