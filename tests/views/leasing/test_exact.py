"""Numbers of every picture of leases are sums over the pool's rows, for any run and any zoom."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.fleet.rows.tables import table_rows
from drlnb.records.columns import leasing as words
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.round import GradientComputed, LeaseReceived
from drlnb.views import fleet
from drlnb.views.folds import pool
from drlnb.views.folds import task as task_folds
from drlnb.views.folds.fold import fold_of
from drlnb.views.leasing import gantt
from tests.views.journals import EPOCH, Run
from tests.views.pictures import until
from tests.views.test_truth import SHAPES, _played

SLOTS = ("n0/cpu0", "n0/cpu1")
#: Tasks of the run, and somebody's own loop.
TASKS, GUEST = ("a", "b"), "loop"
#: A tick of old time, in seconds.
TICK = 2.0**-20

LEASES = st.lists(
    st.tuples(
        st.integers(0, 1),  # slot
        st.sampled_from([*TASKS, *TASKS, GUEST]),
        st.floats(0.0, 3.0),  # free before it
        st.floats(0.0, 2.0),  # waited
        st.floats(0.001, 4.0),  # held
        st.floats(0.0, 1.0),  # computed, of that
        st.sampled_from(["returned", "returned", "returned", "withdrawn", "refused"]),
    ),
    min_size=1,
    max_size=70,
)


def rows_of(leases):
    """Return leases and requests as plain rows: (task, slot, asked, start, stop, computed, end)."""
    at, rows = dict.fromkeys(SLOTS, 1.0), []
    for slot, task, free, waited, held, share, end in leases:
        start = at[SLOTS[slot]] + free
        stop = start + (held if end == "returned" else 0.0)
        rows.append((task, SLOTS[slot], max(0.5, start - waited), start, stop, share * held, end))
        at[SLOTS[slot]] = stop
    return rows


def journal_of(rows, until_s):
    """Return the journal of rows: every record at its time, a piece of work in the midst of each of a task's leases."""
    run, said = Run(), []
    for task in TASKS:
        run.task(task)
    for slot in SLOTS:
        run.slot(slot)
    for i, (task, slot, asked, start, stop, computed, end) in enumerate(rows):
        request, fence = f"{task}/1/{i}-{i}", Fence(epoch=EPOCH, token=i + 1)
        of = {"request_id": request, "task": f"run/{task}", "attempt": 1, "round": i}
        said.append((asked, 1, i, run.pool, [words.SlotRequested(t=asked, node="n0", **of)]))
        tick = SettingChanged(t=start, key="x", value=0, task=None)
        if end != "returned":
            answer = words.RequestCancelled(t=start, request_id=request, reason="stopped")
            refused = [tick, words.RequestRefused(subject=request, reason="is over")]
            said.append((start, 2, i, run.pool, refused if end == "refused" else [answer]))
            continue
        granted = words.LeaseGranted(fence=fence, slots=(slot,), waited_s=start - asked, **of)
        said.append((start, 2, i, run.pool, [tick, granted]))
        back = words.LeaseReturned(t=stop, fence=fence, clean=True, computed_s=(computed,))
        lent = {"fence": fence, "task": f"run/{task}", "slots": (slot,), "held_s": stop - start}
        over = words.LeaseReleased(**lent, computed_s=(computed,), reason="returned")
        said.append((stop, 0, i, run.pool, [back, over]))
        if task != GUEST:
            worked = {"collector": 0, "round": i, "fence": fence, "slot": slot, "elapsed_s": computed}
            got = LeaseReceived(t=start, request_id=request, fence=fence, slots=(slot,), waited_s=start - asked)
            said.append((start, 3, i, f"task-{task}-a1", [got]))
            piece = GradientComputed(t=(start + stop + computed) / 2, **worked)
            said.append((piece.t, 4, i, f"task-{task}-a1", [piece]))
    for *_, stream, records in sorted(said, key=lambda one: one[:3]):
        run.say(stream, *records)
    run.say(run.pool, SettingChanged(t=until_s, key="x", value=0, task=None))
    return run.journal()


def overlap(start, stop, low, high):
    return max(0.0, min(stop, high) - max(start, low))


def computed_at(row):
    """From when to when a lease computed: a task's in its midst, a guest's at its end, as the pool hears of it."""
    task, _, _, start, stop, computed, _ = row
    end = stop if task == GUEST else (start + stop + computed) / 2
    return end - computed, end


class Sums:
    """What rows add up to between two moments."""

    def __init__(self, rows, low, high):
        leases = [row for row in rows if row[-1] == "returned"]
        self.held = sum(overlap(row[3], row[4], low, high) for row in leases)
        self.computed = sum(overlap(*computed_at(row), low, high) for row in leases)
        self.there = len(SLOTS) * (high - low)
        self.waited = sum(overlap(row[2], row[3], low, high) for row in rows)
        self.refused = refused_s(rows, low, high)
        self.by_task = defaultdict(float)
        for row in leases:
            self.by_task[row[0]] += overlap(row[3], row[4], low, high)


def refused_s(rows, low, high):
    """Seconds in which a slot was free though a request waited, moment by moment."""
    leases = [row for row in rows if row[-1] == "returned"]
    edges = sorted({low, high, *(t for row in rows for t in row[2:5] if low < t < high)})
    total = 0.0
    for since, to in pairwise(edges):
        mid = (since + to) / 2
        free = len(SLOTS) - sum(row[3] <= mid < row[4] for row in leases)
        total += (to - since) * min(free, sum(row[2] <= mid < row[3] for row in rows))
    return total


def drawn(view, low, high):
    """Slot-seconds held and computed between two moments as they are drawn, older time evenly within its columns."""
    of, held, computed = view.columns, 0.0, 0.0
    for name in ("bars", "open"):
        held += sum(overlap(*edges, low, high) for edges in zip(of[name]["start"], of[name]["stop"], strict=True))
    work = of["work"]
    for start, stop, seconds in zip(work["start"], work["stop"], work["computed"], strict=True):
        computed += seconds * (overlap(start, stop, low, high) / (stop - start) if stop > start else 0.0)
    shares = of["shares"]
    names = ("lane", "low", "high", "start", "stop", "computed")
    for lane, begin, end, start, stop, seconds in zip(*(shares[name].tolist() for name in names), strict=True):
        part = overlap(begin, end, low, high) / (end - begin) if end > begin else 0.0
        if lane < len(SLOTS):
            held += (stop - start) * part
            computed += seconds * part
    return held, computed


def cut(view, edges):
    """Seconds of the columns of older time that moments lie within: what is in them is known no more closely."""
    shares = view.columns["shares"]
    within = {
        (lane, low, high)
        for lane, low, high in zip(*(shares[name].tolist() for name in ("lane", "low", "high")), strict=True)
        if any(low < edge < high for edge in edges)
    }
    return sum(high - low for _, low, high in within)


def within_leases(rows, edges):
    """Seconds computed in leases that moments lie within: of an old one it is not known when it computed them."""
    return sum(row[5] for row in rows if row[-1] == "returned" and any(row[3] < edge < row[4] for edge in edges))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """So few leases are kept one by one that a short run is a long one."""
    monkeypatch.setattr(pool, "NEWEST", 6)


@settings(max_examples=10, deadline=None)
@given(leases=LEASES, zoom=st.tuples(st.floats(0, 1), st.floats(0, 1)), most=st.sampled_from([4, 3000]))
def test_every_second_of_every_slot_is_where_the_rows_say(leases, zoom, most):
    """Held and computed, drawn and in numbers, at any zoom; the four parts are the whole, to a tick per row."""
    rows = rows_of(leases)
    now = max(row[4] for row in rows) + 1.0
    journal, near = journal_of(rows, now), 4 * len(rows) * TICK
    view = gantt.gantt(journal, max_bars=most)
    low, high = sorted(share * now for share in zoom)
    for span in ((0.0, now), (low, high)):
        sums = Sums(rows, *span)
        held, computed = drawn(view, *span)
        loose = near + cut(view, span)
        assert held == pytest.approx(sums.held, abs=loose)
        assert computed == pytest.approx(sums.computed, abs=loose + within_leases(rows, span))
    for window_s in (now, max(0.01, now - low)):
        span = (now - window_s, now)
        of, sums = gantt.gantt(journal, window_s=window_s), Sums(rows, *span)
        loose = (near + 3 * cut(gantt.gantt(journal), span)) / sums.there
        expected = {"held": sums.held, "computing": sums.computed, "refused": sums.refused}
        expected |= {"idle": sums.held - sums.computed, "free": sums.there - sums.held - sums.refused}
        for key, seconds in expected.items():
            more = within_leases(rows, span) / sums.there if key in {"computing", "idle"} else 0.0
            assert of.value(key) == pytest.approx(seconds / sums.there, abs=loose + more + 1e-9), key
        parts = ("computing", "idle", "refused", "free")
        assert sum(of.value(key) for key in parts) == pytest.approx(1.0, abs=loose + 1e-9)


@settings(max_examples=10, deadline=None)
@given(leases=LEASES)
def test_what_sharing_came_to_is_the_run_own_tasks(leases):
    """Saved, price and fairness by hand from the rows: of the tasks alone, as if no loop were beside them."""
    rows = rows_of(leases)
    now = max(row[4] for row in rows) + 1.0
    journal = journal_of(rows, now)
    active, alone, held, computed = {}, {}, {}, {}
    for task in TASKS:
        mine = [row for row in rows if row[0] == task]
        lent = [row for row in mine if row[-1] == "returned"]
        if not lent:
            continue
        first = min(row[3] for row in lent)
        asked = [row for row in mine if row[2] >= first and row[3] > row[2]]
        last = max(row[4] for row in [*lent, *asked])
        active[task] = last - first
        alone[task] = active[task] - sum(row[3] - row[2] for row in asked)
        held[task], computed[task] = (sum(of(row) for row in lent) for of in (lambda r: r[4] - r[3], lambda r: r[5]))
    view, shares, near = gantt.gantt(journal), gantt.shares(journal), 4 * len(rows) * TICK
    if held:
        fairness = max(held.values()) / min(held.values())
        assert view.value("fairness") == pytest.approx(fairness, rel=near / min(held.values()) * 4)
    else:
        assert view.value("fairness") is None
    counted = [task for task in held if alone[task] > 0]
    if all(alone[task] > 0.01 for task in held) and counted:
        spent, lent = (sum(of[task] for task in counted) for of in (alone, held))
        assert shares.value("saved") == pytest.approx(1 - lent / spent, abs=near / spent)
        price = sum(active[task] / alone[task] for task in counted) / len(counted)
        assert shares.value("inflation") == pytest.approx(price, rel=near)


def test_leases_of_a_table_are_on_the_clock_of_the_picture():
    """A pool that began before the run: its seconds are those since the run's first event, as in the picture."""
    run = Run(start=5000.0).slot().task("a")
    run.lease("a", 1.0, 2.0, 5.0, computed=1.0)
    run.lease("a", 6.0, 6.5, 8.0, computed=1.0, n=1)
    journal = run.journal()
    bars, rows = gantt.gantt(journal).columns["bars"], table_rows(journal, "leases")
    assert [row["granted_s"] for row in rows] == bars["start"].tolist() == [2.0, 6.5]
    assert [row["ended_s"] for row in rows] == bars["stop"].tolist() == [5.0, 8.0]
    changes = {row["t_s"] for row in table_rows(journal, "pool")}
    assert {2.0, 5.0, 6.5, 8.0} <= changes


@pytest.mark.parametrize("most", [3, 4, 5])
def test_pieces_of_a_lease_are_kept_whole_or_not_at_all(monkeypatch, most):
    """Eight leases with three seconds computed in three pieces each: 24 of 32 s, however few pieces are kept."""
    monkeypatch.setattr(pool, "NEWEST", 1500)
    monkeypatch.setattr(task_folds, "_WORK", most)
    run = Run().slot().task("a")
    for n in range(8):
        fence = run.grant("a", 4.0 * n, 4.0 * n, run.ask("a", 4.0 * n, n))
        for piece in (1.0, 2.0, 3.0):
            run.work("a", fence, 4.0 * n + piece, 1.0)
        run.give_back("a", fence, 4.0 * (n + 1), 4.0 * n, 3.0)
    run.give_back(GUEST, run.grant(GUEST, 32.0, 32.0, run.ask(GUEST, 32.0, 8)), 36.0, 32.0, 1.0)
    view = gantt.gantt(run.journal())
    assert view.value("computing") == pytest.approx(25 / 36)
    assert view.columns["work"]["computed"].sum() == pytest.approx(25.0)


def test_slots_that_were_refused_for_long_are_few_rows_with_all_seconds():
    """A slot that drains again and again while somebody waits: a hundred times half a second, in at most forty rows."""
    run = Run().slot().task("a")
    for n in range(100):
        fence = run.grant("a", 2.0 * n, 2.0 * n, run.ask("a", 2.0 * n, n))
        run.give_back("a", fence, 2.0 * n + 1.0, 2.0 * n, 0.0)
        run.say(run.pool, SettingChanged(t=2.0 * n + 1.5, key="x", value=0, task=None))
        asked = f"a/1/{n}-x"
        run.say(run.pool, words.SlotRequested(
            t=2.0 * n + 1.5, request_id=asked, task="run/a", attempt=1, round=n, node="n0"
        ), words.RequestCancelled(t=2.0 * n + 2.0, request_id=asked, reason="stopped"))  # fmt: skip
    view = gantt.gantt(run.journal(), max_bars=160)
    refused = view.columns["refused"]
    assert len(refused["low"]) <= 40
    assert (refused["stop"] - refused["start"]).sum() == pytest.approx(50.0, abs=100 * TICK)
    assert view.value("refused") == pytest.approx(50 / 200, abs=1e-6)


def test_what_a_slot_was_held_idle_for():
    """Ten seconds, gradients from 1 to 3 and 6 to 8: one second to begin, three between, two to hand back."""
    run = Run().slot().task("a")
    fence = run.grant("a", 0.0, 0.0, run.ask("a", 0.0))
    run.work("a", fence, 3.0, 2.0)
    run.work("a", fence, 8.0, 2.0)
    run.give_back("a", fence, 10.0, 0.0, 4.0)
    run.lease(GUEST, 10.0, 10.0, 20.0, n=1)  # it tells of no gradient
    note = "held, idle: 17 % until the first gradient, 50 % between gradients, 33 % after the last"
    assert note in gantt.gantt(run.journal()).notes


@pytest.mark.parametrize("seed", SHAPES)
@pytest.mark.parametrize("share", [0.05, 0.13, 0.3, 0.38, 0.6])
def test_who_computes_and_who_waits_is_one_number_in_every_place(monkeypatch, seed, share):
    """Tasks of the table that wait are those of the slots' picture, the queue's last step and the pool's row."""
    monkeypatch.setattr(pool, "NEWEST", 1500)
    journal = _played(seed)
    until_s = share * fold_of(journal).now_s
    part = fold_of(until(journal, until_s))
    view, table = gantt.gantt(part), fleet.tasks(part)
    states = [row[1] for row in table.rows()]
    assert states.count("waiting for a slot") == view.value("waiting")
    assert states.count("computing") <= view.value("busy")
    last = [row for row in table_rows(journal, "pool") if row["t_s"] <= until_s][-1]
    assert (last["queue_len"], last["lent"], last["slots"]) == tuple(
        int(view.value(key)) for key in ("waiting", "busy", "slots")
    )
    assert len(view.columns["open"]["start"]) == last["lent"]
