"""Draw versions that were published message by message on a virtual clock: shards per host, and a race of plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Array, Content, Floats, Table
from drlnb.views.drawing.pictures import Lines, axis, lanes_of, picture, timeline
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, numbered, table

__all__ = ["REPAIR", "SIMULATED", "Spread", "race", "shards"]

#: Origin of what was simulated.
SIMULATED = "simulated"
#: Hosts that have a lane, and kinds of shards that have a colour.
_LANES, _COLOURS = 16, 8
#: Pixels of a picture that has two lanes per host.
_TALL = 430
#: A line of the race that takes so many times as long as the next one is cut off.
_CUT = 6.0
#: What the plan did not have.
REPAIR = Style("repair", "R", "#B3261E", "x")
_HELD = Style("holds the version", "✓", "#2E7D32")

SHARDS = table(
    "bars",
    Column("sender", "from", "who sends", kind="name"),
    Column("receiver", "to", "who receives", kind="name"),
    Column("begun", "begun", "when the sender's card began with it", unit="ms", factor=1000),
    Column("stop", "received", "when the receiver's card had all of it", unit="ms", factor=1000),
    Column("mb", "size", "bytes of the message", unit="MB"),
    Column(
        "series",
        "part",
        "which shards they are of; repair: sent again instead of what a lost host was to forward",
        kind="series",
    ),
)
RACE = table(
    "points",
    Column("line", "plan", "how the version travels", kind="name"),
    Column("x", "time", "since the first byte", unit="ms"),
    Column("y", "hosts", "hosts that hold the whole version", unit="%"),
)
NUMBERS = {
    "publish": ("publish", "s", "from the first byte until the learner knows that every live host holds the version"),
    "first": ("first host", "s", "until the first host holds it"),
    "last": ("last host", "s", "until the last one does"),
    "complete": ("complete", "", "hosts that hold it"),
    "repaired": ("repair messages", "", "messages that the plan did not have"),
}


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: what follows from it is kept; arrays have no one equality
class Spread:
    """How one version spread: who sent what to whom, and when.

    Parameters
    ----------
    plan, name
        Name of the planner, and its plan with its numbers: ``relay m=8``.
    model_bytes
        Size of the version.
    hosts
        Names; host i of a plan at place i.
    messages
        Columns ``sender`` (-1: the learner), ``receiver``, ``bytes``, ``begun``, ``done``, ``wire`` (seconds; the last:
        that it holds a card), ``shard`` and ``repair`` (1: not in the plan), in the order of arrival.
    sizes, look
        Bytes of each shard of the plan, and the number of its strategy, by which it has a colour.
    publish_s
        Seconds until the learner knew that every live host holds it.
    lost
        (host, second) of those that were lost, with the number of the relay that each was; -1: that is not known.
    dropped
        Hosts that take no part any more.
    origin, notes
        Whether it was simulated or measured, and what is to be known of its times.
    """

    plan: str
    name: str
    model_bytes: int
    hosts: tuple[str, ...]
    messages: Table
    sizes: Floats
    look: int
    publish_s: float
    lost: tuple[tuple[str, float, int], ...] = ()
    dropped: tuple[str, ...] = ()
    origin: str = SIMULATED
    notes: tuple[str, ...] = ()

    @cached_property
    def held_s(self) -> Floats:
        """Seconds until each host held the whole version, NaN for those that are gone; shape ``(n_hosts,)``."""
        held = np.full(len(self.hosts), np.nan)
        np.fmax.at(held, self.messages["receiver"], self.messages["done"])
        held[[self.hosts.index(host) for host in {*self.dropped, *(host for host, *_ in self.lost)}]] = np.nan
        return held

    @property
    def ended_s(self) -> Floats:
        """Seconds of :attr:`held_s` in order, without those that are gone."""
        return np.sort(self.held_s[np.isfinite(self.held_s)])

    @property
    def n_complete(self) -> int:
        """Hosts that hold the version at the end."""
        return len(self.ended_s)

    @cached_property
    def egress(self) -> Floats:
        """Versions that the learner (first) and each host sent; shape ``(n_hosts + 1,)``."""
        sent = np.zeros(len(self.hosts) + 1)
        np.add.at(sent, self.messages["sender"] + 1, self.messages["bytes"] / self.model_bytes)
        return sent

    @property
    def outcome(self) -> str:
        """What came of it, in words."""
        n, done = len(self.hosts), f"{words.duration(self.publish_s)} ({self.origin})"
        if not self.lost:
            many = "all" if self.n_complete == n else f"{self.n_complete} of"
            return f"{many} {words.plural(n, 'host')} complete after {done}"
        lost = ", ".join(f"{host} (relay {number})" if number >= 0 else host for host, _, number in self.lost)
        n_repairs = int(self.messages["repair"].sum())
        repairs = f"by {words.plural(n_repairs, 'repair message')}" if n_repairs else "without repair"
        when = " half way" if self.origin == SIMULATED else ""
        return f"{lost} lost{when}; {self.n_complete} of {n} hosts complete after {done}, {repairs}"


def shards(of: Spread) -> View:
    """Return what each host receives and forwards, and when: a lane for its arrivals, a thin one for what it sends."""
    rows = _lanes(of)
    sent, got = of.messages["sender"], of.messages["receiver"]
    lane = np.full(len(of.hosts) + 1, -1)
    lane[rows + 1] = 2 * np.arange(len(rows)) + 1  # the learner's only lane comes first
    lane[0] = 0
    begun, done, wire = (of.messages[name] for name in ("begun", "done", "wire"))
    arrivals = _blocks(of, np.flatnonzero(lane[got + 1] >= 0), lane[got + 1], (np.maximum(begun, done - wire), done))
    sending = np.where(sent < 0, 0, lane[sent + 1] + 1)
    sends = _blocks(of, np.flatnonzero((sent < 0) | (lane[sent + 1] >= 0)), sending, (begun, begun + wire))
    styles = [*_shard_styles(of), REPAIR, _HELD]
    held = of.held_s[rows]
    known = np.flatnonzero(np.isfinite(held))
    dots = {"start": held[known], "stop": held[known], "lane": lane[rows[known] + 1]}
    dots |= {"series": np.full(len(known), len(styles) - 1), "share": np.ones(len(known))}
    end = float(max(of.publish_s, np.max(of.messages["done"], initial=0.0)))
    gone = [(at, lane[of.hosts.index(host) + 1]) for host, at, _ in of.lost]
    absent = {"start": np.array([at for at, _ in gone]), "stop": np.full(len(gone), end)}
    absent["lane"] = np.array([place for _, place in gone], dtype=np.int64)
    lanes = lanes_of("task", ["learner"]) + [
        each for host in rows for each in (*lanes_of("task", [of.hosts[host]]), *lanes_of("wait", [""]))
    ]
    body = timeline(
        {"absent": absent, "waits": sends, "bars": arrivals, "dots": dots},
        lanes,
        styles,
        (0.0, end),
        axis("time since the first byte", "s", "clock"),
        ("learner", *of.hosts),
    )
    marks: list[Content] = [
        {"t": at, "label": f"{host} lost", "said": f"{host}, relay {number}, is gone", "task": ""}
        for host, at, number in of.lost
    ]
    notes = ["strong: what arrives at a host; pale, in the thin lane below: what it forwards; ✓: it holds all"]
    if len(rows) < len(of.hosts):
        notes.append(f"{len(rows)} of {len(of.hosts)} hosts are drawn: those that were lost, and evenly the others")
    first, last = _at(of.ended_s, 0), _at(of.ended_s, -1)
    complete, repaired = float(of.n_complete), float(of.messages["repair"].sum())
    numbers = numbered(NUMBERS, publish=of.publish_s, first=first, last=last, complete=complete, repaired=repaired)
    said, facts = f"{of.name}: {of.outcome}", {"marks": marks, "tall": _TALL if len(rows) > 4 else 0}
    return picture("distribution.shards", SIMULATED, said, SHARDS, body, notes=notes, facts=facts, numbers=numbers)


def _lanes(of: Spread) -> Array:
    """Return the hosts that have a lane."""
    n, lost = len(of.hosts), [of.hosts.index(host) for host, *_ in of.lost]
    if n <= _LANES:
        return np.arange(n)
    spread = np.linspace(0, n - 1, _LANES - len(lost)).astype(np.int64).tolist()
    return np.array(sorted({*lost, *spread}), dtype=np.int64)


def _at(seconds: Floats, place: int) -> float | None:
    return float(seconds[place]) if len(seconds) else None


def _shard_styles(of: Spread) -> tuple[Style, ...]:
    """Return the styles of shards, or of groups of them where there are many."""
    n = len(of.sizes)
    if n == 1:
        return theme.styles(["the whole version"])
    edges = [-(-n * i // min(n, _COLOURS)) for i in range(min(n, _COLOURS) + 1)]
    spans = [(low, high - 1) for low, high in pairwise(edges)]
    return theme.styles(f"shard {low}" if low == high else f"shards {low}-{high}" for low, high in spans)


def _blocks(of: Spread, which: Array, lane: Array, span: tuple[Floats, Floats]) -> dict[str, Array]:
    """Return messages as bars on lanes."""
    sent, n_kinds = {name: column[which] for name, column in of.messages.items()}, min(len(of.sizes), _COLOURS)
    return {
        "start": span[0][which],
        "stop": span[1][which],
        "begun": sent["begun"],
        "lane": lane[which],
        "series": np.where(sent["repair"] > 0, n_kinds, sent["shard"] * n_kinds // len(of.sizes)),
        "sender": sent["sender"] + 1,
        "receiver": sent["receiver"] + 1,
        "mb": sent["bytes"] / 1e6,
    }


def race(results: Sequence[Spread]) -> View:
    """Return the share of hosts that hold the version over time, a line per plan, all on one clock."""
    ranked = sorted(results, key=lambda each: each.publish_s)
    lasts = [_at(each.ended_s, -1) or each.publish_s for each in ranked]
    end, n_cut = lasts[-1], 0
    if len(lasts) > 1 and end > _CUT * lasts[-2]:
        end, n_cut = 1.2 * lasts[-2], 1
    lines = Lines()
    for each in ranked:
        held = each.ended_s
        share = 100.0 * np.arange(len(held) + 1) / len(each.hosts)
        within = np.concatenate([[0.0], held]) <= end
        look = theme.styles(map(str, range(each.look + 1)))[each.look]
        x, y = np.concatenate([[0.0], held])[within], share[within]
        lines.add(
            each.name,
            look.colour,
            1e3 * np.append(x, end),
            np.append(y, y[-1]),
            step=True,
            style=(look.letter, look.hatch),
        )
    notes = [f"{each.name}: {words.duration(last)}" for each, last in zip(ranked, lasts, strict=True)]
    if n_cut:
        notes.append(f"cut off at {words.duration(end)}: {ranked[-1].name} is not done by then")
    best, rest = ranked[0], ranked[1:]
    ratios = ", ".join(f"{last / lasts[0]:.2f}x of {each.name}" for each, last in zip(rest, lasts[1:], strict=True))
    sentence = f"{best.name} is first: {words.duration(lasts[0])}" + (f"; {ratios}" if rest else "")
    body = lines.body(axis("time since the first byte", "ms"), axis("hosts that hold it", "%"))
    return picture("distribution.race", SIMULATED, sentence, RACE, body, notes=notes)
