"""Plots as SVG text, small enough for a phone, and the style sheet of the page that they take their colours from."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["NUM_INKS", "STYLE", "Bar", "Line", "Point", "bars", "escape", "lines", "number"]

NUM_INKS = 10
"""How many colours the page has: the first is framefeed's, the others are handed out again after the last."""

# What a phone shows without scaling, so that text keeps its size; wider screens put several plots side by side.
WIDTH = 350
# An upper estimate, as the font is the reader's own.
CHARACTER = 7.0


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: What it is called.
        ink: Number of its colour.
        value: Its length; None draws no bar.
        low: Where the whisker begins.
        high: Where it ends.
        note: Stands at the bar instead of the number.
        hatched: Whether it must not be read as a result.
        best: Whether its number is bold.
        detail: What a pointer resting on it shows.
    """

    label: str
    ink: int
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    hatched: bool = False
    best: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Point:
    """One point of a line, and its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """One line: its name, the number of its colour, its points from left to right."""

    label: str
    ink: int
    points: tuple[Point, ...]


def escape(text: object) -> str:
    """Text for a page: nothing in it is markup, and it can be encoded."""
    known = str(text).encode("utf-8", "backslashreplace").decode()
    return html.escape(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", known))


def number(value: float | None) -> str:
    """A number as tables have it: 1,234 and 12.3 and 1.23."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def bars(chart: Sequence[Bar], title: str) -> str:
    """Horizontal bars from zero, with whiskers, each with its name before it and its number after it.

    Args:
        chart: From top to bottom.
        title: Says what is seen, for those who cannot see it.
    """
    step, thick = 25, 13
    widest = max((len(bar.label) * CHARACTER + (0 if bar.ink else 6) for bar in chart), default=0)  # ours is bold
    left = min(widest + 8, WIDTH * 0.42)
    room = WIDTH - left - 52
    longest = max((max(bar.value or 0, bar.high or 0) for bar in chart), default=0) or 1.0
    height = step * len(chart) + 4
    parts = []
    for place, bar in enumerate(chart):
        top = 2 + place * step + (step - thick) / 2
        middle = top + thick / 2
        parts.append(f'<g class="ink{bar.ink % NUM_INKS}"><title>{escape(bar.detail or bar.label)}</title>')
        name = _shortened(bar.label, left - 8)
        strong = ' class="strong"' if bar.ink == 0 else ""
        parts.append(f'<text x="{left - 8:.1f}" y="{middle + 4:.1f}" text-anchor="end"{strong}>{escape(name)}</text>')
        end = left
        if bar.value is not None:
            length = max(bar.value / longest * room, 1.0)
            end = left + length
            box = f'x="{left:.1f}" y="{top:.1f}" width="{length:.1f}" height="{thick}"'
            parts.append(f'<rect class="{"void" if bar.hatched else "bar"}" {box}/>')
            if bar.hatched:
                parts.append(f'<path class="hatch" d="{_hatching(left, top, length, thick)}"/>')
            elif bar.low is not None and bar.high is not None and bar.high > bar.low:
                low, high = (left + value / longest * room for value in (bar.low, bar.high))
                caps = "".join(f"M{x:.1f} {middle - 3:.1f}v6" for x in (low, high))
                parts.append(f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}{caps}"/>')
                end = max(end, high)
        parts.append(_at_bar(bar, end + 6, middle + 4, left))
        parts.append("</g>")
    parts.append(f'<path class="axis" d="M{left:.1f} 0V{height}"/>')
    return _svg(title, height, parts)


def _at_bar(bar: Bar, x: float, y: float, left: float) -> str:
    text = bar.note or number(bar.value)
    kind = "note" if bar.note else ("value strong" if bar.best else "value")
    anchor = ""
    if x + len(text) * CHARACTER > WIDTH:
        text = _shortened(text, WIDTH - left - 6)
        if bar.value is not None:  # in front of the bar's end
            x, anchor = WIDTH - 1, ' text-anchor="end"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'


def _shortened(text: str, room: float) -> str:
    fits = int(room / CHARACTER)
    return text if len(text) <= fits else f"{text[: max(fits - 1, 1)].rstrip()}…"


def _hatching(left: float, top: float, length: float, thick: float) -> str:
    """Slanted strokes within a box. A pattern would have to be referred to by an address, and pages have none."""
    strokes = []
    start = left - thick + 5
    while start < left + length:
        begin, end = max(start, left), min(start + thick, left + length)
        strokes.append(f"M{begin:.1f} {top + thick - (begin - start):.1f}L{end:.1f} {top + thick - (end - start):.1f}")
        start += 5
    return "".join(strokes)


@dataclass(frozen=True)
class _Axis:
    """Values to places on the page."""

    low: float
    high: float
    first: float
    last: float
    log: bool

    def at(self, value: float) -> float:
        low, high, place = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return self.first + (place - low) / (high - low) * (self.last - self.first)


def lines(chart: Sequence[Line], title: str, *, x_name: str, y_name: str) -> str:
    """Lines over a logarithmic x axis, each with its name at its end.

    The y axis begins at zero, or is logarithmic and says so where the largest value is more than ten times the
    smallest.

    Args:
        chart: Lines of one point or more.
        title: Says what is seen, for those who cannot see it.
        x_name: What the x axis shows.
        y_name: What the y axis shows.
    """
    left, right, top, bottom = 40.0, WIDTH - 106.0, 26.0, 226.0
    points = [point for line in chart for point in line.points]
    spread = [value for point in points for value in (point.low, point.high)]
    log = max(spread) > 10 * min(spread)
    y_ticks = _log_ticks(min(spread), max(spread)) if log else _ticks(max(spread))
    ends = sorted({point.x for point in points})
    x_axis = _Axis(ends[0] / 1.08, ends[-1] * 1.08, left, right, True)
    y_axis = _Axis(min(y_ticks[0], *spread) if log else 0.0, max(y_ticks[-1], *spread), bottom, top, log)
    scale = ", log scale" if log else ""
    parts = [f'<text class="quiet" x="0" y="12">{escape(y_name)}{scale}</text>']
    for tick in y_ticks:
        y = y_axis.at(tick)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
        parts.append(f'<text class="quiet" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
    free = left - 20
    for tick in ends:
        x = x_axis.at(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v4"/>')
        if x - free >= 24:
            parts.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{tick:,.10g}</text>')
            free = x
    parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
    parts.append(f'<text class="quiet" x="{left}" y="{bottom + 34}">{escape(x_name)}, log scale</text>')
    places = _apart([y_axis.at(line.points[-1].y) for line in chart], 14, top, bottom)
    for line, place in reversed(list(zip(chart, places, strict=True))):  # the first line on top
        parts.append(_line(line, x_axis, y_axis, place, right))
    return _svg(title, bottom + 38, parts)


def _line(line: Line, x_axis: _Axis, y_axis: _Axis, label_y: float, right: float) -> str:
    at = [(x_axis.at(point.x), y_axis.at(point.y)) for point in line.points]
    strong = "strong" if line.ink == 0 else ""
    parts = [f'<g class="ink{line.ink % NUM_INKS}"><title>{escape(line.label)}: ']
    parts.append(escape(", ".join(f"{number(point.y)} at {point.x:,.10g}" for point in line.points)))
    parts.append(f'</title><path class="line {strong}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in at)}"/>')
    for point, (x, y) in zip(line.points, at, strict=True):
        if point.high > point.low:
            parts.append(f'<path class="line" d="M{x:.1f} {y_axis.at(point.low):.1f}V{y_axis.at(point.high):.1f}"/>')
        parts.append(f'<path class="mark" d="{_mark(line.ink, x, y)}"/>')
    x, y = at[-1]
    parts.append(f'<path class="lead" d="M{x + 5:.1f} {y:.1f}L{right + 14:.1f} {label_y:.1f}"/>')
    parts.append(f'<path class="mark" d="{_mark(line.ink, right + 20, label_y)}"/>')
    name = _shortened(line.label, WIDTH - right - 26)
    parts.append(f'<text class="{strong}" x="{right + 27:.1f}" y="{label_y + 4:.1f}">{escape(name)}</text></g>')
    return "".join(parts)


def _mark(ink: int, x: float, y: float) -> str:
    """A shape of its own for neighbouring colours, for those who see no difference between the colours."""
    shapes = (
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        "m-3.5 -3.5h7v7h-7z",
        "m0 -5l5 5l-5 5l-5 -5z",
        "m0 -4.5l4.7 8h-9.4z",
        "m0 4.5l4.7 -8h-9.4z",
        "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    )
    return f"M{x:.1f} {y:.1f}{shapes[ink % len(shapes)]}"


def _apart(wanted: Sequence[float], distance: float, top: float, bottom: float) -> list[float]:
    """Places near the wanted ones, a distance from each other, between top and bottom as far as there is room."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    found = [wanted[place] for place in order]
    for before, after in pairwise(range(len(found))):
        found[after] = max(found[after], found[before] + distance)
    limit = bottom
    for place in reversed(range(len(found))):
        found[place] = min(found[place], limit)
        limit = found[place] - distance
    shift = max(top - found[0], 0) if found else 0.0
    result = [0.0] * len(found)
    for place, y in zip(order, found, strict=True):
        result[place] = y + shift
    return result


def _ticks(high: float) -> list[float]:
    """From zero to the first round number that is not below the highest value."""
    power = 10.0 ** math.floor(math.log10(high / 3))
    step = next(power * factor for factor in (1, 2, 5, 10) if high / (power * factor) <= 5)
    return [round(step * place, 10) for place in range(math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers around the values, few enough to be read."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    every = [round(factor * 10.0**power, 10) for power in powers for factor in factors]
    below = [tick for tick in every if tick <= low][-1:]
    above = [tick for tick in every if tick >= high][:1]
    return below + [tick for tick in every if low < tick < high] + above


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    name = escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{name}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


# framefeed has the accent; the others are muted, and differ in lightness as well as in hue.
_LIGHT = "#0b62c4 #c4622d #2b7f63 #9a5f93 #857414 #6b7280 #3a8ba9 #8c3b4a #5b6fa8 #404040"
_DARK = "#3b8eea #e08a5a #55c29b #cf95c8 #c9b84e #9ca3af #7ccbe6 #d9808f #9aaae0 #d4d4d4"


def _palette(colours: str) -> str:
    return " ".join(f"--i{place}: {colour};" for place, colour in enumerate(colours.split()))


STYLE = (
    f"""
:root {{ color-scheme: light dark; --page: #fdfdfc; --text: #1d2126; --quiet: #5c6470; --rule: #dcdfe3;
  --bad: #a3261b; --bad-page: #fbe4e0; --good-page: #e6f1ea; --note-page: #fff3d6; --shade: #0003;
  {_palette(_LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --page: #14171b; --text: #e4e7eb; --quiet: #9aa3ae;
  --rule: #30363e; --bad: #ff9d90; --bad-page: #47211d; --good-page: #1b3327; --note-page: #40340f; --shade: #fff2;
  {_palette(_DARK)} }} }}
"""
    + "".join(f".ink{place} {{ --ink: var(--i{place}); }}" for place in range(NUM_INKS))
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1, h2, h3, h4 { line-height: 1.25; font-weight: 600; margin: 0; }
h1 { font-size: 1rem; color: var(--quiet); }
h2 { font-size: 1.375rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.0625rem; margin-top: 1.75rem; }
h4, .panel h3 { font-size: .875rem; margin: 0 0 .25rem; }
h3 small, h4 small { font-weight: 400; font-size: 1em; color: var(--quiet); }
p, ul { margin: .75rem 0; max-width: 46rem; }
ul { padding-left: 1.25rem; }
.lead { font-size: clamp(1.25rem, 1rem + 1.5vw, 1.75rem); line-height: 1.3; margin: .5rem 0 1rem; max-width: 48rem; }
.notice { background: var(--note-page); padding: .75rem 1rem; border-radius: .25rem; max-width: none; }
.caption, figcaption, small { color: var(--quiet); }
figcaption, small { font-size: .875rem; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; gap: .25rem 1.5rem; margin: 1rem 0; }
dt { color: var(--quiet); }
dd { margin: 0; min-width: 0; }
h3 small.line { display: block; font-size: .875rem; }
figure { margin: .5rem 0 0; }
figure + figure { margin-top: 1.75rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.5rem 2rem;
  margin-top: .75rem; }
.panel { min-width: 0; max-width: 26rem; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; fill: var(--text); }
svg .strong { font-weight: 600; }
svg .quiet { fill: var(--quiet); font-size: 11px; }
svg .bar, svg .mark { fill: var(--ink); }
svg .bar { opacity: .8; }
svg .ink0 .bar { opacity: 1; }
svg .void { fill: none; stroke: var(--quiet); }
svg .hatch { fill: none; stroke: var(--quiet); opacity: .7; }
svg .note { fill: var(--bad); }
svg .note, svg .value { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
svg .whisker { fill: none; stroke: var(--text); stroke-width: 1.25; }
svg .axis { fill: none; stroke: var(--quiet); }
svg .grid { fill: none; stroke: var(--rule); }
svg .line { fill: none; stroke: var(--ink); stroke-width: 1.5; stroke-linejoin: round; }
svg .line.strong { stroke-width: 2.75; }
svg .lead { fill: none; stroke: var(--ink); opacity: .4; }
svg .mark { stroke: var(--page); stroke-width: 1; }
.scroll { overflow-x: auto; margin: .75rem 0; background: /* a shade where there is more to the right */
  linear-gradient(to left, var(--page) 1rem, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--shade), transparent) right / .75rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .875rem; overflow-wrap: normal; }
th, td { padding: .3rem .75rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
thead th { color: var(--quiet); font-weight: 400; vertical-align: bottom; white-space: normal; }
th:first-child, .message { text-align: left; }
tbody th { font-weight: 500; }
th[scope="rowgroup"] { padding-top: 1rem; font-weight: 600; }
.told thead th:last-child, .told td:last-child, .plain td, .plain thead th { text-align: left; }
.told td:nth-child(2), .told th:nth-child(2) { text-align: left; }
.repeats { color: var(--quiet); }
.message { white-space: normal; min-width: 14rem; overflow-wrap: anywhere; }
.matrix td, .matrix thead th { text-align: left; }
.matrix td small { display: block; font-size: .75rem; }
.matrix td, .matrix td:first-child { padding-left: .75rem; border-left: 2px solid var(--page); }
.wrong { background: var(--bad-page); color: var(--bad); }
.wrong small { color: inherit; }
.right { background: var(--good-page); }
.failed { background: var(--note-page); }
.none { color: var(--quiet); }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  h2, h3, h4, figcaption { break-after: avoid; } tr, li { break-inside: avoid; } table { font-size: 7.5pt; }
  th, td { padding: .15rem .35rem; } .message, .repeats { white-space: normal; min-width: 0; }
  td, th, rect, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
)
