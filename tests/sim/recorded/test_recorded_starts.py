"""A run's warm-up decided again: the same setting gives the same, another one what a run with it gives."""

import functools

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import CollectorLost, CollectorReady, WarmupPlanned
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream, StreamOpened
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.recorded import starts
from drlnb.sim.recorded.starts import RecordedStarts
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup

WORK = WarmupWorkload(n_rounds=40, n_workers=3, seed=3)


@functools.cache
def journal_of(planner, mode="respawn"):
    """Return the journal of a run of the work under a planner."""
    return simulate_warmup(WORK, planner, settings={"collector_mode": mode}).stream


def by_hand(gaps, *, start_s=1.0, n=2, mode="spawn", planner="cold", extra=(), **settings):
    """Return a task's rounds: sent 2 s after they began, parameters a gap later, collectors `start_s` after those."""
    settings = {"collector_mode": "respawn", "start_mode": mode, "planner": planner, **settings}
    config = {"task": "a", "env_shares": [[i] for i in range(n)], "settings": settings, "can_respawn": True}
    events = [words.PlacementReceived(t=0.0, collector_nodes=("n0",) * n)]
    events += [ready(0.0, i, 0.0, mode="first", round=0) for i in range(n)]
    events.append(HostCompleted(t=0.0, host="n0", version=1, n_bytes=100, publish_s=0.0))
    t = 0.0
    for k, gap in enumerate(gaps, start=1):
        events += [sent(t + 2.0, i, k) for i in range(n)]
        t += 2.0 + gap
        events.append(HostCompleted(t=t, host="n0", version=k + 1, n_bytes=100, publish_s=0.0))
        if mode != "none":
            t += start_s
            events += [ready(t, i, start_s, mode=mode, round=k + 1) for i in range(n)]
    events = sorted([*events, *extra], key=lambda one: one.t)
    header = StreamOpened(stream="a", machine="warmup", config=config, origin="measured", version="0")
    return RecordedStarts(Stream(header=header, records=tuple(events), torn=False, source="here"))


def ready(t, i, start_s, *, mode, round):
    return CollectorReady(t=t, collector=i, node="n0", start_s=start_s, n_starting=1, start_mode=mode, round=round)


def sent(t, i, k):
    return words.ExperienceArrived(
        t=t, collector=i, round=k, attempt=1, version=k, n_samples=8, n_bytes=1, key=f"{k}/{i}", collect_s=2.0,
        episodes=(),
    )  # fmt: skip


# ------------------------------------------------------------------ by hand
def test_starts_are_held_against_the_recorded_gaps():
    """Gaps of 6 s, starts of 1: cold waits 1 s; saa, from the ninth round on, starts after 5 s and is in time."""
    rounds = by_hand([6.0] * 12).decided("warmup.planner", "saa")
    assert [(one.action, one.start_after_s, one.wait_s, one.idle_s) for one in rounds] == (
        [("cold", None, 1.0, 0.0)] * 8 + [("start", 5.0, 0.0, 0.0)] * 4
    )
    assert rounds[0].reason.startswith("0 rounds of this regime known, 8 needed")
    assert (rounds[-1].planner, rounds[-1].lead_s) == ("saa", 1.0)
    assert rounds[-1].reason == "saves 1 s +- 0 s a round over 11 rounds"


@pytest.mark.parametrize(
    ("rho", "after", "outcomes"),
    [(1.0, 5.0, {(1.0, 0.0), (0.0, 0.0)}), (10.0, 3.0, {(0.0, 0.0), (0.0, 2.0)})],
)
def test_prices_decide_between_late_and_idle(rho, after, outcomes):
    """Gaps of 4 and 6 s in turn, starts of 1: u = 5 waits 1 s every second round (it starts at 4), u = 3 is idle 2."""
    rounds = by_hand([4.0, 6.0] * 8, planner="saa", min_rounds=8).decided("warmup.rho", rho)
    assert {one.start_after_s for one in rounds[8:]} == {after}
    assert {(one.wait_s, one.idle_s) for one in rounds[8:]} == outcomes


def test_who_is_kept_is_idle_for_the_gap():
    """No wait, 6 s idle."""
    kept = by_hand([6.0] * 10).decided("warmup.planner", "keep")
    assert {(one.action, one.wait_s, one.idle_s) for one in kept} == {("keep", 0.0, 6.0)}


def test_who_rests_waits_for_nothing():
    """Nothing is started: no wait, and nobody is idle."""
    rounds = by_hand([6.0] * 10).decided("warmup.collector_mode", "park")
    assert {(one.action, one.wait_s, one.idle_s) for one in rounds} == {("cold", 0.0, 0.0)}


def test_fewer_rounds_are_enough_where_fewer_are_asked_for():
    """Planned from the fifth round on instead of the ninth."""
    rounds = by_hand([6.0] * 10, planner="saa").decided("warmup.min_rounds", 4)
    assert [one.action for one in rounds] == ["cold"] * 4 + ["start"] * 6


def test_a_persons_own_change_of_the_key_is_passed_over():
    """In the run the planner became keep in the sixth round; if it were saa, it is saa all the time."""
    change = SettingChanged(t=40.0, key="warmup.planner", value="keep", task="a")
    recorded = by_hand([6.0] * 12, extra=[change])
    assert [one.action for one in recorded.decided()] == ["cold"] * 5 + ["keep"] * 7
    assert [one.action for one in recorded.decided("warmup.planner", "saa")] == ["cold"] * 8 + ["start"] * 4


def test_a_disturbed_round_has_a_plan_but_no_outcome():
    """A collector that is lost between sending and the parameters: the round says nothing about starts."""
    lost = CollectorLost(t=2.5, collector=1, node="n0", reason="killed", detail="")
    back = ready(3.0, 1, 0.25, mode="spawn", round=0)
    rounds = by_hand([6.0] * 10, extra=[lost, back]).decided("warmup.planner", "saa")
    assert (rounds[0].action, rounds[0].wait_s, rounds[0].idle_s) == ("cold", None, None)
    assert (rounds[1].wait_s, rounds[1].idle_s) == (1.0, 0.0)


# ------------------------------------------------------------------ starts of another kind
def test_starts_of_another_kind_must_be_in_the_journal():
    """Nothing is invented: what is missing, where, and what there is."""
    with pytest.raises(ValueError, match="no start by zygote on node n0 is in the journal, but for those that waited "):
        by_hand([6.0] * 10).decided("warmup.start_mode", "zygote")
    with pytest.raises(ValueError, match="there are: 2 by first on n0, 20 by spawn on n0"):
        by_hand([6.0] * 10).decided("warmup.start_mode", "zygote")


def test_starts_of_another_kind_are_taken_from_where_they_were_made():
    """Parked until now, collectors were spawned once, in .5 and .75 s: those are what a start is taken to last."""
    began = [ready(0.25, i, s, mode="spawn", round=0) for i, s in ((0, 0.5), (1, 0.75))]
    recorded = by_hand([6.0] * 10, mode="none", extra=began, collector_mode="park", start_mode="spawn")
    assert {(one.wait_s, one.idle_s) for one in recorded.decided()} == {(0.0, 0.0)}
    rounds = recorded.decided("warmup.collector_mode", "respawn")
    assert {one.wait_s for one in rounds} == {0.75}
    forked = by_hand([6.0] * 10, mode="none", extra=began, collector_mode="park", start_mode="zygote")
    with pytest.raises(ValueError, match="no start by zygote on node n0"):
        forked.decided("warmup.collector_mode", "respawn")


def test_a_value_that_the_task_cannot_have_is_refused():
    """Fewer rounds than the plan needs: said by the machine that would be asked."""
    with pytest.raises(ValueError, match=r"min_rounds must be <= window and filter_window \(4\), got 8"):
        by_hand([6.0] * 10).decided("warmup.window", 4)


# ------------------------------------------------------------------ against runs under the other setting
@pytest.mark.parametrize("planner", ["saa", "keep"])
def test_another_rule_gives_what_that_rule_gives(planner):
    """From a cold run's journal: round by round the waits and idle times of a run under the other planner."""
    foretold = RecordedStarts(journal_of("cold")).decided("warmup.planner", planner)
    own = RecordedStarts(journal_of(planner))
    assert len(foretold) == 40
    for one in foretold:
        known = own.measured[one.round]
        assert (one.wait_s, one.idle_s) == pytest.approx((known.wait_s, known.idle_s), abs=3e-6)


@pytest.mark.parametrize("planner", ["saa", "patent"])
def test_as_things_are_nothing_changes(planner):
    """Plans, reasons and outcomes are those of the run."""
    recorded = RecordedStarts(journal_of(planner))
    for one in recorded.decided():
        known = recorded.measured[one.round]
        assert (one.wait_s, one.idle_s) == pytest.approx((known.wait_s, known.idle_s), abs=3e-6)


@functools.cache
def trained(**warmup):
    """Return the journal of a whole simulated task on one slot, its collectors ended between rounds."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0",), settings=LeasingSettings())
    costs = Costs(collect_s=1.0, compute_s=4.0, finish_s=0.05, publish_s=0.01, collect_cv=0.2, start_s=0.5)
    config = {
        "task": "sim0", "n_envs": 2, "n_collectors": 2, "n_steps": 8, "total_timesteps": 30 * 16, "can_respawn": True,
        "warmup": {"collector_mode": "respawn", **warmup},
    }  # fmt: skip
    task = Task(clock, pool, Workload(costs, seed=1, task=0, n_collectors=2), config=config, node="n0", validate=True)
    task.open()
    clock.run()
    assert replay(task.host.stream).difference is None
    return task.host.stream


def test_a_whole_tasks_journal_is_judged_as_it_was():
    """The round machine passes on what it passed on in the run; cold waits for a start, the run's planner for less."""
    stream = trained()
    recorded = RecordedStarts(stream)
    now = recorded.decided()
    assert [one.round for one in now] == list(range(1, 31))
    assert any(one.action == "start" for one in now)
    cold = recorded.decided("warmup.planner", "cold")
    assert [one.action for one in cold] == ["cold"] * 29 + ["end"]
    assert (cold[-1].wait_s, now[-1].wait_s) == (None, None), "nothing is started after the end"
    assert all(one.wait_s == pytest.approx(0.5, rel=0.1) for one in cold[:-1])
    assert sum(one.wait_s for one in now[8:-1]) < 0.5 * sum(one.wait_s for one in cold[8:-1])


@pytest.mark.thorough
@pytest.mark.parametrize("n", [150, 400])
@pytest.mark.parametrize("key", ["", "warmup.planner"])
def test_of_a_long_run_the_newest_events_are_decided_again(monkeypatch, n, key):
    """From wherever it begins: the plans are those of the whole run, and what was changed before counts as well."""
    stream = disturbed("saa")
    whole = RecordedStarts(stream).decided(key, "saa" if key else None, settled=True)
    monkeypatch.setattr(starts, "_EVENTS", n)
    recorded = RecordedStarts(stream)
    assert [change.value for change in recorded.changes] == [4.0]
    late = recorded.decided(key, "saa" if key else None, settled=True)
    assert len(recorded._events) <= n < sum(1 for _ in stream.answers())
    assert 5 < len(late) < len(whole)
    tail = {one.round: one.wait_s for one in whole}
    assert [(one.round, one.wait_s) for one in late[2:]] == [(one.round, tail[one.round]) for one in late[2:]]
    assert (late[-1].round, late[-1].action) == (whole[-1].round, whole[-1].action)


@functools.cache
def disturbed(planner):
    """Return the journal of a task that loses a collector, an executor and a node, pauses, and is stopped."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0", "n1"), settings=LeasingSettings())
    costs = Costs(collect_s=1.0, compute_s=4.0, finish_s=0.05, publish_s=0.01, collect_cv=0.2, start_s=0.5)
    config = {
        "task": "sim0", "n_envs": 4, "n_collectors": 4, "n_steps": 8, "total_timesteps": 60 * 32, "can_respawn": True,
        "planners": {"warmup": planner}, "warmup": {"collector_mode": "respawn", "min_rounds": 4},
    }  # fmt: skip
    task = Task(clock, pool, Workload(costs, seed=1, task=0, n_collectors=4), config=config, node="n0", validate=True)
    for t, call in (
        (31.0, lambda: task.kill_collector(1)),
        (63.5, lambda: pool.kill_executor("n0/slot0")),
        (92.3, lambda: pool.kill_node("n1")),
        (112.3, lambda: pool.add_node("n1")),
        (150.0, lambda: task.host.feed(words.PauseAsked)),
        (171.0, lambda: task.host.feed(words.ResumeAsked)),
        (200.0, lambda: task.host.feed(SettingChanged, key="warmup.rho", value=4.0, task="sim0")),
        (263.0, lambda: task.host.feed(words.StopAsked, reason="enough")),
    ):
        clock.after(t, call)
    task.open()
    clock.run()
    return task.host.stream


@pytest.mark.thorough
@pytest.mark.parametrize("planner", ["saa", "patent"])
def test_losses_pauses_and_stops_are_decided_as_they_were(planner):
    """Whatever happens to a run, as things are the same is planned in each round, for the same reason."""
    stream = disturbed(planner)
    first = {}
    for one in stream.of(WarmupPlanned):
        first.setdefault(one.round, one)
    again = RecordedStarts(stream).decided()
    assert [one.round for one in again] == sorted(first)
    assert sum(one.action == "start" for one in again) > 15
    said = [(one.round, one.action, one.planner) for one in again]
    assert said == [(one.round, one.action, one.planner) for _, one in sorted(first.items())]
    assert sum(one.wait_s is None for one in again) < 20


@pytest.mark.thorough
@pytest.mark.parametrize(("key", "value"), [("warmup.planner", "cold"), ("warmup.planner", "keep")])
def test_a_disturbed_run_can_be_tried_out_too(key, value):
    """Losses and pauses happen to collectors that are started otherwise, too."""
    rounds = RecordedStarts(disturbed("saa")).decided(key, value)
    actions = {one.action for one in rounds}
    assert {"keep" if value == "keep" else "cold"} <= actions <= {"keep", "cold", "end"}
    known = [one for one in rounds if one.wait_s is not None]
    assert len(known) > 30
    assert all(one.wait_s > 0.4 for one in known if one.action == "cold" and key == "warmup.planner")
