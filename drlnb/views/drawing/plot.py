"""Draw settled pictures with plotly: values as lists, no theme, no fixed width."""

import html
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

import numpy as np

from drlnb.views.drawing import decimate, words
from drlnb.views.drawing.payload import Array, Plain, Rows, Table, Tables, picked, plain

__all__ = ["figure"]

#: A figure of plotly, which has no types.
Plotly = Any

#: Most bars of one table; plotly takes some 100 ms for 3,000.
_BARS = 2000


def figure(header: Plain, tables: Tables, rows: Rows) -> Plotly:
    """Return a plotly figure of a picture, of what :func:`~drlnb.views.drawing.svg.draw` takes, too."""
    fig: Plotly = import_module("plotly.graph_objects").Figure()  # half a second, and only a figure needs it
    _BY_MODULE[header["module"]](fig, header, tables, rows)
    _marks(fig, header.get("marks", ()))
    title = f"{_safe(header['sentence'])}<br><sub>{header['origin']}</sub>"
    clear = dict.fromkeys(("paper_bgcolor", "plot_bgcolor"), "rgba(0,0,0,0)")
    fig.update_layout(template="none", title={"text": title, "font": {"size": 14}}, **clear)
    fig.update_layout(
        margin={"l": 90, "r": 20, "t": 60, "b": 50}, meta={key: header[key] for key in ("name", "origin")}
    )
    return fig


def _marks(fig: Plotly, marks: Sequence[Plain]) -> None:
    """Draw changed settings as upright lines; from when on they count is said under the pointer."""
    shapes, notes = [], []
    for t, found in groupby(sorted(marks, key=lambda mark: float(mark["t"])), key=lambda mark: float(mark["t"])):
        group = list(found)  # marks of one moment share a line, and their words stand side by side
        labels, said = (_safe(", ".join(dict.fromkeys(mark[word] for mark in group))) for word in ("label", "said"))
        upright = {"type": "line", "x0": t, "x1": t, "y0": 0, "y1": 1, "line": {"width": 1, "dash": "dash"}}
        label = {"text": labels, "hovertext": said, "textangle": -90, "showarrow": False, "font": {"size": 10}}
        shapes.append({**upright, "xref": "x", "yref": "paper"})
        notes.append({**label, "x": t, "y": 1, "xref": "x", "yref": "paper", "xanchor": "left", "yanchor": "top"})
    fig.update_layout(shapes=shapes, annotations=notes)


def _safe(text: object) -> str:
    """Escape what plotly would read as its few HTML tags."""
    return html.escape(str(text), quote=False)


def _named(series: Plain, **marker: object) -> dict[str, object]:
    """Return how a trace of a series is called and marked."""
    return {"name": _safe(f"{series['letter']} {series['name']}"), "marker": {"color": series["colour"], **marker}}


def _title(axis: Plain) -> str:
    return _safe(words.titled(axis["label"], axis["unit"]))


def _timeline(fig: Plotly, header: Plain, tables: Tables, rows: Rows) -> None:
    # Lanes of one name would be one lane: those without a name get names that cannot be seen.
    labels = [_safe(lane["label"]) or " " * (i + 1) for i, lane in enumerate(header["lanes"])]
    looks = {
        "shares": (0.8, 0.6),
        "waits": (0.5, 0.45),
        "bars": (0.3, 0.6) if header["thin"] else (0.8, 1.0),
        "work": (0.8, 1.0),
    }
    for name, (width, opacity) in looks.items():
        columns = decimate.thinned(tables.get(name, {}), _BARS)
        for i, series, mine in _of_series(header, columns):
            of, edges, how = picked(columns, mine), ("start", "stop"), {"width": width}
            if "low" in of:
                below, held, _ = decimate.heights(of)
                edges, how = ("low", "high"), {"width": plain(width * held), "offset": plain(width * (below - 0.5))}
            start, stop = (of[edge] for edge in edges)
            if name == "work" and "computed" in of:  # as in the SVG twin
                share = np.minimum(1.0, of["computed"] / (stop - start))
                how = {"width": plain(width * share), "offset": plain(np.full(len(share), -0.5 * width))}
            where = {"base": plain(start), "x": plain(stop - start), "y": [labels[int(k)] for k in of["lane"]]}
            look = _named(series, pattern={"shape": series["hatch"]}) | {"opacity": opacity, "meta": name}
            fig.add_bar(orientation="h", legendgroup=str(i), showlegend=name == "bars", **where, **how, **look)
    dots = tables.get("dots", {})
    for _, series, mine in _of_series(header, dots):  # points in time, such as planned starts
        look = _named(series, symbol="line-ns-open", size=14, line={"width": 2}) | {"mode": "markers", "meta": "dots"}
        fig.add_scatter(x=plain(dots["start"][mine]), y=[labels[int(k)] for k in dots["lane"][mine]], **look)
    worded = header["x"].get("words", ())
    ticks = {"tickvals": list(range(len(worded))), "ticktext": list(map(_safe, worded))} if worded else {}
    fig.update_layout(barmode="overlay", xaxis={"title": _title(header["x"]), **ticks})
    fig.update_yaxes(categoryorder="array", categoryarray=labels[::-1])
    if header.get("tall"):  # room for two lanes per host, and for each label
        fig.update_layout(height=header["tall"] + 150, yaxis={"dtick": 1})


def _of_series(header: Plain, columns: Table) -> Iterator[tuple[int, Plain, Array]]:
    """Yield number, style and rows of every series that has rows."""
    for i, series in enumerate(header["series"]):
        mine = np.flatnonzero(columns.get("series", np.zeros(0)) == i)
        if len(mine):
            yield i, series, mine


def _chart(fig: Plotly, header: Plain, tables: Tables, rows: Rows) -> None:
    points = tables["points"]
    for i, line in enumerate(header["lines"]):
        mine = points["line"] == i
        x, y, low, high = (points[name][mine] for name in ("x", "y", "lo", "hi"))
        colour = header["series"][line["series"]]["colour"]
        banded = np.isfinite(low) & np.isfinite(high)
        if banded.any():
            around = [np.concatenate([edge[banded], back[banded][::-1]]) for edge, back in ((x, x), (high, low))]
            area = {"fill": "toself", "fillcolor": colour, "opacity": 0.2, "line": {"width": 0}, "meta": "band"}
            fig.add_scatter(x=plain(around[0]), y=plain(around[1]), hoverinfo="skip", showlegend=False, **area)
        drawn = {"color": colour, "width": 2, "shape": "hv" if line.get("step") else "linear"}
        look = {"line": drawn, "marker": {"color": colour, "size": 8, "symbol": "square"}, "meta": "line"}
        mode = "markers" if line["dots"] else "lines"
        fig.add_scatter(x=plain(x), y=plain(y), mode=mode, name=_safe(line["label"]), **look)
    fig.update_layout(xaxis={"title": _title(header["x"])}, yaxis={"title": _title(header["y"])})


def _table(fig: Plotly, header: Plain, tables: Tables, rows: Rows) -> None:
    titles = [_title(column) for column in header["table"]]
    columns = [[_safe(v) if isinstance(v, str) else v for v in column] for column in zip(*rows, strict=True)]
    fig.add_table(header={"values": titles}, cells={"values": columns or [[] for _ in titles]})


def _topology(fig: Plotly, header: Plain, tables: Tables, rows: Rows) -> None:
    if not tables:
        return
    hosts, edges, states, series = tables["hosts"], tables["edges"], tables["cells"]["state"], header["series"]
    letters = np.array([look["letter"] for look in series])[states]
    if header["parts"]:
        n, m = len(hosts["gone"]), len(header["parts"])
        colours = [[(k + edge) / 4, series[k]["colour"]] for k in range(4) for edge in (0, 1)]
        bar = {"tickvals": [0, 1, 2, 3], "ticktext": [f"{look['letter']} {look['name']}" for look in series[:4]]}
        where = {"z": plain(states.reshape(m, n)), "y": header["parts"], "text": plain(letters.reshape(m, n))}
        drawn = {"zmin": -0.5, "zmax": 3.5, "colorscale": colours, "colorbar": bar, "xgap": 0.5, "ygap": 1}
        said = {"hovertemplate": "host %{x}, shard %{y}: %{text}<extra></extra>", "meta": "cells"}
        fig.add_heatmap(texttemplate="%{text}" if n <= 100 else None, **where, **drawn, **said)
        fig.update_layout(xaxis={"title": _title(header["x"])}, yaxis={"type": "category", "title": "shard"})
        return
    x, y = np.append(0.0, hosts["x"]), np.append(0.0, -hosts["y"])
    for i, look, mine in _of_series(header, edges):
        sender, receiver, gap = edges["sender"][mine], edges["receiver"][mine], np.full(len(mine), np.nan)
        ends = [plain(np.stack([at[sender], at[receiver], gap], axis=1).ravel()) for at in (x, y)]
        named = {"name": f"{look['letter']} {look['name']}", "line": {"color": look["colour"], "width": 1.5}}
        where = {"x": ends[0], "y": ends[1], "mode": "lines", "meta": "edges", "hoverinfo": "skip"}
        fig.add_scatter(legendgroup=str(i), **where, **named)
    for k, look in enumerate(series[:4]):
        mine = np.flatnonzero(states == k)
        names = [f"{look['letter']} {_safe(header['names'][i + 1])}" for i in mine]
        where = {"x": plain(x[mine + 1]), "y": plain(y[mine + 1]), "text": names, "textposition": "top center"}
        fig.add_scatter(mode="markers+text", meta="hosts", **where, **_named(look, size=16, symbol="square"))
    fig.update_layout(xaxis={"visible": False}, yaxis={"visible": False, "scaleanchor": "x"})


_BY_MODULE = {"timeline": _timeline, "chart": _chart, "topology": _topology, "table": _table}
