"""The default stream is the one that FFmpeg calls the best, whatever else a file has."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from framefeed import VideoDecoder
from framefeed.index import VideoIndex

CONTAINERS: dict[str, tuple[str, dict[str, str]]] = {
    "mp4": (".mp4", {}),
    "fragments": (".mp4", {"movflags": "frag_keyframe+empty_moov"}),
    "front": (".mov", {"movflags": "faststart"}),
    "mkv": (".mkv", {}),
    "ts": (".ts", {}),
}


def _write(path: Path, options: dict[str, str], rng: random.Random) -> None:
    """Two or three video streams that differ at random."""
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    with av.open(str(path), "w", options=options) as container:
        streams = []
        for _ in range(rng.choice([2, 2, 3])):
            codec = rng.choice(["libx264", "mpeg4"] if path.suffix != ".ts" else ["libx264", "mpeg2video"])
            stream = container.add_stream(codec, rate=25)
            assert isinstance(stream, av.VideoStream)
            stream.width, stream.height = rng.choice([(64, 48), (160, 96), (320, 176)])
            stream.pix_fmt = "yuv420p"
            stream.codec_context.gop_size = rng.choice([5, 50])
            if codec == "libx264":
                stream.options = {"preset": "ultrafast", "crf": rng.choice(["10", "40"])}
            else:
                stream.bit_rate = rng.choice([50_000, 2_000_000])
            kinds = av.stream.Disposition
            stream.disposition = rng.choice([kinds.default, kinds(0), kinds(0), kinds.visual_impaired, kinds.dub])
            streams.append((stream, rng.choice([1, 3, 8, 30])))
        for stream, count in streams if rng.random() < 0.3 else streams[::-1]:
            for number in range(count):
                shape = (stream.height * 3 // 2, stream.width)
                picture = numbers.integers(0, rng.choice([2, 255]), shape, np.uint8)
                frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
                frame.pts, frame.time_base = number, Fraction(1, 25)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_default_stream_is_the_best(kind: str, tmp_path: Path) -> None:
    suffix, options = CONTAINERS[kind]
    rng = random.Random(f"best {kind}")
    taken = []
    for number in range(12):
        path = tmp_path / f"{number}{suffix}"
        _write(path, options, rng)
        with av.open(str(path)) as container:
            stream = container.streams.best("video")
            assert stream is not None
            best = stream.index
        index = VideoIndex.scan(path)
        assert index.stream.stream_index == best, path
        assert VideoIndex.scan(path.read_bytes()).stream.stream_index == best
        assert VideoDecoder(path).metadata.stream_index == best
        taken.append(best)
    assert len(set(taken)) > 1
