"""``framefeed info``: describes a video without decoding it."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "info",
        help="show stream facts, groups, and the cost of a random frame",
        description="Shows what the packets of a video tell: its stream, its frames (by header and by packets), its "
        "groups, and the number of packets to decode for a single frame.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a video")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed import VideoIndex
    from framefeed.cli import console
    from framefeed.cli.facts import describe

    facts = describe(VideoIndex.scan(args.file))
    if args.json:
        console.print_json(facts)
        return 0
    table = console.make_table(("", "by the packets", "by the header"), _rows(facts), title=args.file)
    console.print_table(table)
    return 0


def _rows(facts: dict[str, Any]) -> list[tuple[object, ...]]:
    stream, time, packets = facts["stream"], facts["time"], facts["packets"]
    rows: list[tuple[object, object]] = [
        ("container, stream", f"{stream['container']}, {stream['stream_index']}"),
        ("codec, pixel format", f"{stream['codec']}, {stream['pixel_format']}"),
        ("size", _size(stream)),
        ("colour", _color(stream)),
        ("time base", f"{time['time_base']} s"),
        ("packets", packets["count"]),
        ("non-reference packets", f"{packets['nonreference']:,} ({packets['nonreference_share']:.0%})"),
        ("packets without a picture", packets["hidden"]),
        ("hidden by the edit list", packets["hidden_by_edit_list"]),
        *_group_rows(facts["groups"]),
        *_cost_rows(facts["random_frame_cost"]),
    ]
    claims = [
        ("frames", facts["frames"]["count"], facts["frames"]["header_says"]),
        ("frames a second", _number(time["fps"]), _number(time["header_fps"])),
        ("duration", _seconds(time["duration_seconds"]), _seconds(time["header_duration_seconds"])),
    ]
    return [*((*row, "") for row in rows[:5]), *claims, *((*row, "") for row in rows[5:])]


def _size(stream: dict[str, Any]) -> str:
    text = f"{stream['width']}x{stream['height']}"
    if stream["rotation_degrees"]:
        text += f", turned {stream['rotation_degrees']}° counter-clockwise"
    if stream["mirrored"]:
        text += ", mirrored"
    if stream["pixel_aspect"] not in (None, "1:1"):
        text += f", pixels {stream['pixel_aspect']}"
    return text


def _color(stream: dict[str, Any]) -> str:
    names = [stream[f"color_{part}"] for part in ("space", "range", "primaries", "transfer")]
    if not any(names):
        return "not specified"
    labels = ("matrix", "range", "primaries", "transfer")
    return ", ".join(f"{label} {name or 'unspecified'}" for label, name in zip(labels, names, strict=True))


def _group_rows(groups: dict[str, Any]) -> list[tuple[object, object]]:
    return [
        ("groups", f"{groups['count']:,} ({groups['open']:,} open)"),
        (
            "frames a group",
            f"{groups['frames_min']:,} least, {groups['frames_median']:,.0f} median, {groups['frames_max']:,} most",
        ),
    ]


def _cost_rows(costs: dict[str, Any]) -> list[tuple[object, object]]:
    return [
        (
            f"packets for a random frame{note}",
            f"{cost['mean']:,.1f} mean, {cost['median']:,.0f} median, {cost['max']:,} most",
        )
        for note, cost in (("", costs["skipping_nonreference"]), (", skipping none", costs["feeding_all"]))
    ]


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f} s"
