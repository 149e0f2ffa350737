"""Motion vectors that point out of the picture: FFmpeg then shows what was in memory before."""

from __future__ import annotations

import random
from pathlib import Path

import av
import av.error
import av.logging
import pytest

from clips.base import read_packets
from framefeed import VideoIndex
from framefeed.decode.cpu.vectors import EXPORTED, picture_header, strays_of
from framefeed.index.containers.container import make_context
from framefeed.testing import samples
from framefeed.types import StreamInfo
from random_damage import check, make_mutant


def _told_and_found(payloads: list[bytes], stream: StreamInfo) -> tuple[set[int], set[int]] | None:
    """Packets with such vectors by FFmpeg's log and by the check; None where the decoder refuses one."""
    strays, context = strays_of(stream), make_context(stream)
    assert strays is not None
    context.options |= EXPORTED | {"err_detect": "explode"}
    told, found = set(), set()
    for number, payload in enumerate([*payloads, payloads[0]]):
        packet = av.Packet(payload)
        packet.pts = number
        with av.logging.Capture() as lines:
            try:
                frames = context.decode(packet)
            except av.error.FFmpegError:
                return None
        if any("out of boundary" in line[2] for line in lines):
            told.add(number)
        found |= {
            frame.pts or 0 for frame in frames if strays(frame, picture_header(payloads[frame.pts or 0]).is_field)
        }
    return told, found


@pytest.mark.parametrize("options", [{}, {"flags": "+ildct+ilme"}], ids=["progressive", "interlaced"])
@pytest.mark.parametrize("bframes", [0, 2])
def test_vectors_that_point_out_of_the_picture_are_found(bframes: int, options: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    samples.write_clip(path, codec="mpeg2video", frames=8, gop=8, bframes=bframes, options=options)
    stream = VideoIndex.scan(path).stream
    payloads = [bytes(packet) for packet in read_packets(path)]
    levels = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.DEBUG)
    av.logging.set_skip_repeated(False)
    some = 0
    try:
        assert _told_and_found(payloads, stream) == (set(), set())
        for seed in range(400):
            rng = random.Random(seed)
            number = rng.randrange(1, len(payloads))
            harmed = bytearray(payloads[number])
            bit = rng.randrange(8 * 40, 8 * len(harmed))
            harmed[bit // 8] ^= 1 << bit % 8
            both = _told_and_found([*payloads[:number], bytes(harmed), *payloads[number + 1 :]], stream)
            if both is not None:
                assert both[0] == both[1], seed
                some += bool(both[0])
    finally:
        av.logging.set_level(levels[0])
        av.logging.set_skip_repeated(levels[1])
    assert some


def test_what_they_leave_undetermined_is_not_shown(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(12):
        path, good, _ = make_mutant(tmp_path, rng, ["mpeg2_interlaced.mkv"])
        assert not check(path, rng, [], good)
