"""Clips of several cameras, what their samples have to be, and batches by way of packets."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from framefeed import MultiCameraDataset, PacketBatch, PacketDataset, PacketDecoder, ProcessDesc, VideoIndex
from framefeed.convert.desc import Changes
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.testing import samples
from helpers.clips_help import SIZE, _x264, draw_of, expected_tensor, noisy_copy, same_bits

CLIPS = {"a": 24, "b": 17, "c": 20}

# One size, and every sort of group: B-frames, open groups, another codec, and a container that needs a demuxer.
CAMERAS: dict[str, dict[str, Any]] = {
    "front.mp4": dict(SIZE, gop=8, bframes=2, options=_x264()),
    "left.mp4": dict(SIZE, gop=8, bframes=3, options=_x264(open_gop=1)),
    "rear.mp4": dict(SIZE, codec="libx265", gop=10),
    "side.ts": dict(SIZE, gop=6, bframes=1, options=_x264()),
}
NAMES = tuple(Path(name).stem for name in CAMERAS)

PLAIN = {"frames": ProcessDesc(type="byte")}
ROUGH = {
    "part": ProcessDesc(width=40, height=32, random_crop=True, random_flip=True, normalized=True, type="half"),
    "small": ProcessDesc(type="byte", scale_width=32, scale_height=24, random_flip=True, dimension_order="cfhw"),
}


def write_cameras(folder: Path) -> Path:
    """Three clips of four cameras, written once; returns their index."""
    index = folder / "cameras" / "index.json"
    if not index.exists():
        for place, (clip, frames) in enumerate(CLIPS.items()):
            for camera, (name, spec) in enumerate(CAMERAS.items()):
                first = 1000 * place + 100 * camera  # frame k shows the number first + k
                samples.write_clip(index.parent / "v" / clip / name, frames=frames, first_number=first, **spec)
        index.write_text(json.dumps({"v": CLIPS}))
    return index


def plain_camera(path: Path, frames: int = 12, first: int = 0, **options: Any) -> str:
    """A clip of closed groups of four frames, with its index in front."""
    spec = {**SIZE, "gop": 4, "bframes": 1, "options": _x264(), **options}
    if path.suffix == ".mp4":
        spec["container_options"] = {"movflags": "faststart"}
    return str(samples.write_clip(path, frames=frames, first_number=first, **spec))


def clip_of(clip: str, frame: int, changes: Mapping[str, Changes]) -> tuple[str, int, Any]:
    """A label that tells which sample it is, and what was done to it."""
    return Path(clip).name, frame, tuple(sorted(changes.items()))


def truth(dataset: MultiCameraDataset, number: int, epoch: int = 0, *, stride: int = 1) -> dict[str, torch.Tensor]:
    """A sample by a linear decode of all its files. All cameras are there, and go by number."""
    clip, first = dataset.locate(number)
    files = next(each.files for each in dataset.clips if each.name == clip)
    frames = [first + stride * place for place in range(dataset.sequence_length)]
    draw = draw_of(number, dataset.seed, epoch)
    return {
        name: torch.stack([expected_tensor(str(file), frames, desc, draw) for file in files])
        for name, desc in dataset.processing.items()
    }


def numbers_in(frames: torch.Tensor) -> list[int]:
    """What is painted into frames (any, 3, height, width)."""
    return [samples.read_number(frame.permute(1, 2, 0).numpy()) for frame in frames.flatten(0, -4)]


# --- batches --------------------------------------------------------------------------------------------------------


def direct(dataset: FrameDataset, batches: Iterable[Sequence[int]]) -> list[dict[str, Any]]:
    """Batches by plain indexing."""
    found = []
    for batch in batches:
        rows = dataset.__getitems__(list(batch))
        tensors: dict[str, Any] = {
            name: torch.stack([row[name] for row in rows]) for name in rows[0] if name != "labels"
        }
        if "labels" in rows[0]:
            tensors["labels"] = [row["labels"] for row in rows]
        found.append(tensors)
    return found


def packet_loader(
    dataset: FrameDataset,
    batches: Iterable[Sequence[int]],
    decoder: PacketDecoder,
    *,
    packets: PacketDataset | None = None,
    in_order: bool | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """A loader whose workers read packets for a decoder."""
    packets = PacketDataset(dataset) if packets is None else packets
    requests: Any = decoder.requests(dataset, batches, in_order=in_order)
    return DataLoader(packets, batch_sampler=requests, collate_fn=packets.collate, **options)


def separated(
    dataset: FrameDataset, batches: Iterable[Sequence[int]], decoder: PacketDecoder | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Batches by way of packets."""
    decoder = PacketDecoder(dataset) if decoder is None else decoder
    return list(decoder(packet_loader(dataset, batches, decoder, **options)))


def differences(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Where batches differ, in any bit."""
    if len(found) != len(wanted):
        return [("batches", len(found), len(wanted))]
    wrong: list[Any] = []
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.keys() != other.keys():
            wrong.append((number, sorted(one), sorted(other)))
            continue
        for name, value in other.items():
            same = same_bits(one[name], value) if isinstance(value, torch.Tensor) else one[name] == value
            if not same:
                wrong.append((number, name))
    return wrong


def packet_threads() -> set[threading.Thread]:
    """Threads of packet decoders that are alive."""
    return {thread for thread in threading.enumerate() if thread.name == "framefeed-packet-decoder"}


def num_packets(dataset: FrameDataset) -> int:
    """Packets that show frames, of all files."""
    return sum(dataset.index_of(file).num_frames for file in range(len(dataset.filenames)))


# --- what goes wrong ------------------------------------------------------------------------------------------------


class Losing:
    """A loader some of whose batches get lost on the way."""

    def __init__(self, loader: Iterable[PacketBatch], lost: set[int]) -> None:
        self.loader = loader
        self.lost = lost

    def __iter__(self) -> Iterator[PacketBatch]:
        return (batch for number, batch in enumerate(self.loader) if number not in self.lost)


def noisy(path: str, packet: int) -> None:
    """Puts noise in the place of most of a packet, and leaves the rest of the file as it is, its times too."""
    status = os.stat(path)
    noisy_copy(path, packet, Path(path))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(path: str, packet: int) -> None:
    """Cuts a file off in the middle of a packet; its index comes first."""
    table = VideoIndex.scan(path).packets
    os.truncate(path, int(table.pos[packet] + table.size[packet] // 2))
