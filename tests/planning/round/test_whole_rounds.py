"""One task's rounds in good order, from nothing to the end."""

import pytest
from round_words import Master, fence, kinds, of, only

from drlnb.planning.round.machine import ROUND_DEFAULTS, RoundMachine
from drlnb.records import round as words
from drlnb.records.columns.batching import BatchPlanned, RoundClosed
from drlnb.records.columns.distribution import DistributionPlanned, MeasureLink, SendParameters, VersionPublished
from drlnb.records.columns.leasing import HoldPlanned, RequestRefused, SlotRequested
from drlnb.records.columns.swapping import SwapPlanned
from drlnb.records.columns.warmup import StartCollector, WakeCollector, WarmupPlanned
from drlnb.records.errors import InvalidTransition
from tests.matches import like


def test_a_new_task_asks_for_a_slot_to_make_version_1():
    """The initial parameters are made under a lease, while collectors start."""
    master = Master()
    assert master.opened() == (
        words.PhaseEntered(phase="starting", round=0),
        HoldPlanned(round=0, action="request", planner="round", reason="initial parameters"),
        words.RequestSlot(request_id="a/1/0-1", round=0),
        words.PhaseEntered(phase="waiting", round=0),
    )
    assert master.placed("n0", "n1") == (
        like(StartCollector, collector=0, node="n0", env_indices=(0,), after_s=0.0),
        like(StartCollector, collector=1, node="n1", env_indices=(1,), after_s=0.0),
    )
    assert master.granted() == (
        words.PhaseEntered(phase="computing", round=0),
        words.InitialiseParameters(fence=fence(1), slot="n0/cpu0"),
    )
    assert master.made() == (words.CommitParameters(version=1, round=0, fence=fence(1), key="v1"),)
    out = master.committed()
    assert out[:2] == (
        words.ReturnLease(fence=fence(1), clean=True, computed_s=(0.25,)),
        words.PhaseEntered(phase="publishing", round=1),
    )
    assert only(DistributionPlanned, out) == like(DistributionPlanned, version=1, hosts=("n0", "n1"), n_bytes=100)
    assert only(SendParameters, out).routes == (((-1, 0),), ((-1, 1),))


def test_a_collector_acts_as_soon_as_it_is_up_and_its_host_holds_the_version():
    """Neither readiness nor the parameters alone wake a collector; whichever comes last does."""
    master = Master()
    master.opened()
    master.placed("n0", "n1")
    assert master.ready(0, "n0") == ()
    master.granted()
    master.made()
    master.committed()
    assert master.completed("n0") == (
        BatchPlanned(round=1, planner="equal", collectors=(0, 1), n_steps=(8, 8)),
        like(WakeCollector, collector=0, node="n0", round=1, version=1, n_steps=8),
        words.PhaseEntered(phase="collecting", round=1),
    )
    assert master.completed("n1") == (
        VersionPublished(version=1, publish_s=2.0, n_hosts=2),
        MeasureLink(hosts=("n0", "n1")),
    )
    assert master.ready(1, "n1") == (like(WakeCollector, collector=1, node="n1", version=1),)


def test_a_whole_round_with_two_collectors():
    """Arrival, request, grant, gradients in arrival order, parameters, commit under the lease, return, publish."""
    master = Master()
    master.at_version_1()
    assert master.phase == "collecting"
    assert master.arrived(1, episodes=((3.0, 5),)) == (
        like(WarmupPlanned, round=1, collector=1, action="cold", planner="saa"),
        like(HoldPlanned, round=1, action="request", reason="the round's first batch is here"),
        words.RequestSlot(request_id="a/1/1-2", round=1),
    )
    out = master.granted(waited_s=1.5)
    assert out == (
        SwapPlanned(round=1, planner="none", plan_key=None),
        like(words.ComputeGradient, collector=1, round=1, key="r1/c1", fence=fence(2), version=1, after_timesteps=16),
    )
    assert master.arrived(0, collect_s=3.0) == (
        like(WarmupPlanned, collector=0),
        RoundClosed(round=1, n_samples=16),
        like(words.ComputeGradient, collector=0, key="r1/c0"),
        words.PhaseEntered(phase="computing", round=1),
    )
    assert master.computed(1) == ()
    finish = words.FinishRound(round=1, fence=fence(2), slot="n0/cpu0", collectors=(0, 1))
    assert master.computed(0) == (finish,)
    assert master.made(metrics={"train/loss": 0.125}) == (
        words.CommitParameters(version=2, round=1, fence=fence(2), key="v2"),
    )
    out = master.committed()
    assert kinds(out) == [
        "ReturnLease", "MetricsRecorded", "DropExperience", "DropExperience", "PhaseEntered", "DistributionPlanned",
        "SendParameters", "SetDeadline",
    ]  # fmt: skip
    assert out[0] == words.ReturnLease(fence=fence(2), clean=True, computed_s=(1.25,))
    assert [(drop.key, drop.reason) for drop in of(words.DropExperience, out)] == [("r1/c1", "used"), ("r1/c0", "used")]
    row = only(words.MetricsRecorded, out)
    assert (row.round, row.n_timesteps) == (1, 16)
    assert row.metrics["train/loss"] == 0.125
    assert row.metrics["rollout/ep_rew_mean"] == 3.0
    assert row.metrics["round/collect_s"] == 3.0
    assert row.metrics["round/wait_lease_s"] == 1.5
    assert row.metrics["round/update_s"] == 1.25
    assert [wake.collector for wake in of(WakeCollector, master.completed())] == [0, 1]


def test_the_slot_is_returned_before_the_first_chunk_leaves():
    """Nobody waits for a slot while parameters travel (the leasing patent, paragraph 6)."""
    master = Master()
    master.at_version_1()
    names = kinds(master.to_commit())
    assert names.index("ReturnLease") < names.index("SendParameters")


def test_last_asks_only_when_everything_is_there():
    """The hold planner `last` waits, in words, until all collectors have sent."""
    master = Master(hold="last")
    master.at_version_1()
    assert master.arrived(0)[-1] == HoldPlanned(
        round=1, action="wait", planner="last", reason="1 of 2 collectors have sent"
    )
    out = master.arrived(1)
    assert kinds(out) == ["WarmupPlanned", "RoundClosed", "HoldPlanned", "RequestSlot", "PhaseEntered"]
    assert out[-1].phase == "waiting"
    assert [gradient.collector for gradient in of(words.ComputeGradient, master.granted())] == [0, 1]


def test_unequal_shares_are_counted_by_their_samples():
    """3 environments on 2 collectors make 16 and 8 samples: schedules are read at 24."""
    master = Master(n_envs=3)
    master.at_version_1()
    assert [member.env_indices for member in master.machine.state.crew.members.values()] == [(0, 1), (2,)]
    for i, n in ((0, 16), (1, 8)):
        master.feed(
            words.ExperienceArrived, collector=i, round=1, attempt=1, version=1, n_samples=n, n_bytes=1, key=f"k{i}",
            collect_s=1.0, episodes=(),
        )  # fmt: skip
    sent = of(words.ComputeGradient, master.granted())
    assert [batch.after_timesteps for batch in sent] == [24, 24]
    master.computed(0), master.computed(1), master.made()
    assert only(words.MetricsRecorded, master.committed()).n_timesteps == 24


def test_the_last_round_is_followed_by_checkpoint_evaluation_and_the_end():
    """Parameters go out once more for the evaluation; the end says how many steps were made."""
    master = Master(n_rounds=1)
    master.at_version_1()
    out = master.to_commit()
    assert only(words.WriteCheckpoint, out) == like(
        words.WriteCheckpoint, version=2, n_rounds=1, n_timesteps=16, reason="end"
    )
    assert of(SendParameters, out)
    out = master.completed()
    assert out[-1] == like(words.Evaluate, collector=0, node="n0", version=2, n_episodes=20)
    assert master.phase == "evaluating"
    assert not of(WakeCollector, master.gathered())
    assert master.written() == ()
    assert master.evaluated() == (
        words.PhaseEntered(phase="ended", round=2),
        words.EndTask(state="done", reason="16 steps made"),
    )


def test_the_end_waits_for_the_slower_of_checkpoint_and_evaluation():
    """An evaluation that is done first does not end the task before its checkpoint is on disk."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    assert master.evaluated() == ()
    assert only(words.EndTask, master.written()).state == "done"


def test_an_evaluation_that_fails_fails_the_task():
    """The reason names the evaluation."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.written()
    assert only(words.EndTask, master.evaluated(failure="no such env")).reason == (
        "the final evaluation failed: no such env"
    )


def test_a_task_goes_on_from_a_checkpoint():
    """With parameters at hand no slot is asked for; the first wake is for the checkpoint's version."""
    master = Master()
    assert master.opened(attempt=2, version=3, elapsed_s=50.0, episodes=((1.0, 2),)) == (
        words.PhaseEntered(phase="starting", round=3),
    )
    out = master.placed("n0", "n0")
    assert only(DistributionPlanned, out).version == 3
    master.ready(0)
    master.ready(1)
    assert [wake.version for wake in of(WakeCollector, master.completed())] == [3, 3]
    assert only(words.DropExperience, master.arrived(0, attempt=1)).reason == "attempt 1, now 2"
    assert master.arrived(0, attempt=2)[-1] == words.RequestSlot(request_id="a/2/3-1", round=3)


def test_a_checkpoint_of_the_last_round_is_only_evaluated():
    """A task that had made all its steps ends after an evaluation, with no round and no other checkpoint."""
    master = Master(n_rounds=2)
    master.opened(version=3)
    master.placed("n0", "n0")
    assert master.completed() == (like(VersionPublished, version=3), MeasureLink(hosts=("n0",)))
    assert master.ready(1)[-1] == like(words.Evaluate, collector=1, node="n0", version=3, n_episodes=20)
    assert master.evaluated()[-1] == words.EndTask(state="done", reason="32 steps made")
    assert not of(words.WriteCheckpoint, master.records)
    assert not of(WakeCollector, master.records)


def test_a_grant_that_comes_after_the_end_is_returned():
    """The slot does not stay with a task that is over; everything else is ignored."""
    master = Master()
    master.opened()
    master.say(words.TaskFailed, reason="broken", detail="")
    assert master.granted(request_id="a/1/0-1") == (words.ReturnLease(fence=fence(1), clean=True, computed_s=(0.0,)),)
    assert master.ready(0) == ()
    assert master.deadline("any") == ()


def test_a_grant_of_another_request_is_returned():
    """A grant for a request that is not open any more goes back at once; ours is awaited further."""
    master = Master()
    master.opened()
    assert master.granted(token=9, request_id="a/1/0-0") == (like(words.ReturnLease, fence=fence(9), clean=True),)
    assert of(words.InitialiseParameters, master.granted(token=10))


def test_a_failure_that_cannot_be_mended_ends_the_task_and_returns_its_lease():
    """Work may run on the slot, so the return is not clean; batches are freed."""
    master = Master()
    master.at_version_1()
    master.arrived(0)
    master.granted()
    assert master.say(words.TaskFailed, reason="EnvError", detail="no such env") == (
        words.ReturnLease(fence=fence(2), clean=False, computed_s=(0.0,)),
        words.DropExperience(key="r1/c0", collector=0, round=1, reason="task failed"),
        words.PhaseEntered(phase="ended", round=1),
        words.EndTask(state="failed", reason="EnvError\nno such env"),
    )


def test_the_hold_planner_changes_at_the_next_round():
    """A person's choice does not disturb the round that runs."""
    master = Master()
    master.at_version_1()
    assert master.set("leasing.hold", "last") == ()
    assert of(words.RequestSlot, master.arrived(0))
    master.arrived(1)
    master.granted()
    master.computed(0)
    master.computed(1)
    master.made()
    master.committed()
    master.completed()
    assert only(HoldPlanned, master.arrived(0)).action == "wait"


def test_an_unknown_hold_planner_is_refused():
    """The answer lists the planners; the present one stays.  Keys that are not the round's are left to others."""
    master = Master()
    master.at_version_1()
    assert master.set("leasing.hold", "never") == (
        RequestRefused(subject="leasing.hold", reason="hold planner must be one of round, yield, last, got 'never'"),
    )
    assert master.set("leasing.ttl_s", 5.0) == ()
    master.to_commit()
    assert master.machine.state.names["hold"] == "round"


def test_events_that_only_close_a_command_change_nothing():
    """The pool's receipt of a returned lease and a deadline give no answer."""
    master = Master()
    master.at_version_1()
    assert master.say(words.LeaseClosed, fence=fence(1)) == ()
    assert master.deadline("any") == ()


@pytest.mark.parametrize("t", [-1.0, float("nan")])
def test_time_that_runs_backwards_is_a_defect(t):
    """The error shows machine, phase and the last records."""
    master = Master()
    master.at_version_1()
    with pytest.raises(InvalidTransition, match=r"round of a in state collecting cannot take ResumeAsked"):
        master.machine.handle(words.ResumeAsked(t=t))


def test_a_task_is_opened_first_and_once():
    """Whatever comes before `TaskOpened`, and a second one, is a defect of the driver."""
    master = Master()
    with pytest.raises(InvalidTransition, match="state new cannot take ResumeAsked"):
        master.machine.handle(words.ResumeAsked(t=0.0))
    master.opened()
    with pytest.raises(InvalidTransition, match="state waiting cannot take TaskOpened"):
        master.opened()


def test_an_event_of_another_machine_is_a_defect():
    """The round machine has no rule for the lease table's words."""
    master = Master()
    event = SlotRequested(t=0.0, request_id="x", task="a", attempt=1, round=1, node="n0")
    with pytest.raises(InvalidTransition, match="SlotRequested"):
        master.machine.handle(event)


def test_a_broken_invariant_is_named():
    """`check` says in words what does not hold."""
    master = Master()
    master.at_version_1()
    master.machine.state.crew.publication.hosts["n0"] = 7
    with pytest.raises(AssertionError, match="no host is ahead of the task"):
        master.machine.check()


def test_defaults():
    """The defaults of a round are behaviour: a checkpoint each 10 rounds, 20 restarts, 3 deaths, no ring."""
    assert dict(ROUND_DEFAULTS) == {
        "planners": {
            "hold": "yield", "warmup": "saa", "batching": "jump-reset", "collect": "equal", "swapping": "auto",
            "distribution": "auto", "placement": "ect",
        },
        "warmup": {},
        "swapping": {},
        "seed": 0,
        "epoch_steps": 0,
        "unswapped": "",
        "can_respawn": False,
        "checkpoint_every": 10,
        "checkpoint_min_s": 5.0,
        "checkpoint_max_s": 120.0,
        "checkpoint_cost_frac": 0.05,
        "stats_window_size": 100,
        "n_eval_episodes": 20,
        "eval_freq": 0,
        "eval_episodes": 5,
        "eval_deterministic": True,
        "eval_keep_best": False,
        "max_collector_restarts": 20,
        "env_timeout_s": 60.0,
        "max_collector_errors": 3,
        "max_executor_deaths": 3,
        "streams": False,
        "n_learners": 1,
        "batching": {},
        "n_samples": 0,
        "batch_size": 0,
        "switch_limit_frac": 0.2,
        "replay": False,
        "max_replay_losses": 5,
        "n_replay_losses": 0,
    }  # fmt: skip
    machine = RoundMachine({"task": "a", "n_envs": 1, "n_collectors": 1, "n_steps": 1, "total_timesteps": 1})
    assert machine.state.names["hold"] == "yield"


def test_2_13_the_shares_of_a_round_are_planned_once_for_all_nodes():
    """Mechanism 2-13: in steps of environments, before the round; two nodes get the version one after the other."""
    master = Master(n_collectors=2, n_rounds=9, planners={"hold": "round", "collect": "proportional"})
    master.at_version_1("n0", "n1")
    for collector, collect_s in ((0, 4.0), (1, 12.0)):
        master.arrived(collector, collect_s=collect_s)
    master.granted(), master.computed(0), master.computed(1), master.made(), master.committed()
    first, second = master.completed("n0"), master.completed("n1")
    # .5 and 1.5 s per sample, 16 samples: 12 on the fast node, 4 on the slow one
    assert only(BatchPlanned, first) == BatchPlanned(
        round=2, planner="proportional", collectors=(0, 1), n_steps=(12, 4)
    )
    assert not of(BatchPlanned, second)
    woken = [only(WakeCollector, first), only(WakeCollector, second)]
    assert [(wake.collector, wake.n_steps, wake.n_timesteps) for wake in woken] == [(0, 12, 16), (1, 4, 16)]
