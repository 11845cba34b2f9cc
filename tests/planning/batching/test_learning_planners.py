"""A planner of batching that learns through ``observe``: the machine keeps what it remembers."""

import pytest
from round_words import N_STEPS, Master, of, only

from drlnb.planning.batching import COLLECT, BatchReport
from drlnb.planning.registry import PlannerFailed
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns.batching import BatchPlanned
from drlnb.records.journal import Stream, StreamOpened
from tests.learners import InTurn, Learns


def stream(master):
    """Return a master's journal."""
    header = StreamOpened(
        stream="task-a-a1", machine="round", config=master.machine.config, origin="simulated", version="0"
    )
    return Stream(header=header, records=tuple(master.records), torn=False, source="a")


def trained(planner, monkeypatch, *, own, n_rounds=5, **more):
    """Return a master whose second collector is slower, after some rounds, and what was planned for each."""
    monkeypatch.setitem(COLLECT._entries, "learns", (lambda: planner, {}))
    planners = {"hold": "round", "collect": "own:learns" if own else "learns"}
    master = Master({"collect": planner} if own else None, n_rounds=99, planners=planners, **more)
    master.at_version_1()
    for _ in range(n_rounds):
        master.arrived(0, collect_s=1.0)
        master.arrived(1, collect_s=2.0)
        if master.phase == "ended":
            break
        master.granted()
        master.computed(0)
        master.computed(1)
        master.made()
        master.committed()
        if master.phase == "ended":
            break
        master.completed()
    return master, [plan.n_steps for plan in of(BatchPlanned, master.records)]


@pytest.mark.parametrize("own", [False, True])
def test_it_plans_by_what_it_has_seen_and_replays(own, monkeypatch):
    """A step more moves after each round, up to three, as worked by hand; copies restored from JSON answer alike."""
    master, planned = trained(Learns(), monkeypatch, own=own)
    assert planned == [(N_STEPS + k, N_STEPS - k) for k in (0, 1, 2, 3, 3, 3)]
    (memory,) = master.machine.state.memories.values()
    assert memory == {"n_rounds": 5, "fast": 0, "slow": 1}
    assert replay(stream(master)).difference is None


def test_what_it_remembers_is_in_the_checkpoint_and_comes_back(monkeypatch):
    """Another attempt goes on from it; a planner of another name does not get it."""
    master, _ = trained(Learns(), monkeypatch, own=False, n_rounds=2)
    master.say(words.CheckpointAsked)
    master.to_commit()
    saved = only(words.WriteCheckpoint, master.records).memories
    assert saved == {"collect:learns": {"n_rounds": 3, "fast": 0, "slow": 1}}
    for name, moved in (("learns", 3), ("equal", 0)):
        again = Master(n_rounds=99, planners={"hold": "round", "collect": name})
        again.say(
            words.TaskOpened, attempt=2, version=4, n_rounds=3, n_timesteps=48, elapsed_s=1.0, episodes=(), n_bytes=100,
            memories=saved,
        )  # fmt: skip
        again.placed("n0", "n0")
        again.ready(0)
        again.ready(1)
        again.completed()
        assert only(BatchPlanned, again.records).n_steps == (N_STEPS + moved, N_STEPS - moved)


@pytest.mark.parametrize("own", [False, True])
def test_one_that_cannot_learn_ends_its_task_in_one_line(own, monkeypatch):
    """As one that cannot plan does; and the replay ends there, too."""
    master, planned = trained(Learns(fails=2), monkeypatch, own=own)
    assert len(planned) == 2
    end = only(words.EndTask, master.records)
    name = "own:learns" if own else "learns"
    line = f"round 2: collect planner {name} raised ValueError as it learned: no idea"
    assert (end.state, end.reason) == ("failed", line)
    assert replay(stream(master)).difference is None


@pytest.mark.parametrize("memory", [{1, 2}, float("nan"), object()])
def test_what_it_remembers_is_plain_data(memory):
    """Anything else would be lost with the process."""
    planner = Learns()
    planner.observe = lambda *_: memory
    report = BatchReport(
        round=1, members=("0",), sizes=(1,), n_done=(1,), compute_s=(1.0,), elapsed_s=(None,), duration_s=1.0
    )
    with pytest.raises(PlannerFailed, match=r"collect planner learns raised .* as it learned: .*JSON"):
        COLLECT.observe(planner, None, report)
    planner.observe = lambda *_: {"a": (1, 2)}
    assert COLLECT.observe(planner, None, report) == {"a": [1, 2]}, "as a snapshot gives it back"
    assert COLLECT.observe(InTurn(), "kept", report) == "kept", "who does not learn changes nothing"
