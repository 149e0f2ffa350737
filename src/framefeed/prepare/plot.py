"""A report as a picture: time against size, one line for each way to read."""

from __future__ import annotations

from framefeed.charts.plots import Line, Point, curves
from framefeed.prepare.gop.gop_cost import CLIP_LENGTH
from framefeed.prepare.gop.gop_report import GopReport

__all__ = ["report_plot"]


def report_plot(report: GopReport) -> str:
    """Draws the milliseconds of a frame against the size of files, for each distance of keyframes."""
    rows = report.rows
    ways = {
        "a random frame": [row.frame_ms for row in rows],
        f"a frame of a clip of {CLIP_LENGTH}": [row.clip_ms / CLIP_LENGTH for row in rows],
        "a frame in order": [1000 / row.frames_per_second for row in rows],
    }
    sizes = [row.bytes_per_second / 1000 for row in rows]  # the smallest distance has the largest files
    chart = [
        Line(label, ink, tuple(Point(x, y, y, y) for x, y in zip(sizes, values, strict=True)))
        for ink, (label, values) in enumerate(ways.items())
    ]
    return curves(
        chart,
        f"Cost and gain of the distance of keyframes: {len(report.files)} videos, {report.options.codec}",
        x_name="size of files in kB for each second that they play",
        y_name="milliseconds",
        unit="ms",
        columns=[str(row.gop) for row in rows],
        columns_name="GOP",
    )
