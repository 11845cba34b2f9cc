"""What the hub's turns cost, in bytes and calls: counts, which no busy machine changes."""

import json
from collections import Counter
from itertools import groupby

import pytest

from drlnb.fleet.rows.board import Board
from drlnb.records.base import Event
from drlnb.views.leasing.lines import LeaseLine
from drlnb.widgets import faces
from tests.views.journals import Run
from tests.widgets.conftest import FakeComm

#: Seconds and leases of the run, and seconds between two turns.
SECONDS, N_LEASES, TURN_S = 11, 330, 0.25


@pytest.fixture
def turns():
    """Return a run of two tasks on one slot, cut into the rows of each turn."""
    made, every = Run().slot().task("a").task("b"), SECONDS / N_LEASES
    for n in range(N_LEASES):
        task, asked = "ab"[n % 2], n * every
        made.lease(task, asked, asked + 0.2 * every, asked + 0.9 * every, computed=0.5 * every, n=n)
        made.metrics(task, asked + every, n // 2 + 1, 10 * (n // 2 + 1), rollout__ep_rew_mean=float(n % 7))
    rows = []
    for stream, (header, records) in made.streams.items():
        t = 0.0
        for record in (header, *records):
            t = record.t if isinstance(record, Event) else t
            rows.append((int(t / TURN_S), (stream, record)))
    rows.sort(key=lambda row: row[0])
    return [(at, [entry for _, entry in of]) for at, of in groupby(rows, key=lambda row: row[0])]


@pytest.fixture
def sent(monkeypatch):
    """Count the bytes of what is sent, by kind."""
    counts, publish = {}, FakeComm.publish_msg

    def counted(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        kind = (data or {}).get("content", {}).get("kind", msg_type)
        counts[kind] = counts.get(kind, 0) + len(json.dumps(data, default=str)) + sum(map(len, buffers or ()))
        return publish(self, msg_type, data, metadata, buffers, **keys)

    monkeypatch.setattr(FakeComm, "publish_msg", counted)
    return counts


def played(run, turns, panels):
    """Visit panels as the hub and the pump do."""
    for at, rows in turns:
        run.watch.feed.add(rows)
        for panel in panels:
            panel.tick(at * TURN_S)
            panel.write()


@pytest.fixture
def calls(monkeypatch):
    """Count how often something is called."""
    counts = Counter()

    def count(cls, name):
        real = getattr(cls, name)

        def counted(self, *args, **keys):
            counts[cls.__name__] += 1
            return real(self, *args, **keys)

        monkeypatch.setattr(cls, name, counted)

    count(LeaseLine, "__init__")
    count(Board, "statuses")
    return counts


def test_a_desk_sends_what_is_new_and_pictures_that_are_small(run, turns, sent):
    """30 leases a second: so many bytes went in 11 s, and a tenth more is a change to be looked at."""
    desk = faces.desk(run)
    sent.clear()
    played(run, turns, desk.panels)
    assert sent["delta"] < 88_000
    assert sent["twin"] < 39_000, "the boxes of a picture that is kept are 14 characters each"
    assert sum(sent.values()) < 20_000 * SECONDS * len(desk.panels)


def test_panels_of_one_run_put_its_leases_on_one_clock_once_a_turn(run, turns, calls):
    """Two pictures of different windows, their numbers and theory: one line of leases for all of them."""
    table, leases = faces.desk(run).panels
    other = faces.panel(run, "leasing", window_s=5.0)
    calls.clear()
    played(run, turns, (table, leases, other))
    assert leases.view().columns["bars"]["start"].tolist() != other.view().columns["bars"]["start"].tolist()
    assert 0 < calls["LeaseLine"] <= len(turns)


def test_buttons_ask_how_tasks_stand_once(run, turns, calls):
    """Which can be paused, resumed and started again is said of one look at the tasks."""
    table, _ = faces.desk(run).panels
    played(run, turns[:8], (table,))
    calls.clear()
    facts = table.content.facts()
    assert calls["Board"] == 1
    assert [one["name"] for one in facts["buttons"] if not one["reason"]] == ["pause", "checkpoint", "stop"]
