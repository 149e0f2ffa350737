"""Metadata, decoder and loader agree on the size of cropped pictures, which is the size of a linear decode's."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import av
import pytest

import clips
from framefeed import FrameSizeError, VideoDataset, VideoDecoder, VideoIndex, VideoLoader, video_size_from_file
from framefeed.cli import main
from framefeed.index.bitstream.shown_size import has_size
from framefeed.index.orientation import first_packet_turns
from framefeed.media.native import NativeFrame
from framefeed.readers import open_reader
from framefeed.testing.samples import write_clip

WIDTH, HEIGHT, FRAMES = 160, 96, 8
ENCODERS = {"h264": "libx264", "hevc": "libx265"}


def _crop(rng: random.Random) -> str:
    """Crop rectangles, as FFmpeg's filters of metadata take them."""
    sides = {side: rng.choice([0, 0, 2, 4, 6, 8, 16, 32]) for side in ("left", "right", "top", "bottom")}
    return ":".join(f"crop_{side}={value}" for side, value in sides.items())


def _filter(source: Path, target: Path, name: str | None) -> None:
    """Changes headers in band; those of the container stay as they are where it has any."""
    with av.open(str(source)) as read, av.open(str(target), "w") as written:
        stream = read.streams.video[0]
        filters = av.BitStreamFilterContext(name or "null", stream)
        copy = written.add_stream_from_template(stream)
        for packet in read.demux(stream):
            for changed in filters.filter(packet if packet.size else None):
                changed.stream = copy
                written.mux(changed)


def _say_size(path: Path, width: int, height: int) -> None:
    """Writes another size into a container's headers."""
    data = bytearray(path.read_bytes())
    if path.suffix == ".mkv":
        for name, value in ((b"\xb0\x81", width), (b"\xba\x81", height)):
            data[data.index(name) + 2] = value
    else:
        struct.pack_into(">HH", data, data.index(b"stsd") + 44, width, height)
        at = data.index(struct.pack(">II", WIDTH << 16, HEIGHT << 16))
        struct.pack_into(">II", data, at, width << 16, height << 16)
    path.write_bytes(bytes(data))


def _check(path: Path) -> None:
    truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
    size = {(picture.width, picture.height) for picture in truth}
    assert len(truth) == FRAMES and len(size) == 1
    width, height = size.pop()
    decoder = VideoDecoder(path)
    assert (decoder.metadata.width, decoder.metadata.height) == (width, height)
    assert VideoIndex.scan(path.read_bytes()).stream.display_size == (height, width)
    assert tuple(video_size_from_file(path)) == (width, height)
    assert decoder.get_native_frames_at(list(range(FRAMES))) == truth
    batch = decoder.get_frames_at([5, 0, 3]).data
    assert batch.shape == (3, 3, height, width)
    loader = VideoLoader(VideoDataset([path]), batch_size=FRAMES, shuffle=False)
    (loaded,) = list(loader)
    pictures = loaded["default"][:, 0]
    assert (pictures[[5, 0, 3]] == batch).all()
    with open_reader("framefeed", path) as reader:
        assert reader.read_frames([5, 0, 3]).shape == (3, height, width, 3)


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("seed", range(6))
def test_headers_in_band_crop(codec: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{codec} {seed}")
    source, cropped = tmp_path / "source.ts", tmp_path / "cropped.ts"
    write_clip(source, codec=ENCODERS[codec], frames=FRAMES, width=WIDTH, height=HEIGHT, bframes=0)
    _filter(source, cropped, f"{codec}_metadata={_crop(rng)}")
    _check(cropped)
    for suffix in (".mp4", ".mkv"):
        again = tmp_path / f"again{suffix}"  # the container knows
        _filter(cropped, again, None)
        _check(again)
        other = tmp_path / f"other{suffix}"  # the container says the size of the whole picture
        _filter(source, other, f"{codec}_metadata={_crop(rng)}")
        _check(other)
    raw = tmp_path / f"raw.{codec}"
    raw.write_bytes(_payload(cropped))
    _check(raw)


def _payload(path: Path) -> bytes:
    with av.open(str(path)) as container:
        return b"".join(bytes(packet) for packet in container.demux(video=0) if packet.size)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4", "libvpx-vp9", "mjpeg"])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_the_container_says_another_size(codec: str, suffix: str, tmp_path: Path) -> None:
    rng = random.Random(codec + suffix)
    path = tmp_path / f"clip{suffix.replace('mp4', 'mov') if codec == 'mjpeg' else suffix}"
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    for width, height in [(160, 88), (154, 90), (144, 88), (rng.randrange(130, 180), rng.randrange(80, 120))]:
        write_clip(path, codec=codec, frames=FRAMES, width=WIDTH, height=HEIGHT, pix_fmt=pix_fmt)
        _say_size(path, width, height)
        _check(path)


def test_info_and_metadata_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clip.mp4"
    write_clip(path, frames=FRAMES, width=WIDTH, height=HEIGHT)
    _say_size(path, WIDTH, 88)
    assert main(["info", "--json", str(path)]) == 0
    said = json.loads(capsys.readouterr().out)["stream"]
    metadata = VideoDecoder(path).metadata
    assert (said["width"], said["height"]) == (metadata.width, metadata.height)


def test_a_size_that_changes_is_still_an_error(tmp_path: Path) -> None:
    source, cropped, both = tmp_path / "a.ts", tmp_path / "b.ts", tmp_path / "both.h264"
    write_clip(source, frames=FRAMES, width=WIDTH, height=HEIGHT, bframes=0)
    _filter(source, cropped, "h264_metadata=crop_bottom=8")
    both.write_bytes(_payload(source) + _payload(cropped))
    decoder = VideoDecoder(both)
    assert (decoder.metadata.width, decoder.metadata.height) == (WIDTH, HEIGHT)
    assert decoder.get_frames_at([0, FRAMES - 1]).data.shape == (2, 3, HEIGHT, WIDTH)
    with pytest.raises(FrameSizeError, match="the size changes in mid-stream"):
        decoder.get_frames_at([0, FRAMES + 1])


@pytest.mark.parametrize("codec", ENCODERS)
def test_damaged_beginnings_leave_the_size_in_doubt(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    write_clip(path, codec=ENCODERS[codec], frames=FRAMES, width=WIDTH, height=HEIGHT)
    index = VideoIndex.scan(path)
    data = path.read_bytes()
    begin = int(index.packets.pos[0])
    opening = data[begin : begin + 4096]
    rng = random.Random(codec)
    assert has_size(codec, index.stream.extradata, opening, WIDTH, HEIGHT)
    assert not has_size(codec, index.stream.extradata, opening, WIDTH, HEIGHT - 8)
    for _ in range(300):
        headers, packet = bytearray(index.stream.extradata), bytearray(opening)
        for part in (headers, packet):
            for _ in range(rng.randrange(3)):
                part[rng.randrange(len(part))] = rng.choice([0, 0, 255, rng.randrange(256)])
            del part[rng.choice([len(part), len(part), rng.randrange(len(part))]) :]
        has_size(codec, bytes(headers), bytes(packet), WIDTH, HEIGHT)
        first_packet_turns(codec, bytes(headers), bytes(packet))
