"""Long runs: the picture's held share is the journal's at every zoom, in memory and bytes that do not grow."""

import json
import re
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest

from drlnb.records.columns import leasing
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.views.drawing.payload import encode
from drlnb.views.folds import pool
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from tests.views.journals import EPOCH, Run
from tests.views.wire import decode

POOL = f"broker-e{EPOCH}"
SLOTS = ("n0/cpu0", "n0/cpu1")


def leases_of(n, seed=0):
    """Return asked, start and stop of `n` leases, slot by slot in turn: half a second each, with idle phases."""
    rng = np.random.default_rng(seed)
    held = rng.lognormal(-1.0, 0.8, n)
    idle = rng.exponential(0.1, n) * np.where(np.sin(np.arange(n) * 40 / n) > 0, 1.0, 12.0)
    slot = np.arange(n) % len(SLOTS)
    start = np.zeros(n)
    for of in range(len(SLOTS)):
        mine = slot == of
        start[mine] = np.cumsum(held[mine] + idle[mine]) - held[mine]
    return start - rng.uniform(0, 0.5, n) * np.minimum(start, 1.0), start, start + held, slot


def records_of(asked, start, stop, slot, n_tasks=3):
    """Yield a pool's rows in the order of their time."""
    for name in SLOTS:
        yield POOL, leasing.SlotAdded(t=0.0, slot=name, node="n0", device="cpu", executor_epoch=1)
    kinds = np.repeat([0, 1, 2], len(start))
    order = np.lexsort((kinds, np.concatenate([asked, start, stop])))
    for row in order.tolist():
        kind, i = divmod(row, len(start))
        fence, task, request = Fence(epoch=EPOCH, token=i + 1), f"run/t{i % n_tasks}", f"run/t{i % n_tasks}/1/{i}-0"
        of = {"request_id": request, "task": task, "attempt": 1, "round": i // n_tasks}
        if kind == 0:
            yield POOL, leasing.SlotRequested(t=asked[i], node="n0", **of)
        elif kind == 1:
            yield POOL, leasing.RequestPolled(t=start[i], request_id=request)
            yield POOL, leasing.LeaseGranted(fence=fence, slots=(SLOTS[slot[i]],), waited_s=start[i] - asked[i], **of)
        else:
            held = {"held_s": stop[i] - start[i], "computed_s": ((stop[i] - start[i]) * 0.5,)}
            yield POOL, leasing.LeaseReturned(t=stop[i], fence=fence, clean=True, computed_s=held["computed_s"])
            yield (
                POOL,
                leasing.LeaseReleased(fence=fence, task=task, slots=(SLOTS[slot[i]],), reason="returned", **held),
            )


def folded(n, of=None):
    fold = Fold(details=False)
    fold.feed(records_of(*(of or leases_of(n))))
    return fold


def between(low, high, start, stop, held):
    """Seconds held between two moments, where what is held is spread evenly from start to stop."""
    inside = np.maximum(0.0, np.minimum(stop, high) - np.maximum(start, low))
    return float(np.sum(held * np.divide(inside, stop - start)))


def drawn(view, low, high):
    """Slot-seconds between two moments as they are drawn."""
    bars, shares, n_slots = view.columns["bars"], view.columns["shares"], len(SLOTS)
    of = shares["lane"] < n_slots
    old = between(low, high, shares["low"][of], shares["high"][of], (shares["stop"] - shares["start"])[of])
    return old + between(low, high, bars["start"], bars["stop"], bars["stop"] - bars["start"])


def zooms(now_s, widest):
    """Return the windows that can be chosen, halves of the run up to its end, and looks into its midst."""
    ends = [(now_s - w, now_s) for w in (30.0, 120.0, 600.0, *(now_s * 2.0**-k for k in range(12))) if w <= now_s]
    midst = [(at * now_s, at * now_s + (64 * widest or now_s / 8)) for at in (0.05, 0.3, 0.6)]
    return [zoom for zoom in [*ends, *midst] if zoom[1] <= now_s]


@pytest.mark.parametrize(
    "n",
    [
        *[pytest.param(n, marks=pytest.mark.thorough) for n in (100, 1_000, 10_000)],
        pytest.param(100_000, marks=pytest.mark.slow),
        pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_the_pictures_held_share_is_the_journals_at_every_zoom(n):
    """Within 1 % of slot time, in the windows of the panel and wherever somebody zooms; so is the number beside it."""
    asked, start, stop, slot = leases_of(n)
    fold = folded(n, (asked, start, stop, slot))
    view, now_s = gantt.gantt(fold), stop.max()
    shares = view.columns["shares"]
    widest = float(np.max(shares["high"] - shares["low"], initial=0.0))
    for low, high in zooms(now_s, widest):
        known = between(low, high, start, stop, stop - start) / (high - low) / len(SLOTS)
        assert drawn(view, low, high) / (high - low) / len(SLOTS) == pytest.approx(known, abs=0.01), (low, high)
    for window_s in (30.0, now_s / 3, now_s):
        known = between(now_s - window_s, now_s, start, stop, stop - start) / window_s / len(SLOTS)
        assert gantt.gantt(fold, window_s=window_s).value("held") == pytest.approx(min(1.0, known), abs=0.01)
    leases, waits = fold.pool.leases, fold.pool.waits
    assert max(len(leases), len(waits)) <= 2 * pool.NEWEST + 3
    assert sum(len(old.spread["low"]) for old in fold.pool.old.values()) <= 32_768
    assert len(view.payload()[1][0]) <= 250_000
    assert len(gantt.gantt(fold, max_bars=700).payload()[1][0]) <= 150_000


def long_run(n=300):
    """Three tasks that compute on one slot in turn, unevenly, with pieces of work in their own streams."""
    run = Run().slot()
    for name in "abc":
        run.task(name)
    t = 0.0
    for i in range(n):
        task = "abc"[i % 3]
        asked, held = max(0.0, t - 0.4 - 0.1 * (i % 3)), 0.5 + 0.25 * (i % 5)
        run.lease(task, asked, t, t + held, computed=held / (1 + i % 2), n=i // 3)
        t += held + (0.0 if i % 20 else 2.0)
    return run


@pytest.fixture
def forgetful(monkeypatch):
    """So few leases are kept one by one that a short run is a long one."""
    monkeypatch.setattr(pool, "NEWEST", 20)


@pytest.mark.thorough
def test_old_time_does_not_hang_on_the_order_of_streams(forgetful):
    """The pool's rows first, last, or in pieces between the tasks': the same pictures."""
    rows = list(entries_of(long_run().journal()))
    by_pool = sorted(rows, key=lambda row: row[0] != POOL)
    mixed = [row for pair in zip_longest(*(by_pool[k::2] for k in (0, 1))) for row in pair if row]
    digests = []
    for order in (rows, by_pool, sorted(rows, key=lambda row: row[0] == POOL), mixed):
        fold = Fold()
        for at in range(0, len(order), 77):
            fold.feed(order[at : at + 77])
        assert fold.pool.old
        digests.append([view(fold).digest() for view in (gantt.gantt, gantt.shares)])
    assert digests[1:] == digests[:-1]


def test_sums_of_a_long_run_are_those_of_all_its_leases(monkeypatch):
    """What sharing saved and cost does not change as leases become shares."""
    journal = long_run().journal()
    views = (gantt.gantt, gantt.shares)
    whole = [view(journal) for view in views]
    monkeypatch.setattr(pool, "NEWEST", 20)
    for before, view in zip(whole, views, strict=True):
        after = view(journal)
        for key, (_, value, _, _) in before.numbers.items():
            near = 0.05 if "colocated" in key else 0.02  # a model of who computes beside whom
            assert after.value(key) == (None if value is None else pytest.approx(value, rel=near, abs=near)), key


def test_what_is_old_is_drawn_in_every_form(forgetful):
    """Its shares stand above each other in SVG and figure; nothing of a lane is drawn outside of it."""
    view = gantt.gantt(long_run().journal())
    shares = view.columns["shares"]
    traces = [trace for trace in json.loads(view.figure().to_json())["data"] if trace["meta"] == "shares"]
    drawn = sum(sum(np.multiply(trace["x"], trace["width"])) for trace in traces) / 0.8
    assert drawn == pytest.approx(float(np.sum(shares["stop"] - shares["start"])))
    for trace in traces:
        assert np.all(np.array(trace["offset"]) >= -0.4 - 1e-5)
        assert np.all(np.add(trace["offset"], trace["width"]) <= 0.4 + 1e-5)
    header, buffers = view.payload()
    sent = decode(header, buffers)["shares"]
    assert sent["low"] == pytest.approx(shares["low"], abs=1e-4)
    few = replace(view, columns={**view.columns, "shares": {name: of[:0] for name, of in shares.items()}})
    assert len(re.findall("z", view.svg())) > len(re.findall("z", few.svg())) + 3


def test_late_bars_stay_sharp_beside_old_shares():
    """Times travel relative to the first of their table: shares from the run's beginning cost late bars nothing."""
    tables = {"shares": {"low": np.zeros(1)}, "bars": {"start": np.array([1e6, 1e6 + 0.001])}}
    bars = decode(*encode({}, tables))["bars"]
    assert bars["start"][1] - bars["start"][0] == pytest.approx(0.001, rel=0.02)


def test_what_theory_expects_of_a_long_run_takes_bounded_memory(monkeypatch):
    """Of 4,000 estimates, one a second, at most 64 stay, evenly: the means by time are those of all within 2 %."""
    monkeypatch.setattr(pool, "_MOST_LOADS", 64)
    bounds = 0.6 + 0.3 * np.sin(np.arange(4000) / 300)

    def records():
        *begun, returned, released = records_of(*(np.array([value]) for value in (0.0, 0.0, 4000.0, 0)))
        yield from begun
        for t, bound in enumerate(bounds.tolist()):
            yield POOL, SettingChanged(t=float(t), key="x", value=0, task=None)
            yield POOL, leasing.LoadEstimated(
                n_tasks=2, n_slots=1, d_mean=0.4, bound_frac=bound, expected_utilisation_frac=bound / 2,
                expected_inflation=1 + bound,
            )  # fmt: skip
        yield from (returned, released)

    fold = Fold(details=False)
    fold.feed(records())
    assert 32 <= len(fold.pool.loads) <= 64
    view = gantt.gantt(fold)
    for name, values in (("bound", bounds), ("expected", bounds / 2), ("expected_inflation", 1 + bounds)):
        assert view.value(name) == pytest.approx(values.mean(), rel=0.02)
