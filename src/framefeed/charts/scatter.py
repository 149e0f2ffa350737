"""Points over two logarithmic axes, as an SVG file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framefeed.charts.plots import (
    _DARK,
    _LIGHT,
    NUM_INKS,
    _apart,
    _Axis,
    _log_ticks,
    _mark,
    _palette,
    escape,
    number,
)

__all__ = ["LEAST_EFFECT", "MODELS", "ORDERS", "OTHERS", "Dot", "scatter", "study_plot"]

WIDTH, HEIGHT = 720.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 470.0, 44.0, 372.0
LABELS = 14.0  # from one name to the next

ORDERS, MODELS, OTHERS = 0, 1, 2
LEAST_EFFECT = 0.01  # there is no 0 on a logarithmic axis


@dataclass(frozen=True)
class Dot:
    """One point.

    Attributes:
        label: What it is called.
        ink: Number of its colour and shape.
        x: Where it lies, above 0.
        y: Where it lies, above 0.
    """

    label: str
    ink: int
    x: float
    y: float


def scatter(dots: Sequence[Dot], title: str, *, x_name: str, y_name: str, note: str = "") -> str:
    """Points with their names at the right, as a file of its own.

    Args:
        dots: At least one.
        title: Stands above, and says what is seen to those who cannot see it.
        x_name: What the x axis shows.
        y_name: What the y axis shows.
        note: Where good ones are.
    """
    x_axis, x_ticks = _axis([dot.x for dot in dots], LEFT, RIGHT)
    y_axis, y_ticks = _axis([dot.y for dot in dots], BOTTOM, TOP)
    parts = [f'<text class="strong" x="8" y="18">{escape(title)}</text>']
    parts.append(f'<text class="quiet" x="8" y="35">{escape(y_name)}, log scale</text>')
    for tick in y_ticks:
        y = y_axis.at(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(f'<text class="quiet" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
    for tick in x_ticks:
        x = x_axis.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{tick:,.10g}</text>')
    parts.append(f'<text class="quiet" x="{LEFT}" y="{BOTTOM + 36}">{escape(x_name)}, log scale</text>')
    if note:
        parts.append(f'<text class="quiet" x="{WIDTH - 8}" y="{BOTTOM + 36}" text-anchor="end">{escape(note)}</text>')
    # Of points at one height, the name of the right one stands above: lines to names then do not cross.
    places = _apart([y_axis.at(dot.y) - 0.02 * x_axis.at(dot.x) for dot in dots], LABELS, TOP, BOTTOM)
    for dot, place in reversed(list(zip(dots, places, strict=True))):  # the first on top
        parts.append(_dot(dot, x_axis.at(dot.x), y_axis.at(dot.y), place))
    name = escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{name}">'
        f'<title>{name}</title><style>{_STYLE}</style><rect class="page" width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _axis(values: Sequence[float], first: float, last: float) -> tuple[_Axis, list[float]]:
    """A logarithmic axis with some room around its values, and its round numbers."""
    low, high = min(values) / 1.15, max(values) * 1.15
    ticks = [tick for tick in _log_ticks(low, high) if low <= tick <= high]
    return _Axis(low, high, first, last, True), ticks


def _dot(dot: Dot, x: float, y: float, label_y: float) -> str:
    strong = ' class="strong"' if dot.ink == ORDERS else ""
    return (
        f'<g class="ink{dot.ink % NUM_INKS}"><title>{escape(f"{dot.label}: {number(dot.x)}, {number(dot.y)}")}</title>'
        f'<path class="lead" d="M{x + 5:.1f} {y:.1f}L{RIGHT + 10:.1f} {label_y:.1f}"/>'
        f'<path class="mark" d="{_mark(dot.ink, x, y)}"/><path class="mark" d="{_mark(dot.ink, RIGHT + 17, label_y)}"/>'
        f'<text{strong} x="{RIGHT + 26:.1f}" y="{label_y + 4:.1f}">{escape(dot.label)}</text></g>'
    )


_STYLE = (
    f":root {{ --page: #fdfdfc; --text: #1d2126; --quiet: #5c6470; --rule: #dcdfe3; {_palette(_LIGHT)} }}"
    "@media (prefers-color-scheme: dark) { :root { --page: #14171b; --text: #e4e7eb; --quiet: #9aa3ae; "
    f"--rule: #30363e; {_palette(_DARK)} }} }}"
    + "".join(f".ink{place} {{ --ink: var(--i{place}); }}" for place in range(NUM_INKS))
    + """
svg { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif; }
text { fill: var(--text); }
.page { fill: var(--page); }
.strong { font-weight: 600; }
.quiet { fill: var(--quiet); font-size: 11px; }
.grid { fill: none; stroke: var(--rule); }
.lead { fill: none; stroke: var(--ink); opacity: .35; }
.mark { fill: var(--ink); stroke: var(--page); }
"""
)


def study_plot(study: Mapping[str, Any]) -> str:
    """What orders cost to decode, against what they do to the variance of a batch's mean.

    Args:
        study: What ``framefeed.sampling.Study.as_json`` gives.
    """
    dots = [
        Dot(
            row["name"],
            MODELS if row["is_model"] else ORDERS,
            row["decoded_per_delivered"],
            max(row["design_effect"], LEAST_EFFECT),
        )
        for row in study["rows"]
    ]
    return scatter(
        dots,
        f"What an order costs, and what it does to batches of {study['batch_size']}",
        x_name="packets decoded for each frame",
        y_name="design effect: variance of a batch's mean beside independent frames",
        note="better: to the left and down",
    )
