"""Hold a picture before it is drawn: a sentence, columns of numbers, a table; everything else is made of them."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from drlnb.views.drawing import payload, plot, svg, words
from drlnb.views.drawing.payload import Content, Drawn, Message, Plain, Rows, Tables

__all__ = ["Column", "Meaning", "Number", "Numbers", "View", "numbered", "points", "table"]

#: A number beside a picture: label, value, unit, definition.
Number = tuple[str, float | None, str, str]
#: What such a number means: label, unit, definition.
Meaning = tuple[str, str, str]
#: Key -> number.
Numbers = Mapping[str, Number]

#: What a column holds: numbers, tokens of fences, or indices into the names, the series or the lanes.
_KINDS = ("number", "fence", "name", "series", "lane")
#: Rows of the table that the text/html twin shows.
_HTML_ROWS = 12


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a picture's table twin: what it means, and which drawn column it is."""

    name: str
    label: str
    definition: str
    unit: str = ""
    #: One of :data:`_KINDS`.
    kind: str = "number"
    #: What a drawn value is multiplied with.
    factor: float = 1.0
    #: Table of :attr:`View.columns` that holds it.
    table: str = ""

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"column {self.name} is of one of the kinds {', '.join(_KINDS)}, not {self.kind!r}")

    @property
    def title(self) -> str:
        """Label with unit."""
        return words.titled(self.label, self.unit)

    def plain(self) -> Content:
        """Return what the page is told of it."""
        facts = {key: getattr(self, key) for key in ("label", "unit", "definition", "kind")}
        return {**facts, "source": f"{self.table}.{self.name}", "factor": float(self.factor)}


def table(source: str, *columns: Column) -> tuple[Column, ...]:
    """Return the columns of a table twin, all of one drawn table."""
    return tuple(replace(column, table=source) for column in columns)


def numbered(known: Mapping[str, Meaning], **values: float | None) -> dict[str, Number]:
    """Return those numbers beside a picture that have a value, in the order of their meanings; None or NaN: unknown."""
    said = {key: None if value is None or math.isnan(value) else value for key, value in values.items()}
    return {key: (label, said[key], unit, text) for key, (label, unit, text) in known.items() if key in said}


def points(x: Meaning, y: Meaning) -> tuple[Column, ...]:
    """Return the twin of a chart, of what stands at its axes."""
    line = Column("line", "line", "what the points are of", kind="name")
    axes = (Column(name, label, text, unit) for name, (label, unit, text) in (("x", x), ("y", y)))
    return table("points", line, *axes)


#: Kind of a column of indices -> what they point to in a picture's facts, and what of it.
_NAMED = {"series": ("series", "name"), "lane": ("lanes", "label")}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One picture of a run, not yet drawn.

    Examples
    --------
    >>> view = View(name="x.y", module="table", origin="measured", sentence="nothing yet")
    >>> view
    <View x.y, measured: nothing yet>
    """

    name: str
    #: Module of ``views/drawing/js`` that draws it: ``timeline``, ``chart`` or ``table``.
    module: str
    #: ``measured``, ``simulated`` or ``emulated``, from the rows that it was made of.
    origin: str
    sentence: str
    notes: tuple[str, ...] = ()
    #: What is drawn: table name -> column name -> values.
    columns: Tables = field(default_factory=dict)
    #: The table twin.
    table: tuple[Column, ...] = ()
    #: Names that columns of indices point to.
    names: tuple[str, ...] = ()
    #: Numbers beside the picture: key -> (label, value, unit, definition).
    numbers: Numbers = field(default_factory=dict)
    #: What else the drawing needs: lanes, series, axes; plain data.
    facts: Plain = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<View {self.name}, {self.origin}: {self.sentence}>"

    @property
    def header(self) -> Content:
        """All but the columns, as plain data."""
        return {
            **self.facts,
            "name": self.name,
            "module": self.module,
            "origin": self.origin,
            "sentence": self.sentence,
            "notes": list(self.notes),
            "names": list(self.names),
            "table": _plain_table(self.table),
            "numbers": [
                {"key": key, "label": label, "unit": unit, "definition": text}
                for key, (label, _, unit, text) in self.numbers.items()
            ],
            "values": [value for _, value, _, _ in self.numbers.values()],  # apart, since nothing else of them moves
        }

    @property
    def drawn(self) -> Drawn:
        """Header and columns: what is sent to a page."""
        return self.header, self.columns

    def payload(self) -> Message:
        """Return the header (plain data, with ``layout``) and the buffers that JavaScript draws from."""
        return payload.encode(*self.drawn)

    def digest(self) -> str:
        """Return the sha256 of header and buffers: equal pictures have equal digests."""
        header, buffers = self.payload()
        total = hashlib.sha256(payload.header_json(header).encode())
        for buffer in buffers:
            total.update(buffer)
        return total.hexdigest()

    def value(self, key: str) -> float | None:
        """Return one of the numbers beside the picture."""
        return self.numbers[key][1]

    def rows(self, last: int | None = None) -> list[list[float | str | None]]:
        """Return the rows of the table twin as plain values: text, numbers, None where nothing is known.

        Parameters
        ----------
        last
            Only so many rows at the end; None: all.
        """
        values = [self._values(column, last) for column in self.table]
        return [list(row) for row in zip(*values, strict=True)]

    def _values(self, column: Column, last: int | None) -> list[float | str | None]:
        array = self.columns[column.table][column.name]
        if last is not None:
            array = array[max(0, len(array) - last) :]
        if column.kind in _NAMED:
            facts, key = _NAMED[column.kind]
            return [str(self.facts[facts][int(i)][key]) for i in array]
        if column.kind == "name":
            return [self.names[int(i)] for i in array]
        if column.kind == "fence":
            return [f"#{int(i)}" if i else "" for i in array]
        if array.dtype.kind in "ui" and column.factor == 1.0:
            return [int(i) for i in array]
        return [payload.plain(float(v) * column.factor) for v in array]

    def json(self) -> str:
        """Return the table twin as JSON with definitions, origin and numbers."""
        return json.dumps(
            {
                "name": self.name,
                "origin": self.origin,
                "sentence": self.sentence,
                "columns": _plain_table(self.table),
                "numbers": [
                    {**number, "value": payload.plain(value)}
                    for number, value in zip(self.header["numbers"], self.header["values"], strict=True)
                ],
                "rows": self.rows(),
            },
            allow_nan=False,
        )

    def figure(self) -> plot.Plotly:
        """Return the picture as a plotly figure."""
        return plot.figure(self.header, self.columns, self.rows(200))

    def svg(self, width: int = 760) -> str:
        """Return the picture as SVG text, `width` pixels wide."""
        return svg.draw(self.header, self.columns, width)

    def text(self) -> str:
        """Return sentence, origin and notes as plain lines."""
        return "\n".join([f"{self.sentence} ({self.origin})", *self.notes])

    def html(self) -> str:
        """Return sentence, SVG (of what is no table) and first table rows; every text is escaped.

        The rows are there as text, since readers that clean HTML may drop the picture.
        """
        alt = html.escape(f"{self.sentence} ({self.origin})", quote=True)
        source = f"data:image/svg+xml;base64,{base64.b64encode(self.svg().encode()).decode()}"
        image = "" if self.module == "table" else f'<img alt="{alt}" style="max-width:100%" src="{source}">'
        notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self.notes)
        return (
            f'<div class="drlnb-view"><p><b>{html.escape(self.sentence)}</b> <i>{html.escape(self.origin)}</i></p>'
            f"{image}{table_html(self.table, self.rows(_HTML_ROWS))}{notes}</div>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Content:
        """Return every form that a notebook may show; the figure as plotly's own MIME type."""
        return {
            "text/plain": self.text(),
            "text/html": self.html(),
            "application/vnd.plotly.v1+json": json.loads(self.figure().to_json()),
        }


@cache
def _plain_table(table: tuple[Column, ...]) -> list[Content]:
    """Return a table's columns as plain data: they are the same for every picture of a kind."""
    return [column.plain() for column in table]


def table_html(columns: Sequence[Column], rows: Rows) -> str:
    """Return rows as an HTML table; every text is escaped."""
    if not columns:
        return ""
    head = "".join(
        f'<th scope="col" title="{html.escape(c.definition, quote=True)}">{html.escape(c.title)}</th>' for c in columns
    )
    body = "".join("<tr>" + "".join(f"<td>{html.escape(words.cell(v, 6))}</td>" for v in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
