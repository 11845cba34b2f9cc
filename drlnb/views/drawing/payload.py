"""Send a picture's data to JavaScript: a header of plain JSON, and one buffer with every column.

Times are float32 seconds relative to the float64 ``t0`` of their table in ``layout``; names are indices into
``header.names``; NaN and infinity are null in the header.  A delta says how many leading rows of each table to drop
and to keep, and brings the rest: applied to the old tables it gives the new ones, whatever the picture is.  Columns are
named once: a delta names those of a table only if they are others than before, and says nothing of a table in which
nothing changed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.views.folds.grow import Floats, Plain

__all__ = [
    "Array",
    "Content",
    "Drawn",
    "Floats",
    "Message",
    "Plain",
    "Rows",
    "Table",
    "Tables",
    "Wire",
    "diff",
    "encode",
    "header_json",
    "pack",
    "picked",
    "plain",
]

#: A column of any number type.
Array = NDArray[Any]
#: Rows of a table twin: text, numbers, None.
Rows = Sequence[Sequence[float | str | None]]
#: Columns of one table, all of one length.
Table = Mapping[str, Array]
#: Table name -> its columns.
Tables = Mapping[str, Table]

#: What can be sent: all but the columns, and the columns.
Drawn = tuple[Plain, Tables]
#: Content of a message, as JSON holds it.
Content = dict[str, Any]
#: Content of a message, and its buffers.
Message = tuple[Content, list[bytes]]

#: Columns of these names are points in time, relative to ``t0``.
_TIMES = frozenset({"start", "stop", "low", "high", "t"})

#: Kind of numpy's numbers -> how they travel.
_CODES = {
    **dict.fromkeys(np.typecodes["Float"], "f"),
    **dict.fromkeys(np.typecodes["AllInteger"], "u"),
    "B": "b",
    "H": "h",
}

#: Rows of a table that are sent anew rather than compared, some 40 bytes each.
_FEW = 4

_DTYPES = {"t": "<f4", "f": "<f4", "u": "<u4", "h": "<u2", "b": "u1"}

#: What JSON holds as it is.
_ATOMS = frozenset({str, int, bool, type(None)})


def picked(table: Table, rows: Array | slice) -> dict[str, Array]:
    """Return some rows of a table."""
    return {name: values[rows] for name, values in table.items()}


def plain(value: Any) -> Any:
    """Return plain data that JSON holds and JavaScript reads: what is not finite becomes None, arrays lists.

    Examples
    --------
    >>> plain({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:  # far the most often; each of the questions below costs a microsecond
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    return value


def header_json(header: Plain) -> str:
    """Return a header as compact JSON with sorted keys."""
    return json.dumps(plain(header), separators=(",", ":"), sort_keys=True, allow_nan=False)


def code_of(name: str, values: Array) -> str:
    """Return how a column travels: ``t`` time, ``f`` float32, ``u`` uint32, ``h`` uint16, ``b`` uint8."""
    return "t" if name in _TIMES else _CODES[values.dtype.char]


def t0_of(table: Table) -> float:
    """Return the earliest finite time of a table, 0 if there is none."""
    times = [table[name] for name in _TIMES & table.keys()]
    least = min((float(np.min(t, initial=math.inf, where=np.isfinite(t))) for t in times), default=0.0)
    return least if math.isfinite(least) else 0.0


def pack(tables: Tables) -> tuple[list[Content], bytes]:
    """Return the layout of some tables, and their bytes; each column begins at a multiple of four bytes."""
    layout = []
    parts = []
    for table, columns in tables.items():
        codes, n, t0 = [], 0, t0_of(columns)
        if "n" in columns:  # JavaScript keeps the number of rows under this name
            raise ValueError(f"table {table!r} has a column named 'n'; call it 'count'")
        for name, values in columns.items():
            code, n = code_of(name, values), len(values)
            codes.append([name, code])
            if n:
                data = (values - t0 if code == "t" else values).astype(_DTYPES[code], copy=False).tobytes()
                parts.append(data)
                if len(data) % 4:
                    parts.append(b"\0" * (-len(data) % 4))
        layout.append({"table": table, "n": n, "t0": t0, "columns": codes})
    return layout, b"".join(parts)


def encode(header: Plain, tables: Tables) -> Message:
    """Return a whole picture as header (with ``layout``) and buffers."""
    layout, data = pack(tables)
    return plain({**header, "layout": layout}), [data]


def _equal(a: Array, b: Array) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = a == b
    if a.dtype.kind == "f" and not same.all():
        same = same | (np.isnan(a) & np.isnan(b))
    return same


def _grown(old: Table, new: Table, n: int) -> bool:
    """Whether the first `n` rows are the same to the last bit, as they are where a table only grows."""
    return all(old[name] is new[name] or old[name][:n].tobytes() == new[name][:n].tobytes() for name in new)


def _kept(old: Table, new: Table) -> tuple[int, int]:
    """Return how many leading rows of `old` went, and how many after them begin `new`."""
    names = list(new)
    if list(old) != names or not names:
        return 0, 0
    n_old, n_new = len(old[names[0]]), len(new[names[0]])
    if not n_old or not n_new:
        return n_old, 0
    n = min(n_old, n_new)
    if _grown(old, new, n):
        return 0, n
    if n_new <= _FEW:  # to look for what stayed would cost more than to say it all again
        return n_old, 0
    drop = 0
    if not all(_equal(old[name][:1], new[name][:1])[0] for name in names):  # else the first rows are one row
        places = np.flatnonzero(np.all([_equal(old[name], new[name][:1]) for name in names], axis=0))
        if not len(places):
            return n_old, 0
        drop = int(places[0])
    n = min(n_old - drop, n_new)
    for name in names:
        same = _equal(old[name][drop : drop + n], new[name][:n])
        n = n if same.all() else int(np.argmin(same))
    return drop, n


def _news(old: Plain, new: Plain) -> Content:
    """Return the changed keys of a header as plain data."""
    changed = {key: plain(value) for key, value in new.items() if key not in old or not _same(old[key], value)}
    return {key: said for key, said in changed.items() if key not in old or plain(old[key]) != said}


def _same(a: object, b: object) -> bool:
    """Whether two values are equal at first sight; what holds arrays or NaN is not."""
    try:
        return a is b or bool(a == b)
    except ValueError:  # arrays have no single truth
        return False


def diff(old: Drawn, new: Drawn) -> Message | None:
    """Return what turns one picture into another, None if nothing changed.

    The content has ``header`` (changed keys alone), and ``layout`` with ``drop`` and ``keep`` per changed table.
    """
    header = _news(old[0], new[0])
    tails: dict[str, dict[str, Array]] = {}
    kept = {}
    for table, columns in new[1].items():
        before = old[1].get(table, {})
        n_old = len(next(iter(before.values()), ()))
        drop, keep = kept[table] = _kept(before, columns)
        tail = {name: values[keep:] for name, values in columns.items()}
        if table not in old[1] or drop > 0 or keep < n_old or any(len(values) for values in tail.values()):
            tails[table] = tail
    if not header and not tails:
        return None
    layout, data = pack(tails)
    for entry in layout:
        entry["drop"], entry["keep"] = kept[entry["table"]]
        before = old[1].get(entry["table"], {})
        if before and entry["columns"] == [[name, code_of(name, values)] for name, values in before.items()]:
            del entry["columns"]
    return {"header": header, "layout": layout}, [data]


class Wire:
    """What one picture's JavaScript has been told: numbers its messages and finds what is new."""

    def __init__(self) -> None:
        self.seq = 0
        self._told: Drawn | None = None

    def traits(self, drawn: Drawn) -> Content:
        """Return the values of the synced traits ``_header`` and ``_snapshot``, as of the latest message."""
        header, buffers = encode(*drawn)
        return {"_header": header_json({**header, "seq": self.seq}), "_snapshot": buffers[0]}

    def snapshot(self, drawn: Drawn) -> Message:
        """Return a message with the whole picture."""
        header, buffers = encode(*drawn)
        self.seq += 1
        self._told = drawn
        n = sum(entry["n"] for entry in header["layout"])
        return {"kind": "snapshot", "seq": self.seq, "n": n, "header": header}, buffers

    def delta(self, drawn: Drawn) -> Message | None:
        """Return a message with what is new since the last one (a snapshot if there was none), None if nothing is."""
        if self._told is None:
            return self.snapshot(drawn)
        change = diff(self._told, drawn)
        if change is None:
            return None
        content, buffers = change
        self.seq += 1
        self._told = drawn
        n = sum(entry["n"] for entry in content["layout"])
        return {"kind": "delta", "seq": self.seq, "n": n, **content}, buffers

    def beat(self) -> Message:
        """Return a message that says only that news would have come."""
        return {"kind": "beat", "seq": self.seq}, []
