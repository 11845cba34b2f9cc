"""Leases and waits whose end nobody told: known as long as their pool was heard of, and no longer."""

from dataclasses import replace

import pytest

from drlnb.records.columns import leasing as words
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal
from drlnb.records.round import EndTask, PhaseEntered
from drlnb.views.folds.fold import fold_of
from drlnb.views.leasing import gantt
from drlnb.views.leasing.lines import LeaseLine, sharing
from tests.views.journals import EPOCH, Run


def _tick(run, t):
    run.say(run.pool, SettingChanged(t=t, key="x", value=0, task=None))


def _ended_beside_a_stranger():
    """Return a run whose task has 0..2 and ends, with a stranger's lease from 2 on; the pool is heard of until 3."""
    run = Run().slot().task("a")
    run.lease("a", 0.0, 0.0, 2.0, computed=2.0)
    run.grant("mine", 2.0, 2.0, run.ask("mine", 2.0))
    run.say("task-a-a1", EndTask(state="done", reason=""))
    _tick(run, 3.0)
    return run


def test_of_a_run_that_has_ended_a_strangers_lease_is_known_until_its_rows_end():
    """Drawn from 2 to 3, in a picture that does not go on, below a sentence that does not say what is busy now."""
    for live in (None, False, True):
        view = gantt.gantt(_ended_beside_a_stranger().journal(), live=live)
        assert (view.columns["open"]["start"].tolist(), view.columns["open"]["stop"].tolist()) == ([2.0], [3.0])
        assert view.facts["live"] is False
        assert view.sentence == "2 leases of 1 slot; held 100 %, computing 67 % of the time shown"


def test_while_rows_come_the_page_may_go_on():
    """Of a run that goes on the panel says whether it is followed."""
    run = Run().slot().task("a")
    run.grant("a", 0.0, 0.0, run.ask("a", 0.0))
    assert [gantt.gantt(run.journal(), live=live).facts["live"] for live in (True, False, None)] == [True, False, False]
    assert gantt.gantt(run.journal(), live=True).sentence.startswith("1 of 1 slots busy")
    assert gantt.gantt(run.journal(), live=False).sentence.startswith("1 lease of 1 slot; ")


def _resumed(t=100.0):
    """Return the run of before, resumed on the same pool at `t`; the stranger still has its lease, for 2 s more.

    The second stream begins with what is lent at that time, as a broker's does.
    """
    run = _ended_beside_a_stranger()
    run.pool = f"broker-e{EPOCH}-2"
    run.open(run.pool, "pool", {"epoch": EPOCH})
    request, slot = "mine/1/0-0", {"name": "n0/cpu0", "node": "n0", "device": "cpu", "state": "lent"}
    lease = {"task": "run/mine", "request_id": request, "state": "granted", "token": 2, "slots": ["n0/cpu0"]}
    snapshot = {"leases": {"t": t, "epoch": EPOCH, "slots": {"n0/cpu0": slot}, "open": {request: lease}}}
    header, records = run.streams[run.pool]
    run.streams[run.pool] = (replace(header, snapshot=snapshot), records)
    run.give_back("mine", Fence(epoch=EPOCH, token=2), t + 2.0, 2.0, 1.0)
    _tick(run, t + 10.0)
    return run


def _orders(run):
    """Yield the run's columns, its streams in the order in which they came and in the other one."""
    streams = list(run.journal().streams.items())
    for order in (streams, streams[::-1]):
        yield fold_of(Journal(streams=dict(order)))


def test_a_lease_that_two_streams_of_one_pool_tell_of_ends_in_each():
    """2..3 by the first stream, 100..102 by the second: not over the time when nobody listened, nor for ever."""
    for fold in _orders(_resumed()):
        view = gantt.gantt(fold)
        bars = view.columns["bars"]
        assert sorted(zip(bars["start"].tolist(), bars["stop"].tolist(), strict=True)) == [(0, 2), (2, 3), (100, 102)]
        assert (len(view.columns["open"]["start"]), view.value("busy")) == (0, 0)
        assert fold.pool.engaged() == (set(), set())


def _lost():
    """Return a run whose pool dies at 5: a holds one slot from 1 on, b waits since 2, another slot drains since 3.

    A pool that is 60 s younger goes on; nothing of it is lent.
    """
    run = Run().slot().slot("n0/cpu1").task("a").task("b")
    run.grant("a", 1.0, 0.0, run.ask("a", 0.0))
    run.ask("b", 2.0)
    _tick(run, 3.0)
    run.say(run.pool, words.SlotDrained(slot="n0/cpu1", reason="asked for"))
    _tick(run, 5.0)
    run.pool = f"broker-e{EPOCH + 60 * 10**9}"
    run.open(run.pool, "pool", {"epoch": EPOCH + 60 * 10**9})
    run.slot(t=0.0)
    _tick(run, 40.0)
    return run


def test_what_a_pool_knew_last_ends_with_it():
    """Lease, wait, drain and the slot that was refused end at 5, though the run goes on until 100."""
    for fold in _orders(_lost()):
        view = gantt.gantt(fold)
        spans = {
            name: list(zip(of["start"].tolist(), of["stop"].tolist(), strict=True)) for name, of in view.columns.items()
        }
        assert fold.now_s == pytest.approx(100.0)
        assert spans["bars"] == [(1, 5)]
        assert sorted(spans["waits"]) == [(0, 1), (2, 5)]
        assert (spans["open"], spans["waiting"]) == ([], [])
        assert spans["drains"] == [(3, 5)]
        assert spans["refused"] == [(0, 1), (2, 5)]
        assert [view.value(name) for name in ("busy", "waiting", "slots")] == [0, 0, 1]
        assert view.value("longest_wait_s") == 3.0
        assert fold.pool.engaged() == (set(), set())


def test_a_pause_is_known_until_its_attempt_was_heard_of_last():
    """The first attempt pauses at 2 and dies after 3; the second one begins at 50: nobody paused between them."""
    run = Run().slot().task("a")
    stream = "task-a-a1"
    run.say(stream, SettingChanged(t=2.0, key="x", value=0, task=None), PhaseEntered(phase="paused", round=1))
    run.say(stream, SettingChanged(t=3.0, key="x", value=0, task=None))
    run.task("a", attempt=2).say("task-a-a2", SettingChanged(t=50.0, key="x", value=0, task=None))
    assert LeaseLine(fold_of(run.journal())).pauses("a", (0.0, 50.0)) == [(2.0, 3.0)]


def test_the_part_of_a_task_whose_pool_died_is_what_was_heard_of_it():
    """Held 1..5: four seconds, not until now."""
    for fold in _orders(_lost()):
        (part,) = sharing(LeaseLine(fold))
        assert (part.held, part.active, part.span) == (4.0, 4.0, (1.0, 5.0))
