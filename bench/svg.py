"""Plots in SVG, by hand: panels of lines or of bars, and a legend. They are readable in light and in dark, as their own
style sheet asks for the reader's theme and draws its own ground, and in text, as letters stay letters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 430, 290, 2
LEFT, RIGHT, TOP, BOTTOM = 78, 18, 34, 50
LINE = 18

# Hues that stay apart for colour-blind readers on both grounds; the floor is no contestant, and grey.
LIGHT = ("#2a78d6", "#eb6834", "#1baf7a", "#b87a00", "#8a4fd0", "#c0396b")
DARK = ("#3987e5", "#f08a5d", "#22b07d", "#d9a21b", "#a58bf0", "#e0709a")
DASHES = ("", "7 4", "2 3", "9 3 2 3")

_THEME = """
.ground {{ fill: {ground}; }} .grid {{ stroke: {grid}; }} .axis {{ stroke: {axis}; }}
text {{ fill: {second}; }} .strong {{ fill: {first}; }} .grey {{ color: {second}; }}
"""
_LIGHT = {"ground": "#fcfcfb", "grid": "#e6e5e1", "axis": "#8b8a84", "first": "#16150f", "second": "#565550"}
_DARK = {"ground": "#1a1a19", "grid": "#343431", "axis": "#8b8a84", "first": "#f4f3ee", "second": "#bcbab2"}


def _theme(colours: dict[str, str], hues: Sequence[str]) -> str:
    return _THEME.format(**colours) + "".join(f".h{i} {{ color: {hue}; }} " for i, hue in enumerate(hues))


STYLE = f"""
text {{ font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }}
.strong {{ font-weight: 600; }} .title {{ font-size: 15px; }}
.grid, .axis {{ stroke-width: 1; }}
.line {{ fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }}
.spread {{ stroke: currentColor; stroke-width: 1; }} .dot, .bar {{ fill: currentColor; }}
{_theme(_LIGHT, LIGHT)}
@media (prefers-color-scheme: dark) {{ {_theme(_DARK, DARK)} }}
"""


@dataclass(frozen=True)
class Look:
    """How a series is drawn: ``hue`` of the six, or -1 for grey; ``dash`` of the four."""

    hue: int
    dash: int = 0

    @property
    def style(self) -> str:
        return "grey" if self.hue < 0 else f"h{self.hue % len(LIGHT)}"

    @property
    def dashes(self) -> str:
        return DASHES[self.dash % len(DASHES)]

    @property
    def opacity(self) -> float:
        """Of a bar, which has no dashes."""
        return 0.6**self.dash


@dataclass(frozen=True)
class Point:
    """One figure, and the ends of its quartiles."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """What one engine has in a panel; ``label`` is what the legend says, with version and settings."""

    label: str
    look: Look
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Axis:
    """An axis with its unit in its label. Logarithmic, or from zero."""

    label: str
    text: Callable[[float], str] = "{:,.9g}".format
    log: bool = False

    def ticks(self, low: float, high: float) -> list[float]:
        if not self.log:
            step = _step(high)
            return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]
        lowest, highest = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        step = math.ceil(max(highest - lowest, 1) / 6)
        return [10.0**power for power in range(lowest, max(highest, lowest + 1) + step, step)]


@dataclass(frozen=True)
class Panel:
    """Lines over numbers. The ticks of ``x`` are where it was measured."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Bars:
    """A bar for each series in each group, from the left; the points' ``x`` is the number of the group, and the axis
    goes up to ``high``.
    """

    title: str
    x: Axis
    high: float
    groups: tuple[str, ...]
    series: tuple[Series, ...]


def draw(title: str, note: Sequence[str], panels: Sequence[Panel | Bars]) -> str:
    """A plot of panels side by side, the legend of all of them, and lines of text below."""
    labels = {series.label: series.look for panel in panels for series in panel.series}
    columns = min(COLUMNS, len(panels))
    longest = max(map(len, (*labels, *note)))
    width = max(columns * PANEL_WIDTH, 640, 70 + 7 * longest) + 24
    heights = [_height(panel) for panel in panels]
    rows = [max(heights[start : start + columns]) for start in range(0, len(panels), columns)]
    legend = 44 + sum(rows) + 8
    height = legend + LINE * (len(labels) + len(note)) + 14
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}" rx="6"/>',
        _text(16, 27, title, "strong title"),
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({12 + column * PANEL_WIDTH} {44 + sum(rows[:row])})">')
        parts += _lines(panel) if isinstance(panel, Panel) else _bars(panel)
        parts.append("</g>")
    for number, (label, look) in enumerate(labels.items()):
        y = legend + LINE * number
        parts.append(_line_key(y, look) if isinstance(panels[0], Panel) else _bar_key(y, look))
        parts.append(_text(60, y + 4, label))
    below = legend + LINE * len(labels)
    parts += [_text(16, below + LINE * number + 6, line) for number, line in enumerate(note)]
    return "\n".join([*parts, "</svg>\n"])


def _height(panel: Panel | Bars) -> int:
    if isinstance(panel, Panel):
        return PANEL_HEIGHT
    return TOP + BOTTOM + len(panel.groups) * (len(panel.series) * 13 + 26)


# --- lines ---


def _lines(panel: Panel) -> Iterator[str]:
    points = [point for series in panel.series for point in series.points]
    bottom = PANEL_HEIGHT - BOTTOM
    xs = sorted({point.x for point in points})
    ticks = panel.y.ticks(min(point.low for point in points), max(point.high for point in points))
    place_x = _scale(panel.x, xs[0], xs[-1], LEFT + 14, PANEL_WIDTH - RIGHT - 14)
    place_y = _scale(panel.y, ticks[0], ticks[-1], bottom, TOP)
    yield _text(LEFT, 16, panel.title, "strong")
    for tick in ticks:
        yield f'<path class="grid" d="M{LEFT} {place_y(tick):.1f}H{PANEL_WIDTH - RIGHT}"/>'
        yield _text(LEFT - 7, place_y(tick) + 4, panel.y.text(tick), anchor="end")
    yield f'<path class="axis" d="M{LEFT} {bottom}H{PANEL_WIDTH - RIGHT}"/>'
    for x in xs:
        yield _text(place_x(x), bottom + 17, panel.x.text(x), anchor="middle")
    yield _text((LEFT + PANEL_WIDTH - RIGHT) / 2, bottom + 36, panel.x.label, anchor="middle")
    middle = (TOP + bottom) / 2
    yield f'<g transform="translate(12 {middle}) rotate(-90)">{_text(0, 0, panel.y.label, anchor="middle")}</g>'
    for series in panel.series:
        yield f'<g class="{series.look.style}">'
        placed = [(place_x(point.x), place_y(point.y)) for point in series.points]
        yield _stroke(placed, series.look)
        for point, (x, y) in zip(series.points, placed, strict=True):
            yield f'<path class="spread" d="M{x:.1f} {place_y(point.low):.1f}V{place_y(point.high):.1f}"/>'
            yield _dot(x, y, f"{series.label}: {panel.y.text(point.y)} at {panel.x.text(point.x)} {panel.x.label}")
        yield "</g>"


def _scale(axis: Axis, low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    bend = math.log if axis.log else float
    width = bend(high) - bend(low)
    return lambda value: start + (end - start) * ((bend(value) - bend(low)) / width if width else 0.5)


def _step(high: float) -> float:
    """Between ticks from zero: 1, 2 or 5 of some power of ten."""
    if high <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(high))
    return power * next(part for part in (0.2, 0.25, 0.5, 1, 2) if high / (power * part) <= 5)


# --- bars ---


def _bars(panel: Bars) -> Iterator[str]:
    left, right = 16, PANEL_WIDTH - 60
    ticks = panel.x.ticks(0, panel.high)
    place = _scale(panel.x, 0, ticks[-1], left, right)
    bottom = _height(panel) - BOTTOM
    yield _text(left, 16, panel.title, "strong")
    for tick in ticks:
        yield f'<path class="grid" d="M{place(tick):.1f} {TOP - 6}V{bottom}"/>'
        yield _text(place(tick), bottom + 15, panel.x.text(tick), anchor="middle")
    yield _text((left + right) / 2, bottom + 34, panel.x.label, anchor="middle")
    y = TOP + 8
    for number, group in enumerate(panel.groups):
        yield _text(left, y, group)
        for series in panel.series:
            for point in (point for point in series.points if point.x == number):
                width = max(place(point.y) - left, 1.5)
                told = f"<title>{escape(f'{series.label}: {panel.x.text(point.y)}')}</title>"
                shape = f'x="{left}" y="{y + 5}" width="{width:.1f}" height="11" rx="2"'
                yield f'<g class="{series.look.style}" opacity="{series.look.opacity:.2g}">'
                yield f'<rect class="bar" {shape}>{told}</rect></g>'
                yield _text(left + width + 5, y + 14.5, panel.x.text(point.y))
                y += 13
        y += 26
    yield f'<path class="axis" d="M{left} {TOP - 6}V{bottom}"/>'


# --- marks ---


def _line_key(y: float, look: Look) -> str:
    return f'<g class="{look.style}">{_stroke([(18, y), (50, y)], look)}{_dot(34, y, "")}</g>'


def _bar_key(y: float, look: Look) -> str:
    bar = f'<rect class="bar" x="18" y="{y - 6}" width="32" height="11" rx="2"/>'
    return f'<g class="{look.style}" opacity="{look.opacity:.2g}">{bar}</g>'


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _stroke(points: Sequence[tuple[float, float]], look: Look) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="line" stroke-dasharray="{look.dashes}" d="M{path}"/>'


def _dot(x: float, y: float, told: str) -> str:
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(told)}</title></circle>'
