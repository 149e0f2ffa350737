"""What a file declares is compared with what it can hold, before anything is allocated."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from clips.boxes import Tree, build, find, parse
from framefeed import InvalidFile, VideoDecoder
from framefeed.media.declared import check_declared
from framefeed.media.media import BytesMedia
from framefeed.testing.samples import write_clip

MEMORY = 64 << 20  # bytes by which a process may grow while it refuses a file
SECONDS = 2.0  # of CPU time
STBL = (b"moov", b"trak", b"mdia", b"minf", b"stbl")

# In a process of its own: how much memory and time it takes to look at files, and what is said of them.
MEASURE = """
import resource, sys, time
import framefeed.index.scan, framefeed.index.decode_once, framefeed.media.opening, pyarrow
from framefeed import FramefeedError, VideoDecoder
for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    try:
        VideoDecoder(path)[0]
        said = "read"
    except FramefeedError as error:
        said = f"{type(error).__name__}: {error}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(grown, time.process_time() - began, said, sep="\\t")
"""


def _measure(paths: list[Path]) -> list[tuple[int, float, str]]:
    ran = subprocess.run([sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    return [(int(grown), float(seconds), said) for grown, seconds, said in lines]


def _full(*values: int, version: int = 0) -> bytes:
    return struct.pack(f">{len(values) + 1}I", version << 24, *values)


def _put(tree: Tree, kind: bytes, body: bytes, *path: bytes) -> None:
    """Replaces a box's content, or adds the box."""
    parent = find(tree, *(path or STBL))
    parent[1] = [box for box in parent[1] if box[0] != kind] + [[kind, body]]


def _samples(tree: Tree, count: int, size: int = 1) -> None:
    """All tables declare so many samples of one size."""
    _put(tree, b"stsz", _full(size, count))
    _put(tree, b"stts", _full(1, count, 512))
    _put(tree, b"stsc", _full(1, 1, count, 1))
    _put(tree, b"ctts", _full(1, count, 512))


def _count_only(kind: bytes, *path: bytes) -> Callable[[Tree, int], None]:
    return lambda tree, count: _put(tree, kind, _full(count), *path)


def _edits(tree: Tree, count: int) -> None:
    _samples(tree, 60_000)
    _put(tree, b"stss", _full(1, 1))
    edits = max(2, count // 60_000)
    _put(tree, b"elst", _full(edits, *([0x7FFFFFFF, 0, 0x10000] * edits)), b"moov", b"trak", b"edts")


def _sound(tree: Tree, count: int) -> None:
    handler = find(tree, b"moov", b"trak", b"mdia", b"hdlr")
    handler[1] = handler[1].replace(b"vide", b"soun")
    _put(tree, b"stsz", _full(1, 0xFFFFFFFF))
    _put(tree, b"stts", _full(1, 0xFFFFFFFF, 1))
    _put(tree, b"stsc", _full(1, 1, 0xFFFFFFFF, 1))
    _put(tree, b"stco", _full(count // 100_000, *([48] * (count // 100_000))))


def _tracks(tree: Tree, count: int) -> None:
    """Many tracks that are each small enough."""
    _samples(tree, 60_000)
    movie = find(tree, b"moov")
    track = find(tree, b"moov", b"trak")
    movie[1] = movie[1] + [track] * (min(count, 6_000_000) // 60_000)


def _items(kind: bytes) -> Callable[[Tree, int], None]:
    head = struct.pack(">IH", 2 << 24, 0x4400) if kind == b"iloc" else struct.pack(">I", 1 << 24)
    handler = [b"hdlr", _full(0) + b"pict" + bytes(13)]
    return lambda tree, count: tree.append(
        [b"meta", bytes(4) + build([handler, [kind, head + struct.pack(">I", count)]])]
    )


def _compressed(tree: Tree, count: int) -> None:
    _samples(tree, count)
    _put(tree, b"stsz", _full(0, count) + bytes(4 * count))
    movie = find(tree, b"moov")
    packed = zlib.compress(build([movie]))
    movie[1] = [[b"cmov", build([[b"dcom", b"zlib"], [b"cmvd", struct.pack(">I", len(build([movie]))) + packed]])]]


BOMBS: dict[str, Callable[[Tree, int], None]] = {
    "all": _samples,
    "size_0": lambda tree, count: _samples(tree, count, 0),
    "stsz": lambda tree, count: _put(tree, b"stsz", _full(1, count)),
    "stsz_table": lambda tree, count: _put(tree, b"stsz", _full(0, count)),
    "stz2": lambda tree, count: _put(tree, b"stz2", _full(8, count)),
    "chunks": _count_only(b"stco"),
    "sync_samples": _count_only(b"stss"),
    "offsets": _count_only(b"ctts"),
    "times": _count_only(b"stts"),
    "references": _count_only(b"dref", b"moov", b"trak", b"mdia", b"minf", b"dinf"),
    "groups": lambda tree, count: _put(tree, b"sgpd", struct.pack(">I4sII", 1 << 24, b"sync", 1, count)),
    "edits": _edits,
    "sound": _sound,
    "tracks": _tracks,
    "item_places": _items(b"iloc"),
    "item_names": _items(b"iinf"),
    "compressed": _compressed,
}
HARMLESS: dict[str, Callable[[Tree, int], None]] = {
    "stts_run": lambda tree, count: _put(tree, b"stts", _full(1, count, 512)),
    "stsc_run": lambda tree, count: _put(tree, b"stsc", _full(1, 1, count, 1)),
    "ctts_run": lambda tree, count: _put(tree, b"ctts", _full(1, count, 0)),
}


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("declared") / "clip.mp4"
    write_clip(path, frames=30, width=64, height=48, bframes=2, gop=10)
    return path.read_bytes()


@pytest.fixture(scope="module")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("declared") / "fragments.mp4"
    write_clip(path, frames=30, width=64, height=48, gop=10, container_options={"movflags": "frag_keyframe+empty_moov"})
    return path.read_bytes()


def test_small_files_that_declare_much_are_refused(movie: bytes, tmp_path: Path) -> None:
    rng = random.Random(14)
    paths = []
    for name, change in {**BOMBS, **HARMLESS}.items():
        tree = parse(movie)
        change(tree, rng.choice([3_000_000, 30_000_000, 200_000_000]) if name != "compressed" else 3_000_000)
        paths.append(tmp_path / f"{name}.mp4")
        paths[-1].write_bytes(build(tree))
        assert paths[-1].stat().st_size < 100_000
    for path, (grown, seconds, said) in zip(paths, _measure(paths), strict=True):
        assert (grown < MEMORY, seconds < SECONDS) == (True, True), (path.stem, grown, seconds, said)
        if path.stem in BOMBS:
            assert said.startswith(f"InvalidFile: {path}: "), (path.stem, said)
            assert "made to use up memory" in said, (path.stem, said)


def test_what_is_allowed_takes_time_in_proportion(movie: bytes, tmp_path: Path) -> None:
    """Samples that a file could hold, and does not."""
    path = tmp_path / "padded.mp4"
    tree = parse(movie)
    _samples(tree, 200_000)
    path.write_bytes(build([*tree, [b"free", bytes(800_000)]]))
    ((grown, seconds, said),) = _measure([path])
    assert grown < 2 * MEMORY and seconds < 6, (grown, seconds, said)


def test_runs_of_fragments_are_counted_together(fragments: bytes, tmp_path: Path) -> None:
    paths = []
    for name, count, times in (("one", 3_000_000, 1), ("many", 50_000, 40)):
        tree = parse(fragments)
        run = find(tree, b"moof", b"traf", b"trun")
        run[1] = struct.pack(">III", 1, count, 200)
        fragment = find(tree, b"moof", b"traf")
        fragment[1] = fragment[1] + [run] * times
        paths.append(tmp_path / f"{name}.mp4")
        paths[-1].write_bytes(build(tree))
    for grown, seconds, said in _measure(paths):
        assert grown < MEMORY and seconds < SECONDS, (grown, seconds, said)
        assert "samples, and a file of" in said


def test_what_a_file_can_hold_is_read(movie: bytes, fragments: bytes) -> None:
    rng = random.Random(3)
    for data in (movie, fragments, bytes(100), b""):
        check_declared(BytesMedia(data))
        for _ in range(50):
            check_declared(BytesMedia(data[: rng.randrange(len(data) + 1)]))  # cut off
    tree = parse(movie)
    _put(tree, b"elst", _full(3, *([1000, 0, 0x10000] * 3)), b"moov", b"trak", b"edts")
    check_declared(BytesMedia(build(tree)))
    tree = parse(movie)  # uncompressed sound, cut off
    _sound(tree, 100_000)
    _put(tree, b"stsz", _full(2, 2_000_000))
    _put(tree, b"stsc", _full(1, 1, 2_000_000, 1))
    check_declared(BytesMedia(build(tree)))


def test_damaged_headers_end_in_errors_or_frames(movie: bytes, fragments: bytes) -> None:
    """No other exception, whatever the boxes say."""
    rng = random.Random(5)
    for _ in range(400):
        data = bytearray(rng.choice([movie, fragments]))
        begin = max(0, data.index(b"moov") - 8)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(begin, min(len(data), begin + 1500))] = rng.choice(
                [0, 1, 127, 128, 255, rng.randrange(256)]
            )
        try:
            check_declared(BytesMedia(bytes(data)))
        except InvalidFile:
            continue


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _gif(width: int, height: int) -> bytes:
    place = struct.pack("<HHHHB", 0, 0, width, height, 0)
    header = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0)
    return header + bytes(6) + b"\x2c" + place + b"\x02\x02\x44\x01\x00\x3b"


def test_large_pictures_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "picture.png", tmp_path / "picture.gif"]
    paths[0].write_bytes(_png(16000, 16000))
    paths[1].write_bytes(_gif(16000, 16000))
    for grown, seconds, said in _measure(paths):
        assert grown < MEMORY and seconds < SECONDS, (grown, seconds, said)
        assert "declares pictures of 16000x16000, which is more than 134,217,728 pixels" in said
        assert "set FRAMEFEED_MAX_PIXELS=256000000" in said


def test_the_limit_of_pixels_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clip.mp4"
    for codec in ("libx264", "libx265"):  # the latter is indexed without FFmpeg
        write_clip(path, frames=3, width=64, height=48, codec=codec)
        monkeypatch.setenv("FRAMEFEED_MAX_PIXELS", str(64 * 48 - 1))
        with pytest.raises(InvalidFile, match=r"64x48, which is more than 3,071 pixels.*FRAMEFEED_MAX_PIXELS=3072"):
            VideoDecoder(path)
        monkeypatch.setenv("FRAMEFEED_MAX_PIXELS", str(64 * 48))
        assert VideoDecoder(path)[1].shape == (3, 48, 64)
    for wrong in ("many", "-1", "0", "1e9", str(1 << 31)):
        monkeypatch.setenv("FRAMEFEED_MAX_PIXELS", wrong)
        with pytest.raises(ValueError, match="should be a number of pixels"):
            VideoDecoder(path)
