"""The parts of a round by table: when checkpoints and evaluations are due, counters, sums of leases, what is held."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_words import Master, fence, only, round_config

from drlnb.planning.leasing.hold import Batch, Hold
from drlnb.planning.registry import Planners
from drlnb.planning.round.boundary import _checkpoint_due, _evaluation_due, checkpoint_written, plan_evaluation
from drlnb.planning.round.collect import experience_arrived
from drlnb.planning.round.progress import Progress
from drlnb.planning.round.state import fresh_state
from drlnb.records import round as words
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.warmup import WarmupMeasured, WarmupPlanned

seconds = st.floats(0.0, 100.0)


def state_of(**config):
    return fresh_state(round_config(**config), Planners())


# ------------------------------------------------------------------ what is due at a boundary
@pytest.mark.parametrize(
    ("n_rounds", "age_s", "due"),
    [
        (10, 5.0, True), (10, 4.999, False), (20, 5.0, True), (9, 5.0, False), (11, 119.9, False), (11, 120.0, True),
        (10, 120.0, True), (1, 0.0, False), (0, 5.0, True),
    ],
)  # fmt: skip
def test_a_checkpoint_is_due_by_rounds_and_by_time(n_rounds, age_s, due):
    """Every 10 rounds but never within 5 s of the last one, and at least every 120 s."""
    state = state_of(checkpoint_every=10, checkpoint_min_s=5.0, checkpoint_max_s=120.0)
    state.progress.n_rounds, state.checkpoint_t = n_rounds, 100.0
    assert _checkpoint_due(state, 100.0 + age_s) == due


@pytest.mark.parametrize(
    ("cost_s", "min_s", "n_rounds", "age_s", "due"),
    [
        (0.25, 5.0, 10, 5.0, True), (2.0, 5.0, 10, 39.9, False), (2.0, 5.0, 10, 40.0, True),
        (2.0, 5.0, 11, 119.9, False), (2.0, 5.0, 11, 120.0, True), (30.0, 5.0, 10, 599.9, False),
        (30.0, 5.0, 11, 600.0, True), (2.0, 0.0, 10, 0.0, True),
    ],
)  # fmt: skip
def test_checkpoints_take_a_twentieth_of_the_time(cost_s, min_s, n_rounds, age_s, due):
    """What the last one took, a failed one included, spaces the next: 2 s are due after 40, 30 s not even after 120."""
    state = state_of(checkpoint_every=10, checkpoint_min_s=min_s, checkpoint_max_s=120.0)
    state.progress.n_rounds, state.checkpoint_t = n_rounds, 100.0
    checkpoint_written(state, words.CheckpointWritten(t=100.0, version=99, elapsed_s=cost_s, n_bytes=1, failure=""), [])
    assert _checkpoint_due(state, 100.0 + age_s) == due


@pytest.mark.parametrize(
    ("every", "n_timesteps", "next_at"),
    [(100, 0, 100), (100, 99, 100), (100, 100, 200), (100, 250, 300), (1, 7, 8), (0, 50, 0)],
)
def test_an_evaluation_is_planned_at_the_next_multiple(every, n_timesteps, next_at):
    """After what a checkpoint has already done; 0 plans none."""
    state = state_of(eval_freq=every)
    state.progress.n_timesteps = n_timesteps
    plan_evaluation(state)
    assert state.eval_at == next_at
    assert not _evaluation_due(state)


@given(st.integers(1, 50), st.lists(st.integers(1, 120), max_size=30))
def test_each_multiple_is_evaluated_once_however_large_rounds_are(every, rounds):
    """A round that passes several of them is evaluated once."""
    state, due = state_of(eval_freq=every), 0
    plan_evaluation(state)
    for n in rounds:
        before = state.progress.n_timesteps // every
        state.progress.n_timesteps += n
        passed = state.progress.n_timesteps // every > before
        assert _evaluation_due(state) == passed
        assert not _evaluation_due(state)
        due += passed
    assert due == len({n // every for n in sums(rounds)} - {0})


def sums(numbers):
    total, every = 0, []
    for n in numbers:
        total += n
        every.append(total)
    return every


# ------------------------------------------------------------------ settings and planners of a round
@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("leasing.hold", "last", "never"),
        ("batching.collect", "proportional", "half"),
        ("batching.planner", "ewma", "half"),
        ("distribution.plan", "chain", "ring"),
        ("placement.planner", "pack", "anywhere"),
    ],
)
def test_a_planner_is_changed_for_the_next_round_or_refused(key, good, bad):
    """The present round keeps its own; what is refused changes nothing, and names the planners that there are."""
    master = Master(streams=True, n_learners=2)
    master.at_version_1()
    decisions = {"leasing.hold": "hold", "batching.planner": "batching", "batching.collect": "collect"}
    decision = {**decisions, "distribution.plan": "distribution"}.get(key, "placement")
    before = master.machine.state.names[decision]
    refused = only(RequestRefused, master.set(key, bad))
    assert refused.subject == key
    assert f"{decision} planner must be one of" in refused.reason
    assert master.machine.state.next_names == {}
    assert master.set(key, good) == ()
    state = master.machine.state
    assert (state.names[decision], state.next_names) == (before, {decision: good})
    master.to_commit()
    master.completed()
    assert (state.names[decision], state.next_names) == (good, {})


@pytest.mark.parametrize("decision", ["hold", "batching", "collect", "swapping", "distribution", "warmup"])
def test_a_wrong_planner_is_refused_before_the_first_event(decision):
    """Its decision is named."""
    with pytest.raises(ValueError, match=r"planner must be one of|unknown|planner"):
        fresh_state(round_config() | {"planners": {decision: "no such"}}, Planners())


# ------------------------------------------------------------------ who sends what
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attempt": 2}, "attempt 2, now 1"),
        ({"round": 2}, "round 2 under version 1, now 1"),
        ({"version": 0}, "round 1 under version 0, now 1"),
        ({"round": 0, "version": 0}, "round 0 under version 0, now 1"),
    ],
)
def test_experience_of_another_time_is_freed(changes, reason):
    """The reason says what it was and what is wanted."""
    master = Master()
    master.at_version_1()
    state, out = master.machine.state, []
    values = {"collector": 0, "round": 1, "attempt": state.attempt, "version": 1} | changes
    event = words.ExperienceArrived(t=99.0, n_samples=8, n_bytes=1, key="late", collect_s=1.0, episodes=(), **values)
    experience_arrived(state, event, out)
    dropped = only(words.DropExperience, out)
    assert (dropped.key, dropped.collector, dropped.reason) == ("late", 0, reason)
    assert state.arrived == {}


# ------------------------------------------------------------------ counters
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), seconds, st.integers(0, 60), st.tuples(seconds, st.integers(1, 9))), max_size=5
        ),
        max_size=4,
    )
)
def test_counters_add_up_over_rounds(rounds):
    """Steps and rounds are counted, the slowest collector is on the way, the window keeps the latest episodes."""
    progress, every = Progress(), []
    for n, shares in enumerate(rounds, 1):
        progress.began(float(n))
        by_collector = {}
        for collector, collect_s, n_episodes, (reward, length) in shares:
            episodes = [(reward + k, length) for k in range(n_episodes)]
            progress.collected(collector, collect_s, episodes)
            by_collector[collector] = episodes
        assert progress.collect_s == max([share[1] for share in shares], default=None)
        progress.finished(10, 7)
        every += [each for collector in sorted(by_collector) for each in by_collector[collector]]
        assert (progress.n_rounds, progress.n_timesteps, progress.version) == (n, 10 * n, n + 1)
        assert progress.episodes == every[-7:]
        assert progress.arrived == {}


def test_lost_episodes_are_reported_once():
    """With the first metrics after the resume."""
    progress = Progress(episodes_lost=3)
    assert progress.metrics(1.0)["resume/episodes_lost"] == 3
    assert "resume/episodes_lost" not in progress.metrics(2.0)


@given(st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_the_parts_of_a_round_are_the_whole(collect_s, waited_s, update_s, rest_s):
    """What is neither acting, waiting nor computing is control."""
    progress = Progress(round_t=5.0, collect_s=collect_s, update_s=update_s, waited_s=waited_s)
    row = progress.metrics(5.0 + collect_s + waited_s + update_s + rest_s)
    parts = ("collect_s", "wait_lease_s", "update_s", "control_s")
    assert sum(row[f"round/{part}"] for part in parts) == pytest.approx(row["round/time_s"], abs=3e-6)
    assert row["round/control_s"] == pytest.approx(rest_s, abs=1e-6), "whole microseconds"
    assert all(value == round(value, 6) for name, value in row.items() if name.endswith("_s"))


# ------------------------------------------------------------------ sums over leases and starts
@given(st.lists(st.tuples(seconds, seconds, st.sampled_from([None, True, False])), max_size=8))
def test_leases_of_a_round_are_summed_and_then_forgotten(leases):
    """Mean wait, total hold, and the share of those of which the pool said that their slot holds the parameters."""
    progress, t = Progress(), 0.0
    for waited_s, held_s, resident in leases:
        progress.granted(t, waited_s=waited_s, resident=resident)
        t += held_s
        progress.ended(t)
        progress.ended(t + 50.0)  # it has ended
    row = close(progress, 1)
    known = [resident for _, _, resident in leases if resident is not None]
    assert ("lease/wait_s" in row) == bool(leases)
    if leases:
        assert row["lease/wait_s"] == pytest.approx(sum(lease[0] for lease in leases) / len(leases), abs=1e-6)
        assert row["lease/held_s"] == pytest.approx(sum(lease[1] for lease in leases), abs=1e-6)
    assert row.get("lease/resident_hit") == (pytest.approx(sum(known) / len(known)) if known else None)
    assert close(progress, 2) == {}


def close(progress, round_):
    """Finish a round; return what its metrics say of leases and starts, and begin the next one."""
    progress.n_rounds = round_
    metrics = progress.metrics(0.0)
    progress.began(0.0)
    return {name: value for name, value in metrics.items() if name.startswith(("lease/", "warmup/"))}


def planned(round_, collector, lead_s):
    return WarmupPlanned(round=round_, collector=collector, action="start", planner="saa", reason="", lead_s=lead_s)


def test_the_lead_of_a_round_is_that_of_the_latest_plans_for_it():
    """A plan that is taken back leaves none; plans for later rounds wait for theirs."""
    progress = Progress()
    for plan in (planned(1, 0, 4.0), planned(1, 1, 2.0), planned(1, 0, 3.0), planned(2, 0, 9.0)):
        progress.planned(plan)
    assert close(progress, 2) == {"warmup/lead_s": 2.5}
    progress.planned(planned(2, 0, None))
    assert close(progress, 3) == {}


def test_what_starts_came_to_is_reported_with_their_round():
    """A start that is on time is a hit."""
    progress = Progress()
    values = {"wait_s": 1.0, "idle_s": 0.5, "collectors": (0, 1)}
    progress.measured(WarmupMeasured(round=4, early_s=(1.0, 0.0), late_s=(0.0, 1.0), **values))
    assert close(progress, 3) == {}
    assert close(progress, 4) == {"warmup/hit": 0.5, "warmup/early_s": 0.5, "warmup/late_s": 0.5}
    assert close(progress, 4) == {}


# ------------------------------------------------------------------ the lease and its batches
def batch(i):
    return Batch(collector=i, key=f"k{i}", n_samples=8)


@given(st.lists(st.tuples(st.sampled_from(["add", "grant", "send", "stage", "keep", "lose", "yield", "return"]),
                          st.integers(0, 3)), max_size=40))  # fmt: skip
def test_batches_are_sent_staged_and_kept_in_that_order(steps):
    """Whatever happens to the lease: what is kept outlives it, what was only staged is sent again."""
    hold, token = Hold(streams=True), 0
    for op, i in steps:
        if op == "add":
            hold.add(batch(i))
        elif op == "grant" and not hold.held:
            token += 1
            hold.request("a")
            hold.granted(fence(token), ("s",), 0.0)
        elif op == "send":
            sent = hold.to_send()
            assert not sent or hold.held
            assert not hold.to_send(), "each batch is sent once a lease"
        elif op in {"stage", "keep"} and hold.held and hold.sent.get(i) and i not in hold.staged:
            hold.computed(i, 1.0, t=1.0, key=f"g{i}" if op == "keep" else "")
        elif op in {"lose", "yield", "return"} and hold.held:
            kept = dict(hold.done)
            {"lose": hold.lost, "yield": hold.yielded, "return": hold.returned}[op]()
            assert not hold.held
            assert hold.done == kept
            if op != "return":
                assert (hold.staged, hold.sent) == (set(), dict.fromkeys(kept, ""))
        assert (hold.fence is None) == (not hold.slots)
        assert hold.gathered <= hold.staged <= hold.sent.keys() <= hold.batches.keys()
        assert hold.done.keys() <= hold.batches.keys()
        view = hold.view(4)
        assert (view.n_arrived, view.held) == (len(hold.batches), hold.held)
        assert 0 <= view.n_queued <= view.n_arrived
    used = hold.next_round()
    assert len(used) == len({each.collector for each in used})
    assert not (hold.batches)
    assert not (hold.done)
    assert not (hold.sent)
    assert not (hold.staged)


def test_somebody_who_waited_makes_this_round_and_the_next_crowded():
    """Not the one after."""
    hold = Hold()
    crowded = []
    hold.granted(fence(1), "s", 0.5)
    for _ in range(3):
        crowded.append(hold.view(1).crowded)
        hold.next_round()
    assert crowded == [True, True, False]


@pytest.mark.parametrize(("times", "median"), [([], None), ([3.0], 3.0), ([1.0, 2.0], 2.0), ([5.0, 1.0, 3.0], 3.0)])
def test_the_median_of_two_is_the_upper_one(times, median):
    """A switch is rather held for dear than for cheap."""
    hold = Hold(switches=deque(times), computes=deque(times))
    assert (hold.view(1).switch_p50_s, hold.view(1).compute_p50_s) == (median, median)


def test_request_ids_never_repeat_in_an_attempt():
    """Also over lost leases and rounds."""
    hold, ids = Hold(), []
    for _ in range(3):
        ids.append(hold.request("task/1/0"))
        hold.lost()
        hold.next_round()
    assert ids == ["task/1/0-1", "task/1/0-2", "task/1/0-3"]
