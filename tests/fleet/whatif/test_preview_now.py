"""A preview starts from what is in force now, and answers for no setting that it cannot feel."""

import functools
import itertools
from dataclasses import fields, replace

import pytest

from drlnb.fleet.whatif.preview import preview
from drlnb.fleet.whatif.previewable import PREVIEWED, changed, refuse_unknown, rules_now
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.settings import SETTINGS
from drlnb.records.columns.leasing import LeaseGranted, RequestRefused, SlotClosed
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.recorded.play import pools_of, recorded_tasks, slots_of
from drlnb.sim.recorded.settings import pool_settings, priorities, task_rules
from drlnb.sim.training.fleet import run_tasks
from tests.sim.recorded.test_recorded_starts import respawned

TASKS = ["sim0", "sim1", "sim2"]
POOL = "broker-e1"
#: Unequal tasks; changing hands costs a slot more than a fifth of the first task's batch.
COSTS = {
    i: Costs(
        collect_s=1.0 + 0.2 * i, compute_s=0.5 + 0.1 * i, finish_s=0.05, publish_s=0.01, collect_cv=0.5, switch_s=0.2
    )
    for i in range(3)
}


@functools.cache
def journal_of(hold="yield", n_slots=1, streams=True):
    """Return the journal of three tasks that shared slots."""
    pool, tasks = run_tasks(
        range(3), n_slots=n_slots, n_rounds=8, n_collectors=2, hold=hold, seed=5, costs=COSTS, streams=streams
    )
    return Journal(streams={h.stream.header.stream: h.stream for h in (pool.host, *[t.host for t in tasks])})


def with_records(journal, stream, *records):
    """Return the journal with some more records at the end of a stream."""
    whole = journal.streams[stream]
    return Journal(streams={**journal.streams, stream: replace(whole, records=(*whole.records, *records))})


def with_change(journal, key, value, task=None, *refusals):
    """Return the journal with a change at its end: of the pool, or of the named tasks."""
    change = functools.partial(SettingChanged, t=1e6, key=key, value=value)
    if key in ("leasing.hold", "leasing.switch_limit_frac"):
        for name in [task] if task else TASKS:
            journal = with_records(journal, f"task-{name}-a1", change(task=name), *refusals)
        return journal
    return with_records(journal, POOL, change(task=task), *refusals)


def rules(journal):
    """Return what is in force at the end of a journal."""
    return rules_now(journal, pools_of(journal)[-1], dict(zip(TASKS, TASKS, strict=True)))


# ------------------------------------------------------------------ what is in force
@pytest.mark.parametrize(
    ("key", "value", "task", "hold"),
    [
        ("leasing.queue", "drr", None, "yield"),
        ("leasing.hold", "last", None, "round"),
        ("leasing.hold", "last", "sim1", "round"),
        ("leasing.switch_limit_frac", 9.0, None, "yield"),
        ("leasing.switch_limit_frac", 9.0, "sim0", "yield"),
        ("leasing.max_hold_s", 0.3, None, "yield"),
        ("task.priority", 3, "sim2", "last"),
    ],
)
def test_what_was_changed_is_where_a_preview_starts(key, value, task, hold):
    """After the change, now is what was foretold as then."""
    before = rules(journal_of(hold))
    foretold = changed(before, key, value, [task] if task else TASKS)
    now = rules(with_change(journal_of(hold), key, value, task))
    assert now != before
    assert now == foretold


def test_after_a_change_now_is_what_was_foretold_and_the_same_change_changes_nothing():
    """The figures, too, to the last bit."""
    foretold = preview(journal_of("round"), "leasing.hold", "last", "sim1", tasks=TASKS)
    after = with_change(journal_of("round"), "leasing.hold", "last", "sim1")
    again = preview(after, "leasing.hold", "last", "sim1", tasks=TASKS)
    assert again.speedup == 1.0
    assert again.now == again.then == foretold.then != foretold.now


def test_the_last_of_several_changes_is_in_force():
    """Changed and changed back: as it was."""
    twice = with_change(with_change(journal_of(), "leasing.queue", "drr"), "leasing.queue", "fifo")
    assert rules(twice) == rules(journal_of())


@pytest.mark.parametrize("key", ["leasing.queue", "leasing.hold", "task.priority"])
def test_what_was_refused_is_not_in_force(key):
    """The journal has the wish and the refusal: nothing has changed."""
    refusal = RequestRefused(subject=key, reason="no")
    wished = with_change(journal_of(), key, "nonsense", "sim0" if key == "task.priority" else None, refusal)
    assert rules(wished) == rules(journal_of())


def test_warm_up_starts_from_what_is_in_force_too():
    """Kept since the middle of the run: to keep collectors changes nothing."""
    journal = respawned(planner="cold")
    stream = journal.streams["task-sim0-a1"]
    middle = next(k for k, one in enumerate(stream.records) if getattr(one, "t", 0.0) > 50.0)
    kept = SettingChanged(t=stream.records[middle].t, key="warmup.planner", value="keep", task="sim0")
    records = (*stream.records[:middle], kept, *stream.records[middle:])
    changed = Journal(streams={**journal.streams, "task-sim0-a1": replace(stream, records=records)})
    found = preview(changed, "warmup.planner", "keep", tasks=["sim0"])
    assert found.now == found.then
    assert found.now.starts["sim0"][0] == 0.0 < found.now.starts["sim0"][1]
    cold = preview(changed, "warmup.planner", "cold", tasks=["sim0"])
    assert cold.now == found.now
    assert cold.then.starts["sim0"][0] > 0.0


def test_the_pools_rules_are_read_from_where_its_journal_began():
    """A stream that begins with a snapshot begins with what was changed before it, under names of this run alone."""
    pool = journal_of().streams[POOL]
    table = {
        "slots": {
            "n0/slot0": {"name": "n0/slot0", "node": "n0", "state": "free", "closed": ""},
            "n0/slot1": {"name": "n0/slot1", "node": "n0", "state": "granted", "closed": "drained by hand"},
            "n0/slot2": {"name": "n0/slot2", "node": "n0", "state": "failed", "closed": ""},
        },
        "tasks": {"r1/sim0": {"priority": 7}, "r2/sim0": {"priority": None}, "r2/sim1": {"priority": 2}},
    }
    header = replace(pool.header, snapshot={"leases": table})
    begun = replace(pool, header=header, records=())
    assert slots_of(begun) == 1
    names = {"r2/sim0": "sim0", "r2/sim1": "sim1"}
    assert priorities(begun, names) == {"sim1": 2}
    changed = SettingChanged(t=1.0, key="task.priority", value=1, task="r1/sim1")
    mine = SettingChanged(t=1.0, key="task.priority", value=-4, task="r2/sim0")
    assert priorities(replace(begun, records=(changed, mine)), names) == {"sim0": -4, "sim1": 2}


def test_a_pools_settings_come_with_its_snapshot():
    """What was changed before this run's stream was opened is in the table that it begins with."""
    from drlnb.planning.pool import PoolMachine

    machine = PoolMachine(LeasingSettings(), epoch=1)
    machine.handle(SettingChanged(t=0.0, key="leasing.queue", value="drr", task=None))
    pool = journal_of().streams[POOL]
    begun = replace(pool, header=replace(pool.header, config=machine.config, snapshot=machine.snapshot()), records=())
    assert begun.header.config["settings"]["queue"] == "fifo"
    assert pool_settings(begun).queue == "drr"


def test_a_slot_that_is_lent_no_more_does_not_count():
    """Closed by hand it is not in force, opened again it is."""
    pool = journal_of(n_slots=2).streams[POOL]
    closed = (*pool.records, SlotClosed(slot="n0/slot1", reason="drained by hand"))
    assert slots_of(replace(pool, records=closed)) == 1
    opened = (*closed, SettingChanged(t=1e6, key="slot.undrain", value="n0/slot1", task=None))
    assert slots_of(replace(pool, records=opened)) == 2


def test_what_a_person_changed_in_a_task_differs_from_its_configuration():
    """Hold rule, switch limit and warm-up by name; what is the algorithm's has no part in scheduling."""
    stream = journal_of().streams["task-sim0-a1"]
    wishes = {
        "leasing.hold": "last", "leasing.switch_limit_frac": 1, "warmup.planner": "keep", "warmup.rho": 2.0,
        "rl.gamma": 0.9,
    }  # fmt: skip
    changes = [SettingChanged(t=1e6, key=key, value=value, task="sim0") for key, value in wishes.items()]
    refused = SettingChanged(t=1e6, key="warmup.kappa", value=-1, task="sim0")
    answer = RequestRefused(subject="warmup.kappa", reason="no")
    assert task_rules(replace(stream, records=(*stream.records, *changes, refused, answer))) == {
        "planners": {"hold": "last", "warmup": "keep"},
        "warmup": {"rho": 2.0},
        "switch_limit_frac": 1.0,
    }


# ------------------------------------------------------------------ keys
@pytest.mark.parametrize("key", [key for key in SETTINGS if key.startswith("leasing.") and key not in PREVIEWED])
def test_a_key_of_leasing_that_nothing_can_feel_is_refused(key):
    """What is not played is refused with the reason in one line."""
    value = getattr(LeasingSettings(), key.removeprefix("leasing."))
    with pytest.raises(ConfigError, match=rf"^{key} cannot be tried out: it (is about|changes what is said)") as error:
        preview(journal_of(), key, value, tasks=TASKS)
    assert "\n" not in str(error.value)


#: Key -> arguments of a journal in which it matters, what was changed in it, a value, and whose.
MATTERS = {
    "slots": ((), (), 2, None),
    "task.priority": (("last",), (), 5, "sim0"),
    "leasing.hold": (("round",), (), "last", None),
    "leasing.queue": ((), (), "drr", None),
    "leasing.age_quantum_s": (
        ("last",), (("task.priority", 1, "sim0"), ("leasing.age_quantum_s", 0.01)), 30.0, None,
    ),
    "leasing.switch_limit_frac": ((), (), 9.0, None),
    "leasing.residency": (("yield", 2), (), False, None),
    "leasing.max_hold_s": ((), (("leasing.max_hold_factor", 0.0),), 2.0, None),
    "leasing.max_hold_factor": ((), (("leasing.max_hold_s", 0.3),), 1.0, None),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "key",
    sorted({key for key in PREVIEWED if not key.startswith(("warmup.", "swapping.", "batching."))}),
)
def test_every_key_that_is_played_can_matter(key):
    """Each of them changes the figures of some run; none is taken and forgotten."""
    of, changes, value, task = MATTERS[key]
    journal = functools.reduce(lambda journal, change: with_change(journal, *change), changes, journal_of(*of))
    tried = preview(journal, key, value, task, tasks=TASKS)
    assert tried.now != tried.then


def test_a_key_that_cannot_matter_to_these_tasks_is_refused():
    """One slot, one priority, no task that weighs a switch: said, and not answered with 1.00 x."""
    for journal, key, value, said in (
        (journal_of(), "leasing.residency", False, "there is one slot, so none can be preferred"),
        (journal_of(), "leasing.age_quantum_s", 5.0, "all tasks have the same priority, so each ages as fast as"),
        (with_change(journal_of(), "leasing.queue", "drr"), "leasing.age_quantum_s", 5.0, "the queue 'drr' does not"),
        (journal_of("round"), "leasing.switch_limit_frac", 9.0, "only tasks that hold by 'yield' and compute grad"),
        (journal_of(streams=False), "leasing.switch_limit_frac", 9.0, "only tasks that hold by 'yield' and compute"),
    ):
        with pytest.raises(ConfigError) as error:
            preview(journal, key, value, tasks=TASKS)
        assert str(error.value).startswith(f"{key} cannot be tried out: {said}")


def test_without_switches_no_slot_is_worth_a_preference():
    """Where changing hands has cost nothing, who gets which slot cannot be felt."""
    free = {i: replace(one, switch_s=0.0) for i, one in COSTS.items()}
    pool, tasks = run_tasks(range(3), n_slots=2, n_rounds=20, n_collectors=2, hold="yield", seed=5, costs=free)
    journal = Journal(streams={h.stream.header.stream: h.stream for h in (pool.host, *[t.host for t in tasks])})
    with pytest.raises(ConfigError, match="changing slots has cost these tasks no time"):
        preview(journal, "leasing.residency", False, tasks=TASKS)


@pytest.mark.thorough
def test_a_hold_limit_that_lets_nothing_end_is_said():
    """No round would end: that is the answer, not that the run should go on for longer."""
    journal = with_change(journal_of(), "leasing.max_hold_factor", 0.0)
    with pytest.raises(ConfigError, match=r"with 0\.01 a task would end fewer than 5 rounds in \d"):
        preview(journal, "leasing.max_hold_s", 0.01, tasks=TASKS)


def test_each_tasks_own_keys_may_name_a_task():
    """They are those that `run.set` takes for one task; the pool's name none."""
    for key, value in (("leasing.switch_limit_frac", 9.0), ("leasing.hold", "last"), ("task.priority", 2)):
        assert changed(rules(journal_of()), key, value, ["sim0"]) != changed(rules(journal_of()), key, value, TASKS)
        refuse_unknown(key, "sim0", TASKS)
    pools = [f"leasing.{one.name}" for one in fields(LeasingSettings)] + ["slots"]
    for key in set(pools) & set(PREVIEWED) - {"leasing.hold", "leasing.switch_limit_frac"}:
        with pytest.raises(ConfigError, match=f"{key} belongs to the pool, not to a task: leave task out"):
            preview(journal_of(), key, 1, "sim0", tasks=TASKS)


# ------------------------------------------------------------------ switches
def test_switches_are_told_apart_from_batches():
    """0.2 s for each first batch after another task's, in the journal of either rule; a batch lasts what it lasted."""
    for hold in ("yield", "round"):
        journal = journal_of(hold)
        granted = [one.task for one in journal.of(LeaseGranted)]
        assert sum(a != b for a, b in itertools.pairwise(granted)) > 20
        for i, task in enumerate(recorded_tasks(journal, dict.fromkeys(TASKS, (1, 20)))):
            assert task.costs.switch_s == pytest.approx(0.2, abs=1e-5)
            batches = [batch for k in range(1, 20) for batch in task.round(k).stage_s]
            assert sum(batches) / len(batches) == pytest.approx(COSTS[i].compute_s / 2, rel=0.1)
            assert task.round(1).compute_s == pytest.approx(task.round(1).stage_s, abs=1e-5)
    assert pools_of(journal)[0].header.stream == POOL


# ------------------------------------------------------------------ keys of warm-up
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("planner", "key", "value"),
    [
        ("cold", "planner", "saa"),
        ("saa", "rho", 100.0),
        ("saa", "kappa", 100.0),
        ("saa", "window", 9),
        ("patent", "filter_window", 10),
        ("saa", "min_rounds", 4),
        ("saa", "n_candidates", 2),
        ("saa", "collector_mode", "park"),
    ],
)
def test_every_key_of_warm_up_can_matter(planner, key, value):
    """Under a planner that looks at it, other starts or outcomes follow (start modes: test_preview.py)."""
    found = preview(respawned(planner=planner), f"warmup.{key}", value, tasks=["sim0"])
    assert found.now != found.then
