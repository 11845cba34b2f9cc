"""Draw how versions reached the hosts of a run, beside what was predicted: a point per version, a row per host."""

import math
from dataclasses import asdict

import numpy as np

from drlnb.records.columns.distribution import SendParameters
from drlnb.records.journal import Journal
from drlnb.views.distribution.simulated import Spread
from drlnb.views.drawing import decimate, theme, words
from drlnb.views.drawing.payload import Array, Floats
from drlnb.views.drawing.pictures import Lines, axis, listing, picture, shown
from drlnb.views.drawing.view import Column, View, numbered, table
from drlnb.views.folds.distribution import DistributionFold, HostLine
from drlnb.views.folds.fold import Fold, fold_of

__all__ = ["hosts", "newest", "spread", "versions"]

#: Pixel columns of the line of predictions, and of each planner's points.
_COLUMNS = 400
#: Latest versions in a median.
_LATEST = 64

VERSIONS = table(
    "points",
    Column("line", "what", "predicted by the planner, or measured under a planner", kind="name"),
    Column("x", "version", "of the parameters"),
    Column("y", "time", "from the first send until the sender knew that every live host holds it", unit="ms"),
    Column("lo", "first host", "until the first host held it", unit="ms"),
    Column("hi", "last host", "until the last host held it", unit="ms"),
)
HOSTS = table(
    "rows",
    Column("row", "host", "node that runs collectors, or waits for versions", kind="series"),
    Column("version", "newest version", "that it holds"),
    Column("behind", "behind", "versions that were planned since"),
    Column("n_versions", "versions", "that it has held"),
    Column("publish", "held after", "mean seconds from the first send until the sender knew", unit="s"),
    Column("arrival", "arrival", "mean seconds from the first byte at the host to the last", unit="s"),
    Column("n_lost", "lost messages", "messages that it did not take"),
    Column("dropped", "dropped", "why it takes no part any more; empty: it does", kind="name"),
)
NUMBERS = {
    "versions": ("versions", "", "that were planned"),
    "measured": (
        "measured",
        "s",
        "median over the latest 64 versions under the newest planner, until the last host held it",
    ),
    "predicted": (
        "predicted",
        "s",
        "median of what was expected: the closed form, corrected by what versions took before",
    ),
    "correction": ("predicted / closed form", "x", "median over the same versions"),
    "ratio": ("measured / predicted", "x", "median over the same versions"),
    "sent": ("sent", "MB", "of the newest version to each host"),
    "kept": ("kept", "MB", "of the newest version: hosts held it already, so it was not sent"),
    "pause": ("pause", "s", "median of the longest time for which a collector that could act waited for a version"),
    "behind": ("most behind", "", "versions that the slowest live host lacks"),
    "repairs": ("repairs", "", "plans that were made because messages were lost"),
    "lost": ("lost messages", "", "messages that a host did not take"),
}


def newest(fold: Fold, task: str | None = None) -> tuple[str, DistributionFold]:
    """Return a task that has sent versions, and what became of them; ``""`` and nothing if there is none.

    Parameters
    ----------
    fold
        A run's columns.
    task
        Its name; None: the first that has sent any.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    if task is not None and task not in {*fold.task_names(), *fold.distributions}:
        raise ValueError(f"this run has no task {task!r}; it has {', '.join(fold.task_names())}")
    names = [task] if task is not None else [*fold.task_names(), *fold.distributions]
    sent = [name for name in names if name in fold.distributions and len(fold.distributions[name].versions)]
    return (sent[0], fold.distributions[sent[0]]) if sent else (task or "", DistributionFold())


def versions(journal: Journal | Fold, task: str | None = None) -> View:
    """Return measured and predicted seconds of each version, points of each planner in a colour of its own.

    Parameters
    ----------
    journal
        A run's journal, or its columns; also the journal of a publisher alone.
    task
        Name of the task; None: the first that has sent versions.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    fold = fold_of(journal)
    name, of = newest(fold, task)
    x, said = of.versions["version"], _medians(of)
    live = [host for host in of.hosts.values() if not host.dropped]
    sentence = "no version has been sent yet"
    if len(x):
        sentence = (
            f"{f'{name}: ' if name else ''}{words.plural(len(x), 'version')}; under {of.planners[_ruling(of)]} "
            f"{fold.origin} {words.duration(said['measured'])}, predicted {words.duration(said['predicted'])} "
            f"(medians), to {words.plural(len(live), 'host')}"
        )
        if said["correction"] and said["correction"] != 1.0:
            times = f"{said['correction']:.2g} times the closed form"
            sentence += f"; predictions are {times}, which is what versions took"
        sentence += _pause_and_parts(of)
    behind = float(max((of.newest - host.version for host in live), default=0))
    lost, repairs = float(sum(host.n_lost for host in of.hosts.values())), float(of.n_repairs)
    numbers = {"versions": float(len(x)), "behind": behind, "repairs": repairs, "lost": lost, **said, **_parts(of)}
    notes = ("the band reaches from the first host to the last one", _link(of)) if len(x) else ()
    body, known = _points(of).body(axis("version"), axis("time", "ms")), numbered(NUMBERS, **numbers)
    return picture("distribution.versions", fold, sentence, VERSIONS, body, notes=notes, numbers=known)


def _points(of: DistributionFold) -> Lines:
    """Return what was predicted as steps, and what was measured as points of each planner."""
    x, predicted, form, measured, first, last = (
        of.versions[key] for key in ("version", "predicted", "form", "measured", "first", "last")
    )
    lines = Lines()
    known = np.flatnonzero(np.isfinite(predicted))
    known = known[decimate.min_max(x[known], predicted[known], _COLUMNS)]
    lines.add("predicted", "#777777", x[known], 1e3 * predicted[known], style=("P", "/"), step=True)
    if len(corrected := known[predicted[known] != form[known]]):
        lines.add("closed form alone", "#bbbbbb", x[corrected], 1e3 * form[corrected], style=("F", "/"), step=True)
    for i, look in enumerate(theme.styles(of.planners)):
        mine = np.flatnonzero((of.versions["planner"] == i) & np.isfinite(measured))
        mine = mine[decimate.min_max(x[mine], measured[mine], _COLUMNS)]
        label, band = f"measured, {look.name}", (1e3 * first[mine], 1e3 * last[mine])
        lines.add(label, look.colour, x[mine], 1e3 * measured[mine], dots=True, band=band, style=(look.letter, ""))
    return lines


def _ruling(of: DistributionFold) -> int:
    """Return the number of the planner whose version was measured last; of the newest one before any was."""
    planner = of.versions["planner"]
    ended = planner[np.isfinite(of.versions["measured"])]
    return int((ended if len(ended) else planner)[-1])


def _medians(of: DistributionFold) -> dict[str, float | None]:
    """Return medians over the latest versions of that planner; None where none is known."""
    mine = of.versions["planner"] == _ruling(of) if len(of.versions) else slice(0)
    measured, predicted, form = (of.versions[key][mine] for key in ("measured", "predicted", "form"))
    values = {"measured": measured, "predicted": predicted, "ratio": measured / predicted}
    values |= {"correction": predicted / form, "pause": of.versions["pause"]}
    return {key: _median(value) for key, value in values.items()}


def _parts(of: DistributionFold) -> dict[str, float]:
    """Return the megabytes of the newest version that were sent to each host, and that hosts kept."""
    if not len(of.versions):
        return {}
    mb, kept = float(of.versions.get(-1, "mb")), float(of.versions.get(-1, "kept"))
    return {"sent": mb - kept, "kept": kept}


def _pause_and_parts(of: DistributionFold) -> str:
    """Return how long collectors waited, and what was not sent, in words."""
    pause_s, (sent, kept) = _median(of.versions["pause"]), _parts(of).values()
    said = f"; collectors waited {words.duration(pause_s)} for one" if pause_s is not None else ""
    return said + (f"; of the newest one's {sent + kept:.3g} MB {sent:.3g} were sent, hosts kept the rest" * (kept > 0))


def _link(of: DistributionFold) -> str:
    """Return what versions are planned with, in words."""
    rate, wait_s, cost_s = (of.link.get(f"{key}_s") for key in ("learner_bytes_per", "latency", "overhead"))
    if rate is None or wait_s is None or cost_s is None:
        return "network: not measured"
    return f"network, measured: {rate / 1e6:.3g} MB/s, latency {wait_s * 1e6:.0f} us, {cost_s * 1e6:.0f} us per message"


def _median(values: Floats) -> float | None:
    latest = values[-_LATEST:]
    return float(np.nanmedian(latest)) if np.isfinite(latest).any() else None


def hosts(journal: Journal | Fold, task: str | None = None) -> View:
    """Return a row per host: what it holds, how far it is behind, how long versions took to it; as of `versions`."""
    fold = fold_of(journal)
    of = newest(fold, task)[1]
    rows = [
        {
            **asdict(host),
            "behind": math.nan if host.dropped else of.newest - host.version,
            "publish": _mean(host.publish_s, host),
            "arrival": _mean(host.arrival_s, host),
        }
        for host in of.hosts.values()
    ]
    late = [host for host, row in zip(of.hosts, rows, strict=True) if row["behind"]]
    dropped = [host for host, line in of.hosts.items() if line.dropped]
    sentence = f"{words.plural(len(rows), 'host')}: {len(rows) - len(late)} hold version {of.newest}"
    sentence += f"; dropped: {', '.join(dropped)}" if dropped else ""
    columns = shown(HOSTS, "row version behind n_versions/2 publish arrival/1 n_lost dropped/3")
    said, body = sentence if rows else "no host yet", listing(rows, HOSTS, columns, theme.styles(of.hosts))
    return picture("distribution.hosts", fold, said, HOSTS, body)


def _mean(total_s: float, host: HostLine) -> float:
    return total_s / host.n_versions if host.n_versions else math.nan


def spread(journal: Journal | Fold, task: str | None = None) -> Spread | None:
    """Return how the newest version spread, for :func:`~drlnb.views.distribution.topology.topology`; None before one.

    Hosts say when their first byte came and their last; of each shard nobody keeps when it came.

    Parameters
    ----------
    journal, task
        As of :func:`versions`.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    fold = fold_of(journal)
    _, of = newest(fold, task)
    if not of.sent:
        return None
    names = list(dict.fromkeys(host for command in of.sent for host in (*command.hosts, command.source) if host))
    sender, receiver, start, stop, repair = np.concatenate(
        [_messages(command, names, is_repair=i > 0) for i, command in enumerate(of.sent)], axis=1
    )
    first, last = np.array([of.arrived.get(host, (math.nan, math.nan)) for host in names]).T
    begins = {route: start for start, _, route in reversed(of.sent[0].sends)}  # the first of each route
    starts, publish_s = sorted(set(begins.values())), float(of.versions.get(-1, "measured"))
    parts = np.array(sorted({(begin, end) for begin, end, _ in of.sent[0].sends}))
    shard = np.searchsorted(starts, parts[:, 0], side="right") - 1
    carried = np.bincount(shard, np.diff(parts).ravel(), len(starts))  # what hosts keep is in none
    planner = of.planners[int(of.versions.get(-1, "planner"))]
    return Spread(
        plan=planner,
        name=f"version {of.newest} by {planner}",
        model_bytes=int(carried.sum()),
        hosts=tuple(names),
        messages={
            "sender": sender,
            "receiver": receiver,
            "bytes": (stop - start).astype(np.float64),
            "repair": repair,
            "shard": np.searchsorted(starts, start, side="right") - 1,
            "begun": first[receiver],
            "done": last[receiver],
            "wire": (last - first)[receiver],
        },
        sizes=carried.astype(np.float64),
        look=0,
        origin=fold.origin,
        publish_s=float(np.nanmax(last, initial=0.0)) if math.isnan(publish_s) else publish_s,
        lost=tuple((host, t, -1) for host, t in of.gone.items() if host in names),
        notes=(_KNOWN,),
    )


_KNOWN = "a host says when its first byte came and its last: all its shards seem to come at once"


def _messages(command: SendParameters, names: list[str], *, is_repair: bool) -> Array:
    """Return sender, receiver, start, stop and whether it is repair of each message; shape ``(5, k)``."""
    # A route's number of its source is -1: the last place.
    number = np.array([names.index(host) if host else -1 for host in (*command.hosts, command.source)])
    routes = [number[np.array(route, dtype=np.int64).reshape(-1, 2)].T for route in command.routes]
    rows = [(routes[route], start, stop) for start, stop, route in command.sends]
    return np.concatenate([[*ends, *np.broadcast_arrays(a, b, is_repair, ends[0])[:3]] for ends, a, b in rows], axis=1)
