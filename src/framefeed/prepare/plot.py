"""A report as a picture: time against size, one line for each way to read, as an SVG file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from framefeed.charts.plots import _apart, _Axis, _mark, escape, number
from framefeed.charts.scatter import _STYLE, _axis
from framefeed.prepare.gop.gop_cost import CLIP_LENGTH
from framefeed.prepare.gop.gop_report import GopReport, GopRow

__all__ = ["report_plot"]

WIDTH, HEIGHT = 720.0, 440.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 556.0, 84.0, 388.0
LABELS, GOP_LABELS = 16.0, 34.0  # from one name to the next

_LINES = ".line { fill: none; stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; }"


@dataclass(frozen=True)
class _Line:
    label: str
    ink: int
    values: tuple[float, ...]  # milliseconds of a frame, one for each row


def report_plot(report: GopReport) -> str:
    """Milliseconds that a frame takes, against the size of files, for each distance of keyframes."""
    rows = report.rows
    lines = [
        _Line("a random frame", 0, tuple(row.frame_ms for row in rows)),
        _Line(f"a frame of a clip of {CLIP_LENGTH}", 1, tuple(row.clip_ms / CLIP_LENGTH for row in rows)),
        _Line("a frame in order", 2, tuple(1000 / row.frames_per_second for row in rows)),
    ]
    x_axis, _ = _axis([row.bytes_per_second / 1000 for row in rows], LEFT, RIGHT)
    y_axis, y_ticks = _axis([value for line in lines for value in line.values], BOTTOM, TOP)
    title = f"What the distance of keyframes costs and gains: {len(report.files)} videos, {report.options.codec}"
    parts = [f'<text class="strong" x="8" y="18">{escape(title)}</text>']
    parts.append('<text class="quiet" x="8" y="35">milliseconds, log scale</text>')
    for tick in y_ticks:
        y = y_axis.at(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(f'<text class="quiet" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
    below = "size of files in kB for each second that they play, log scale"
    parts.append(f'<text class="quiet" x="{LEFT}" y="{BOTTOM + 42}">{below}</text>')
    parts += _gops(rows, x_axis)
    ends = [y_axis.at(line.values[0]) for line in lines]  # the smallest distance has the largest files
    for line, place in zip(lines, _apart(ends, LABELS, TOP, BOTTOM), strict=True):
        at = [(x_axis.at(row.bytes_per_second / 1000), y_axis.at(y)) for row, y in zip(rows, line.values, strict=True)]
        parts.append(_drawn(line, rows, at, place))
    name = escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{name}">'
        f'<title>{name}</title><style>{_STYLE}{_LINES}</style><rect class="page" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _gops(rows: Sequence[GopRow], x_axis: _Axis) -> list[str]:
    """A line for each distance, from its number at the top down to its size."""
    at = [x_axis.at(row.bytes_per_second / 1000) for row in rows]
    parts = [f'<text class="quiet" x="8" y="{TOP - 28}">GOP</text>']
    for row, x, label in zip(rows, at, _apart(at, GOP_LABELS, LEFT, RIGHT), strict=True):
        line = f"M{label:.1f} {TOP - 22}L{x:.1f} {TOP - 6}V{BOTTOM + 2}L{label:.1f} {BOTTOM + 10}"
        size = number(row.bytes_per_second / 1000)
        parts.append(f'<path class="grid" d="{line}"/>')
        parts.append(f'<text x="{label:.1f}" y="{TOP - 28}" text-anchor="middle">{row.gop}</text>')
        parts.append(f'<text class="quiet" x="{label:.1f}" y="{BOTTOM + 21}" text-anchor="middle">{size}</text>')
    return parts


def _drawn(line: _Line, rows: Sequence[GopRow], at: Sequence[tuple[float, float]], label_y: float) -> str:
    said = ", ".join(f"{number(value)} ms at GOP {row.gop}" for value, row in zip(line.values, rows, strict=True))
    parts = [f'<g class="ink{line.ink}"><title>{escape(f"{line.label}: {said}")}</title>']
    parts.append(f'<path class="line" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in at)}"/>')
    parts += [f'<path class="mark" d="{_mark(line.ink, x, y)}"/>' for x, y in at]
    x, y = at[0]
    parts.append(f'<path class="lead" d="M{x + 6:.1f} {y:.1f}L{RIGHT + 4:.1f} {label_y:.1f}"/>')
    parts.append(f'<path class="mark" d="{_mark(line.ink, RIGHT + 10, label_y)}"/>')
    parts.append(f'<text x="{RIGHT + 19:.1f}" y="{label_y + 4:.1f}">{escape(line.label)}</text></g>')
    return "".join(parts)
