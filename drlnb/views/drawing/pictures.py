"""Put pictures together, as the page reads them: charts of lines, timelines of bars, and tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from drlnb.views.drawing import marks, theme
from drlnb.views.drawing.payload import Array, Content, Floats, Plain, Table, Tables
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, Numbers, View
from drlnb.views.folds.fold import Fold

__all__ = [
    "RUN_TIME",
    "Body",
    "Lines",
    "axis",
    "columns_of",
    "lanes_of",
    "listing",
    "nothing",
    "picture",
    "shown",
    "timeline",
]


class Body(NamedTuple):
    """What a module of the page draws."""

    module: str
    columns: Tables
    facts: Plain
    #: Names that columns of indices point to.
    names: tuple[str, ...] = ()


def picture(
    name: str,
    fold: Fold | str,
    sentence: str,
    twin: tuple[Column, ...],
    body: Body,
    *,
    notes: Sequence[str] = (),
    numbers: Numbers | None = None,
    facts: Plain | None = None,
) -> View:
    """Return a picture of a run, its columns as they are exported beside it; over a run's time it has marks.

    Instead of a run's columns, the origin of a picture that is of none may be given.
    """
    more = {**body.facts, **(facts or {})}
    origin = fold if isinstance(fold, str) else fold.origin
    if more.get("x") is RUN_TIME and not isinstance(fold, str):
        more["marks"] = marks.in_time(fold, more.get("span", (0.0,))[0])
    small = {"lane", "series", *(column.name for column in twin if column.kind == "name")}
    columns = {
        table: {key: values.astype(np.uint16) if key in small else values for key, values in of.items()}
        for table, of in body.columns.items()
    }
    return View(
        name=name,
        module=body.module,
        origin=origin,
        sentence=sentence,
        notes=tuple(notes),
        columns=columns,
        table=twin,
        names=body.names,
        numbers=numbers or {},
        facts=more,
    )


def axis(label: str, unit: str = "", kind: str = "number") -> Content:
    """Return what stands at an axis of kind ``number`` or ``clock``; ``words`` may be put instead of 0, 1, 2 ..."""
    return {"label": label, "unit": unit, "kind": kind}


#: Axis of the pictures over a run's time.
RUN_TIME = axis("time since the run began", "s", "clock")

#: Columns of the drawn points of a chart, beside their line's number.
_POINTS = ("x", "y", "lo", "hi")


class Lines:
    """Lines of a chart in the making; they refer to styles, or without any have each one of its own."""

    def __init__(self, series: Sequence[Style] | None = None) -> None:
        self.lines: list[dict[str, object]] = []
        self.series = list(series or ())
        self._parts: list[Floats] = []

    def add(
        self,
        label: str,
        colour: str | int,
        x: ArrayLike,
        y: ArrayLike,
        *,
        style: tuple[str, str] = ("", ""),
        band: tuple[ArrayLike, ArrayLike] = (np.nan, np.nan),
        dots: bool = False,
        step: bool = False,
    ) -> None:
        """Add a line.

        Parameters
        ----------
        colour
            A colour, or the number of the series that it belongs to.
        style
            Letter (none: the next one) and hatch.
        """
        if isinstance(colour, str):
            self.series.append(Style(label, style[0] or theme.letter(len(self.series)), colour, style[1]))
            colour = len(self.series) - 1
        self.lines.append({"label": label, "series": colour, "dots": dots, "step": step})
        self._parts.append(np.array(np.broadcast_arrays(x, y, *band), dtype=np.float64))

    def body(self, x: Content, y: Content) -> Body:
        """Return the chart of the lines."""
        line = np.repeat(np.arange(len(self._parts)), [part.shape[1] for part in self._parts])
        parts = np.concatenate([np.zeros((len(_POINTS), 0)), *self._parts], axis=1)
        points: dict[str, Array] = {"line": line, **dict(zip(_POINTS, parts, strict=True))}
        facts = {"x": x, "y": y, "lines": self.lines, "series": theme.plain(self.series)}
        return Body("chart", {"points": points}, facts, tuple(str(line["label"]) for line in self.lines))


def timeline(
    columns: Mapping[str, Table],
    lanes: Sequence[Content],
    series: Sequence[Style],
    span: tuple[float, float],
    x: Content = RUN_TIME,
    names: Sequence[str] = (),
) -> Body:
    """Return bars on lanes.

    Parameters
    ----------
    columns
        ``bars``, ``work``, ``waits`` and so on: ``start``, ``stop``, ``lane``, ``series``, and what is exported.
    lanes
        Label and kind of each.
    series
        Name, letter and colour by the index in column ``series``.
    span
        What is shown, in units of `x`.
    names
        What columns of texts point to.
    """
    facts: Content = {"x": x, "span": list(span), "thin": False, "lanes": list(lanes), "marks": []}
    facts["series"] = theme.plain(series)
    return Body("timeline", columns, facts, tuple(names))


def columns_of(keys: str, rows: Sequence[Sequence[float]]) -> dict[str, Floats]:
    """Return rows of numbers as columns, whose names stand in a line.

    Examples
    --------
    >>> columns_of("start stop", [[0, 1], [1, 3]])["stop"].tolist()
    [1.0, 3.0]
    """
    names = keys.split()
    return dict(zip(names, np.array(rows, dtype=np.float64).reshape(-1, len(names)).T, strict=True))


def lanes_of(kind: str, labels: Iterable[str]) -> list[Content]:
    """Return lanes of one kind."""
    return [{"label": label, "kind": kind} for label in labels]


def shown(twin: Sequence[Column], order: str, **labels: str) -> tuple[Mapping[str, str], ...]:
    """Return columns of a table as the page shows them: of the kind and with the label of their twin.

    Parameters
    ----------
    twin
        Columns as they are exported.
    order
        Names of the columns in order; ``name/2``: of minor importance, hidden where there is little room (3 goes
        first).
    **labels
        Labels that are other than the twin's.
    """
    known = {column.name: column for column in twin}
    columns = []
    for word in order.split():
        name, _, minor = word.partition("/")
        kind = _KINDS.get(known[name].kind) or _KINDS.get(known[name].unit, "number")
        column = {"key": name, "label": labels.get(name, known[name].label), "kind": kind}
        columns.append({**column, "minor": minor} if minor else column)
    return tuple(columns)


#: Kind or unit of a twin's column -> kind of the page's.
_KINDS = {"series": "series", "name": "text", "s": "duration"}


def listing(
    rows: Sequence[Plain],
    twin: tuple[Column, ...],
    shown: Sequence[Mapping[str, str]],
    series: Sequence[Style],
    *,
    row_key: str = "row",
    texts: Sequence[str] = (),
    tables: Tables | None = None,
) -> Body:
    """Return a table.

    Parameters
    ----------
    rows
        Values of `twin` and `texts` by their names; a row without a series has one of its own.
    twin
        Columns as they are exported.
    shown
        Columns as the page shows them.
    series
        Name, letter and colour by the index in column `row_key`.
    texts
        Names of more columns of text.
    tables
        What else the page draws, and more columns in ``rows``.
    """
    kinds = {column.name: column.kind for column in twin} | dict.fromkeys(texts, "name")
    words = [key for key, kind in kinds.items() if kind == "name"]
    names = dict.fromkeys(["", *(row[key] for row in rows for key in words)])
    index = {text: np.uint16(i) for i, text in enumerate(names)}
    columns: dict[str, Array] = {row_key: np.arange(len(rows), dtype=np.uint16)}
    for key, kind in kinds.items():
        if kind == "name":
            columns[key] = np.array([index[row[key]] for row in rows], dtype=np.uint16)
        elif kind == "series":
            columns[key] = np.array([row.get(key, i) for i, row in enumerate(rows)], dtype=np.uint16)
        else:
            columns[key] = np.array([row[key] for row in rows], dtype=np.float64)  # None becomes NaN
    facts = {
        "cols": [dict(column) for column in shown],
        "series": theme.plain(series),
        "actions": [],
        "row_key": row_key,
    }
    others = dict(tables or {})
    return Body("table", {"rows": {**columns, **others.pop("rows", {})}, **others}, facts, tuple(names))


def nothing(name: str, module: str, why: str, origin: str = "computed") -> View:
    """Return a picture that only says why it is empty."""
    axes = axis("time", "s", "clock"), axis("")
    body = Lines().body(*axes) if module == "chart" else timeline({}, [], [], (0.0, 1.0), axes[0])
    if module == "topology":
        body = Body(module, {}, {"series": [], "parts": []})
    return picture(name, origin, why, (), listing([], (), (), ()) if module == "table" else body)
