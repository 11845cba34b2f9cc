"""Draw which host holds which part of a version at one moment, and who sends it: on a ring, or as a matrix."""

import numpy as np

from drlnb.views.distribution.simulated import REPAIR, Spread
from drlnb.views.drawing import theme
from drlnb.views.drawing.payload import Array, Floats, Table, picked
from drlnb.views.drawing.pictures import Body, axis, picture
from drlnb.views.drawing.view import Column, View, numbered, table

__all__ = ["topology"]

#: Most hosts on a ring, and most rows of the matrix for more; shards share rows where there are more.
_RING, _ROWS = 24, 30
#: Moments of a version, by number, and what stands for never.
_END, _NEVER = 65534, 65535
#: States of a part at a host, by number; then how an edge is marked.
_STYLES = (
    *theme.lettered("· #999999 waiting", "↓ #E69F00 receiving", "✓ #2E7D32 complete", "✕ #CC79A7 dropped"),
    *theme.lettered("→ #0072B2 planned"),
    REPAIR,
)

TOPOLOGY = table(
    "edges",
    Column("sender", "from", "who sends", kind="name"),
    Column("receiver", "to", "who receives", kind="name"),
    Column("begun", "begun", "when the sender began with it, as far as it is known", unit="ms", factor=1000),
    Column("stop", "received", "when the receiver had all of it", unit="ms", factor=1000),
    Column("mb", "size", "bytes of the shard that go this way", unit="MB"),
    Column("series", "by", "the plan, or repair: sent again instead of what a lost host was to forward", kind="series"),
)
NUMBERS = {
    "holders": ("hosts that hold it", "", "that have the whole shard at the end, and are there"),
    "whole": ("last of them", "s", "until the last one had it"),
}


def topology(of: Spread, shard: int = 0, at_s: float | None = None) -> View:
    """Return who sends a shard to whom, and which hosts wait, receive, hold it or are dropped.

    Up to 24 hosts stand on a ring; more are the columns of a matrix, its rows all shards.

    Parameters
    ----------
    of
        What became of a version.
    shard
        Number of the shard, or of the tree that carries it.
    at_s
        Moment that is drawn, in seconds since the first byte; None: when the first host was lost, else half way.  In
        the page it can be moved.

    Raises
    ------
    ValueError
        If there is no such shard.
    """
    n, m = len(of.hosts), len(of.sizes)
    if not 0 <= shard < m:
        raise ValueError(f"shard must be from 0 to {m - 1}, got {shard}")
    end = max(of.publish_s, float(np.nanmax(of.messages["done"], initial=1e-9)), *(t for _, t, _ in of.lost))
    at_s = (of.lost[0][1] if of.lost else end / 2) if at_s is None else min(end, at_s)
    n_rows = 1 if n <= _RING else min(m, _ROWS)
    row_of = np.arange(m) * n_rows // m
    if n <= _RING:
        row_of = np.where(np.arange(m) == shard, 0, -1)
    gone, turn = np.full(n, np.inf), 2.0 * np.pi * np.arange(n) / max(1, n)
    for host, lost_s, _ in of.lost:
        gone[of.hosts.index(host)] = lost_s
    begun, done = _cells(of, row_of, n_rows)
    state = np.select([gone <= at_s, done <= at_s, begun <= at_s], [3, 2, 1], 0).astype(np.uint8)
    edges = _edges(picked(of.messages, of.messages["shard"] == shard), n)
    edges["state"] = ((edges["begun"] <= at_s) + 1 * (edges["stop"] <= at_s)).astype(np.uint8)
    held = done[row_of[shard]][np.isinf(gone) & np.isfinite(done[row_of[shard]])]
    columns: dict[str, Table] = {
        "edges": edges,
        "cells": {"begun": _moments(begun, end), "done": _moments(done, end), "state": state.ravel()},
        "hosts": {"gone": _moments(gone, end), "x": np.sin(turn), "y": -np.cos(turn)},
    }
    spans = [dict.fromkeys(np.flatnonzero(row_of == row)[[0, -1]].tolist()) for row in range(n_rows)]
    facts = {
        "series": theme.plain(_STYLES),
        "span": [0.0, end],
        "at": at_s / end,
        "part": int(row_of[shard]),
        "parts": [] if n <= _RING else ["-".join(map(str, span)) for span in spans],
        "x": axis("host"),
        "moments": [{"t": t, "label": f"{host} lost", "said": f"{host} is gone", "task": ""} for host, t, _ in of.lost],
    }
    part = f"{'tree' if 'tree' in of.name and m > 1 else 'shard'} {shard} of {m}" if m > 1 else "the whole version"
    said, body = f"{of.name}, {part}: {of.outcome}", Body("topology", columns, facts, ("learner", *of.hosts))
    numbers = numbered(NUMBERS, holders=float(len(held)), whole=float(held.max()) if len(held) else None)
    return picture("distribution.topology", of.origin, said, TOPOLOGY, body, notes=of.notes, numbers=numbers)


def _cells(of: Spread, row_of: Array, n_rows: int) -> tuple[Floats, Floats]:
    """Return when each host had the first of a row's bytes coming in, and all of them; infinite: never."""
    n, row = len(of.hosts), row_of[of.messages["shard"]]
    sent = picked(of.messages, np.flatnonzero((row >= 0) & np.isfinite(of.messages["done"])))
    cell = row_of[sent["shard"]] * n + sent["receiver"]
    begun, done, held = np.full(n_rows * n, np.inf), np.zeros(n_rows * n), np.zeros(n_rows * n)
    np.minimum.at(begun, cell, np.maximum(sent["begun"], sent["done"] - sent["wire"]))
    np.maximum.at(done, cell, sent["done"])
    np.add.at(held, cell, sent["bytes"])
    whole = np.bincount(row_of[row_of >= 0], of.sizes[row_of >= 0], n_rows)
    done = np.where(held >= whole.repeat(n) - 0.5, done, np.inf)
    return begun.reshape(n_rows, n), done.reshape(n_rows, n)


def _edges(sent: Table, n: int) -> dict[str, Array]:
    """Return the messages between the same two as one."""
    key = ((sent["sender"] + 1) * (n + 1) + sent["receiver"] + 1) * 2 + (sent["repair"] > 0)
    keys, which = np.unique(key, return_inverse=True)
    begun, stop, mb = np.full(len(keys), np.inf), np.zeros(len(keys)), np.zeros(len(keys))
    np.fmin.at(begun, which, sent["begun"])
    np.maximum.at(stop, which, np.nan_to_num(sent["done"], nan=np.inf))
    np.add.at(mb, which, sent["bytes"] / 1e6)
    sender, receiver = np.divmod(keys // 2, n + 1)
    series = len(_STYLES) - 2 + keys % 2
    return {"sender": sender, "receiver": receiver, "begun": begun, "stop": stop, "mb": mb, "series": series}


def _moments(seconds: Floats, end: float) -> Array:
    """Return the numbers of moments, also of those that are infinite."""
    return np.minimum(np.round(seconds / end * _END), _NEVER).astype(np.uint16).ravel()
