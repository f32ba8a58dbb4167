"""``make generate NAME=pictures``: the picture of the README, ``two-writers.svg``.

Three versions of a table, a card each, and the two transactions that make the second and the third of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from charts import AXIS, GROUND, HEADING, LOOKS, TEXT, svg

PICTURE = Path(__file__).with_name("two-writers.svg")
TITLE = "Two transactions change different rows of one file, and both commit"
FIRST, SECOND = LOOKS["refdelta"].light, LOOKS["deltalake"].light
# In tenths of an inch.
WIDTH, HEIGHT = 96, 43
TALL, ROW = 13.5, 2.6
LEFT = (4, 44, 78)
LOG = 15.5
UNDER = LOG + 2.4  # below three rows


def draw() -> Figure:
    """The picture."""
    with mpl.rc_context({"font.family": ["DejaVu Sans"], "font.size": 9, "text.color": TEXT, "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH / 10, HEIGHT / 10), facecolor=GROUND)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(0, HEIGHT)
        axes.axis("off")
        rows = ("pen   10", "ink   20", "cap   30")
        _card(axes, LEFT[0], "version 0: one file", rows, {})
        _card(axes, LEFT[1], "version 1", rows, {0: FIRST})
        _card(axes, LEFT[2], "version 2", rows, {0: FIRST, 2: SECOND}, added="cap   29")
        top, bottom = 37, 7

        _box(axes, 17, top, 19, FIRST, "first", "DELETE item = 'pen'")
        _arrow(axes, (LEFT[0] + 5, LOG + TALL), (17, top), FIRST, "angle,angleA=90,angleB=0,rad=4")
        _arrow(axes, (36, top), (LEFT[1] + 5, LOG + TALL), FIRST, "angle,angleA=0,angleB=90,rad=4")
        axes.text(50.5, 34.5, "commits", color=FIRST, va="center")

        _box(axes, 17, bottom, 19, SECOND, "second", "UPDATE item = 'cap'")
        _arrow(axes, (LEFT[0] + 5, UNDER), (17, bottom), SECOND, "angle,angleA=90,angleB=0,rad=4")
        _arrow(axes, (36, bottom), (LEFT[1] + 2.5, UNDER), SECOND, "angle,angleA=0,angleB=90,rad=4", dashed=True)
        axes.text(37, 11.5, "1 is taken", color=SECOND, ha="left", va="center")
        _arrow(axes, (LEFT[1] + 8, UNDER), (LEFT[1] + 8, bottom + 3.2), SECOND, "arc3")
        axes.text(53.5, 13.6, "reads 1", color=SECOND, va="center")
        _box(axes, 49.5, bottom, 23.5, SECOND, "different rows: no conflict", "unites the deletion vectors")
        _arrow(axes, (73, bottom), (LEFT[2] + 5, LOG), SECOND, "angle,angleA=0,angleB=90,rad=4")
        axes.text(84.5, 11.3, "commits", color=SECOND, va="center")
        axes.text(
            49, 1.2, "Where files decide, the second writer is aborted here.", color=TEXT, va="center", fontsize=8
        )
        return figure


def _card(axes, left, title, rows, deleted, added=""):
    axes.text(left, LOG + TALL - 1.2, title, color=HEADING, weight="bold", va="center")
    for number, text in enumerate(rows):
        y = LOG + TALL - 3.1 - ROW * (number + 1)
        colour = deleted.get(number)
        _cell(axes, left, y, text, AXIS if colour is None else colour, gone=colour is not None)
    if added:
        _cell(axes, left, LOG - 0.1, added, SECOND, gone=False)
        axes.text(left + 11, LOG - 0.1 + ROW / 2, "new file", color=SECOND, va="center", fontsize=8)


def _cell(axes, left, y, text, colour, *, gone):
    axes.add_patch(
        FancyBboxPatch((left, y), 10, ROW - 0.4, "round,pad=0,rounding_size=0.4", fc=GROUND, ec=colour, lw=1)
    )
    axes.text(left + 1, y + (ROW - 0.4) / 2, text, color=colour if gone else HEADING, va="center", fontsize=8.5)
    if gone:
        axes.plot([left + 0.6, left + 9.4], [y + (ROW - 0.4) / 2] * 2, color=colour, lw=1.2)
        axes.text(left + 11, y + (ROW - 0.4) / 2, "deleted", color=colour, va="center", fontsize=8)


def _box(axes, left, y, width, colour, head, text):
    axes.add_patch(
        FancyBboxPatch((left, y - 3.4), width, 6.8, "round,pad=0,rounding_size=1", fc=GROUND, ec=colour, lw=1.4)
    )
    axes.text(left + width / 2, y + 1.3, head, color=colour, weight="bold", ha="center", va="center")
    axes.text(left + width / 2, y - 1.4, text, color=HEADING, ha="center", va="center", fontsize=8.5)


def _arrow(axes, start, end, colour, way, *, dashed=False):
    arrow = {"arrowstyle": "-|>", "color": colour, "connectionstyle": way, "lw": 1.4, "shrinkA": 2, "shrinkB": 2}
    axes.annotate("", end, start, arrowprops=arrow | ({"linestyle": "--"} if dashed else {}))


if __name__ == "__main__":
    PICTURE.write_text(svg(draw(), TITLE))
