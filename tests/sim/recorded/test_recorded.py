"""A run's journal, played once more: the same rule gives the same run, another rule what that rule gives."""

import functools
import itertools
from dataclasses import replace

import pytest

from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.leases import leases
from drlnb.sim.recorded import play
from drlnb.sim.recorded.play import load_of, pools_of, recorded_tasks, simulate_recorded, slots_of
from drlnb.sim.recorded.settings import Rules
from drlnb.sim.training.fleet import run_tasks

COSTS = Costs(collect_s=1.0, compute_s=0.5, finish_s=0.05, publish_s=0.01, collect_cv=0.5)


@functools.cache
def journal_of(hold, n_slots=1, n_rounds=30):
    pool, tasks = run_tasks(
        range(3), n_slots=n_slots, n_rounds=n_rounds, n_collectors=2, hold=hold, seed=5, costs=COSTS
    )
    return Journal(streams={h.stream.header.stream: h.stream for h in (pool.host, *[t.host for t in tasks])})


def played(journal, *, hold, n_slots=1):
    names = ["sim0", "sim1", "sim2"]
    recorded = load_of(pools_of(journal), names, slots_of(pools_of(journal)[0]))
    tasks = recorded_tasks(journal, recorded.rounds)
    rules = Rules(n_slots=n_slots, tasks={name: {"planners": {"hold": hold}} for name in names})
    now = simulate_recorded(tasks, rules, until_s=recorded.window_s)
    return recorded, now


def gangs(hold):
    """Return the journal of three tasks that ask for two of three slots together."""
    costs = replace(COSTS, compute_s=1.5, switch_s=0.3)
    pool, tasks = run_tasks(
        range(3), n_slots=3, n_rounds=30, n_collectors=4, hold=hold, seed=5, costs=costs, config={"n_learners": 2}
    )
    return Journal(streams={host.stream.header.stream: host.stream for host in (pool.host, *[t.host for t in tasks])})


@pytest.mark.parametrize("hold", ["round", "last", "yield"])
def test_leases_of_two_slots_are_played_as_they_were(hold):
    """Slots compute side by side, and each is held: rounds within 3 %, waits and held share within 5 %."""
    journal = gangs(hold)
    recorded, now = played(journal, hold=hold, n_slots=3)
    lent = list(leases(pools_of(journal)[0]))
    whole = sum(lease.held_s for lease in lent) / (3 * max(lease.ended_t for lease in lent))
    assert recorded.held_frac == pytest.approx(whole, rel=0.05)
    assert mean(now.round_s) == pytest.approx(mean(recorded.round_s), rel=0.03)
    assert mean(now.wait_s) == pytest.approx(mean(recorded.wait_s), rel=0.05)
    assert now.held_frac == pytest.approx(recorded.held_frac, rel=0.05)


def mean(values):
    return sum(values.values()) / len(values)


@pytest.mark.parametrize("hold", ["round", "last"])
def test_the_same_rule_gives_the_recorded_run(hold):
    """Round times within 5 %, waits and held share within 10 % of what was recorded."""
    recorded, now = played(journal_of(hold), hold=hold)
    assert mean(now.round_s) == pytest.approx(mean(recorded.round_s), rel=0.05)
    assert mean(now.wait_s) == pytest.approx(mean(recorded.wait_s), rel=0.1)
    assert now.held_frac == pytest.approx(recorded.held_frac, rel=0.1)


def test_a_recorded_budget_makes_nothing_longer_once_more():
    """What was recorded under a plan took as long as it did: played again it has no plan, whatever was configured."""
    journal = journal_of("round")
    budget = {"swapping": {"memory_budget_bytes": 1050 << 20}}
    streams = {
        name: replace(each, header=replace(each.header, config={**each.header.config, **budget}))
        if name.startswith("task-")
        else each
        for name, each in journal.streams.items()
    }
    assert played(Journal(streams=streams), hold="round")[1] == played(journal, hold="round")[1]


def test_another_rule_gives_what_that_rule_gives():
    """The journal of one hold rule foretells the other, whose own run is known here: within 10 %."""
    for hold, other in itertools.permutations(("round", "last")):
        _, foretold = played(journal_of(hold), hold=other)
        known = load_of(pools_of(journal_of(other)), ["sim0", "sim1", "sim2"], 1)
        assert mean(foretold.round_s) == pytest.approx(mean(known.round_s), rel=0.1)
        assert foretold.held_frac == pytest.approx(known.held_frac, rel=0.1)


def test_more_slots_shorten_the_waits():
    """On two slots the same tasks wait as they do in a run of their own with two."""
    recorded, foretold = played(journal_of("round"), hold="round", n_slots=2)
    known = load_of(pools_of(journal_of("round", n_slots=2)), ["sim0", "sim1", "sim2"], 2)
    assert mean(foretold.wait_s) < 0.5 * mean(recorded.wait_s)
    assert mean(foretold.round_s) == pytest.approx(mean(known.round_s), rel=0.1)


def test_too_little_is_refused():
    """Four rounds are no guide."""
    with pytest.raises(ValueError, match="sim0, sim1, sim2: fewer than 5 rounds while all tasks trained"):
        load_of(pools_of(journal_of("round", n_rounds=4)), ["sim0", "sim1", "sim2"], 1)
    with pytest.raises(ValueError, match="no pool of this run has lent a slot to each of nobody"):
        load_of(pools_of(journal_of("round")), ["nobody"], 1)


@pytest.mark.thorough
def test_of_a_long_run_the_newest_leases_count(monkeypatch):
    """With room for 20 leases a task, its newest 20: what is kept does not grow, and the end is what is foretold."""
    journal, names = journal_of("round", n_rounds=60), ["sim0", "sim1", "sim2"]
    whole, _ = played(journal, hold="round")
    monkeypatch.setattr(play, "MOST", 20)
    recorded, now = played(journal, hold="round")
    for name in names:
        mine = [one.grant.round for one in leases(pools_of(journal)[0]) if one.grant.task.rpartition("/")[2] == name]
        assert mine[-20] <= recorded.rounds[name][0] < recorded.rounds[name][1] <= mine[-1]
    assert recorded.window_s < 0.5 * whole.window_s
    assert all(len(task._rounds) <= 20 for task in recorded_tasks(journal, recorded.rounds))
    assert mean(now.round_s) == pytest.approx(mean(recorded.round_s), rel=0.1)
