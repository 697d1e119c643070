"""Line charts as SVG, with the standard library alone: panels below each other, each over the same marks of its x axis,
which are equally far apart. Readable on light and on dark pages."""
import math
from xml.sax.saxutils import escape

WIDTH, PANEL_HEIGHT, GAP = 760, 250, 64
LEFT, RIGHT, TOP, BOTTOM = 70, 220, 44, 52  # the legend is on the right
COLORS = (("#0969da", "#58a6ff"), ("#1a7f37", "#56d364"), ("#bc4c00", "#f0883e"), ("#8250df", "#bc8cff"))  # light, dark
STYLE = """svg { font: 13px sans-serif } .page { fill: #ffffff } text { fill: #1f2328 } .title { font-weight: bold }
.axis { stroke: #59636e } .grid { stroke: #d1d9e0 } path { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 6 4 }
"""
DARK = ".page { fill: #0d1117 } text { fill: #f0f6fc } .axis { stroke: #9198a1 } .grid { stroke: #3d444d }"


class Panel:
    """series: (name, values, whether it is dashed); None where there is no value. label: a mark of the y axis as text."""

    def __init__(self, title, series, label=lambda value: f"{value:g}"):
        self.title, self.series, self.label = title, series, label


def style():
    """Each series has a colour for light and one for dark pages."""
    light, dark = (" ".join(f".line{n} {{ stroke: {pair[at]} }} .dot{n} {{ fill: {pair[at]} }}"
                            for n, pair in enumerate(COLORS)) for at in (0, 1))
    return f"<style>{STYLE}{light}\n@media (prefers-color-scheme: dark) {{ {DARK} {dark} }}</style>"


def ticks(most):
    """From 0 to the first that is not below `most`: four to eight steps of 1, 2 or 5 times a power of ten."""
    step = 10 ** math.floor(math.log10(most / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (factor * step) <= 8)
    return [n * step for n in range(math.ceil(most / step) + 1)]


def text(x, y, words, anchor="middle", kind=""):
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{mark}>{escape(str(words))}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def draw_axes(panel, marks, x_of, y_of, y_marks):
    bottom, right = y_of(0), WIDTH - RIGHT
    yield text(LEFT, y_of(y_marks[-1]) - 14, panel.title, "start", "title")
    for value in y_marks:
        yield line(LEFT, y_of(value), right, y_of(value), "grid" if value else "axis")
        yield text(LEFT - 8, y_of(value) + 4, panel.label(value), "end")
    for at, mark in enumerate(marks):
        yield line(x_of(at), bottom, x_of(at), bottom + 5, "axis")
        yield text(x_of(at), bottom + 20, mark)


def draw_series(panel, x_of, y_of, top):
    for number, (name, values, is_dashed) in enumerate(panel.series):
        points = [(x_of(at), y_of(value)) for at, value in enumerate(values) if value is not None]
        kind = f"line{number}" + (" dashed" if is_dashed else "")
        yield f'<path class="{kind}" d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
        for x, y in [] if is_dashed else points:
            yield f'<circle class="dot{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        x, y = WIDTH - RIGHT + 18, top + 10 + 22 * number
        yield f'<path class="{kind}" d="M{x},{y} L{x + 26},{y}"/>'
        yield text(x + 34, y + 4, name, "start")


def write(path, marks, x_title, panels):
    """marks: the words below the x axis, one for each value of a series."""
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP) - GAP + BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
             style(), f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for number, panel in enumerate(panels):
        top = TOP + number * (PANEL_HEIGHT + GAP)
        y_marks = ticks(max(value for _, values, _ in panel.series for value in values if value is not None))

        def x_of(at):
            return LEFT + (at + 0.5) * (WIDTH - RIGHT - LEFT) / len(marks)

        def y_of(value, top=top, most=y_marks[-1]):
            return top + PANEL_HEIGHT * (1 - value / most)

        parts += [*draw_axes(panel, marks, x_of, y_of, y_marks), *draw_series(panel, x_of, y_of, top)]
    parts += [text((LEFT + WIDTH - RIGHT) / 2, height - 12, x_title), "</svg>"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")
