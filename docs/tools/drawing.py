"""Small SVG pictures that are seen in light and dark, and need nothing else: no font, no script, no style sheet.

A picture brings its own background, so that it can be read wherever it is shown, and follows the reader's choice of
light or dark where the browser tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Picture"]

_LIGHT = {
    "page": "#fdfdfc", "text": "#1d2126", "quiet": "#5c6470", "rule": "#c3c8ce", "blue": "#0b62c4", "orange": "#c4622d",
    "green": "#2b7f63", "violet": "#8a4f83", "gray": "#6b7280", "paleblue": "#dbe9f8", "paleorange": "#f8e3d6",
    "palegreen": "#d8ece4", "paleviolet": "#efe1ed", "palegray": "#e9ebee", "onink": "#ffffff",
}  # fmt: skip
_DARK = {
    "page": "#14171b", "text": "#e4e7eb", "quiet": "#9aa3ae", "rule": "#454d57", "blue": "#3b8eea", "orange": "#e08a5a",
    "green": "#55c29b", "violet": "#cf95c8", "gray": "#9ca3af", "paleblue": "#19304b", "paleorange": "#4a2b1b",
    "palegreen": "#1b3a30", "paleviolet": "#402d3d", "palegray": "#2a2f36", "onink": "#101316",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


_STYLE = (
    f":root {{ {_variables(_LIGHT)} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }} }}\n"
    + 'svg { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, '
    "sans-serif; }\n"
    "text { fill: var(--text); } .quiet { fill: var(--quiet); } .strong { font-weight: 600; } "
    ".small { font-size: 11px; }\n"
    ".line { fill: none; stroke-width: 1.5; } .thin { fill: none; stroke-width: 1; }\n"
)


@dataclass
class Picture:
    """A picture that grows by what is drawn.

    Attributes:
        title: What is seen, for those who do not see it.
        width, height: In pixels of its own.
        parts: What was drawn.
    """

    title: str
    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, words: str, kind: str = "", anchor: str = "start", colour: str | None = None
    ) -> None:
        """One line of text."""
        classes = f' class="{kind}"' if kind else ""
        ink = f' style="fill: var(--{colour})"' if colour else ""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text{classes} x="{x:g}" y="{y:g}"{place}{ink}>{escape(words, quote=False)}</text>')

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
        """A rectangle."""
        dashes = "; stroke-dasharray: 3 3" if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}" '
            f'style="fill: var(--{fill}); stroke: var(--{stroke}); stroke-width: 1.2{dashes}"/>'
        )

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
        """A rectangle with a word in its middle."""
        self.box(x, y, width, height, fill, stroke, dashed=dashed)
        self.text(x + width / 2, y + height / 2 + 4.5, words, kind, "middle", colour)

    def path(self, drawn: str, colour: str = "rule", kind: str = "line", *, dashed: bool = False) -> None:
        """A line."""
        dashes = "; stroke-dasharray: 4 3" if dashed else ""
        self.parts.append(f'<path class="{kind}" d="{drawn}" style="stroke: var(--{colour}){dashes}"/>')

    def arrow(self, points: Sequence[tuple[float, float]], colour: str = "quiet", *, dashed: bool = False) -> None:
        """Straight lines through points, with a head at the last one; the last piece is level or upright."""
        (x0, y0), (x1, y1) = points[-2:]
        self.path("M" + "L".join(f"{x:g} {y:g}" for x, y in points), colour, dashed=dashed)
        self.head(x1, y1, (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0), colour)

    def head(self, x: float, y: float, dx: int, dy: int, colour: str) -> None:
        """An arrow's head that points into a direction of the compass."""
        corners = f"M{x:g} {y:g}L{x - 7 * dx - 3.5 * dy:g} {y - 7 * dy - 3.5 * dx:g}"
        corners += f"L{x - 7 * dx + 3.5 * dy:g} {y - 7 * dy + 3.5 * dx:g}Z"
        self.parts.append(f'<path d="{corners}" style="fill: var(--{colour})"/>')

    def svg(self) -> str:
        """The file."""
        name = escape(self.title)
        drawn = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" aria-label="{name}">\n'
            f"<title>{name}</title>\n<style>\n{_STYLE}</style>\n"
            f'<rect width="100%" height="100%" rx="6" style="fill: var(--page)"/>\n{drawn}\n</svg>\n'
        )
