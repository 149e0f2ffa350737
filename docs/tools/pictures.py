"""``python docs/tools/pictures.py``: draws the pictures of the documentation into docs/assets.

What can be taken from the product is: plans come from its planner, what is kept from its look-ahead, bars from the
committed numbers. A test draws them again and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from drawing import Picture
from texts import load

from framefeed.charts.plots import study_plot
from framefeed.compare.exercise.exercise_page import exercise_plot
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable
from framefeed.plan import Plan, plan_frames
from framefeed.plan.lookahead import Budget, LookAhead, Use

__all__ = ["LAYERS", "PICTURES", "main"]

ASSETS = Path(__file__).resolve().parents[1] / "assets"
WIDTH = 560

# The rows of LAYERS in test_layers.py, with their purpose.
LAYERS = (
    ("_util, charts", "files, locks, limits; charts as SVG"),
    ("errors, types", "exceptions; plain values"),
    ("media, cuda", "the bytes of one video; the NVIDIA driver"),
    ("index", "file → packet table"),
    ("catalog, plan, source", "many tables; every decision; packets → bytes"),
    ("store, decode, convert", "packet stores; bytes → pictures → arrays"),
    ("request, device, decoder, batch", "plan and run; devices; VideoDecoder; buffers"),
    ("dataset, packets, loader", "samples and orders; worker processes; batches"),
    ("transforms, sampling", "augmentation; statistics of orders"),
    ("testing, doctor, readers, infer", "clips; checks; other libraries; a model"),
    ("prepare, compare", "re-encoding; comparison of readers"),
    ("cli", "one file a command"),
)


@dataclass(frozen=True)
class Shot:
    """A packet of a drawn video: its kind, its place in presentation order, and the frames that it refers to."""

    kind: str
    shown: int
    refers: tuple[int, ...] = ()


# In decode order.
CLOSED = (
    Shot("I", 0), Shot("P", 3, (0,)), Shot("B", 1, (0, 3)), Shot("B", 2, (0, 3)),
    Shot("P", 6, (3,)), Shot("B", 4, (3, 6)), Shot("B", 5, (3, 6)),
)  # fmt: skip
OPEN = (
    Shot("I", 0), Shot("P", 3, (0,)), Shot("B", 1, (0, 3)), Shot("B", 2, (0, 3)),
    Shot("I", 6), Shot("B", 4, (3, 6)), Shot("B", 5, (3, 6)),
    Shot("P", 9, (6,)), Shot("B", 7, (6, 9)), Shot("B", 8, (6, 9)),
)  # fmt: skip
_FILL = {"I": ("blue", "blue", "onink"), "P": ("paleblue", "blue", None), "B": ("palegray", "gray", None)}


def _frame(picture: Picture, x: float, y: float, shot: Shot, width: float = 32) -> None:
    fill, stroke, colour = _FILL[shot.kind]
    picture.labelled(x, y, width, 26, f"{shot.kind}{shot.shown}", fill, stroke, colour=colour)


def gop() -> Picture:
    """Two groups as they are shown and as they are stored."""
    picture = Picture("Two groups of seven frames: as they are shown, and as they are stored and decoded", WIDTH, 242)
    second = tuple(Shot(shot.kind, shot.shown + 7, tuple(place + 7 for place in shot.refers)) for shot in CLOSED)
    shots = CLOSED + second
    left, step, shown_y, stored_y = 20.0, 37.5, 94.0, 180.0
    picture.words(left, 24, "References: each arrow leads to a frame that is needed", "quiet")
    for shot in CLOSED:
        for other in shot.refers:
            x0, x1 = left + shot.shown * step + 16, left + other * step + 16
            height = 12 + 11 * abs(shot.shown - other)
            picture.stroke(f"M{x0:g} {shown_y - 4}C{x0:g} {shown_y - height - 4:g} {x1:g} {shown_y - height - 4:g} "
                         f"{x1:g} {shown_y - 8}", "rule", 1)  # fmt: skip
            picture.head(x1, shown_y - 2, 0, 1, "quiet")
    picture.words(WIDTH - 20, shown_y - 12, "presentation order", "quiet", "end")
    picture.words(WIDTH - 20, stored_y + 46, "decode order", "quiet", "end")
    for place, shot in enumerate(shots):
        shown_x, stored_x = left + shot.shown * step, left + place * step
        picture.stroke(f"M{shown_x + 16:g} {shown_y + 26:g}L{stored_x + 16:g} {stored_y:g}", "rule", 1)
    for place, shot in enumerate(shots):
        _frame(picture, left + shot.shown * step, shown_y, shot)
        _frame(picture, left + place * step, stored_y, shot)
    picture.stroke(f"M{left + 7 * step - 2.8:g} {shown_y - 26}V{stored_y + 40}", "orange", dashed=True)
    for first, name in ((0, "group 1"), (7, "group 2")):
        picture.words(left + first * step, stored_y + 46, name, "strong")
    return picture


def open_gop() -> Picture:
    """Leading pictures of an open group."""
    picture = Picture("An open group: frames 4 and 5 are stored behind I6, and need P3 of the group before", 500, 214)
    left, step, shown_y, stored_y = 24.0, 46.0, 92.0, 164.0
    picture.words(left, 24, "B4 and B5 are shown before I6, stored behind it, and refer to P3, too.", "quiet")
    for place, shot in enumerate(OPEN):
        x = left + shot.shown * step
        picture.stroke(f"M{x + 18:g} {shown_y + 26:g}L{left + place * step + 18:g} {stored_y:g}", "rule", 1)
    for shot in OPEN:
        for other in shot.refers if shot.shown in (4, 5) else ():
            x0, x1 = left + shot.shown * step + 18, left + other * step + 18
            height = 16 + 9 * abs(shot.shown - other)
            picture.stroke(f"M{x0:g} {shown_y - 3}C{x0:g} {shown_y - height:g} {x1:g} {shown_y - height:g} "
                         f"{x1:g} {shown_y - 8}", "orange", 1)  # fmt: skip
            picture.head(x1, shown_y - 2, 0, 1, "orange")
    for place, shot in enumerate(OPEN):
        leading = shot.shown in (4, 5)
        for x, y in ((left + shot.shown * step, shown_y), (left + place * step, stored_y)):
            if leading:
                picture.labelled(x, y, 36, 26, f"B{shot.shown}", "paleorange", "orange")
            else:
                _frame(picture, x, y, shot, 36)
    picture.words(left, stored_y + 42, "decode order", "quiet")
    picture.words(left, shown_y - 10, "presentation order", "quiet")
    return picture


def _table(groups: int) -> PacketTable:
    """Groups of ten frames: I, then P, B, B in turns, with B-frames that are not references."""
    kinds, shown = [], []
    for group in range(groups):
        for kind, place in (("I", 0), *((kind, 3 * run + place) for run in range(3) for kind, place in _RUN)):
            kinds.append(kind)
            shown.append(10 * group + place)
    number = len(kinds)
    flags = [_FLAGS[kind] for kind in kinds]
    numbers = np.arange(number, dtype=np.int64)
    pts = np.asarray(shown, np.int64)
    frames = np.argsort(pts).astype(np.int64)
    return PacketTable(
        numbers, np.ones_like(numbers), pts, numbers, np.ones_like(numbers), np.asarray(flags, np.uint16),
        numbers // 10 * 10, frames, np.sort(pts),
    )  # fmt: skip


_RUN = (("P", 3), ("B", 1), ("B", 2))
_FLAGS = {"I": int(PacketKind.RAP | PacketKind.CLOSED), "P": 0, "B": int(PacketKind.NONREF)}
WANTED = (44, 8, 5, 41, 5)


def plans() -> tuple[PacketTable, Plan, list[Plan]]:
    """The drawn request as one plan, and as one plan for each frame."""
    table = _table(5)
    return table, plan_frames(table, WANTED), [plan_frames(table, [frame]) for frame in WANTED]


def plan() -> Picture:
    """Packets that a plan feeds to decoders."""
    table, planned, _ = plans()
    whole = sum(int(table.frames[frame]) % 10 + 1 for frame in WANTED)
    picture = Picture(
        f"A request for frames {', '.join(map(str, WANTED))}: of 50 packets, {planned.num_packets} are decoded",
        WIDTH,
        250,
    )
    picture.words(16, 26, f"get_frames_at({list(WANTED)})", "strong")
    fed = {int(packet) for job in planned.jobs for packet in job.packets}
    step, left = 50.0, 76.0
    for group in range(5):
        y = 42 + group * 30
        picture.words(16, y + 17, f"group {group}", "quiet")
        for place in range(10):
            frame = 10 * group + place
            packet = int(table.frames[frame])
            x = left + place * (step - 3)
            if frame in WANTED:
                picture.labelled(x, y, 41, 24, str(frame), "orange", "orange", kind="strong", colour="onink")
            elif packet in fed:
                picture.labelled(x, y, 41, 24, str(frame), "paleblue", "blue")
            else:
                picture.labelled(x, y, 41, 24, str(frame), "page", "rule", dashed=True, colour="quiet")
    y = 206
    for x, fill, stroke, words in ((16, "orange", "orange", "wanted"), (100, "paleblue", "blue", "decoded for them"),
                                   (242, "page", "rule", "never fed to a decoder")):  # fmt: skip
        picture.box(x, y, 14, 14, fill, stroke, dashed=fill == "page")
        picture.words(x + 20, y + 12, words, "quiet")
    found = f"{planned.num_packets} packets for {planned.num_wanted} frames"
    said = f"{found}; seeking for each of {len(WANTED)} feeds {whole}"
    picture.words(16, y + 36, said)
    return picture


# Three groups of four frames, in a shuffled order.
ORDER = ("B1", "A0", "C2", "A3", "C0", "B3", "C1", "A2", "B0", "A1", "B2", "C3")
BATCH, MEMORY = 3, 6
_GROUPS = {"A": ("palegreen", "green"), "B": ("paleviolet", "violet"), "C": ("paleorange", "orange")}


@dataclass(frozen=True)
class Step:
    """Decision of the look-ahead for a batch: frames that were kept, groups that are decoded, frames kept then."""

    frames: tuple[str, ...]
    held: frozenset[str]
    decoded: tuple[str, ...]
    memory: tuple[str, ...]


def steps() -> list[Step]:
    """Runs the product's look-ahead through the drawn order."""
    ahead = LookAhead(Budget(MEMORY), lambda video: 1)
    uses = [Use(time, 0, *_numbers(name)) for time, name in enumerate(ORDER)]
    names = {use.frame: name for use, name in zip(uses, ORDER, strict=True)}
    ahead.extend(uses)
    kept: set[int] = set()
    found = []
    for first in range(0, len(uses), BATCH):
        opening = ahead.open(uses[first : first + BATCH])
        for job in opening.jobs:
            kept |= set(job.keep)
        for key in opening.held[0]:
            ahead.release(key)
        kept -= {frame for _, frame in ahead.take_dropped()}
        groups = sorted({names[frame][0] for job in opening.jobs for frame in job.now})
        found.append(
            Step(
                ORDER[first : first + BATCH],
                frozenset(names[frame] for _, frame in opening.held[0]),
                tuple(groups),
                tuple(sorted(names[frame] for frame in kept)),
            )
        )
    return found


def _numbers(name: str) -> tuple[int, int]:
    """Frame and start of the group."""
    group = 4 * "ABC".index(name[0])
    return group + int(name[1]), group


def lookahead() -> Picture:
    """Batches, what is decoded for them, and what is kept."""
    found = steps()
    decoded = sum(len(step.decoded) for step in found)
    plain = sum(len({name[0] for name in step.frames}) for step in found)
    picture = Picture(
        "Look-ahead: groups are decoded for one batch, and frames that later ones need are kept", WIDTH, 264
    )
    for x, words in ((16, "batch"), (190, "decodes groups"), (312, f"keeps (memory for {MEMORY} frames)")):
        picture.words(x, 26, words, "quiet")
    for row, step in enumerate(found):
        y = 40 + row * 44
        for place, name in enumerate(step.frames):
            fill, stroke = _GROUPS[name[0]]
            picture.labelled(16 + place * 48, y, 42, 28, name, fill, stroke, kind="strong", dashed=name in step.held)
        for place, name in enumerate(step.decoded):
            picture.labelled(190 + place * 32, y, 27, 28, name, *_GROUPS[name], kind="strong")
        if not step.decoded:
            picture.words(190, y + 18, "none", "quiet")
        for place in range(MEMORY):
            x = 312 + place * 39
            if place < len(step.memory):
                picture.labelled(x, y, 34, 28, step.memory[place], *_GROUPS[step.memory[place][0]])
            else:
                picture.box(x, y, 34, 28, "page", "rule", dashed=True)
    y = 40 + len(found) * 44 + 8
    picture.words(16, y + 8, "Dashed: kept from an earlier batch. The others are decoded for this one.", "quiet")
    picture.words(16, y + 30, f"{decoded} groups are decoded. Without keeping frames it would be {plain}.")
    return picture


def path() -> Picture:
    """From a request to a tensor."""
    picture = Picture(
        "A request becomes a plan from the index; bytes, pictures and tensors follow the plan", WIDTH, 128
    )
    names = (
        ("index", "packets"),
        ("plan", "jobs"),
        ("source", "bytes"),
        ("decode", "pictures"),
        ("process", "tensors"),
    )
    picture.words(12, 50, "wanted", "quiet")
    picture.words(12, 66, "frames", "quiet")
    for place, (name, gives) in enumerate(names):
        x = 78 + place * 97
        decides = place < 2
        picture.arrow([(x - 22, 54), (x - 3, 54)])
        colours = ("paleblue", "blue") if decides else ("palegreen", "green")
        picture.labelled(x, 36, 72, 36, name, *colours, kind="strong")
        picture.words(x + 36, 90, gives, "quiet", "middle")
    picture.words(78, 22, "decide", "strong", colour="blue")
    picture.words(272, 22, "execute", "strong", colour="green")
    picture.words(78, 116, "pure functions, made once", "quiet")
    picture.words(272, 116, "threads; nothing is decided here", "quiet")
    return picture


def separation() -> Picture:
    """Worker processes and the main process."""
    picture = Picture("Worker processes read packets; the main process keeps and decodes them", WIDTH, 224)
    picture.box(12, 34, 150, 176, "page", "rule", dashed=True, round_by=6)
    picture.box(214, 34, 334, 176, "page", "rule", dashed=True, round_by=6)
    picture.words(12, 24, "worker processes", "strong")
    picture.words(214, 24, "main process", "strong")
    for place in range(2):
        y = 54 + place * 66
        picture.labelled(26, y, 122, 44, "read packets", "palegray", "gray")
        picture.arrow([(148, y + 22), (226, y + 22)], "gray")
    picture.words(26, 196, "no GPU, no decoder", "quiet small")
    picture.words(187, 68, "groups", "quiet small", "middle")
    picture.labelled(228, 54, 92, 110, "packets", "paleblue", "blue", kind="strong")
    picture.words(274, 128, "kept for the", "quiet small", "middle")
    picture.words(274, 142, "next epoch", "quiet small", "middle")
    picture.arrow([(320, 109), (344, 109)])
    picture.labelled(346, 54, 92, 110, "threads", "palegreen", "green", kind="strong")
    picture.words(392, 128, "decode on a", "quiet small", "middle")
    picture.words(392, 142, "CPU or GPU", "quiet small", "middle")
    picture.arrow([(438, 109), (462, 109)])
    picture.labelled(464, 54, 72, 110, "batches", "paleorange", "orange", kind="strong")
    picture.words(228, 196, "asks for groups that it lacks, in the epoch's order", "quiet small")
    return picture


def layers() -> Picture:
    """The layers, from the lowest to the highest."""
    picture = Picture("Layers of the package: each imports only what is above it", WIDTH, 58 + len(LAYERS) * 34)
    picture.words(16, 24, "Each layer imports only layers above it.", "quiet")
    for place, (name, does) in enumerate(LAYERS):
        y = 36 + place * 34
        pure = name in ("errors, types", "catalog, plan, source")
        picture.labelled(16, y, 222, 27, name, *(("paleblue", "blue") if pure else ("palegray", "gray")), kind="strong")
        picture.words(250, y + 18, does)
    picture.arrow([(8, 36 + len(LAYERS) * 34 - 8), (8, 38)])
    return picture


def gain() -> Picture:
    """Frames a second of loaders and decoders side by side, from the committed numbers."""
    rows = _gains()
    picture = Picture("Frames a second of framefeed, TorchCodec and decord2", 480, 66 + 74 * len(rows))
    machine = load("training-2-cores")["machine"]
    picture.words(14, 24, f"Frames a second, {machine['cpus_used']} CPU cores; longer is better", "strong")
    for place, (title, rates) in enumerate(rows):
        y = 52 + 74 * place
        ours = rates["framefeed"]
        others = [rate for name, rate in rates.items() if name != "framefeed"]
        picture.words(14, y, title)
        picture.words(466, y, f"{ours / max(others):.1f}x", "strong", "end", "blue")
        for line, (name, rate) in enumerate(rates.items()):
            top = y + 8 + 16 * line
            is_ours = name == "framefeed"
            picture.words(86, top + 10.5, name, "small" if is_ours else "small quiet", "end")
            length = 310 * rate / max(rates.values())
            picture.box(
                92, top, length, 12, "blue" if is_ours else "palegray", "blue" if is_ours else "gray", round_by=2
            )
            picture.words(98 + length, top + 10.5, f"{rate:,.0f}", "small strong" if is_ours else "small quiet")
    picture.words(
        14,
        52 + 74 * len(rows),
        "x: beside the faster of the two. Bars of each case have a scale of their own.",
        "small quiet",
    )
    return picture


_FAMILIES = ("framefeed", "TorchCodec", "decord2")
_GAINS = (
    ("training-2-cores", "shuffle", "gop250", "exact shuffle, keyframe every 250 frames"),
    ("training-2-cores", "shuffle", "gop30", "exact shuffle, keyframe every 30 frames"),
    ("training-2-cores", "clips", "gop250", "clips of 16 frames, shuffled"),
    ("training-2-cores", "sequential", "gop30", "in order, 224x224"),
    ("cpu-2-cores", "random", "h264_360p_gop30", "32 random frames of one file"),
)


def _gains() -> list[tuple[str, dict[str, float]]]:
    rows = []
    for name, case, on, title in _GAINS:
        result = next(each for each in load(name)["results"] if (each["case"], each["on"]) == (case, on))
        rates = {}
        for family in _FAMILIES:
            of_family = [row for row in result["readers"] if row["reader"].startswith(family) and not row["wrong"]]
            exact = [row for row in of_family if row["reader"] == family]
            rates[family] = max(row["median"] for row in exact or of_family)
        rows.append((title, rates))
    return rows


def logo() -> Picture:
    """The site's icon."""
    picture = Picture("framefeed", 32, 32)
    for place, fill in enumerate(("palegray", "paleblue", "blue")):
        picture.box(4 + 5 * place, 5 + 5 * place, 14, 12, fill, "blue", round_by=2)
    return picture


PICTURES: dict[str, Callable[[], str]] = {
    "exercise": lambda: exercise_plot(load("exercise-2-cores")),
    "gain": lambda: gain().svg(),
    "gop": lambda: gop().svg(),
    "layers": lambda: layers().svg(),
    "logo": lambda: logo().svg(),
    "lookahead": lambda: lookahead().svg(),
    "open_gop": lambda: open_gop().svg(),
    "path": lambda: path().svg(),
    "plan": lambda: plan().svg(),
    "sampling": lambda: study_plot(load("exercise-2-cores")["study"]),
    "separation": lambda: separation().svg(),
}


def main() -> int:
    """Draws all of them."""
    ASSETS.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (ASSETS / f"{name}.svg").write_text(draw(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
