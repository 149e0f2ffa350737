"""Charts as SVG: bars and lines for pages, points and curves as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framefeed.charts.svg import SHAPES, Axis, Drawing, apart, number, palette

__all__ = [
    "LEAST_EFFECT",
    "MODELS",
    "ORDERS",
    "OTHERS",
    "Bar",
    "Dot",
    "Line",
    "Point",
    "bars",
    "curves",
    "lines",
    "scatter",
    "study_plot",
]

ORDERS, MODELS, OTHERS = 0, 1, 2
LEAST_EFFECT = 0.01  # a logarithmic axis has no 0

# Width of a phone without scaling, so that text keeps its size; wider screens put several plots side by side.
WIDTH = 350
FILE_WIDTH = 720
# An upper estimate, as the font is the reader's own.
CHARACTER = 7.0
LABELS = 14.0  # from one name to the next


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: Its name.
        ink: Number of its colour.
        value: Its length; None draws no bar.
        low: Start of the whisker.
        high: End of the whisker.
        note: Stands at the bar instead of the number.
        hatched: It must not be read as a result.
        best: Its number is bold.
        detail: Shown by a pointer resting on it.
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


@dataclass(frozen=True)
class Dot:
    """One point with a name.

    Attributes:
        label: Its name.
        ink: Number of its colour and shape.
        x: Its place, above 0.
        y: Its place, above 0.
    """

    label: str
    ink: int
    x: float
    y: float


def _strong(ink: int) -> str:
    return "strong" if ink == 0 else ""


def _shortened(text: str, room: float) -> str:
    fits = int(room / CHARACTER)
    return text if len(text) <= fits else f"{text[: max(fits - 1, 1)].rstrip()}…"


# --- bars ---------------------------------------------------------------------------------------------------------


def bars(chart: Sequence[Bar], title: str) -> str:
    """Draws horizontal bars from zero, with whiskers, each with its name before it and its number after it.

    Args:
        chart: From top to bottom.
        title: Description for readers who cannot see it.
    """
    step, thick = 25, 13
    widest = max((len(bar.label) * CHARACTER + (0 if bar.ink else 6) for bar in chart), default=0)  # ours is bold
    left = min(widest + 8, WIDTH * 0.42)
    longest = max((max(bar.value or 0, bar.high or 0) for bar in chart), default=0) or 1.0
    scale = (WIDTH - left - 52) / longest
    drawing = Drawing(title, WIDTH, step * len(chart) + 4)
    for place, bar in enumerate(chart):
        top = 2 + place * step + (step - thick) / 2
        middle = top + thick / 2
        drawing.begin(bar.ink, bar.detail or bar.label)
        drawing.text(left - 8, middle + 4, _shortened(bar.label, left - 8), _strong(bar.ink), "end")
        end = left
        if bar.value is not None:
            length = max(bar.value * scale, 1.0)
            end = left + length
            drawing.rect(left, top, length, thick, "void" if bar.hatched else "bar")
            if bar.hatched:
                drawing.curve(_hatching(left, top, length, thick), "hatch")
            elif bar.low is not None and bar.high is not None and bar.high > bar.low:
                low, high = (left + value * scale for value in (bar.low, bar.high))
                caps = "".join(f"M{x:.1f} {middle - 3:.1f}v6" for x in (low, high))
                drawing.curve(f"M{low:.1f} {middle:.1f}H{high:.1f}{caps}", "whisker")
                end = max(end, high)
        _at_bar(drawing, bar, end + 6, middle + 4, left)
        drawing.end()
    drawing.path([(left, 0), (left, drawing.height)], "axis")
    return drawing.inline()


def _at_bar(drawing: Drawing, bar: Bar, x: float, y: float, left: float) -> None:
    text = bar.note or number(bar.value)
    kind = "note" if bar.note else ("value strong" if bar.best else "value")
    anchor = "start"
    if x + len(text) * CHARACTER > WIDTH:
        text = _shortened(text, WIDTH - left - 6)
        if bar.value is not None:  # in front of the bar's end
            x, anchor = WIDTH - 1, "end"
    drawing.text(x, y, text, kind, anchor)


def _hatching(left: float, top: float, length: float, thick: float) -> str:
    """Slanted strokes within a box. A pattern would have to be referred to by an address, and pages have none."""
    strokes = []
    start = left - thick + 5
    while start < left + length:
        begin, end = max(start, left), min(start + thick, left + length)
        strokes.append(f"M{begin:.1f} {top + thick - (begin - start):.1f}L{end:.1f} {top + thick - (end - start):.1f}")
        start += 5
    return "".join(strokes)


# --- lines and points ---------------------------------------------------------------------------------------------


def lines(chart: Sequence[Line], title: str, *, x_name: str, y_name: str) -> str:
    """Draws lines over a logarithmic x axis, each with its name at its end.

    The y axis begins at zero, or is logarithmic and says so where the largest value is more than ten times the
    smallest.

    Args:
        chart: Lines of one point or more.
        title: Description for readers who cannot see it.
        x_name: Name of the x axis.
        y_name: Name of the y axis.
    """
    left, right, top, bottom = 40.0, WIDTH - 106.0, 26.0, 226.0
    points = [point for line in chart for point in line.points]
    y_axis = Axis.from_zero([value for point in points for value in (point.low, point.high)], bottom, top)
    ends = sorted({point.x for point in points})
    x_axis = Axis(ends[0] / 1.08, ends[-1] * 1.08, left, right, True, tuple(ends))
    drawing = Drawing(title, WIDTH, bottom + 38)
    drawing.text(0, 12, f"{y_name}{', log scale' if y_axis.is_log else ''}", "quiet")
    drawing.y_axis(y_axis, left, right)
    free = left - 20
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        drawing.path([(x, bottom), (x, bottom + 4)], "axis")
        if x - free >= 24:
            drawing.text(x, bottom + 17, f"{tick:,.10g}", "quiet", "middle")
            free = x
    drawing.path([(left, bottom), (right, bottom)], "axis")
    drawing.text(left, bottom + 34, f"{x_name}, log scale", "quiet")
    places = apart([y_axis.at(line.points[-1].y) for line in chart], LABELS, top, bottom)
    for line, place in reversed(list(zip(chart, places, strict=True))):  # the first line on top
        detail = ", ".join(f"{number(point.y)} at {point.x:,.10g}" for point in line.points)
        drawing.begin(line.ink, f"{line.label}: {detail}")
        end = _line(drawing, line, x_axis, y_axis)
        name = _shortened(line.label, WIDTH - right - 28)
        drawing.label(line.ink, name, end, right + 20, place, _strong(line.ink))
        drawing.end()
    return drawing.inline()


def _line(drawing: Drawing, line: Line, x_axis: Axis, y_axis: Axis) -> tuple[float, float]:
    """Draws a line with its marks; returns its last point."""
    at = [(x_axis.at(point.x), y_axis.at(point.y)) for point in line.points]
    drawing.path(at, f"line {_strong(line.ink)}".strip())
    for point, (x, y) in zip(line.points, at, strict=True):
        if point.high > point.low:
            drawing.path([(x, y_axis.at(point.low)), (x, y_axis.at(point.high))], "line")
        drawing.mark(line.ink, x, y)
    return at[-1]


def _file(title: str, height: float, y_name: str) -> Drawing:
    """Begins a chart that is a file of its own."""
    drawing = Drawing(title, FILE_WIDTH, height)
    drawing.text(8, 18, title, "strong")
    drawing.text(8, 35, f"{y_name}, log scale", "quiet")
    return drawing


def scatter(dots: Sequence[Dot], title: str, *, x_name: str, y_name: str, note: str = "") -> str:
    """Draws points over two logarithmic axes with their names at the right, as a file.

    Args:
        dots: At least one.
        title: Stands above, and describes the chart for readers who cannot see it.
        x_name: Name of the x axis.
        y_name: Name of the y axis.
        note: Says where good ones are.
    """
    left, right, top, bottom = 52.0, 470.0, 44.0, 372.0
    x_axis = Axis.around([dot.x for dot in dots], left, right)
    y_axis = Axis.around([dot.y for dot in dots], bottom, top)
    drawing = _file(title, bottom + 48, y_name)
    drawing.y_axis(y_axis, left, right)
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        drawing.path([(x, top), (x, bottom)], "grid")
        drawing.text(x, bottom + 16, f"{tick:,.10g}", "quiet", "middle")
    drawing.text(left, bottom + 36, f"{x_name}, log scale", "quiet")
    if note:
        drawing.text(FILE_WIDTH - 8, bottom + 36, note, "quiet", "end")
    # Of points at one height, the name of the right one stands above: lines to names then do not cross.
    places = apart([y_axis.at(dot.y) - 0.02 * x_axis.at(dot.x) for dot in dots], LABELS, top, bottom)
    for dot, place in reversed(list(zip(dots, places, strict=True))):  # the first on top
        at = x_axis.at(dot.x), y_axis.at(dot.y)
        drawing.begin(dot.ink, f"{dot.label}: {number(dot.x)}, {number(dot.y)}")
        drawing.mark(dot.ink, *at)
        drawing.label(dot.ink, dot.label, at, right + 17, place, _strong(dot.ink))
        drawing.end()
    return drawing.file(palette() + SHAPES)


def curves(
    chart: Sequence[Line],
    title: str,
    *,
    x_name: str,
    y_name: str,
    unit: str,
    columns: Sequence[str],
    columns_name: str,
) -> str:
    """Draws lines over two logarithmic axes, as a file; all have the same x, and these have names.

    Args:
        chart: Lines with their largest x at the front.
        title: Stands above, and describes the chart for readers who cannot see it.
        x_name: Name of the x axis.
        y_name: Name of the y axis.
        unit: Unit of y.
        columns: Name of each x.
        columns_name: Kind of these names.
    """
    left, right, top, bottom = 52.0, 556.0, 84.0, 388.0
    sizes = [point.x for point in chart[0].points]
    x_axis = Axis.around(sizes, left, right)
    y_axis = Axis.around([point.y for line in chart for point in line.points], bottom, top)
    drawing = _file(title, bottom + 52, y_name)
    drawing.y_axis(y_axis, left, right)
    drawing.text(left, bottom + 42, f"{x_name}, log scale", "quiet")
    drawing.text(8, top - 28, columns_name, "quiet")
    at = [x_axis.at(size) for size in sizes]
    for name, size, x, label in zip(columns, sizes, at, apart(at, 34, left, right), strict=True):
        drawing.path([(label, top - 22), (x, top - 6), (x, bottom + 2), (label, bottom + 10)], "grid")
        drawing.text(label, top - 28, name, anchor="middle")
        drawing.text(label, bottom + 21, number(size), "quiet", "middle")
    ends = [y_axis.at(line.points[0].y) for line in chart]
    for line, end, place in zip(chart, ends, apart(ends, LABELS, top, bottom), strict=True):
        points = zip(columns, line.points, strict=True)
        detail = ", ".join(f"{number(point.y)} {unit} at {columns_name} {name}" for name, point in points)
        drawing.begin(line.ink, f"{line.label}: {detail}")
        _line(drawing, line, x_axis, y_axis)
        drawing.label(line.ink, line.label, (at[0], end), right + 11, place)
        drawing.end()
    return drawing.file(palette() + SHAPES)


def study_plot(study: Mapping[str, Any]) -> str:
    """Draws the cost of orders in decoding against the variance of a batch's mean.

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
        f"Cost of an order, and its effect on batches of {study['batch_size']}",
        x_name="packets decoded for each frame",
        y_name="design effect: variance of a batch's mean beside independent frames",
        note="better: to the left and down",
    )
