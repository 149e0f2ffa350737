"""MP4 edit lists: packets that are decoded and never shown, shown later, or shown twice."""

from functools import partial
from pathlib import Path
from typing import Any

from clips.base import EVERY, ClipKind, clip, source_clip
from clips.boxes import edit_box, edit_list

SPEC: dict[str, Any] = {"bframes": 2, "gop": 12, "options": {"x264-params": "scenecut=0:b-adapt=0"}}
STEP = 512  # ticks of the media time scale a frame, as the muxer chooses it for 30 frames a second
DELAY = 2 * STEP  # presentation time of the first frame before the edit list takes it away


def _milliseconds(frames: int) -> int:
    """The movie's time scale is 1000."""
    return round(frames * 1000 / 30)


def _patch(folder: Path, name: str, edits: list[tuple[int, int]]) -> Path:
    target = folder / name
    with source_clip(**SPEC) as source:
        target.write_bytes(edit_box(source.read_bytes(), "moov/trak/edts/elst", lambda _: edit_list(*edits)))
    return target


def _edited(name: str, notes: str, *parts: range) -> ClipKind:
    """A clip that shows these parts of the source, one after the other."""
    edits = [(_milliseconds(len(part)), DELAY + part.start * STEP) for part in parts]
    numbers = tuple(number for part in parts for number in part)
    return ClipKind(name, partial(_patch, name=f"{name}.mp4", edits=edits), numbers, notes)


_HIDDEN = clip(
    "edit_negative_pts",
    ".mp4",
    "encoded from -7 on: the muxer's edit list hides seven frames, 48 packets are 41 frames",
    pts=lambda place: place - 7,
    container_options={"avoid_negative_ts": "disabled"},
    **SPEC,
)
_EMPTY = [(1500, -1), (_milliseconds(len(EVERY)), DELAY)]

KINDS = (
    ClipKind(_HIDDEN.name, _HIDDEN.make, EVERY[7:], _HIDDEN.notes),
    _edited("edit_starts_in_group", "starts at frame 17: five packets are decoded and not shown", range(17, 48)),
    _edited("edit_starts_at_key", "starts at the keyframe 24: packets before it are gone", range(24, 48)),
    _edited("edit_ends_early", "18 packets behind the last shown frame", range(30)),
    _edited("edit_two_parts", "frames 0..17, then 30..41: packets of one group occur twice", range(18), range(30, 42)),
    _edited("edit_goes_back", "the second part lies before the first", range(24, 36), range(12)),
    _edited("edit_repeats", "the same frames twice", range(12), range(12)),
    ClipKind(
        "edit_empty", partial(_patch, name="edit_empty.mp4", edits=_EMPTY), EVERY, "an empty edit: starts at 1.5 s"
    ),
)
