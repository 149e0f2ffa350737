"""SVG drawings in light and dark colours that need nothing else: no font, no script, no style sheet."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["FONT", "NUM_INKS", "SHAPES", "Axis", "Drawing", "apart", "escape", "number", "palette"]

NUM_INKS = 10
"""Number of colours: the first is framefeed's, the others are handed out again after the last."""

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'

# Light and dark. framefeed has the accent, i0; the others are muted, and differ in lightness as well as in hue.
_COLOURS = """page #fdfdfc #14171b  text #1d2126 #e4e7eb  quiet #5c6470 #9aa3ae  rule #dcdfe3 #30363e
    i0 #0b62c4 #3b8eea  i1 #c4622d #e08a5a  i2 #2b7f63 #55c29b  i3 #9a5f93 #cf95c8  i4 #857414 #c9b84e
    i5 #6b7280 #9ca3af  i6 #3a8ba9 #7ccbe6  i7 #8c3b4a #d9808f  i8 #5b6fa8 #9aaae0  i9 #404040 #d4d4d4"""


def palette(more: str = "", *, media: str = "") -> str:
    """Returns CSS variables of colours.

    Args:
        more: Further colours: the name, the light one and the dark one of each.
        media: Start of the media query for dark ones, such as ``"screen and "``.
    """
    words = f"{_COLOURS} {more}".split()
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in zip(words[::3], words[place::3], strict=True))
                   for place in (1, 2))  # fmt: skip
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media {media}(prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


SHAPES = (
    "".join(f".ink{place} {{ --ink: var(--i{place}); }}" for place in range(NUM_INKS))
    + """
svg text { fill: var(--text); }
svg .strong { font-weight: 600; }
svg .quiet { fill: var(--quiet); font-size: 11px; }
svg .axis { fill: none; stroke: var(--quiet); }
svg .grid { fill: none; stroke: var(--rule); }
svg .line { fill: none; stroke: var(--ink); stroke-width: 1.5; stroke-linejoin: round; }
svg .line.strong { stroke-width: 2.75; }
svg .lead { fill: none; stroke: var(--ink); opacity: .4; }
svg .mark { fill: var(--ink); stroke: var(--page); stroke-width: 1; }
"""
)
"""Style of the parts of charts."""

_MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "m-3.5 -3.5h7v7h-7z",
    "m0 -5l5 5l-5 5l-5 -5z",
    "m0 -4.5l4.7 8h-9.4z",
    "m0 4.5l4.7 -8h-9.4z",
    "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
)


def escape(text: object) -> str:
    """Returns text for a page: nothing in it is markup, and it can be encoded."""
    known = str(text).encode("utf-8", "backslashreplace").decode()
    return html.escape(re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", known))


def number(value: float | None) -> str:
    """Returns a number as tables have it: 1,234 and 12.3 and 1.23."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def _place(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _kept(name: str, value: str) -> str:
    """An attribute, unless it is empty."""
    return f' {name}="{value}"' if value else ""


@dataclass
class Drawing:
    """A picture that grows by what is drawn.

    Attributes:
        title: Description for readers who cannot see it.
        width, height: In pixels of its own.
        parts: Everything drawn so far.
    """

    title: str
    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: object, kind: str = "", anchor: str = "start", style: str = "") -> None:
        """Draws a line of text. ``kind`` are classes."""
        place = f' x="{_place(x)}" y="{_place(y)}"'
        more = _kept("text-anchor", anchor.removeprefix("start")) + _kept("style", style)
        self.parts.append(f"<text{_kept('class', kind)}{place}{more}>{escape(words)}</text>")

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draws straight lines through points."""
        self.curve("M" + "L".join(f"{_place(x)} {_place(y)}" for x, y in points), kind)

    def curve(self, commands: str, kind: str = "", style: str = "") -> None:
        """Draws a path given by its SVG commands."""
        self.parts.append(f'<path{_kept("class", kind)} d="{commands}"{_kept("style", style)}/>')

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str = "", style: str = "", round_by: float = 0
    ) -> None:
        """Draws a rectangle."""
        place = f' x="{_place(x)}" y="{_place(y)}" width="{_place(width)}" height="{_place(height)}"'
        more = _kept("rx", _place(round_by) if round_by else "") + _kept("style", style)
        self.parts.append(f"<rect{_kept('class', kind)}{place}{more}/>")

    def mark(self, ink: int, x: float, y: float) -> None:
        """Draws a mark whose shape tells neighbouring colours apart."""
        self.curve(f"M{_place(x)} {_place(y)}{_MARKS[ink % len(_MARKS)]}", "mark")

    def begin(self, ink: int, detail: str) -> None:
        """Begins parts of one colour; a pointer resting on them shows ``detail``."""
        self.parts.append(f'<g class="ink{ink % NUM_INKS}"><title>{escape(detail)}</title>')

    def end(self) -> None:
        """Ends parts of one colour."""
        self.parts.append("</g>")

    def y_axis(self, axis: Axis, left: float, right: float) -> None:
        """Draws a level line with its number at each tick."""
        for tick in axis.ticks:
            y = axis.at(tick)
            self.path([(left, y), (right, y)], "grid")
            self.text(left - 6, y + 4, f"{tick:,.10g}", "quiet", "end")

    def label(self, ink: int, name: str, start: tuple[float, float], x: float, y: float, kind: str = "") -> None:
        """Draws a mark with a name at its right, and a line to it from where its curve ends."""
        self.path([(start[0] + 5, start[1]), (x - 7, y)], "lead")
        self.mark(ink, x, y)
        self.text(x + 8, y + 4, name, kind)

    def inline(self) -> str:
        """Returns an element for a page."""
        return f"<svg{self._attributes()}><title>{escape(self.title)}</title>{''.join(self.parts)}</svg>"

    def file(self, style: str, corner: float = 0) -> str:
        """Returns a file of its own, with a background."""
        space = ' xmlns="http://www.w3.org/2000/svg"'
        size = f' width="{self.width:g}" height="{self.height:g}"'
        drawn = "\n".join(self.parts)
        return (
            f"<svg{space}{self._attributes()}{size}>\n<title>{escape(self.title)}</title>\n<style>\n"
            f"svg {{ font: 12px {FONT}; }}\n{style}</style>\n"
            f'<rect width="100%" height="100%"{_kept("rx", _place(corner) if corner else "")} '
            f'style="fill: var(--page)"/>\n{drawn}\n</svg>\n'
        )

    def _attributes(self) -> str:
        return f' viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.title)}"'


@dataclass(frozen=True)
class Axis:
    """Values to places on the page.

    Attributes:
        low, high: Ends of its values.
        first, last: Their places.
        is_log: Logarithmic.
        ticks: Round values.
    """

    low: float
    high: float
    first: float
    last: float
    is_log: bool
    ticks: tuple[float, ...] = ()

    def at(self, value: float) -> float:
        """Returns the place of a value."""
        low, high, place = (math.log(x) if self.is_log else x for x in (self.low, self.high, value))
        return self.first + (place - low) / (high - low) * (self.last - self.first)

    @classmethod
    def around(cls, values: Sequence[float], first: float, last: float) -> Axis:
        """Returns a logarithmic axis with some room around its values."""
        low, high = min(values) / 1.15, max(values) * 1.15
        return cls(low, high, first, last, True, tuple(tick for tick in _log_ticks(low, high) if low <= tick <= high))

    @classmethod
    def from_zero(cls, values: Sequence[float], first: float, last: float) -> Axis:
        """Returns an axis from zero; a logarithmic one where some values are more than ten times others."""
        is_log = max(values) > 10 * min(values)
        ticks = _log_ticks(min(values), max(values)) if is_log else _ticks(max(values))
        low = min(ticks[0], *values) if is_log else 0.0
        return cls(low, max(ticks[-1], *values), first, last, is_log, tuple(ticks))


def apart(wanted: Sequence[float], distance: float, top: float, bottom: float) -> list[float]:
    """Returns places near the wanted ones: a distance apart, between top and bottom as far as there is room."""
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
    """Returns round numbers from zero to the first round number that is not below the highest value."""
    power = 10.0 ** math.floor(math.log10(high / 3))
    step = next(power * factor for factor in (1, 2, 5, 10) if high / (power * factor) <= 5)
    return [round(step * place, 10) for place in range(math.ceil(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Returns round numbers around the values, few enough to be read."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    every = [round(factor * 10.0**power, 10) for power in powers for factor in factors]
    below = [tick for tick in every if tick <= low][-1:]
    above = [tick for tick in every if tick >= high][:1]
    return below + [tick for tick in every if low < tick < high] + above
