"""Pictures of runs full of faults agree with what a plain walk over the pool's rows adds up."""

from collections import Counter, defaultdict
from functools import lru_cache

import numpy as np
import pytest

from drlnb.records.base import Event
from drlnb.records.columns import leasing, placement
from drlnb.records.columns.warmup import CollectorReady
from drlnb.records.journal import Journal
from drlnb.records.round import MetricsRecorded, TaskOpened
from drlnb.sim.costs import Costs
from drlnb.sim.training.fleet import run_tasks
from drlnb.views import fleet, learning, rounds
from drlnb.views.leasing import gantt
from drlnb.views.warmup import waterfall
from tests.faults import seeded_faults
from tests.views.pictures import JOURNALS
from tests.views.pictures import journal as journal_of

#: Seed -> shape of the run: more tasks than slots, as many, fewer; one node and several.
SHAPES = {
    1: {"n_tasks": 3, "n_slots": 1, "n_nodes": 1, "hold": "round"},
    2: {"n_tasks": 3, "n_slots": 2, "n_nodes": 2, "hold": "yield"},
    3: {"n_tasks": 2, "n_slots": 3, "n_nodes": 3, "hold": "last"},
    4: {"n_tasks": 5, "n_slots": 2, "n_nodes": 2, "hold": "yield"},
}


@lru_cache
def _played(seed):
    shape = dict(SHAPES[seed])
    faults = seeded_faults(14, until_s=60.0, seed=seed)
    pool, tasks = run_tasks(
        range(shape.pop("n_tasks")), n_rounds=8, n_collectors=2, seed=seed, costs=Costs(), faults=faults, **shape
    )
    streams = (pool.host.stream, *[stream for task in tasks for stream in task.streams])
    return Journal(streams={stream.header.stream: stream for stream in streams})


class _Walk:
    """What the rows of a pool say, one after the other, with no help of the house's folds."""

    def __init__(self, journal):
        (stream,) = [s for s in journal.streams.values() if s.header.machine == "pool"]
        self.now = 0.0
        self.leases = {}  # fence -> [task, slots, from, to, computed, request]
        self.there = defaultdict(list)  # slot -> [from, to]
        self.nodes, self.waits, self.waiting = {}, [], {}
        for record in stream.records:
            if isinstance(record, Event):
                self.now = record.t
            self._row(record)
        self.end = max([self.now, *[e.t for s in journal.streams.values() for e in s.records if isinstance(e, Event)]])

    def _row(self, row):
        if isinstance(row, leasing.SlotAdded):
            self.nodes[row.slot] = row.node
            self._gone(row.slot)
            self.there[row.slot].append([self.now, None])
        elif isinstance(row, leasing.SlotFailed | placement.NodeLost):
            whole = isinstance(row, placement.NodeLost)
            for slot in [slot for slot, node in self.nodes.items() if node == row.node] if whole else [row.slot]:
                self._gone(slot)
        else:
            self._row_of_lease(row)

    def _row_of_lease(self, row):
        if isinstance(row, leasing.SlotRequested):
            if all(request != row.request_id for _, _, _, to, _, request in self.leases.values() if to is None):
                self.waiting.setdefault(row.request_id, (row.task, self.now))
        elif isinstance(row, leasing.RequestCancelled):
            self._answered(row.request_id)
        elif isinstance(row, leasing.RequestRefused):
            if self.waiting.get(row.subject, ("", self.now))[1] < self.now:
                self._answered(row.subject)
            self.waiting.pop(row.subject, None)  # refused at once: it has not waited
        elif isinstance(row, placement.TaskStopped):
            for request in [r for r, (task, _) in self.waiting.items() if task == row.task]:
                self._answered(request)
        elif isinstance(row, leasing.LeaseGranted):
            self._answered(row.request_id)
            self.leases[row.fence] = [row.task, row.slots, self.now, None, None, row.request_id]
        elif isinstance(row, leasing.LeaseReleased | leasing.LeaseExpired):
            self.leases[row.fence][3:5] = [
                self.now,
                sum(row.computed_s) if isinstance(row, leasing.LeaseReleased) else None,
            ]

    def _gone(self, slot):
        if self.there[slot] and self.there[slot][-1][1] is None:
            self.there[slot][-1][1] = self.now

    def _answered(self, request):
        if request in self.waiting:
            task, since = self.waiting.pop(request)
            self.waits.append((task, since, self.now))

    def slot_s(self, low, high):
        """Seconds that slots were there between two times."""
        spans = [span for of in self.there.values() for span in of]
        return sum(max(0.0, min(to or self.end, high) - max(low, since)) for since, to in spans)


@pytest.fixture(params=sorted(SHAPES))
def played(request):
    journal = _played(request.param)
    return journal, _Walk(journal)


def _value(view, key):
    return view.numbers[key][1]


def test_every_lease_is_one_bar(played):
    """Start, end and seconds computed of each ended lease, one bar per slot; none is open at the end."""
    journal, walk = played
    bars = gantt.gantt(journal).columns["bars"]
    drawn = sorted(zip(bars["start"].tolist(), bars["stop"].tolist(), strict=True))
    ended = sorted((since, to) for _, slots, since, to, *_ in walk.leases.values() for _ in slots)
    assert len(drawn) == len(ended) >= 20
    assert np.array(drawn) == pytest.approx(np.array(ended), abs=1e-6)
    assert not len(gantt.gantt(journal).columns["open"]["start"])


def test_two_bars_of_a_slot_never_overlap(played):
    """A slot is lent to one task at a time, whatever died."""
    bars = gantt.gantt(played[0]).columns["bars"]
    for lane in np.unique(bars["lane"]):
        mine = bars["lane"] == lane
        order = np.argsort(bars["start"][mine])
        start, stop = bars["start"][mine][order], bars["stop"][mine][order]
        assert (start[1:] >= stop[:-1] - 1e-9).all()


def test_shares_of_the_gantt(played):
    """Held seconds over seconds that slots were there; computed ones from the first grant to the last return."""
    journal, walk = played
    view = gantt.gantt(journal)
    leases = [(to - since, len(slots)) for _, slots, since, to, *_ in walk.leases.values()]
    held = sum(held_s * n for held_s, n in leases)
    assert _value(view, "held") == pytest.approx(min(1.0, held / walk.slot_s(0.0, walk.end)), rel=1e-6)
    first, last = min(row[2] for row in walk.leases.values()), max(row[3] for row in walk.leases.values())
    computed = sum(row[4] * len(row[1]) for row in walk.leases.values() if row[4] is not None)
    assert _value(view, "utilisation") == pytest.approx(min(1.0, computed / walk.slot_s(first, last)), rel=1e-6)


def test_fairness_is_of_held_seconds(played):
    """The most that a task held over the least."""
    journal, walk = played
    held = defaultdict(float)
    for task, slots, since, to, *_ in walk.leases.values():
        held[task] += (to - since) * len(slots)
    assert _value(gantt.gantt(journal), "fairness") == pytest.approx(max(held.values()) / min(held.values()), rel=1e-6)


def test_the_longest_wait(played):
    """Over all requests, granted or withdrawn."""
    journal, walk = played
    granted = max(row for row in [to - since for _, since, to in walk.waits])
    assert _value(gantt.gantt(journal), "longest_wait_s") <= granted + 1e-9
    waits = gantt.gantt(journal).columns["waits"]
    drawn = np.sort(waits["stop"] - waits["start"])
    assert drawn == pytest.approx(np.sort([to - since for _, since, to in walk.waits]), abs=1e-6)


def _rounds(journal, name):
    """Return a task's rounds as they stand at its end: those behind which a later attempt went back are gone."""
    attempts = [s for s in journal.streams.values() if s.header.config.get("task") == name]
    counted = {}
    for stream in sorted(attempts, key=lambda s: int(s.header.stream.rpartition("-a")[2])):
        for row in stream.records:
            if isinstance(row, TaskOpened):
                counted = {n: of for n, of in counted.items() if n <= row.n_rounds}
            elif isinstance(row, MetricsRecorded):
                counted[row.round] = row
    return counted


def test_rounds_that_were_lost_do_not_count(played):
    """However many attempts, each task ends with its eight rounds, and its curve has each step count once."""
    journal, _ = played
    names = sorted({s.header.config["task"] for s in journal.streams.values() if s.header.machine == "round"})
    counted = {name: _rounds(journal, name) for name in names}
    assert {len(of) for of in counted.values()} == {8}
    rows = fleet.tasks(journal).columns["rows"]
    assert rows["rounds"].tolist() == [8.0] * len(names)
    curves = learning.curves(journal, metric="round/time_s")
    points = curves.columns["points"]
    steps = sorted(row.n_timesteps for of in counted.values() for row in of.values())
    assert sorted(points["x"].tolist()) == steps
    values = sorted(row.metrics["round/time_s"] for of in counted.values() for row in of.values())
    assert sorted(points["y"].tolist()) == pytest.approx(values)


def test_attempts_are_counted(played):
    """A task's row has the number of its latest attempt: one more for each death of its master."""
    journal, _ = played
    latest = defaultdict(int)
    for stream in journal.streams.values():
        if stream.header.machine == "round":
            number = int(stream.header.stream.rpartition("-a")[2])
            latest[stream.header.config["task"]] = max(latest[stream.header.config["task"]], number)
    assert sorted(fleet.tasks(journal).columns["rows"]["attempt"].tolist()) == sorted(latest.values())
    assert max(latest.values()) > 1, "a master died in this run"


def test_the_mean_round_is_the_mean_of_the_rounds_that_count(played):
    """Part by part, from the rows of metrics; what is no part of them is control, and the shares come to one."""
    journal, _ = played
    view = rounds.anatomy(journal)
    for k, lane in enumerate(view.facts["lanes"]):
        of = [row.metrics for row in _rounds(journal, lane["label"].partition(" ")[2]).values()]
        whole = np.mean([row["round/time_s"] for row in of])
        parts = {key: np.mean([row[f"round/{key}_s"] for row in of]) for key in ("collect", "wait_lease", "update")}
        bars = {name: values[view.columns["bars"]["lane"] == k] for name, values in view.columns["bars"].items()}
        assert bars["mean"][:3] == pytest.approx(list(parts.values()))
        assert bars["mean"][3] + bars["mean"][4] == pytest.approx(
            max(np.mean([row["round/control_s"] for row in of]), bars["mean"][3])
        )
        assert bars["share"] == pytest.approx(bars["mean"] / whole)
        assert bars["start"][1:] == pytest.approx(bars["stop"][:-1])
        assert bars["stop"][-1] == pytest.approx(bars["mean"].sum())
        assert set(bars["count"].tolist()) == {len(of)}


def test_every_measured_start_is_in_the_histogram(played):
    """By node, mode and number at once; the median is that of all."""
    journal, _ = played
    starts = [row for s in journal.streams.values() for row in s.records if isinstance(row, CollectorReady)]
    view = waterfall.starts(journal)
    assert len(starts) > 5
    assert _value(view, "starts") == len(starts)
    assert _value(view, "p50") == pytest.approx(np.median([row.start_s for row in starts]))
    by_kind = Counter(f"node {row.node}, {row.start_mode}, {row.n_starting} at once" for row in starts)
    points = view.columns["points"]
    drawn = {line["label"]: points["y"][points["line"] == k].sum() for k, line in enumerate(view.facts["lines"])}
    assert {label: n for label, n in drawn.items() if label in by_kind} == by_kind


LANES = {
    "gantt": lambda journal: gantt.gantt(journal),
    "gantt, merged": lambda journal: gantt.gantt(journal, max_bars=6),
    "shares": gantt.shares,
    "waterfall": lambda journal: waterfall.waterfall(journal, n_rounds=100),
    "anatomy": rounds.anatomy,
}


@pytest.mark.parametrize("name", LANES)
def test_bars_of_a_lane_never_overlap(played, name):
    """Whatever a lane is: a slot, a ghost's device, a collector, a task; and no bar ends before it begins."""
    view = LANES[name](played[0])
    for table in ("bars", "work"):
        bars = view.columns.get(table)
        if bars is None:
            continue
        assert (bars["stop"] >= bars["start"]).all()
        assert set(bars["lane"].tolist()) <= set(range(len(view.facts["lanes"])))
        for lane in np.unique(bars["lane"]):
            start, stop = (np.sort(bars[edge][bars["lane"] == lane]) for edge in ("start", "stop"))
            assert (start[1:] >= stop[:-1] - 1e-6).all(), lane


@pytest.mark.parametrize("of", [*SHAPES, *JOURNALS])
def test_a_collector_is_always_in_one_phase(of):
    """Its bars leave a gap at most before it begins to act again; what each lasts is what it is said to last."""
    view = waterfall.waterfall(_played(of) if of in SHAPES else journal_of(of), n_rounds=100)
    bars, acts = view.columns["bars"], [series["name"] for series in view.facts["series"]].index("acts")
    assert (len(bars["start"]) > 40) != (of == "fit"), "of supervised work nobody acts"
    assert bars["held"] == pytest.approx(bars["stop"] - bars["start"])
    for lane in np.unique(bars["lane"]):
        mine = np.flatnonzero(bars["lane"] == lane)
        mine = mine[np.argsort(bars["start"][mine], kind="stable")]
        rests = bars["series"][mine[1:]] != acts
        assert bars["start"][mine[1:]][rests] == pytest.approx(bars["stop"][mine[:-1]][rests], abs=1e-6), lane


def test_fewer_bars_keep_every_tasks_seconds(played):
    """With a handful of bars, each lane has what each task held of it, in bars and in shares."""
    journal, _ = played
    few, all_ = (gantt.gantt(journal, max_bars=n).columns for n in (6, 3000))
    assert len(few["bars"]["start"]) <= 6 < len(all_["bars"]["start"])
    assert not len(all_["shares"]["start"])
    for lane, series in {*zip(all_["bars"]["lane"].tolist(), all_["bars"]["series"].tolist(), strict=True)}:
        held = [
            sum((of["stop"] - of["start"])[(of["lane"] == lane) & (of["series"] == series)].sum() for of in tables)
            for tables in ((few["bars"], few["shares"]), (all_["bars"],))
        ]
        assert held[0] == pytest.approx(held[1])
