"""Times of fragmented files are those of a linear decode, whatever the fragments are joined from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed import VideoDecoder
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import RawPackets, build_table
from framefeed.testing.samples import painted_frame, write_clip

ENCODERS: list[tuple[str, dict[str, str]]] = [
    ("libx264", {"x264-params": "keyint=25:min-keyint=25:open-gop=1:bframes=2:scenecut=0"}),
    ("libx264", {"x264-params": "keyint=12:bframes=3:b-pyramid=normal:scenecut=0"}),
    ("libx264", {"x264-params": "keyint=20:bframes=0"}),
    ("libx265", {"x265-params": "log-level=none:keyint=25:open-gop=1:bframes=2:pools=none:frame-threads=1"}),
    ("mpeg4", {"bf": "2", "g": "15"}),
]


def _segments(folder: Path, rng: random.Random) -> tuple[bytes, list[bytes]]:
    """What FFmpeg's HLS muxer writes: the header, and segments that go on in time."""
    codec, encoder = rng.choice(ENCODERS)
    rate, start = rng.choice([24, 25, 30]), rng.choice([0, 0, 7, 1000])
    options = {
        "hls_segment_type": "fmp4",
        "hls_time": rng.choice(["0.4", "1"]),
        "hls_list_size": "0",
        "hls_segment_filename": str(folder / "s%03d.m4s"),
        "hls_fmp4_init_filename": "init.mp4",
    }
    with av.open(str(folder / "p.m3u8"), "w", format="hls", options=options) as container:
        stream = container.add_stream(codec, rate=rate)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"threads": "1", **encoder}
        for number in range(rng.randrange(50, 100)):
            frame = painted_frame(number, 64, 48)
            frame.pts, frame.time_base = number + start, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return (folder / "init.mp4").read_bytes(), [path.read_bytes() for path in sorted(folder.glob("s*.m4s"))]


def _linear_times(path: Path) -> NDArray[np.float64]:
    with av.open(str(path)) as container:
        base = container.streams.video[0].time_base
        assert base is not None
        return np.array([float(frame.pts * base) for frame in container.decode(video=0) if frame.pts is not None])


def _compare(path: Path, rng: random.Random, share: float) -> None:
    """All times that rise are FFmpeg's, and so are the frames that are played at them."""
    truth = _linear_times(path)
    decoder = VideoDecoder(path)
    assert len(decoder) == len(truth)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(truth)[:-1]])
    behind = np.concatenate([np.minimum.accumulate(truth[::-1])[::-1][1:], [np.inf]])
    rises = (before < truth) & (truth < behind)
    assert rises.mean() >= share, path
    times = decoder.index.pts_seconds(np.arange(len(truth)))
    assert np.abs(times - truth)[rises].max() < 1e-6, path
    assert (np.diff(times) > 0).all()
    assert times[0] == pytest.approx(truth[0])
    frames = np.flatnonzero(rises[:-1] & rises[1:]).tolist()
    for frame in rng.sample(frames, min(5, len(frames))):
        middle = (truth[frame] + truth[frame + 1]) / 2
        played = decoder.get_frame_played_at(middle)
        assert played.pts_seconds == pytest.approx(truth[frame])
        assert bool((played.data == decoder[frame]).all())


@pytest.mark.parametrize("number", range(12))
def test_joined_segments(number: int, tmp_path: Path) -> None:
    rng = random.Random(600 + number)
    header, segments = _segments(tmp_path, rng)
    path = tmp_path / "joined.mp4"
    for parts in (
        [header, *segments],
        [header + segment for segment in segments],  # each with the header in front
        [header, *segments[rng.randrange(len(segments)) :]],  # begins late
        [header, segments[-1]],
    ):
        path.write_bytes(b"".join(parts))
        _compare(path, rng, 0.8)


@pytest.mark.parametrize(
    "flags",
    [
        "frag_keyframe+empty_moov+default_base_moof",
        "frag_keyframe+delay_moov",  # an edit list
        "frag_every_frame+empty_moov",
        "dash+frag_keyframe",
        "cmaf+frag_keyframe",
        "frag_keyframe+negative_cts_offsets+empty_moov",
    ],
)
def test_fragments_of_one_file(flags: str, tmp_path: Path) -> None:
    rng = random.Random(flags)
    path = tmp_path / "fragments.mp4"
    start = rng.choice([0, 5, 90])
    write_clip(
        path,
        frames=rng.randrange(30, 50),
        width=64,
        height=48,
        gop=rng.choice([5, 12]),
        bframes=rng.choice([0, 2]),
        pts=lambda place: place + start,
        container_options={"movflags": flags},
    )
    _compare(path, rng, 1.0)


def _made(times: list[int], order: Sequence[int] = ()) -> list[int]:
    """The times that a table makes of packets with these, which are shown in this order."""
    numbers = np.array(times, np.int64)
    steady = np.arange(len(times), dtype=np.int64) * 100
    no = np.zeros(len(times), np.bool_)
    raw = RawPackets(
        pos=steady, size=steady + 1, pts=numbers, dts=steady, duration=steady * 0 + 100, key=~no, discard=no
    )
    kinds = np.full(len(times), int(PacketKind.RAP | PacketKind.CLOSED), np.uint16)
    made: list[int] = build_table(raw, kinds, np.array(order or range(len(times)))).frame_pts.tolist()
    return made


def test_few_mistaken_times_are_repaired() -> None:
    right = list(range(200, 2200, 100))
    assert _made(right) == right
    for wrong in ({7: 800}, {7: 700}, {7: 100}, {19: 2000}, {3: 400, 15: 1600}, {8: 1300}):
        given = [wrong.get(number, time) for number, time in enumerate(right)]
        assert _made(given) == right, wrong


def test_decoding_times_are_put_in_order() -> None:
    times = list(range(34, 34 + 67 * 20, 67))
    order = list(range(20))
    order[8:10] = [9, 8]  # few B-frames: most times rise
    assert _made(times, order) == times


def test_times_that_begin_again_go_on() -> None:
    once = list(range(200, 1200, 100))
    assert _made(once * 3) == list(range(200, 3200, 100))
