"""What every family of clips uses: the kind itself, the truth, and moving packets between files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import av
import numpy as np
import numpy.typing as npt

from framefeed._util.atomic_write import atomic_path
from framefeed.testing import samples

# Small enough that the whole zoo is made in a few seconds, large enough for several groups and a clear number.
# Hardware decoders have a least size, so tests on a GPU make larger ones: CLIP_SIZE=192x160.
_WIDTH, _HEIGHT = map(int, os.environ.get("CLIP_SIZE", "96x64").split("x"))
SIZE: dict[str, Any] = {"width": _WIDTH, "height": _HEIGHT}
FRAMES = 48
EVERY = tuple(range(FRAMES))

Packet: TypeAlias = "av.Packet[av.VideoStream]"

DATA = Path(__file__).parent.parent / "data"  # clips that no encoder at hand can write; RECIPES.md says how they were


@dataclass(frozen=True)
class ClipKind:
    """One oddity.

    Attributes:
        name: Key in `KINDS`, and stem of the file.
        make: Writes the clip into a folder and returns the file.
        numbers: Painted numbers that a linear decode shows, in presentation order; None where they are unreadable.
        notes: What the trap is.
    """

    name: str
    make: Callable[[Path], Path]
    numbers: tuple[int, ...] | None
    notes: str


def clip(name: str, suffix: str, notes: str, **spec: Any) -> ClipKind:
    """A kind that `samples.write_clip` can write alone; ``spec`` is its arguments."""
    spec = {**SIZE, "frames": FRAMES, **spec}
    first = spec.get("first_number", 0)
    return ClipKind(name, partial(_write, name + suffix, spec), tuple(range(first, first + spec["frames"])), notes)


def _write(file_name: str, spec: dict[str, Any], folder: Path) -> Path:
    return samples.write_clip(folder / file_name, **spec)


def copy_committed(folder: Path, name: str) -> Path:
    """Puts one of the few clips that are kept in the repository beside those that are made."""
    return Path(shutil.copyfile(DATA / name, folder / name))


@contextmanager
def source_clip(suffix: str = ".mp4", **spec: Any) -> Iterator[Path]:
    """A plain clip to build an odd one from; it is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield samples.write_clip(Path(folder) / f"source{suffix}", **{**SIZE, "frames": FRAMES, **spec})


def read_packets(path: Path) -> list[Packet]:
    """The packets of the first video stream in file order, without the empty one at the end."""
    with av.open(path) as container:
        return [packet for packet in container.demux(container.streams.video[0]) if packet.size]


def remux(
    source: Path, target: Path, packets: Iterable[Packet] | None = None, *, format: str | None = None, **options: str
) -> Path:
    """Writes ``packets`` (those of ``source`` unless given) with the stream description of ``source``."""
    chosen = read_packets(source) if packets is None else packets
    with (
        atomic_path(target) as part,
        av.open(source) as template,
        av.open(part, "w", format, options=options) as container,
    ):
        stream = container.add_stream_from_template(template.streams.video[0])
        for packet in chosen:
            packet.stream = stream
            container.mux(packet)
    return target


def new_packet(data: bytes, like: Packet, *, pts: int | None = None, dts: int | None = None) -> Packet:
    """A packet with other bytes, and with the times and flags of ``like`` unless they are given."""
    packet = cast(Packet, av.Packet(data))
    packet.pts, packet.dts = (like.pts if pts is None else pts), (like.dts if dts is None else dts)
    packet.time_base, packet.is_keyframe = like.time_base, like.is_keyframe
    packet.duration = like.duration
    return packet


def linear_decode(path: Path | str, stream_index: int | None = None) -> list[av.VideoFrame]:
    """The truth: every frame of the best video stream (or the given one), by one thread, from start to end."""
    with av.open(path) as container:
        best = container.streams.best("video") if stream_index is None else container.streams[stream_index]
        stream = cast("av.VideoStream", best)
        stream.thread_type = "NONE"
        stream.thread_count = 1
        frames: list[av.VideoFrame] = []
        for packet in container.demux(stream):
            with suppress(av.error.InvalidDataError):  # as at a beginning in mid-group: it shows nothing
                frames += packet.decode()
        return frames


def luma(frame: av.VideoFrame) -> npt.NDArray[Any]:
    """The luma plane as it was decoded, or RGB where a frame has none."""
    if frame.format.is_rgb or "pal" in frame.format.name:
        return frame.to_ndarray(format="rgb24")
    word = np.uint8 if frame.format.components[0].bits == 8 else np.uint16
    lines: npt.NDArray[Any] = np.frombuffer(memoryview(frame.planes[0]), np.dtype(word)).reshape(frame.height, -1)
    return lines[:, : frame.width]


def painted_numbers(frames: Sequence[av.VideoFrame]) -> list[int]:
    """The numbers in the pixels."""
    return [samples.read_number(luma(frame)) for frame in frames]
