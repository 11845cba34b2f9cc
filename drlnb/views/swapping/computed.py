"""Draw what the cost model says of a swap plan: its rows and why, three lanes, memory within a step, bytes by type."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import commonprefix

import numpy as np

from drlnb.records.units import said_bytes
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Plain
from drlnb.views.drawing.pictures import Body, Lines, axis, lanes_of, listing, picture, shown, timeline
from drlnb.views.drawing.view import Column, View, numbered, points, table

__all__ = ["COMPUTED", "MIB", "Explained", "lanes", "memory", "plan", "types"]

#: Bytes of a mebibyte.
MIB = 2.0**20
#: Origin of what the cost model says.
COMPUTED = "computed"
#: What is done with a row, and parts of a step with their lanes.
_LOOKS = {
    look.name: look
    for look in theme.lettered(
        "K #999999 keep", "Q #F0E442 squeeze", "D #009E73 derive", "S #0072B2 swap", "B #CC79A7 block"
    )
}
_PARTS = theme.lettered(
    "F #56B4E9 forward", "B #009E73 backward", "A #CC79A7 made again", "O #E69F00 copied out", "I #0072B2 copied in"
)
_LANES = {"compute": "work", "d2h": "copies out", "h2d": "copies in"}
#: Layer types that have a lane of their own.
_TYPES = 7
#: Buttons of a row.
_PINS = ("keep", "swap", "free")


NUMBERS = {
    "step": ("step", "s", "predicted seconds of a step"),
    "slower": ("of keeping all", "x", "relative to a step in which everything stays, as if there were room"),
    "peak": ("peak", "MiB", "predicted greatest number of bytes in use"),
    "plain": ("keeping all", "MiB", "the same where everything stays"),
    "stall": ("waits", "s", "that the work waits for copies"),
}
PLAN = table(
    "rows",
    Column("row", "storage", "module that saved it first, and which of its storages it is", kind="series"),
    Column("type", "layer", "class of the module, with the operation where no leaf made it", kind="name"),
    Column("mib", "MiB", "size at this number of samples"),
    Column("action", "action", "keep, squeeze, derive, swap or block: what the plan does with it", kind="name"),
    Column("gap", "gap", "work between its last use forward and its first use backward", unit="s"),
    Column("why", "why", "what the action costs or leaves", kind="name"),
    Column("pinned", "pinned", "the action that the user wants; empty: the planner chooses", kind="name"),
)
LANES = table(
    "bars",
    Column("lane", "lane", "work, copies to the host, copies from it", kind="lane"),
    Column("series", "part", "forward, backward, computed again, or a copy", kind="series"),
    Column("what", "what", "operation by its number, or the storage", kind="name"),
    Column("start", "from", "since the step began", unit="ms", factor=1000),
    Column("stop", "to", "since the step began", unit="ms", factor=1000),
)
TYPES = table(
    "bars",
    Column("lane", "layer", "class of the module that saved the storages", kind="lane"),
    Column("series", "action", "what the plan does with them", kind="series"),
    Column("mib", "size", "bytes of those storages", unit="MiB"),
    Column("count", "storages", "how many they are"),
)
MEMORY = points(("time", "ms", "since the step began"), ("bytes in use", "MiB", "what stays anyway included"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What the cost model says of one plan; times in seconds."""

    #: What is planned and by whom, in words: a network and its batch, or a task; and the planner.
    of: str
    #: NaN: no budget.
    memory_budget_bytes: float
    fits: bool
    #: Of each row ``layer``, ``type``, ``MiB``, ``gap_s``, ``action`` and ``why``.
    rows: Sequence[Plain]
    #: Row -> the action that the user wants.
    pins: Mapping[str, str]
    #: As :data:`NUMBERS` has them.
    numbers: Mapping[str, float]
    #: (``compute``, ``d2h`` or ``h2d``; what; start; end), and (time; bytes in use from then on).
    lanes: Sequence[tuple[str, str, float, float]]
    memory: Sequence[tuple[float, float]]

    @property
    def sentence(self) -> str:
        """The plan in words."""
        n = {action: sum(row["action"] == action for row in self.rows) for action in _LOOKS}
        counts = ", ".join(f"{action} {count}" for action, count in n.items() if count) or "nothing is saved"
        limit = (
            "without a budget" if math.isnan(self.memory_budget_bytes) else f"of {said_bytes(self.memory_budget_bytes)}"
        )
        return (
            f"{self.of}: {counts}; predicted {said_bytes(self.numbers['peak'] * MIB)} {limit}"
            f"{'' if self.fits else ', which does not fit'}, {words.duration(self.numbers['step'])} a step, "
            f"{self.numbers['slower']:.2f}x of keeping all"
        )

    @property
    def peak_bytes(self) -> int:
        """Predicted greatest number of bytes in use."""
        return round(self.numbers["peak"] * MIB)

    @property
    def prefix(self) -> str:
        """What the names of all storages begin with: the modules that hold all of them."""
        path, dot, _ = commonprefix([str(row["layer"]) for row in self.rows]).rpartition(".")
        return path + dot

    def picture(self, name: str, twin: tuple[Column, ...], body: Body, origin: str = COMPUTED, **facts: object) -> View:
        """Return a picture with the plan in words above it."""
        notes = [f"storages of {self.prefix.removesuffix('.')}"] if name == "plan" and self.prefix else []
        numbers = numbered(NUMBERS, **self.numbers)
        named = f"swapping.{name}"
        return picture(named, origin, self.sentence, twin, body, notes=notes, numbers=numbers, facts=facts)


def plan(of: Explained, *, live: bool = False) -> View:
    """Return a row per storage: what the plan does with it, and why.

    Parameters
    ----------
    of
        The plan.
    live
        Whether rows can be pinned.
    """
    pinned = [of.pins.get(row["layer"], "") for row in of.rows]
    rows = [
        {"mib": row["MiB"], "gap": row["gap_s"], "pinned": pin, **{key: row[key] for key in ("type", "action", "why")}}
        for row, pin in zip(of.rows, pinned, strict=True)
    ]
    can = [sum(1 << i for i, each in enumerate(_PINS) if each != (pin or "free")) for pin in pinned]
    looks = [_LOOKS[row["action"]]._replace(name=row["layer"].removeprefix(of.prefix)) for row in of.rows]
    columns = shown(PLAN, "row type/3 mib action gap/2 why/1 pinned/2")
    body = listing(rows, PLAN, columns, looks, tables={"rows": {"can": np.array(can, dtype=np.uint8)}})
    actions = [{"name": pin, "label": pin, "confirm": ""} for pin in _PINS] if live else []
    return of.picture("plan", PLAN, body, actions=actions)


def lanes(of: Explained) -> View:
    """Return the work and the copies of one step, each on a lane of its own."""
    names = list(dict.fromkeys(name for _, name, _, _ in of.lanes))
    bars = [
        (
            list(_LANES).index(lane),
            {"f": 0, "b": 1, "a": 2}[name[0]] if lane == "compute" else 3 + (lane == "h2d"),
            names.index(name),
            start,
            stop,
        )
        for lane, name, start, stop in of.lanes
    ]
    columns = dict(zip(("lane", "series", "what", "start", "stop"), np.array(bars).reshape(-1, 5).T, strict=True))
    columns |= {key: columns[key].astype(np.int64) for key in ("lane", "series", "what")}
    turn = columns["start"][columns["series"] == 1][:1]
    marks = [{"t": float(t), "label": "backward", "said": "the backward pass begins", "task": ""} for t in turn]
    end, x = float(np.max(columns["stop"], initial=1e-9)), axis("time", "s", "clock")
    body = timeline({"bars": columns}, lanes_of("task", _LANES.values()), _PARTS, (0.0, end), x, names)
    return of.picture("lanes", LANES, body, marks=marks)


def memory(of: Explained, measured_bytes: float = math.nan, origin: str = COMPUTED) -> View:
    """Return the bytes in use within a step below the budget, as predicted, and the measured peak beside them.

    Parameters
    ----------
    of
        The plan.
    measured_bytes, origin
        Peak of the newest steps, and where it is from; NaN: there were none.
    """
    lines, span = Lines(), (0.0, 1e3 * of.numbers["step"])
    x, y = [1e3 * t for t, _ in of.memory], [n / MIB for _, n in of.memory]
    lines.add("predicted", "#0072B2", [*x, span[1]], [*y, *y[-1:]], step=True, style=("P", ""))
    levels = {"budget": (of.memory_budget_bytes, "#D55E00", "B"), f"peak, {origin}": (measured_bytes, "#009E73", "M")}
    for label, (n_bytes, colour, letter) in levels.items():
        if not math.isnan(n_bytes):
            lines.add(label, colour, span, [n_bytes / MIB] * 2, style=(letter, "/"))
    origin = COMPUTED if math.isnan(measured_bytes) else f"{COMPUTED} and {origin}"
    body = lines.body(axis("time since the step began", "ms"), axis("bytes in use", "MiB"))
    return of.picture("memory", MEMORY, body, origin)


def types(of: Explained) -> View:
    """Return the saved bytes of each layer type, and what is done with them."""
    size = {row["type"]: sum(each["MiB"] for each in of.rows if each["type"] == row["type"]) for row in of.rows}
    largest = sorted(size, key=lambda name: -size[name])
    labels = [*largest[:_TYPES], *(["others"] if len(largest) > _TYPES else [])]
    mib, count = np.zeros((2, len(labels), len(_LOOKS)))
    for row in of.rows:
        at = min(largest.index(row["type"]), _TYPES), list(_LOOKS).index(row["action"])
        mib[at] += row["MiB"]
        count[at] += 1
    stop, (lane, series) = np.cumsum(mib, axis=1), np.nonzero(count)
    bars = {
        "start": (stop - mib)[lane, series],
        "stop": stop[lane, series],
        "lane": lane,
        "series": series,
        "mib": mib[lane, series],
        "count": count[lane, series],
    }
    span = (0.0, float(stop.max(initial=1e-9)))
    body = timeline({"bars": bars}, lanes_of("task", labels), tuple(_LOOKS.values()), span, axis("saved bytes", "MiB"))
    return of.picture("types", TYPES, body)
