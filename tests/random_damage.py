"""Damaged and incomplete files, drawn at random, compared with a linear decode picture by picture.

    python tests/random_damage.py losses --count 300
    python tests/random_damage.py mutants --minutes 20 --seed 7

``losses`` joins segments of a video with some left out, or drops packets; ``mutants`` changes bytes of packets. Each
file is read in many ways and orders, with other files in between. Whatever is asked, a frame has to be the linear
decode's picture of that number or a ``DecodeError``, and always the same of the two. A file that fails is kept, and its
settings are printed; ``--seed`` and ``--first`` make it again.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import av
import av.error

import clips
from clips.base import read_packets, remux
from framefeed import DecodeError, FramefeedError, VideoDecoder, VideoIndex
from framefeed.decode.default import cpu_engine
from framefeed.media.native import NativeFrame
from framefeed.testing import samples

Answer = bytes | None
"""Digest of a picture; None for a frame that cannot be had."""


class Truth(NamedTuple):
    """A linear decode.

    Attributes:
        shown: The packets whose pictures came out, in that order.
        digests: Of these pictures.
        reported: The packets that the decoder refused.
    """

    shown: list[int]
    digests: list[bytes]
    reported: set[int]


def digest(picture: NativeFrame) -> bytes:
    value = hashlib.blake2b(f"{picture.width}x{picture.height}".encode(), digest_size=8)
    for plane in picture.planes:
        value.update(plane.tobytes())
    return value.digest()


def linear_truth(path: Path) -> Truth:
    """Decode a file from start to end with one thread and FFmpeg's default options."""
    shown: list[int] = []
    digests: list[bytes] = []
    reported: set[int] = set()
    with av.open(path) as container:
        stream = container.streams.best("video")
        assert isinstance(stream, av.VideoStream)
        context = stream.codec_context
        context.thread_type = "NONE"
        context.thread_count = 1
        number = 0

        def decode(packet: av.Packet[Any] | None, number: int) -> None:
            try:
                frames = context.decode(packet)
            except av.error.EOFError:
                return
            except av.error.FFmpegError:
                reported.add(number)
                return
            for frame in frames:
                shown.append(frame.pts if frame.pts is not None else -1)
                digests.append(digest(NativeFrame.copy_of(frame)))

        try:
            for packet in container.demux(stream):
                if packet.size:
                    packet.pts = packet.dts = number
                    decode(packet, number)
                    number += 1
        except av.error.FFmpegError:
            pass  # the demuxer ends here
        decode(None, -1)
    return Truth(shown, digests, reported)


# --- files ------------------------------------------------------------------------------------------------------------


def _params(values: dict[str, Any]) -> str:
    return ":".join(f"{name}={value}" for name, value in values.items())


def _draw_source(rng: random.Random) -> dict[str, Any]:
    codec = rng.choice(["libx264", "libx264", "libx264", "libx265", "libx265", "mpeg2video", "mpeg4"])
    gop = rng.choice([5, 8, 12, 16, 24, 25, 32, 48])
    drawn: dict[str, Any] = {"codec": codec, "gop": gop, "frames": rng.choice([60, 96, 120]), "seed": rng.randrange(99)}
    drawn |= {"width": rng.choice([96, 160]), "height": rng.choice([64, 96])}
    if codec == "libx264":
        values: dict[str, Any] = {
            "open-gop": rng.choice([0, 1, 1]),
            "bframes": rng.choice([0, 1, 2, 2, 3, 5]),
            "b-pyramid": rng.choice([0, 2]),
            "b-adapt": rng.choice([0, 1]),
            "ref": rng.choice([1, 2, 3, 5]),
            "scenecut": rng.choice([0, 40]),
            "weightp": rng.choice([0, 2]),
        }
        if rng.random() < 0.15:
            values["slices"] = 3
        drawn["options"] = {"x264-params": _params(values), "preset": "veryfast"}
    elif codec == "libx265":
        values = {
            "open-gop": rng.choice([0, 1, 1]),
            "bframes": rng.choice([0, 2, 4]),
            "b-pyramid": rng.choice([0, 1]),
            "ref": rng.choice([1, 3, 4]),
            "scenecut": 0,
            "radl": rng.choice([0, 0, 2]),
            "repeat-headers": rng.choice([0, 1]),
            "log-level": "none",
        }
        drawn["options"] = {"x265-params": _params(values), "preset": "ultrafast"}
    else:
        drawn["bframes"] = rng.choice([0, 1, 2, 3])
        drawn["options"] = {"g": str(gop), "flags": rng.choice(["+cgop", "-cgop"])} if codec == "mpeg2video" else {}
    return drawn


CONTAINERS = {
    "libx264": ["ts", "fmp4", "mp4", "mkv", "avi"],
    "libx265": ["ts", "fmp4", "mp4", "mkv"],
    "mpeg2video": ["ts", "mkv", "mp4", "mpg"],
    "mpeg4": ["avi", "mp4", "mkv", "ts", "fmp4"],
}
FRAGMENTED = "frag_keyframe+empty_moov+default_base_moof"


def segments(packets: list[Any]) -> list[list[Any]]:
    """Packets by the keyframe they follow."""
    groups: list[list[Any]] = []
    for packet in packets:
        if packet.is_keyframe or not groups:
            groups.append([])
        groups[-1].append(packet)
    return groups


def _lose_packets(rng: random.Random, packets: list[Any]) -> tuple[list[Any], str]:
    way = rng.choice(["segment", "segments", "every", "some", "range", "first"])
    groups = segments(packets)
    if way == "segment" and len(groups) > 2:
        one = rng.randrange(1, len(groups) - 1)
        return [packet for number, group in enumerate(groups) if number != one for packet in group], f"segment {one}"
    if way == "segments" and len(groups) > 4:
        some = set(rng.sample(range(len(groups)), rng.choice([2, 3])))
        return [p for number, group in enumerate(groups) if number not in some for p in group], f"segments {some}"
    if way == "every":
        step = rng.choice([2, 3, 5, 7, 7, 11, 16])
        first = rng.randrange(step)
        return [p for number, p in enumerate(packets) if number % step != first or not number], f"every {step}+{first}"
    if way == "range":
        begin = rng.randrange(len(packets))
        end = begin + rng.choice([1, 2, 5, 16, 30])
        return packets[:begin] + packets[end:], f"range {begin}..{end}"
    if way == "first":
        count = rng.choice([1, 2, 5])
        return packets[count:], f"first {count}"
    lost = set(rng.sample(range(len(packets)), rng.choice([1, 1, 2, 4])))
    return [packet for number, packet in enumerate(packets) if number not in lost], f"packets {sorted(lost)}"


def make_loss(folder: Path, rng: random.Random) -> tuple[Path, dict[str, Any]]:
    """Write a video of which something is missing."""
    drawn = _draw_source(rng)
    kind = rng.choice(CONTAINERS[drawn["codec"]])
    source_kind = "mp4" if kind == "fmp4" else kind
    source = folder / f"source.{'mkv' if source_kind == 'mpg' else source_kind}"
    samples.write_clip(source, **drawn)
    target = folder / f"loss.{source_kind}"
    if kind in ("ts", "fmp4") and rng.random() < 0.6:
        packets = read_packets(source)
        groups = segments(packets)
        per = rng.choice([1, 1, 2])
        parts = [[packet for group in groups[at : at + per] for packet in group] for at in range(0, len(groups), per)]
        lost = set(rng.sample(range(len(parts)), min(len(parts) - 1, rng.choice([1, 1, 2]))))
        pieces = []
        if kind == "ts":
            for number, part in enumerate(parts):
                piece = folder / f"{number}.ts"
                remux(source, piece, part)
                pieces.append(piece.read_bytes())
            data = b"".join(piece for number, piece in enumerate(pieces) if number not in lost)
        else:
            whole = folder / "whole.mp4"
            flags = rng.choice([FRAGMENTED, FRAGMENTED + "+delay_moov", FRAGMENTED + "+negative_cts_offsets"])
            remux(source, whole, packets, movflags=flags)
            init, *moofs = fragments(whole.read_bytes())
            joined = [b"".join(moofs[at : at + per]) for at in range(0, len(moofs), per)]
            lost = set(rng.sample(range(len(joined)), min(len(joined) - 1, rng.choice([1, 1, 2]))))
            data = init + b"".join(piece for number, piece in enumerate(joined) if number not in lost)
        target.write_bytes(data)
        what = f"joined without {sorted(lost)}"
    else:
        packets, what = _lose_packets(rng, read_packets(source))
        options = {"movflags": FRAGMENTED} if kind == "fmp4" else {}
        remux(source, target, packets, **options)
    return target, drawn | {"container": kind, "lost": what}


def fragments(data: bytes) -> list[bytes]:
    """What is in front of the first fragment, and each fragment."""
    places, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"moof":
            places.append(at)
        if data[at + 4 : at + 8] == b"mfra":
            data = data[:at]
            break
        at += max(8, size)
    edges = [0, *places, len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


_KINDS = [
    "h264_bframes", "h264_b_pyramid", "h264_open_gop", "h264_slices", "h264_mbaff", "h264_paff_mp4", "h264_ref8",
    "hevc_closed_bframes", "hevc_b_pyramid", "hevc_open_gop", "vp8_plain", "vp9_mp4", "av1_mp4", "mpeg4_mp4",
]  # fmt: skip


CODECS: dict[str, dict[str, Any]] = {
    "mpeg2_interlaced.mkv": {"codec": "mpeg2video", "options": {"flags": "+ildct+ilme"}},
    "mpeg2_slices.mkv": {"codec": "mpeg2video", "options": {"slices": "4"}},
    "hevc_slices.mkv": {"codec": "libx265", "options": {"x265-params": "slices=3:log-level=none"}},
    "hevc_ctu16.mkv": {"codec": "libx265", "options": {"x265-params": "ctu=16:log-level=none"}},
    "mjpeg.avi": {"codec": "mjpeg", "gop": None, "pix_fmt": "yuvj420p"},
    "ffv1.mkv": {"codec": "ffv1", "gop": None, "options": {"level": "3", "slicecrc": "1", "slices": "4"}},
    "ffv1_plain.mkv": {"codec": "ffv1", "gop": None, "options": {"level": "1"}},
    "prores.mov": {"codec": "prores_ks", "gop": None, "pix_fmt": "yuv422p10le"},
    "png.mov": {"codec": "png", "gop": None, "pix_fmt": "rgb24"},
    "dnxhd.mov": {"codec": "dnxhd", "gop": None, "pix_fmt": "yuv422p", "options": {"profile": "dnxhr_sq"}},
    "vp8_parts.webm": {"codec": "libvpx", "options": {"slices": "4"}},
    "vp9_alt.webm": {"codec": "libvpx-vp9", "options": {"auto-alt-ref": "1", "lag-in-frames": "8"}},
    "flv1.flv": {"codec": "flv"},
    "huffyuv.avi": {"codec": "huffyuv", "gop": None, "pix_fmt": "yuv422p"},
    "mpeg1.mpg": {"codec": "mpeg1video", "bframes": 2},
    "h263.avi": {"codec": "h263", "width": 176, "height": 144},
    "utvideo.avi": {"codec": "utvideo", "gop": None, "pix_fmt": "yuv420p"},
    "jpeg2000.mov": {"codec": "jpeg2000", "gop": None, "pix_fmt": "yuv420p"},
    "wmv2.asf": {"codec": "wmv2"},
}


def _make_good(kind: str, folder: Path) -> Path:
    if kind in clips.KINDS:
        return clips.make(kind, folder)
    path = folder / kind
    if not path.exists():
        samples.write_clip(path, **{"frames": 36, "gop": 12} | CODECS[kind])
    return path


def make_mutant(folder: Path, rng: random.Random, kinds: list[str]) -> tuple[Path, Path, dict[str, Any]]:
    """Write a clip with changed bytes in packets."""
    kind = rng.choice(kinds)
    good = _make_good(kind, _clip_folder())
    index = VideoIndex.scan(good)
    table = index.packets
    data = bytearray(good.read_bytes())
    what = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        number = rng.randrange(len(table))
        begin, size = int(table.pos[number]), int(table.size[number])
        if begin < 0 or begin + size > len(data) or size < 2:
            continue
        way = rng.choice(["bit", "bit", "bits", "byte", "head", "noise", "zeros", "swap"])
        if way in ("bit", "bits"):
            for _ in range(1 if way == "bit" else rng.choice([2, 4, 9])):
                bit = rng.randrange(begin * 8, (begin + size) * 8)
                data[bit // 8] ^= 1 << bit % 8
        elif way == "byte":
            data[rng.randrange(begin, begin + size)] = rng.randrange(256)
        elif way == "head":
            data[begin + rng.randrange(min(24, size))] ^= 1 << rng.randrange(8)
        elif way == "noise":
            at = rng.randrange(begin, begin + size)
            end = min(begin + size, at + rng.choice([1, 4, 16, 64, 4096]))
            data[at:end] = rng.randbytes(end - at)
        elif way == "zeros":
            at = rng.randrange(begin, begin + size)
            data[at : begin + size] = bytes(begin + size - at)
        else:
            other = rng.randrange(len(table))
            length = min(size, int(table.size[other]))
            start = int(table.pos[other])
            data[begin : begin + length] = data[start : start + length]
        what.append(f"{way} in packet {number}")
    path = folder / f"mutant{good.suffix}"
    path.write_bytes(data)
    return path, good, {"kind": kind, "harm": what}


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _clip_folder() -> Path:
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory())
    return Path(_FOLDERS[0].name)


# --- reading ----------------------------------------------------------------------------------------------------------


def ask(decoder: VideoDecoder, frames: list[int]) -> dict[int, Answer]:
    """What becomes of each frame that is asked for at once."""
    try:
        pictures = decoder.get_native_frames_at(frames)
    except DecodeError as error:
        assert error.frame in frames, (error, frames)
        if len(set(frames)) == 1:
            return {frames[0]: None}
        return dict.fromkeys(error.reasons)  # the others are not known
    return {frame: digest(picture) for frame, picture in zip(frames, pictures, strict=True)}


def read_in_many_ways(path: Path, rng: random.Random, others: list[Path]) -> Iterator[tuple[str, dict[int, Answer]]]:
    """The answers to requests of many sorts, with what was asked."""
    index = VideoIndex.scan(path)
    count = len(index)
    every = list(range(count))
    for threads in (1, 2):
        cpu_engine.cache_clear()
        decoder = VideoDecoder(path, index=index, num_ffmpeg_threads=threads)
        yield f"all, {threads} threads", ask(decoder, every)
        for frame in rng.sample(every, min(count, 40)):
            if rng.random() < 0.15 and others:
                other = VideoDecoder(rng.choice(others), num_ffmpeg_threads=threads)
                ask(other, [rng.randrange(len(other))])
            yield f"single, {threads} threads", ask(decoder, [frame])
        for _ in range(8):
            some = [rng.randrange(count) for _ in range(rng.choice([2, 3, 8]))]
            yield f"some {some}, {threads} threads", ask(decoder, some)
        begin = rng.randrange(count)
        for frame in range(begin, min(count, begin + 30)):
            yield f"onward, {threads} threads", ask(decoder, [frame])
        begin = rng.randrange(count)
        for start in range(begin, count, 5):
            yield f"pieces, {threads} threads", ask(decoder, list(range(start, min(count, start + 5))))


def check(path: Path, rng: random.Random, others: list[Path], good: Path | None = None) -> list[str]:
    """What is wrong with the answers.

    Args:
        path: The file.
        rng: Draws the requests.
        others: Files that are read in between.
        good: The file before bytes of its packets were changed. Its packets keep their numbers whatever becomes of
            their pictures, and a frame may be what it was, where a linear decode stumbles over a packet that it does
            not need.
    """
    index = VideoIndex.scan(path)  # refuses what FFmpeg cannot open
    truth = linear_truth(path)
    found: list[str] = []
    frames = index.packets.frames.tolist()
    right = {packet: {value} for packet, value in zip(truth.shown, truth.digests, strict=True)}
    if good is None:
        if [packet for packet in frames if packet in right] != truth.shown:
            missing = [packet for packet in truth.shown if packet not in frames]
            found.append(f"order: {len(frames)} frames, linear {len(truth.shown)}, missing packets {missing[:8]}")
        silent = [packet for packet in frames if packet not in right and packet not in truth.reported]
        if silent:
            found.append(
                f"count: frames {[frames.index(packet) for packet in silent][:8]} are not shown and not reported"
            )
    else:
        before = linear_truth(good)
        for packet, value in zip(before.shown, before.digests, strict=True):
            right.setdefault(packet, set()).add(value)
    known: dict[int, tuple[Answer, str]] = {}
    for way, answers in read_in_many_ways(path, rng, others):
        for frame, answer in answers.items():
            if answer is not None and answer not in right.get(frames[frame], ()):
                same = [n for n, value in enumerate(truth.digests) if value == answer]
                found.append(f"frame {frame} ({way}): wrong picture{f', that of {same}' if same else ''}")
            earlier = known.setdefault(frame, (answer, way))
            if (earlier[0] is None) != (answer is None):
                found.append(f"frame {frame}: {_word(earlier[0])} in {earlier[1]}, {_word(answer)} in {way}")
            elif earlier[0] != answer:
                found.append(f"frame {frame}: other pictures in {earlier[1]} and {way}")
    if good is not None:
        had = [packet for frame, packet in enumerate(frames) if known.get(frame, (None, ""))[0] is not None]
        places = {packet: place for place, packet in enumerate(truth.shown)}
        common = [places[packet] for packet in had if packet in places]
        if common != sorted(common):
            found.append("order: pictures come in another order than in a linear decode")
        if set(truth.shown) == set(frames):
            moved = [frame for frame, packet in enumerate(frames) if packet in had and truth.shown[frame] != packet]
            if moved:
                found.append(f"order: frames {moved[:8]} are others in a linear decode")
    return found


def _word(answer: Answer) -> str:
    return "an error" if answer is None else "a picture"


def compare(
    what: str, *, seed: int, first: int, most: int, minutes: float, folder: Path, kinds: list[str]
) -> Counter[str]:
    """Make files and check them; returns what became of them."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * minutes
    others = [
        clips.make(kind, _clip_folder()) for kind in ("h264_bframes", "hevc_closed_bframes", "vp8_plain", "mpeg4_mp4")
    ]
    for number in range(first, first + most):
        if time.monotonic() > end:
            break
        rng = random.Random(f"{seed} {number}")
        place = folder / f"{what}_{seed}_{number}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            good: Path | None = None
            if what == "losses":
                path, drawn = make_loss(place, rng)
            else:
                path, good, drawn = make_mutant(place, rng, kinds)
        except (av.error.FFmpegError, FramefeedError, ValueError) as error:
            counts[f"not made: {type(error).__name__}"] += 1
            shutil.rmtree(place)
            continue
        try:
            found = check(path, rng, others, good)
        except FramefeedError as error:
            counts[f"refused: {type(error).__name__}"] += 1
            if what == "losses":
                print(f"refused {number}: {error} {drawn}")
            shutil.rmtree(place)
            continue
        if found:
            counts["bad"] += 1
            for kind in {entry.split(":")[0].split(" ")[0] for entry in found}:
                counts[f"bad {kind}"] += 1
            print(f"bad {number}: {drawn}\n    " + "\n    ".join(found[:3]) + f"\n    ({len(found)})", flush=True)
        else:
            counts["good"] += 1
            shutil.rmtree(place)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("losses", "mutants"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kinds", nargs="*", default=_KINDS, help="of clips; 'zoo' or 'codecs' for all of these")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    named = {"zoo": list(clips.KINDS), "codecs": list(CODECS)}
    kinds = [name for kind in args.kinds for name in named.get(kind, [kind])]
    folder = args.folder or Path(tempfile.mkdtemp())
    counts = compare(
        args.what,
        seed=args.seed,
        first=args.first,
        most=args.count,
        minutes=args.minutes,
        folder=folder,
        kinds=kinds,
    )
    print(dict(counts), folder)
    return 1 if counts["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
