"""Draw pictures as SVG text: for mails, exported notebooks, and pages without scripts."""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from drlnb.views.drawing import decimate, words
from drlnb.views.drawing.payload import Array, Floats, Plain, Tables

__all__ = ["draw", "ticks"]

_INK, _DIM, _LINE, _SOFT = "#1f2328", "#59636e", "#d1d9e0", "#f3f5f7"
_TOP, _AXIS, _RIGHT = 18, 34, 12
#: Whole steps of a clock, in seconds.
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
#: Marks that are no further apart than so many pixels are drawn as one.
_NEAR = 6.0
#: Most bars of a table that are drawn one by one; older ones are merged where there are more.
_BARS = 540


def draw(header: Plain, tables: Tables, width: int = 760) -> str:
    """Return a picture as SVG text.

    Parameters
    ----------
    header, tables
        As a view's ``header`` and ``columns``.
    width
        Pixels.
    """
    body, height = _BY_MODULE[header["module"]](header, tables, width)
    title = html.escape(f"{header['sentence']} ({header['origin']})")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui,sans-serif" font-size="11"><title>{title}</title>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(body)}'
        f"{_text(width - _RIGHT, 8, str(header['origin']), _DIM, 'end')}</svg>"
    )


def ticks(low: float, high: float, most: float, *, clock: bool = False) -> tuple[float, list[float]]:
    """Return the distance between ticks and where they are.

    Examples
    --------
    >>> ticks(0.0, 10.0, 5)
    (2.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    """
    if not high > low:
        return 1.0, [low]
    raw = (high - low) / max(1.0, most)
    step = float(next((s for s in _CLOCK if s >= raw), 0)) if clock and raw > 0.5 else 0.0
    if not step:
        ten = math.pow(10.0, math.floor(math.log10(raw)))
        step = float(ten * next(s for s in (1.0, 2.0, 5.0, 10.0) if raw / ten <= s * (1 + 1e-9)))
    first = math.ceil(low / step - 1e-9)
    return float(step), [i * float(step) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, colour: str = _INK, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{_n(x)}" y="{_n(y + 4)}" fill="{colour}" text-anchor="{anchor}"{weight}>{html.escape(text)}</text>'
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rect(x: float, y: float, w: float, h: float, fill: str) -> str:
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" fill="{html.escape(fill)}"/>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 1.0, dash: str = "") -> str:
    path = "".join(f"{'L' if i else 'M'}{_n(x)} {_n(y)}" for i, (x, y) in enumerate(points))
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" stroke="{html.escape(colour)}" stroke-width="{_n(width)}"{dashed}/>'


def _tick_text(value: float, step: float, axis: Plain) -> str:
    if "words" in axis:
        return str(axis["words"][int(value)]) if value in range(len(axis["words"])) else ""
    if axis.get("kind") == "clock":
        return words.axis_seconds(value, step)
    if abs(value) >= 1e6:
        return f"{words.number(value / 1e6)}M"
    return f"{words.number(value / 1e3)}k" if abs(value) >= 1e4 else words.number(value, 4)


@dataclass(frozen=True)
class _Frame:
    """The level axis of a picture: what stands at it, from where to where, and on which pixels."""

    header: Plain
    low: float
    high: float
    left: float
    right: float
    bottom: float

    def x(self, value: float) -> float:
        """Return the pixel of a value."""
        return float(self.xs(np.float64(value)))

    def xs(self, values: Floats | np.float64) -> Floats:
        """Return the pixels of values."""
        at = self.left + (values - self.low) / (self.high - self.low) * (self.right - self.left)
        pixels: Floats = np.fmin(self.right, np.fmax(self.left, at))
        return pixels

    def axis(self, *, rules: bool = True) -> list[str]:
        """Draw ticks, label and, if wanted, upright rules."""
        axis = self.header["x"]
        step, at = ticks(self.low, self.high, (self.right - self.left) / 90, clock=axis["kind"] == "clock")
        body = []
        for x, value in ((self.x(value), value) for value in at):
            body += [_line([(x, _TOP), (x, self.bottom)], _LINE)] if rules else []
            body.append(_text(x, self.bottom + 10, _tick_text(value, step, axis), _DIM, "middle"))
        label = words.titled(axis["label"], axis["unit"])
        return [*body, _text((self.left + self.right) / 2, self.bottom + 26, label, _DIM, "middle")]

    def marks(self, y: float = 8) -> list[str]:
        """Draw marks; those within a few pixels become one line with their number, and their words as its title."""
        groups: list[tuple[float, list[Plain]]] = []
        shown = [mark for mark in self.header.get("marks", ()) if self.low <= mark["t"] <= self.high]
        for mark in sorted(shown, key=lambda mark: (mark["t"], mark["label"])):
            at = self.x(mark["t"])
            if groups and at - groups[-1][0] <= _NEAR:
                groups[-1][1].append(mark)
            else:
                groups.append((at, [mark]))
        body = []
        for (at, marks), (end, _) in zip(groups, [*groups[1:], (self.right + _RIGHT, [])], strict=False):
            label = marks[0]["label"] if len(marks) == 1 else f"{len(marks)} marks"
            text = _text(at + 3, y, label) if 6.2 * len(label) <= end - at - 6 else ""
            title = f"<title>{html.escape('; '.join(mark.get('said', mark['label']) for mark in marks))}</title>"
            body.append(f"<g>{title}{_line([(at, _TOP - 6), (at, self.bottom)], _INK, 1, '4 3')}{text}</g>")
        return body

    def legend(self) -> list[str]:
        """Draw the series below the axis, as far as there is room."""
        body, x, y = [], 8.0, self.bottom + _AXIS
        for series in self.header["series"]:
            size = 20 + 6.2 * len(series["name"]) + 14
            if x + size > self.right + _RIGHT:
                break
            body.append(_rect(x, y, 14, 14, series["colour"]))
            body.append(_text(x + 7, y + 7, series["letter"], _INK, "middle", bold=True))
            body.append(_text(x + 18, y + 7, series["name"]))
            x += size
        return body


# -- timeline ---------------------------------------------------------------------------------------------------------
def _timeline(header: Plain, tables: Tables, width: int) -> tuple[list[str], int]:
    lanes, right = header["lanes"], width - _RIGHT
    weights = [0.55 if lane["kind"] == "wait" else 1.0 for lane in lanes]
    unit = min(30.0, 250.0 / max(1.0, sum(weights)))
    left = min(width * 0.3, max(46.0, 12 + 7.2 * max((len(lane["label"]) for lane in lanes), default=0)))
    bottom = max(_TOP + sum(weights) * unit, _TOP + 40.0)
    low, high = (float(edge) for edge in header["span"])
    frame = _Frame(header, low, high if high > low else low + 1.0, left, right, bottom)
    body, at, y = [], [], float(_TOP)
    for lane, height in zip(lanes, (weight * unit for weight in weights), strict=True):
        at.append((y, max(2.0, height - min(4.0, height * 0.2))))
        body.append(_rect(left, y, right - left, at[-1][1], _SOFT))
        body.append(_text(left - 6, y + at[-1][1] / 2, lane["label"], _INK, "end"))
        y += height
    body += [*frame.axis(), _blocks(frame, tables, at), *frame.marks()]
    if not any(len(columns["start"]) for columns in tables.values()):
        body.append(_text(width / 2, (_TOP + bottom) / 2, header["sentence"], _DIM, "middle"))
    return body + frame.legend(), int(bottom + _AXIS + 20)


def _blocks(frame: _Frame, tables: Tables, at: Sequence[tuple[float, float]]) -> str:
    bars, series = (0.34, 0.6) if frame.header["thin"] else (1.0, 1.0), frame.header["series"]
    shares = {
        "absent": (1.0, 0.25),
        "shares": (1.0, bars[1]),
        "waits": (1.0, 0.45),
        "waiting": (1.0, 0.45),
        "bars": bars,
        "open": bars,
        "work": (1.0, 1.0),
        "dots": (1.0, 1.0),
        "drains": (1.0, 0.5),
    }
    lanes, paths = np.array(at, dtype=np.float64).reshape(-1, 2), dict[tuple[str, float], list[Floats]]()
    for name, (share, opacity) in shares.items():
        columns = decimate.thinned(tables.get(name, {}), _BARS)
        if not len(columns.get("start", ())):
            continue
        top, h = lanes[columns["lane"].astype(np.int64)].T
        a, b = (frame.xs(columns[edge]) for edge in (("low", "high") if "low" in columns else ("start", "stop")))
        below, held, computed = (
            decimate.heights(columns) if "low" in columns else np.tile([[0.0], [1.0], [0.0]], len(a))
        )
        boxes = np.stack([a, top + h * (1 - share) / 2 + h * share * (1 - below - held), b - a, h * share * held])
        if name == "work" and "computed" in columns:  # of work with idle time in it, only so much of the height
            share = np.minimum(1.0, columns["computed"] / (columns["stop"] - columns["start"]))
            boxes = np.stack([a, top + h * (1 - share), b - a, h * share])
        if name == "dots" and "share" in columns:  # points in time, unless there are so many that they merge
            boxes = np.stack([a - 1, top, np.full(len(a), 2.0), h * columns["share"]])
        work = np.stack([a, top + h * (1 - below - computed), b - a, h * computed])[:, computed > 0]
        of = columns["series"].astype(np.int64) if "series" in columns else np.full(len(a), -1)
        for one in dict.fromkeys(of.tolist()):
            colour = _DIM if one < 0 else series[one]["colour"]
            paths.setdefault((colour, opacity), []).append(boxes[:, of == one])
            if name == "shares":
                paths.setdefault((colour, 1.0), []).append(work[:, of[computed > 0] == one])
    # One path per colour: a rectangle each would make a page several times as long.
    body = [
        f'<path d="{_outlines(np.concatenate(parts, axis=1))}" fill="{html.escape(colour)}" opacity="{opacity:g}"/>'
        for (colour, opacity), parts in paths.items()
    ]
    return f'<g transform="scale(.1)">{"".join(body)}</g>'


def _outlines(boxes: Floats) -> str:
    """Return boxes (their x, y, width and height in pixels) as a path in tenths, each box from where the last began."""
    x, y, w, h = np.rint(10 * boxes).astype(np.int64)
    of = zip(np.diff(x, prepend=0).tolist(), np.diff(y, prepend=0).tolist(), w.tolist(), h.tolist(), strict=True)
    return "".join(f"m{dx} {dy}h{max(1, w)}v{h}h-{max(1, w)}z" for dx, dy, w, h in of)


# -- chart ------------------------------------------------------------------------------------------------------------
def _chart(header: Plain, tables: Tables, width: int) -> tuple[list[str], int]:
    points = tables["points"]
    height, left, bottom = 280, 62.0, 226.0
    if not len(points["x"]):
        return [_text(width / 2, height / 2, header["sentence"], _DIM, "middle")], height
    low, high = _padded(float(np.min(points["x"])), float(np.max(points["x"])), 0.0)
    values = np.concatenate([points[name][np.isfinite(points[name])] for name in ("y", "lo", "hi")])
    pad = 0.14 if header.get("marks") else 0.06  # room for the words of marks
    least, most = _padded(float(np.min(values)), float(np.max(values)), pad)

    frame = _Frame(header, low, high, left, width - _RIGHT, bottom)

    def y(value: float) -> float:
        return bottom - (value - least) / (most - least) * (bottom - _TOP)

    step, at = ticks(least, most, 5)
    body = [_text(left, 8, words.titled(header["y"]["label"], header["y"]["unit"]), _DIM)]
    for value in at:
        body.append(_line([(left, y(value)), (frame.right, y(value))], _LINE))
        body.append(_text(left - 6, y(value), _tick_text(value, step, {}), _DIM, "end"))
    body += frame.axis(rules=False)
    for i, line in enumerate(header["lines"]):
        mine = points["line"] == i
        colour = header["series"][line["series"]]["colour"]
        body += _curve(line, {name: column[mine] for name, column in points.items()}, colour, frame.xs, y)
    return [*body, *frame.marks(_TOP + 6), *frame.legend()], height  # marks: below the axis' label


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    if high == low:
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    return low - (high - low) * share, high + (high - low) * share


def _curve(
    line: Plain, points: Plain, colour: str, x: Callable[[Floats], Floats], y: Callable[[float], float]
) -> list[str]:
    def places(name: str, rows: Array) -> list[tuple[float, float]]:
        return list(zip(x(points["x"][rows]).tolist(), map(y, points[name][rows].tolist()), strict=True))

    body = []
    banded = np.isfinite(points["lo"]) & np.isfinite(points["hi"])
    if banded.sum() > 1:
        around = [*places("hi", banded), *reversed(places("lo", banded))]
        corners = " ".join(f"{_n(a)},{_n(b)}" for a, b in around)
        body.append(f'<polygon points="{corners}" fill="{html.escape(colour)}" opacity="0.22"/>')
    path = places("y", np.isfinite(points["y"]))
    if line["dots"]:
        dots = "".join(f"M{_n(a - 3)} {_n(b - 3)}h6v6h-6z" for a, b in path)  # one path: as in _blocks
        return [*body, f'<path d="{dots}" fill="{html.escape(colour)}"/>']
    if line.get("step"):
        steps = "".join(f"H{_n(a)}V{_n(b)}" for a, b in path[1:])
        begun = "".join(f"M{_n(a)} {_n(b)}" for a, b in path[:1])
        return [*body, f'<path d="{begun}{steps}" fill="none" stroke="{html.escape(colour)}" stroke-width="2"/>']
    return [*body, _line(path, colour, 2)]


# -- topology ---------------------------------------------------------------------------------------------------------
#: Most cells that have letters; where a state begins in its cell, and how high it is, as in ``js/topology.js``.
_LETTERS = 300
_SHAPES = ((0.0, 0.0), (0.5, 0.5), (0.0, 1.0), (0.3, 0.4))


def _topology(header: Plain, tables: Tables, width: int) -> tuple[list[str], int]:
    hosts, parts, series = tables.get("hosts", {}), header["parts"], header["series"]
    if not hosts:
        return [_text(width / 2, 40, header["sentence"], _DIM, "middle")], 70
    n, states = len(hosts["gone"]), tables["cells"]["state"].tolist()
    texts = [_text(8, 8, f"at {words.duration(header['at'] * header['span'][1])}", _DIM)]
    bottom = _TOP + max(60.0, 12.0 * len(parts)) if parts else 304.0
    frame = _Frame(header, -0.5, n - 0.5, 62.0, width - _RIGHT, bottom)
    if parts:
        w, h = (frame.right - frame.left) / n, (bottom - _TOP) / len(parts)
        corners = [(frame.left + i % n * w, _TOP + i // n * h) for i in range(len(states))]
        body = [_rect(frame.left, _TOP, frame.right - frame.left, bottom - _TOP, _SOFT)]
        own, named = header["part"], {*range(0, len(parts), max(1, round(14 / h))), header["part"]}
        texts += [_text(frame.left - 6, _TOP + (i + 0.5) * h, parts[i], _INK, "end", bold=i == own) for i in named]
        texts += frame.axis(rules=False)
    else:
        w, h, middle = 26.0, 18.0, (width / 2, 160.0)
        places = [middle, *zip(middle[0] * (1 + 0.9 * hosts["x"]), 160.0 + 124.0 * hosts["y"], strict=True)]
        boxes = [(float(x) - w / 2, float(y) - h / 2) for x, y in places]
        body = [*_arrows(header, tables, places), *[_rect(*box, w, h, _SOFT) for box in boxes]]
        names = zip(boxes, header["names"], strict=True)
        texts += [_text(x + w / 2, y + h + 7, name, _INK, "middle") for (x, y), name in names]
        corners = boxes[1:]
    paths: dict[int, list[str]] = {}
    # Neighbours in the same state are one box: a box each would make a page several times as long.
    for (_, state), group in groupby(enumerate(states), lambda each: (each[0] // n if parts else each[0], each[1])):
        of = [i for i, _ in group]
        (x, y), (low, share), wide = corners[of[0]], _SHAPES[state], _n(w * len(of))
        paths.setdefault(state, []).append(f"M{_n(x)} {_n(y + low * h)}h{wide}v{_n(share * h)}h-{wide}z")
        for x, y in (corners[i] for i in of if w > 9 and len(states) <= _LETTERS):
            texts.append(_text(x + w / 2, y + h / 2, series[state]["letter"], _INK, "middle", bold=True))
    fills = [f'<path d="{"".join(of)}" fill="{series[state]["colour"]}"/>' for state, of in paths.items()]
    return [*body, *fills, *texts, *frame.legend()], int(bottom + _AXIS + 20)


def _arrows(header: Plain, tables: Tables, places: Sequence[tuple[float, float]]) -> list[str]:
    """Draw who sends to whom: dashed before it begins, thick while it is under way; of repair what has begun."""
    columns, body = (tables["edges"][name].tolist() for name in ("sender", "receiver", "series", "state")), []
    for sender, receiver, series, state in zip(*columns, strict=True):
        colour, hatch = header["series"][series]["colour"], header["series"][series]["hatch"]
        if state or not hatch:
            dash = "6 3" if hatch else "" if state else "2 4"
            body.append(_line([places[sender], places[receiver]], colour if state else _LINE, (1, 3, 1.5)[state], dash))
    return body


def _table(header: Plain, tables: Tables, width: int) -> tuple[list[str], int]:
    """Draw what a table says: its rows are in no picture, since they stand below it as text."""
    return [_text(width / 2, 40, header["sentence"], _DIM, "middle")], 70


_BY_MODULE = {"timeline": _timeline, "chart": _chart, "topology": _topology, "table": _table}
