"""Pictures of boxes and arrows, drawn as charts are: seen in light and dark, with a background of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from framefeed.charts.svg import SHAPES, Drawing, palette

__all__ = ["Picture"]

_COLOURS = """rule #c3c8ce #454d57  onink #ffffff #101316
    blue var(--i0) var(--i0)  orange var(--i1) var(--i1)  green var(--i2) var(--i2)  violet var(--i3) var(--i3)
    gray var(--i5) var(--i5)  paleblue #dbe9f8 #19304b  paleorange #f8e3d6 #4a2b1b  palegreen #d8ece4 #1b3a30
    paleviolet #efe1ed #402d3d  palegray #e9ebee #2a2f36"""
_STYLE = (
    palette(_COLOURS)
    + SHAPES
    + "svg .quiet { font-size: inherit; } svg { font-size: 13px; } svg .small { font-size: 11px; }\n"
)


@dataclass
class Picture(Drawing):
    """A drawing whose colours have names."""

    def words(
        self, x: float, y: float, words: str, kind: str = "", anchor: str = "start", colour: str | None = None
    ) -> None:
        """Draws a line of text."""
        self.text(x, y, words, kind, anchor, f"fill: var(--{colour})" if colour else "")

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "page",
        stroke: str = "rule",
        *,
        dashed: bool = False,
        round_by: float = 3,
    ) -> None:
        """Draws a rectangle."""
        dashes = "; stroke-dasharray: 3 3" if dashed else ""
        style = f"fill: var(--{fill}); stroke: var(--{stroke}); stroke-width: 1.2{dashes}"
        self.rect(x, y, width, height, style=style, round_by=round_by)

    def labelled(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str,
        fill: str = "page",
        stroke: str = "rule",
        *,
        dashed: bool = False,
        kind: str = "",
        colour: str | None = None,
    ) -> None:
        """Draws a rectangle with a word in its middle."""
        self.box(x, y, width, height, fill, stroke, dashed=dashed)
        self.words(x + width / 2, y + height / 2 + 4.5, words, kind, "middle", colour)

    def stroke(self, commands: str, colour: str = "rule", width: float = 1.5, *, dashed: bool = False) -> None:
        """Draws a path given by its SVG commands."""
        dashes = "; stroke-dasharray: 4 3" if dashed else ""
        self.curve(commands, style=f"fill: none; stroke: var(--{colour}); stroke-width: {width:g}{dashes}")

    def arrow(self, points: Sequence[tuple[float, float]], colour: str = "quiet", *, dashed: bool = False) -> None:
        """Draws straight lines through points, with a head at the last one; the last piece is level or upright."""
        (x0, y0), (x1, y1) = points[-2:]
        self.stroke("M" + "L".join(f"{x:g} {y:g}" for x, y in points), colour, dashed=dashed)
        self.head(x1, y1, (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0), colour)

    def head(self, x: float, y: float, dx: int, dy: int, colour: str) -> None:
        """Draws an arrow's head that points into a direction of the compass."""
        corners = f"M{x:g} {y:g}L{x - 7 * dx - 3.5 * dy:g} {y - 7 * dy - 3.5 * dx:g}"
        corners += f"L{x - 7 * dx + 3.5 * dy:g} {y - 7 * dy + 3.5 * dx:g}Z"
        self.curve(corners, style=f"fill: var(--{colour})")

    def svg(self) -> str:
        """Returns the file."""
        return self.file(_STYLE, corner=6)
